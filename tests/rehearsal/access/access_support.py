# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet of one node, and playbooks over it with the account of access/bindings instead of the administrator's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import yaml

from rehearsal.apiserver.attributes import attributes_of

ROOT = Path(__file__).resolve().parents[3]
ACCOUNT = "railyard"
OPERATOR, NETWORKS, LEASES = "nvidia-network-operator", "default", "kube-node-lease"
PLACES = {OPERATOR: "operator", NETWORKS: "networks", LEASES: "leases", "": "cluster"}
HOSTS = {
    "all": {
        "vars": {
            "rails": [
                {"pci": "0000:0c:00.0", "netdev": "rdma0", "gpu_pci": "0000:0f:00.0"},
                {"pci": "0000:2a:00.0", "netdev": "rdma1", "gpu_pci": "0000:2d:00.0"},
            ],
            "rails_network": "sriov",
            "rails_resource_scope": "rail",
            "rails_mtu": 4220,
            "rails_ip_family": "ipv4",
            "rails_traffic_class": 41,
            "rails_max_unavailable": "100%",
            "rails_findings_tolerated": ["POL-012"],  # both nodes at once: one round of drains is enough here
            "rails_netns_mode": "shared",
            "rails_node_selector": {"rehearsal/rails": "a"},
            "rehearsal_initial_mode": "shared",
        },
        "children": {"gpu_nodes": {"hosts": {"gpu-1": {}, "gpu-2": {}}}},
    }
}


@dataclass(frozen=True, order=True)
class Need:
    """One right, as access/rights.yml writes it."""

    place: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        name = f", name {self.name}" if self.name else ""
        return f"in: {self.place}, group: {self.group or '(core)'}, resource: {self.resource}, verb: {self.verb}{name}"


def needs_of(row: dict[str, Any]) -> list[Need]:
    """The rights that a line of the API server's log used, or would have: two for an apply that makes something and for
    exec. None for requests that are about no resource.
    """
    asked = attributes_of(row["method"], row["path"], dict(parse_qsl(row["query"])))
    if asked.path:
        return []
    of_namespace = asked.resource == "namespaces"
    place = "cluster" if of_namespace else PLACES.get(asked.namespace, asked.namespace)
    verbs = [asked.verb]
    if asked.verb == "patch" and row["status"] == 201 or asked.subresource == "exec":
        verbs.append("create")
    return [Need(place, asked.group, asked.full_resource, verb, asked.name) for verb in verbs]


class Site:
    """The fleet, accounts and what they asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        self.hosts = folder / "hosts.json"
        self.hosts.write_text(json.dumps(HOSTS))
        self.kubectl = ROOT / ".cache" / "bin" / "kubectl"

    def up(self) -> None:
        self.run(sys.executable, "-m", "rehearsal", "up", "--state", str(self.state), "-i", str(self.hosts))
        for namespace in (ACCOUNT, OPERATOR):
            self.admin("create", "namespace", namespace)
        self.admin("apply", "-f", str(ROOT / "access" / "roles"), "-f", str(ROOT / "access" / "bindings"))

        self._workload()

    def _workload(self) -> None:
        """A pod on the node that has a controller, so that a drain has something to evict."""
        labels = {"app": "web"}
        pod = {"nodeName": "gpu-1", "containers": [{"name": "web", "image": "web:1"}]}
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
        self._apply({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": spec})
        uid = self.admin("get", "replicaset", "web", "-o", "jsonpath={.metadata.uid}").strip()
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": True}
        meta = {"name": "web-0", "labels": labels, "ownerReferences": [owner]}
        self._apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})

    def _apply(self, obj: dict[str, Any]) -> None:
        path = self.folder / f"{obj['kind']}.json"
        path.write_text(json.dumps(obj))
        self.admin("apply", "--namespace", NETWORKS, "-f", str(path))

    def down(self) -> None:
        self.run(sys.executable, "-m", "rehearsal", "down", "--state", str(self.state))

    def run(self, *command: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
        values = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **(environment or {})}
        values["PATH"] = os.pathsep.join(
            [str(Path(sys.executable).parent), str(ROOT / ".cache" / "bin"), values["PATH"]]
        )
        done = subprocess.run(command, cwd=ROOT, env=values, capture_output=True, text=True, timeout=900, check=False)
        if environment is None and done.returncode:
            raise AssertionError(f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done

    def admin(self, *words: str, context: str = "rehearsal") -> str:
        config = ["--kubeconfig", str(self.state / "kubeconfig"), "--context", context]
        return self.run(str(self.kubectl), *config, *words).stdout

    def kubeconfig(self, account: str) -> Path:
        """A kubeconfig of an account of namespace railyard."""
        config = yaml.safe_load((self.state / "kubeconfig").read_text())
        token = self.admin("create", "token", account, "--namespace", ACCOUNT, context="guarded").strip()
        config["current-context"] = "guarded"
        next(user for user in config["users"] if user["name"] == "guarded")["user"]["token"] = token
        path = self.state / f"kubeconfig-{account}"
        path.touch(0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    def play(self, playbook: str, account: str, **variables: object) -> subprocess.CompletedProcess:
        """Run a playbook with an account: its environment names the account's kubeconfig, and localhost has no interpreter
        that names another."""
        config = self.kubeconfig(account)
        own = self.state / f"inventory-{account}.json"
        interpreter = "{{ ansible_playbook_python }}"
        own.write_text(json.dumps({"all": {"hosts": {"localhost": {"ansible_python_interpreter": interpreter}}}}))
        sources = ["-i", str(self.hosts), "-i", str(self.state / "inventory.yml"), "-i", str(own)]
        program = str(Path(sys.executable).parent / "ansible-playbook")
        environment = {"KUBECONFIG": str(config), "K8S_AUTH_KUBECONFIG": str(config)}
        words = [program, f"playbooks/{playbook}.yml", *sources, "-e", json.dumps(variables)]
        return self.run(*words, environment=environment)

    def asked(self, account: str) -> list[tuple[dict[str, Any], Need]]:
        """(line of the log, right) of all requests of an account."""
        user = f"system:serviceaccount:{ACCOUNT}:{account}"
        lines = (self.state / "logs" / "apiserver.jsonl").read_text().splitlines()
        rows = [row for row in map(json.loads, lines) if row.get("user") == user]
        return [(row, need) for row in rows for need in needs_of(row)]
