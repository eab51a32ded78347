# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every single right of access/roles: with it the API answers, without it our client names it and the file that has it.

The roles and bindings are the files as a site applies them, except that one right at a time is taken out.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import auth
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError

ROOT = Path(__file__).parents[3]
ACCESS, CHART = ROOT / "access", ROOT / "rehearsal" / "charts" / "network-operator"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH"}
#: Only where the kind must be served: create by apply is asked for after the kind is found.
VERSIONS = {"mellanox.com": "v1alpha1"}
METHODS |= {"delete": "DELETE", "deletecollection": "DELETE"}


def documents(path: Path) -> list[dict]:
    return list(yaml.safe_load_all(path.read_text()))


def atoms() -> list[tuple]:
    """(playbook, ClusterRole, group, resource, name, verb) of all rules; the name is "" where a rule has none."""
    found = []
    for path in sorted((ACCESS / "roles").glob("*.yml")):
        for role in documents(path):
            for rule in role["rules"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for name in rule.get("resourceNames", [""]):
                            group = rule["apiGroups"][0]
                            found.append((path.stem, role["metadata"]["name"], group, resource, name, verb))
    return found


ATOMS = [atom for atom in atoms() if atom[0] != "site"]
SITE = [atom for atom in atoms() if atom[0] == "site"]


def rules_of(rows: list[tuple]) -> list[dict]:
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": [verb], **({"resourceNames": [name]} if name else {})}
        for _playbook, _role, group, resource, name, verb in rows
    ]


class Accounts:
    """The accounts of access/bindings, each with a client of its own."""

    def __init__(self, cluster, folder: Path) -> None:
        self.admin, self.folder = cluster.api(), folder
        self.config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
        self.clients, self.places = {}, {}
        for namespace in ("railyard", "nvidia-network-operator"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            self.admin.request("POST", "/api/v1/namespaces", body=body)
        for crd in documents(CHART / "crds" / "mellanox.com.yaml"):
            self.admin.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=crd)
        for path in [*sorted((ACCESS / "roles").glob("*.yml")), *sorted((ACCESS / "bindings").glob("*.yml"))]:
            for obj in documents(path):
                self._create(obj)

    def _create(self, obj: dict) -> None:
        meta = obj["metadata"]
        root = "/api/v1" if obj["kind"] == "ServiceAccount" else RBAC
        where = f"/namespaces/{meta['namespace']}" if meta.get("namespace") else ""
        self.admin.request("POST", f"{root}{where}/{obj['kind'].lower()}s", body=obj)
        if obj["kind"].endswith("Binding"):
            self.places[obj["roleRef"]["name"]] = meta.get("namespace")

    def client(self, playbook: str) -> Api:
        if playbook not in self.clients:
            account = f"railyard-{playbook.replace('_', '-')}"
            path = f"/api/v1/namespaces/railyard/serviceaccounts/{account}/token"
            token = self.admin.request("POST", path, body={})["status"]["token"]
            config = json.loads(json.dumps(self.config))
            config["current-context"] = "guarded"
            next(user for user in config["users"] if user["name"] == "guarded")["user"]["token"] = token
            file = self.folder / account
            file.write_text(yaml.safe_dump(config))
            self.clients[playbook] = Api(auth.transport_for({"kubeconfig": str(file)}), attempts=1)
        return self.clients[playbook]

    def set_rules(self, role: str, rules: list[dict]) -> None:
        body = {"rules": rules}
        self.admin.request(
            "PATCH", f"{RBAC}/clusterroles/{role}", body=body, content_type="application/merge-patch+json"
        )


@pytest.fixture(scope="module")
def accounts(cluster, tmp_path_factory):
    return Accounts(cluster, tmp_path_factory.mktemp("accounts"))


def ask(client: Api, namespace: str | None, atom: tuple) -> ApiError | None:
    """Use one right; the error, None for an answer. Nothing is really changed, since each write has no content."""
    _playbook, _role, group, resource, name, verb = atom
    plural, _, subresource = resource.partition("/")
    path = f"/apis/{group}/{VERSIONS.get(group, 'v1')}" if group else "/api/v1"
    own = plural == "namespaces"
    path += f"/namespaces/{namespace or 'default'}" if subresource and not own or namespace else ""
    path += f"/{plural}"
    query, body, media, method = [("dryRun", "All")], {}, "application/json", METHODS.get(verb)
    if verb == "list":
        query = [("limit", "1")] + ([("fieldSelector", f"metadata.name={name}")] if name else [])
    elif verb == "watch":
        query = [("watch", "true"), ("timeoutSeconds", "0.1"), ("fieldSelector", "metadata.name=none")]
    elif verb == "create" and name:
        # Only an apply creates with a name.
        method, media, query = "PATCH", "application/apply-patch+yaml", [*query, ("fieldManager", "x")]
    if verb not in ("list", "watch", "deletecollection") and (verb != "create" or name or subresource):
        path += f"/{name or 'an-object'}" + (f"/{subresource}" if subresource else "")
    try:
        client.request(
            method, path, query, None if method in ("GET", "DELETE") else json.dumps(body), media, attempts=1
        )
    except ApiError as error:
        # A watch that ends at once has no JSON.
        return None if verb == "watch" and "no JSON" in error.message else error
    return None


def name_of(atom: tuple) -> str:
    playbook, role, group, resource, name, verb = atom
    return "-".join(filter(None, [role.removeprefix("railyard-"), verb, resource, group, name]))


@pytest.mark.parametrize("atom", [a for a in ATOMS if a[5] not in ("escalate", "bind")], ids=name_of)
def test_a_right_is_enough_and_without_it_the_error_says_which(accounts, atom):
    playbook, role, group, resource, name, verb = atom
    namespace = accounts.places[role]
    rows = [other for other in ATOMS if other[1] == role]
    client = accounts.client(playbook)
    answer = ask(client, namespace, atom)
    assert answer is None or answer.status != 403, answer.message

    accounts.set_rules(role, rules_of([other for other in rows if other != atom]))
    try:
        refused = ask(client, namespace, atom)
    finally:
        accounts.set_rules(role, rules_of(rows))
    assert refused is not None and refused.status == 403, (
        "another rule of this playbook holds the same right: take one out"
    )
    account = f"system:serviceaccount:railyard:railyard-{playbook.replace('_', '-')}"
    who = account if verb != "create" or not name else "this account"
    place = f"in namespace {namespace}" if namespace else "in"
    told = (
        f"Missing right of {who}: {verb} {resource} ({'API group ' + group if group else 'the core API group'}) {place}"
    )
    assert told in refused.message
    if name:
        assert f"name {name}." in refused.message
    assert f"access/roles/{playbook}.yml" in refused.message or refused.message.count("ClusterRole ") >= 3


def test_site_has_what_its_parts_have():
    parts = yaml.safe_load((ACCESS / "rights.yml").read_text())["playbooks"]["site"]["includes"]

    def rights(rows: list[tuple]) -> set[tuple]:
        return {
            (role.removeprefix(f"railyard-{playbook.replace('_', '-')}"), *right) for playbook, role, *right in rows
        }

    assert rights(SITE) == rights([atom for atom in ATOMS if atom[0] in parts])


@pytest.mark.parametrize("verb", ["escalate", "bind"])
def test_an_installer_without_escalate_or_bind_is_told_so(accounts, verb):
    role = "railyard-install-operator"
    rows = [atom for atom in ATOMS if atom[1] == role]
    client = accounts.client("install_operator")
    meta = {"name": "of-the-chart"}
    stranger = {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["*"]}
    roles, bindings = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    body = {"metadata": meta, "rules": [stranger]} if verb == "escalate" else {"metadata": meta, "roleRef": reference}
    path = roles if verb == "escalate" else bindings
    accounts.set_rules(role, rules_of([row for row in rows if row[5] != verb]))
    with pytest.raises(ApiError) as caught:
        client.request("POST", path, [("dryRun", "All")], body)
    assert "not currently held" in caught.value.message and "access/roles/install_operator.yml" in caught.value.message
    accounts.set_rules(role, rules_of(rows))
    client.request("POST", path, [("dryRun", "All")], body)


@pytest.mark.parametrize("verb", ["escalate", "bind"])
def test_helm_cannot_install_the_chart_without_escalate_and_bind(accounts, verb):
    helm = ROOT / ".cache" / "bin" / "helm"
    if not helm.exists():
        pytest.skip(f"{helm} is not there: make .venv/rehearsal")
    role = "railyard-install-operator"
    rows = [atom for atom in ATOMS if atom[1] == role]
    accounts.client("install_operator")  # writes the kubeconfig
    environment = {**os.environ, "KUBECONFIG": str(accounts.folder / "railyard-install-operator")}
    values = "nfd.deployNodeFeatureRules=false,upgradeCRDs=false,keepNCP=false"
    command = [str(helm), "install", f"network-operator-{verb}", str(CHART), "--set", values, "--create-namespace"]
    command += ["--namespace", "nvidia-network-operator"]

    def install() -> subprocess.CompletedProcess:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    accounts.set_rules(role, rules_of([row for row in rows if row[5] != verb]))
    refused = install()
    accounts.set_rules(role, rules_of(rows))
    assert refused.returncode != 0
    assert "attempting to grant RBAC permissions not currently held" in refused.stderr
    subprocess.run(
        [*command[:1], "uninstall", command[2], *command[-2:]], env=environment, capture_output=True, check=True
    )
    done = install()
    assert done.returncode == 0, done.stderr
