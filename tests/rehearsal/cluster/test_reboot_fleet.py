# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""prepare_nodes over a rehearsal node in a cluster: killed at every stage and finished by the next run, with one
reboot for one change of the mode. The tests run in their order: each leaves the node in the mode that it asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import maintenance

from rehearsal.fleet import checks, control_plane, play
from rehearsal.fleet.state import State

pytestmark = pytest.mark.fleet

ROOT = Path(__file__).resolve().parents[3]
MERGE = "application/merge-patch+json"
NODE, PODS = "/api/v1/nodes/gpu-1", "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
RECORD = "/var/lib/railyard/rdma_netns_reboot.json"
INVENTORY = {
    "all": {
        "vars": {
            "rails": [{"pci": "0000:0c:00.0", "netdev": "rdma0", "gpu_pci": "0000:0f:00.0"}],
            "rails_network": "sriov",
            "rails_resource_scope": "rail",
            "rails_mtu": 4220,
            "rails_ip_family": "ipv4",
            "rails_traffic_class": 41,
            "rails_node_selector": {"rehearsal/rails": "yes"},
            "rails_netns_mode": "shared",
            "rdma_netns_reboot_allowed": True,
            "rdma_netns_progress_interval": 1,
            "rehearsal_initial_mode": "exclusive",
        },
        "children": {"gpu_nodes": {"hosts": {"gpu-1": {}}}},
    }
}


class Run:
    """One run of the playbook, in a process group of its own."""

    def __init__(self, site, *words, **variables):
        self.log = site.folder / f"run-{time.monotonic_ns()}.log"
        sources = ["-i", str(site.inventory), "-i", str(site.state.folder / "inventory.yml")]
        program = str(Path(sys.executable).parent / "ansible-playbook")
        playbook = str(ROOT / "playbooks" / "prepare_nodes.yml")
        command = [program, playbook, *sources, "-e", json.dumps(variables), *words]
        environment = {**site.environment, "PYTHONUNBUFFERED": "1"}
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def text(self):
        return self.log.read_text()

    def end(self, code=0):
        """Wait for the end; the words of its output. Fails the test on another exit code."""
        try:
            assert self.process.wait(1200) == code, self.text[-6000:]
        finally:
            self.kill()
        return " ".join(self.text.split())

    def changed(self, code=0):
        """Number of changes on the node."""
        return int(re.search(r"gpu-1 +: ok=\d+ +changed=(\d+)", self.end(code))[1])

    def until(self, condition, what):
        limit = time.monotonic() + 900  # only ends a test that would hang
        while not condition():
            assert self.process.poll() is None, f"ended before {what}: {self.text[-6000:]}"
            assert time.monotonic() < limit, f"never happened: {what}: {self.text[-6000:]}"
            time.sleep(0.02)

    def kill(self):
        """No handler runs, nothing is cleaned up: as by the kernel's out-of-memory killer. The workers of
        ansible-playbook lead sessions of their own and live on: they must notice."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Site:
    def __init__(self, folder):
        self.folder, self.state = folder, State(folder / "state")
        self.inventory = folder / "hosts.json"
        self.inventory.write_text(json.dumps(INVENTORY))
        self.environment = {**play.environment(self.state), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}

    def command(self, *words):
        command = [sys.executable, "-m", "rehearsal", *words, "--state", str(self.state.folder)]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr

    def call(self, method, path, body=None, content="application/json"):
        code, answer = control_plane.request(self.state, path, body, timeout=30, method=method, content=content)
        assert code < 400, answer
        return json.loads(answer)

    def node(self):
        return self.call("GET", NODE)

    def boot(self):
        """What the node tells of its boot; None while it is down."""
        try:
            return json.loads((self.state.folder / "nodes/gpu-1/boot.json").read_text())
        except FileNotFoundError:
            return None

    def disk(self, path):
        return Path(self.boot()["root"] + path)

    def boots(self):
        return len(self.disk("/var/lib/rehearsal/boots").read_text().split())

    def workload(self, name, **budget):
        """A pod with a controller, and a budget that protects it."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        owner = self.call(
            "POST",
            SETS,
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
            },
        )
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": True}
        reference["uid"] = owner["metadata"]["uid"]
        meta = {"name": f"{name}-0", "namespace": "default", "labels": labels, "ownerReferences": [reference]}
        spec = {**template["spec"], "nodeName": "gpu-1", "terminationGracePeriodSeconds": 1}
        self.call("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        self.call(
            "POST",
            BUDGETS,
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"selector": {"matchLabels": labels}, **budget},
            },
        )
        limit = time.monotonic() + 60
        while self.call("GET", f"{PODS}/{name}-0")["status"].get("phase") != "Running":
            assert time.monotonic() < limit, "the pod does not run"
            time.sleep(0.1)

    def assert_in_service(self, mode, boots):
        node = self.node()
        assert not maintenance.cordoned(node) and maintenance.own_cordon(node) is None
        assert maintenance.is_ready(node) and maintenance.boot_id_of(node) == self.boot()["boot_id"]
        assert (self.boot()["netns_mode"], self.boots()) == (mode, boots)
        assert not self.disk(RECORD).exists()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    lacking = checks.missing()
    if lacking:
        pytest.skip("; ".join(lacking))
    made = Site(tmp_path_factory.mktemp("reboot"))
    made.command("up", "-i", str(made.inventory))
    try:
        yield made
    finally:
        made.command("down")


def test_fc21_a_pool_with_rdma_mode_stops_the_run_before_any_change(site):
    """FC-21, sriov-network-operator#959: the operator would reboot the node for ever."""
    group, plural = "sriovnetwork.openshift.io", "sriovnetworkpoolconfigs"
    names = {
        "kind": "SriovNetworkPoolConfig",
        "plural": plural,
        "singular": "x",
        "listKind": "SriovNetworkPoolConfigList",
    }
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    row = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    body.update(
        metadata={"name": f"{plural}.{group}"},
        spec={"group": group, "scope": "Namespaced", "names": names, "versions": [row]},
    )
    crds, pools = (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        f"/apis/{group}/v1/namespaces/default/{plural}",
    )
    with contextlib.suppress(AssertionError):  # a fleet with the vendor's CRDs has it
        site.call("POST", crds, body)
    limit = time.monotonic() + 30
    while control_plane.request(site.state, pools)[0] != 200:
        assert time.monotonic() < limit, "the kind is not served"
        time.sleep(0.05)
    pool = {"apiVersion": f"{group}/v1", "kind": "SriovNetworkPoolConfig", "metadata": {"name": "rails"}}
    site.call("POST", pools, {**pool, "spec": {"rdmaMode": "exclusive", "nodeSelector": {}}})
    before = site.disk("/etc/modprobe.d/ib_core.conf").read_text()
    text = Run(site).end(code=2)
    assert "SriovNetworkPoolConfig default/rails" in text and "rdmaMode" in text
    assert site.disk("/etc/modprobe.d/ib_core.conf").read_text() == before
    assert not maintenance.cordoned(site.node()) and site.boots() == 1
    site.call("DELETE", f"{pools}/rails")


def test_check_mode_tells_what_would_happen_on_a_fresh_node(site):
    site.workload("keep", minAvailable=1)
    before = site.disk("/etc/modprobe.d/ib_core.conf").read_text()
    text = Run(site, "--check").end()
    assert "gpu-1 would be drained and rebooted once" in text
    assert "Pods to evict: default/keep-0" in text and "PodDisruptionBudget default/keep" in text
    assert site.disk("/etc/modprobe.d/ib_core.conf").read_text() == before
    assert not maintenance.cordoned(site.node()) and site.boots() == 1


def test_killed_while_a_budget_blocks_the_drain(site):
    run = Run(site)
    run.until(lambda: "default/keep (1 of 1 pods healthy, needs 1" in run.text, "the drain that waits")
    run.kill()
    node = site.node()
    assert maintenance.cordoned(node) and maintenance.own_cordon(node)["boot_id"] == site.boot()["boot_id"]
    assert site.boots() == 1
    site.call("DELETE", f"{BUDGETS}/keep")
    Run(site).end()
    site.assert_in_service("shared", 2)
    assert site.call("GET", PODS)["items"] == []
    assert Run(site).changed() == 0
    site.assert_in_service("shared", 2)


def test_killed_while_the_node_reboots(site):
    run = Run(site, rails_netns_mode="exclusive")
    run.until(lambda: site.boot() is None, "the node goes down")
    run.kill()
    Run(site, rails_netns_mode="exclusive").end()
    site.assert_in_service("exclusive", 3)


def test_killed_between_reboot_and_uncordon(site):
    # The kubelet's reports do not reach the API: the node is up, and the cluster does not know.
    fault = {"method": "PATCH", "path": "/nodes/gpu-1/status", "status": 503, "count": 10**6}
    site.call("POST", "/rehearsal/faults", fault)
    run = Run(site)
    run.until(lambda: "has not reported boot" in run.text, "the wait for Ready")
    run.kill()
    assert site.boots() == 4 and maintenance.own_cordon(site.node())
    site.call("DELETE", "/rehearsal/faults")
    Run(site).end()
    site.assert_in_service("shared", 4)


def test_a_node_that_somebody_else_cordoned_stays_cordoned_and_a_reboot_is_not_repeated(site):
    site.call("PATCH", NODE, {"spec": {"unschedulable": True}}, MERGE)
    # A run that may not reboot prepares all, so that the next one has changed nothing when it thinks of the reboot.
    assert "needs a reboot" in Run(site, rails_netns_mode="exclusive", rdma_netns_reboot_allowed=False).end(code=2)
    record = site.disk(RECORD)
    record.write_text(json.dumps({"mode": "exclusive", "boot_id": "an earlier one", "at": "2026-11-29T18:00:00Z"}))
    text = Run(site, rails_netns_mode="exclusive").end(code=2)
    assert "was rebooted into mode exclusive at 2026-11-29T18:00:00Z and is not in it" in text and site.boots() == 4
    record.write_text("{")
    assert "the note of an earlier reboot cannot be read" in Run(site, rails_netns_mode="exclusive").end(code=2)
    assert site.boots() == 4
    record.unlink()
    Run(site, rails_netns_mode="exclusive").end()
    node = site.node()
    assert maintenance.cordoned(node) and maintenance.own_cordon(node) is None
    assert (site.boot()["netns_mode"], site.boots()) == ("exclusive", 5)
