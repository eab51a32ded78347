# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real clients against the server as a process: kubectl, Helm 4, Ansible's kubernetes.core, the Python client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from .conftest import REPO, deployment, pod, tool, widget, widget_crd


@pytest.fixture
def kubectl(cluster):
    program = tool("kubectl")
    return lambda *argv, **options: cluster.run(program, *argv, **options)


def text(*objects: dict) -> str:
    return yaml.safe_dump_all(objects)


def test_only_those_who_read_the_kubeconfig_reach_the_server(cluster):
    """Other users of the machine share its loopback; the path in the server's URL is the secret."""
    path = cluster.state / "kubeconfig"
    assert path.stat().st_mode & 0o777 == 0o600
    server = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
    with urllib.request.urlopen(f"{server}/api/v1/namespaces") as answer:
        assert answer.status == 200
    address = "/".join(server.split("/")[:3])
    for guess in ("/api/v1/namespaces", "/", "/readyz", "/rehearsal/faults", "/x/api/v1/namespaces"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address + guess)
        assert refused.value.code == 404, guess


def test_kubectl_applies_gets_and_deletes(kubectl):
    kubectl("create", "namespace", "kc")
    body = text(deployment())
    assert "serverside-applied" in kubectl("apply", "--server-side", "-n", "kc", "-f", "-", text=body)
    first = json.loads(kubectl("get", "deploy", "web", "-n", "kc", "-o", "json"))
    kubectl("apply", "--server-side", "-n", "kc", "-f", "-", text=body)
    assert json.loads(kubectl("get", "deploy", "web", "-n", "kc", "-o", "json")) == first
    assert re.search(r"NAME +READY.*\nweb +0/2", kubectl("get", "deployments", "-n", "kc"))
    kubectl("scale", "deploy", "web", "--replicas=3", "-n", "kc")
    refused = kubectl("apply", "--server-side", "-n", "kc", "-f", "-", text=body, code=1)
    assert 'conflict with "kubectl" with subresource "scale" using apps/v1' in refused and ".spec.replicas" in refused
    kubectl("apply", "--server-side", "--force-conflicts", "-n", "kc", "-f", "-", text=body)
    assert "deleted" in kubectl("delete", "namespace", "kc", "--timeout=20s")
    assert "NotFound" in kubectl("get", "namespace", "kc", code=1)


def test_kubectl_client_side_apply_moves_to_server_side(kubectl):
    kubectl("apply", "-f", "-", text=text(deployment("moved")))
    assert "unchanged" in kubectl("apply", "-f", "-", text=text(deployment("moved")))
    changed = deployment("moved", image="nginx:2")
    assert "configured" in kubectl("apply", "-f", "-", text=text(changed))
    assert "Warning" not in kubectl("apply", "--server-side", "-f", "-", text=text(changed))
    managers = json.loads(kubectl("get", "deploy", "moved", "-o", "json", "--show-managed-fields"))["metadata"][
        "managedFields"
    ]
    assert ("kubectl", "Apply") in {(row["manager"], row["operation"]) for row in managers}


def test_kubectl_custom_resources(kubectl):
    kubectl("apply", "--server-side", "-f", "-", text=text(widget_crd()))
    kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s")
    assert 'unknown field "spec.nope"' in kubectl("apply", "-f", "-", text=text(widget(nope=1)), code=1)
    assert 'Warning: unknown field "spec.nope"' in kubectl(
        "apply", "--validate=warn", "-f", "-", text=text(widget(nope=1))
    )
    assert 'supported values: "red", "blue"' in kubectl("apply", "-f", "-", text=text(widget(colour="x")), code=1)
    assert "colour" in kubectl("explain", "widget.spec")
    assert "w " in kubectl("get", "widgets", "--sort-by=.metadata.name")
    kubectl("delete", "crd", "widgets.example.com", "--timeout=20s")
    assert "the server could not find the requested resource" in kubectl("get", "widgets", code=1)


def test_kubectl_watch_sees_changes(kubectl, cluster):
    command = [tool("kubectl"), "get", "configmap", "-w", "-o", "name", "--field-selector=metadata.name=seen"]
    with subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, text=True) as watcher:
        try:
            kubectl("create", "configmap", "unseen")
            kubectl("create", "configmap", "seen", "--from-literal=a=b")
            assert watcher.stdout.readline() == "configmap/seen\n"
            kubectl("label", "configmap", "seen", "a=b")
            assert watcher.stdout.readline() == "configmap/seen\n"
        finally:
            watcher.terminate()


def test_kubectl_exec_errors(kubectl):
    kubectl("create", "-f", "-", text=text(pod("idle"), pod("lost", nodeName="gone")))
    assert "pod idle does not have a host assigned" in kubectl("exec", "idle", "--", "true", code=1)
    assert 'nodes "gone" not found' in kubectl("exec", "lost", "--", "true", code=1)
    assert 'pods "none" not found' in kubectl("exec", "none", "--", "true", code=1)


def test_kubectl_drain_evicts(kubectl):
    kubectl("create", "-f", "-", text=text({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}))
    kubectl("create", "-f", "-", text=text(pod("busy", nodeName="n1", terminationGracePeriodSeconds=0)))
    output = kubectl("drain", "n1", "--force", "--timeout=20s")
    assert "evicting pod default/busy" in output and "node/n1 drained" in output
    assert "SchedulingDisabled" in kubectl("get", "node", "n1")
    kubectl("uncordon", "n1")


class Workloads(threading.Thread):
    """Does for Jobs and Deployments what their controllers do, over the API, as long as the server lives."""

    READY = {"updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2, "replicas": 2}

    def __init__(self, client, kind: str, version: str) -> None:
        super().__init__(daemon=True)
        self.resource = client.resources.get(api_version=version, kind=kind)
        self.done: list[str] = []

    def run(self) -> None:
        for event in self.resource.watch(timeout=110):
            obj = event["raw_object"]
            if event["type"] == "DELETED" or (obj.get("status") or {}).get("conditions"):
                continue
            self.done.append(obj["metadata"]["name"])
            if obj["kind"] == "Job":
                finished = [{"type": name, "status": "True"} for name in ("SuccessCriteriaMet", "Complete")]
                status = {"succeeded": 1, "conditions": finished, "startTime": "2026-01-01T00:00:00Z"}
            else:
                states = [{"type": "Available", "status": "True"}]
                states.append({"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"})
                status = {**self.READY, "conditions": states, "observedGeneration": obj["metadata"]["generation"]}
            meta = {"name": obj["metadata"]["name"], "namespace": obj["metadata"]["namespace"]}
            body = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": meta, "status": status}
            self.resource.status.patch(body=body, content_type="application/merge-patch+json", **meta)


@pytest.fixture
def dynamic(cluster):
    kubernetes = pytest.importorskip("kubernetes")
    from kubernetes.dynamic import DynamicClient

    cache = str(cluster.state / "discovery.json")
    config = str(cluster.state / "kubeconfig")
    return DynamicClient(kubernetes.config.new_client_from_config(config), cache_file=cache)


HOOK = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "hook",
        "annotations": {
            "helm.sh/hook": "pre-install,pre-upgrade",
            "helm.sh/hook-delete-policy": "before-hook-creation",
        },
    },
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]}}},
}


def chart(folder: Path) -> Path:
    """A chart with a CRD, an object of its kind, a hook Job, a Deployment with a Service, RBAC and a value."""
    (folder / "templates").mkdir(parents=True)
    (folder / "crds").mkdir()
    (folder / "Chart.yaml").write_text(
        text({"apiVersion": "v2", "name": "tiny", "version": "0.1.0", "kubeVersion": ">= 1.32-0"})
    )
    (folder / "crds" / "widgets.yaml").write_text(text(widget_crd()))
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    service["spec"] = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "tiny"},
        "rules": rules,
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tiny"}}
    (folder / "templates" / "all.yaml").write_text(
        text(HOOK, service, role, account, widget("from-chart"), deployment("web"))
    )
    values = 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {value: "{{ .Values.value }}"}\n'
    (folder / "templates" / "settings.yaml").write_text(values)
    (folder / "values.yaml").write_text("value: one\n")
    return folder


def test_helm_installs_upgrades_and_uninstalls(cluster, dynamic, tmp_path):
    helm, folder = tool("helm"), str(chart(tmp_path / "tiny"))
    workers = [Workloads(dynamic, "Job", "batch/v1"), Workloads(dynamic, "Deployment", "apps/v1")]
    for worker in workers:
        worker.start()
    flags = ("-n", "helm-test", "--wait", "--timeout", "60s")
    assert "STATUS: deployed" in cluster.run(helm, "install", "t", folder, "--create-namespace", *flags)
    settings = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    assert settings.get(name="settings", namespace="helm-test").data.value == "one"
    widgets = dynamic.resources.get(api_version="example.com/v1", kind="Widget")
    assert widgets.get(name="from-chart", namespace="helm-test").spec.size == 1
    assert "REVISION: 2" in cluster.run(helm, "upgrade", "t", folder, "--set", "value=two", *flags)
    assert settings.get(name="settings", namespace="helm-test").data.value == "two"
    assert workers[0].done == ["hook", "hook"] and "web" in workers[1].done
    releases = json.loads(cluster.run(helm, "list", "-A", "-o", "json"))
    assert [(row["name"], row["revision"], row["status"]) for row in releases] == [("t", "2", "deployed")]
    secrets = dynamic.resources.get(api_version="v1", kind="Secret").get(
        namespace="helm-test", label_selector="owner=helm"
    )
    assert {secret.type for secret in secrets.items} == {"helm.sh/release.v1"}
    assert 'release "t" uninstalled' in cluster.run(helm, "uninstall", "t", *flags)
    kinds = {item.metadata.name for item in settings.get(namespace="helm-test").items}
    assert "settings" not in kinds


def test_python_dynamic_client_applies(dynamic):
    from kubernetes.dynamic.exceptions import ConflictError, DynamicApiError

    crds = dynamic.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    crds.server_side_apply(body=widget_crd(), name="widgets.example.com", field_manager="test", force_conflicts=True)
    dynamic.resources.invalidate_cache()
    widgets = dynamic.resources.get(api_version="example.com/v1", kind="Widget")

    def apply(manager: str = "railyard", dry_run: str | None = None, **spec):
        options = {"dry_run": dry_run} if dry_run else {}
        return widgets.server_side_apply(
            body=widget("py", **spec),
            name="py",
            namespace="default",
            field_manager=manager,
            field_validation="Strict",
            **options,
        )

    first = apply(size=3)
    assert apply(size=3).metadata.resourceVersion == first.metadata.resourceVersion
    assert apply(size=4, dry_run="All").spec.size == 4
    assert widgets.get(name="py", namespace="default").spec.size == 3
    with pytest.raises(ConflictError) as conflict:
        apply(manager="other", size=5)
    causes = json.loads(conflict.value.body)["details"]["causes"]
    assert causes == [{"reason": "FieldManagerConflict", "message": 'conflict with "railyard"', "field": ".spec.size"}]
    with pytest.raises(DynamicApiError) as refused:
        apply(nope=1)
    assert ".spec.nope: field not declared in schema" in str(refused.value.body)


PLAY = """
- name: Objects through kubernetes.core
  hosts: localhost
  connection: local
  gather_facts: false
  vars:
    widget:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: play, namespace: play}
      data: {a: "1"}
  tasks:
    - name: Make the namespace
      kubernetes.core.k8s: {api_version: v1, kind: Namespace, name: play, state: present}
    - name: Create
      kubernetes.core.k8s: {definition: "{{ widget }}"}
      register: created
    - name: Create again
      kubernetes.core.k8s: {definition: "{{ widget }}"}
      register: again
    - name: Change by server-side apply in check mode
      kubernetes.core.k8s:
        definition: "{{ widget | combine({'data': {'a': '2'}}) }}"
        apply: true
        server_side_apply: {field_manager: play, force_conflicts: true}
      check_mode: true
      register: checked
    - name: Change by server-side apply
      kubernetes.core.k8s:
        definition: "{{ widget | combine({'data': {'a': '2'}}) }}"
        apply: true
        server_side_apply: {field_manager: play, force_conflicts: true}
      register: applied
    - name: Look
      kubernetes.core.k8s_info: {api_version: v1, kind: ConfigMap, namespace: play, label_selectors: ["!absent"]}
      register: seen
    - name: Delete and wait
      kubernetes.core.k8s: {api_version: v1, kind: Namespace, name: play, state: absent, wait: true, wait_sleep: 1}
      register: deleted
    - name: Judge
      ansible.builtin.assert:
        that:
          - created is changed
          - again is not changed
          - checked is changed
          - applied is changed
          - applied.result.data.a == '2'
          - seen.resources | length == 1
          - deleted is changed
"""


def test_ansible_modules(cluster, tmp_path):
    if not (REPO / "collections" / "ansible_collections" / "kubernetes").is_dir():
        pytest.skip("the collection kubernetes.core is not installed")
    play = tmp_path / "play.yml"
    play.write_text(PLAY)
    program = Path(sys.executable).with_name("ansible-playbook")
    if not program.exists():
        pytest.skip("ansible-playbook is not installed beside this Python")
    inventory = f"localhost ansible_python_interpreter={sys.executable},"
    hosts = tmp_path / "hosts"
    hosts.write_text(inventory.rstrip(",") + "\n")
    output = cluster.run(str(program), "-i", str(hosts), str(play))
    assert "failed=0" in output


def test_absent_folder_of_crds_is_told_before_the_start(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "rehearsal.apiserver", "--state", str(tmp_path), "--crds", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        cwd=REPO,
        check=False,
    )
    assert done.returncode == 2 and "is not a folder" in done.stderr and not (tmp_path / "kubeconfig").exists()


def test_kubeconfig_is_private_and_on_loopback(cluster):
    path = cluster.state / "kubeconfig"
    server = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}", server) and path.stat().st_mode & 0o777 == 0o600
