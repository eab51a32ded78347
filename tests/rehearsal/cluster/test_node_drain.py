# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""node_drain over an API server that evicts by disruption budgets and fails on demand."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.request
from pathlib import Path

import pytest
import yaml
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import maintenance
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError
from ansible_collections.railyard.rdma.plugins.modules import cluster_facts, node_drain

NODE, PODS = "/api/v1/nodes/gpu-9", "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SETS = "/apis/apps/v1/namespaces/default"
MERGE = "application/merge-patch+json"
DESIRED, CURRENT = maintenance.STATE_ANNOTATIONS


class Site:
    """A node whose kubelet is a thread that ends the pods that are to end."""

    def __init__(self, cluster):
        self.cluster, self.api = cluster, cluster.api()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kubelet, args=(cluster.api(),), daemon=True)

    def start(self):
        meta = {"name": "gpu-9", "labels": {"rack": "7"}}
        self.api.request("POST", "/api/v1/nodes", body={"apiVersion": "v1", "kind": "Node", "metadata": meta})
        self.status(boot="b1", ready="True")
        self._thread.start()

    def stop(self):
        self._over.set()
        self._thread.join(30)
        self.faults("DELETE")
        self.wipe(BUDGETS)
        for pod in self.pods():
            self.end(self.api, pod)
        self.api.request("DELETE", NODE)

    def wipe(self, path):
        for item in self.api.list_items(path):
            with contextlib.suppress(ApiError):
                self.api.request("DELETE", f"{path}/{item['metadata']['name']}")

    def _kubelet(self, api):
        while not self._over.wait(0.1):
            with contextlib.suppress(ApiError):
                for pod in api.list_items(PODS):
                    if pod["metadata"].get("deletionTimestamp") and "hold" not in pod["metadata"].get("labels", {}):
                        self.end(api, pod)

    @staticmethod
    def end(api, pod):
        with contextlib.suppress(ApiError):
            api.request("DELETE", f"{PODS}/{pod['metadata']['name']}", body={"gracePeriodSeconds": 0})

    def faults(self, verb, **fault):
        """The faults of the API server that wait; POST adds one, DELETE takes all away."""
        server = yaml.safe_load(Path(self.cluster.kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
        data = json.dumps(fault).encode() if fault else None
        request = urllib.request.Request(f"{server}/rehearsal/faults", data=data, method=verb)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def status(self, boot, ready):
        condition = {"type": "Ready", "status": ready, "reason": "Kubelet", "message": "of the test"}
        body = {"status": {"conditions": [condition], "nodeInfo": {"bootID": boot}}}
        self.api.request("PATCH", f"{NODE}/status", body=body, content_type=MERGE)

    def node(self):
        return self.api.get(NODE)

    def cordon(self, value):
        self.api.request("PATCH", NODE, body={"spec": {"unschedulable": value}}, content_type=MERGE)

    def pods(self):
        return self.api.list_items(PODS)

    def names(self):
        return sorted(pod["metadata"]["name"] for pod in self.pods())

    def owner(self, kind):
        """A workload that a pod can belong to; nothing else comes of it here."""
        path, name = f"{SETS}/{kind.lower()}s", f"own-{kind.lower()}"
        labels = {"own": kind.lower()}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        template["spec"]["nodeSelector"] = {"no": "where"}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        with contextlib.suppress(ApiError):
            self.api.request("POST", path, body=body)
        uid = self.api.get(f"{path}/{name}")["metadata"]["uid"]
        return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True}

    def pod(self, name, kind="ReplicaSet", phase="Running", labels=None, **meta):
        metadata = {"name": name, "namespace": "default", "labels": labels or {}, **meta}
        if kind:
            metadata["ownerReferences"] = [self.owner(kind)]
        spec = {"nodeName": "gpu-9", "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 1}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.api.request("POST", PODS, body=body)
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
        self.api.request("PATCH", f"{PODS}/{name}/status", body={"status": status}, content_type=MERGE)

    def budget(self, name, labels, minimum=1):
        spec = {"minAvailable": minimum, "selector": {"matchLabels": labels}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
        self.api.request("POST", BUDGETS, body=body)

    def drain(self, capsys, **options):
        given = {"node": "gpu-9", "state": "drained", "operator_timeout": 5, "drain_timeout": 30, **options}
        return self.cluster.run(capsys, node_drain, interval=600, **given)

    def give_back(self, capsys, **options):
        given = {"node": "gpu-9", "state": "uncordoned", "ready_timeout": 20, **options}
        return self.cluster.run(capsys, node_drain, interval=600, **given)


@pytest.fixture
def site(cluster):
    made = Site(cluster)
    made.start()
    yield made
    made.stop()


def test_drains_and_gives_back(site, capsys):
    site.pod("trainer")
    site.pod("cni", "DaemonSet")
    site.pod("static", None, annotations={maintenance.MIRROR: "x"})
    site.pod("done", None, phase="Succeeded")
    dry = site.drain(capsys, check=True)
    assert dry["changed"] and dry["evicted"] == ["default/trainer"] and dry["finished"]
    assert not maintenance.cordoned(site.node())
    result = site.drain(capsys)
    assert result["finished"] and result["changed"] and result["evicted"] == ["default/trainer"], result
    assert site.names() == ["cni", "done", "static"]
    reasons = {row["pod"]: row["reason"] for row in result["staying"]}
    assert reasons["default/cni"] == "of DaemonSet own-daemonset"
    mark = maintenance.own_cordon(site.node())
    assert mark["boot_id"] == "b1" and "node_drain" in mark["by"] and mark["at"]
    assert not site.drain(capsys)["changed"]
    # The node reboots: until its kubelet reports the new boot, Ready is of the old one.
    stale = site.give_back(capsys, boot_id="b2", ready_timeout=1)
    assert stale["failed"] and "last report is of boot b1" in stale["msg"] and "kubelet" in stale["msg"]
    assert maintenance.cordoned(site.node())
    site.status(boot="b2", ready="True")
    assert site.give_back(capsys, boot_id="b2", check=True)["changed"]
    assert site.give_back(capsys, boot_id="b2")["changed"]
    node = site.node()
    assert not maintenance.cordoned(node) and maintenance.own_cordon(node) is None
    assert not site.give_back(capsys, boot_id="b2")["changed"]


def test_a_budget_that_blocks_is_named_with_its_numbers_and_the_cordon_is_taken_back(site, capsys):
    site.pod("a", labels={"app": "trainer"})
    site.pod("b", labels={"app": "trainer"})
    site.budget("trainer", {"app": "trainer"}, minimum=2)
    dry = site.drain(capsys, check=True)
    assert not dry["finished"]
    result = site.drain(capsys, drain_timeout=2)
    assert result["failed"] and not result["finished"]
    for part in (
        "Node gpu-9: waited 2 s for the node to be empty",
        "pod default/a: PodDisruptionBudget default/trainer (2 of 2 pods healthy, needs 2, allows 0 disruptions)",
        "pod default/b:",
        "Our cordon was taken back",
    ):
        assert part in result["msg"]
    node = site.node()
    assert not maintenance.cordoned(node) and maintenance.own_cordon(node) is None
    # The same after a run that was killed: the cordon is of another run, and as useless when this one fails.
    mark = json.dumps({"by": "another run", "at": "now", "boot_id": "b1"})
    body = {"metadata": {"annotations": {maintenance.CORDON: mark}}, "spec": {"unschedulable": True}}
    site.api.request("PATCH", NODE, body=body, content_type=MERGE)
    assert "Our cordon was taken back" in site.drain(capsys, drain_timeout=1)["msg"]
    assert not maintenance.cordoned(site.node())
    # Somebody lowers the budget while the drain waits.
    relax = threading.Timer(2, site.wipe, [BUDGETS])
    relax.start()
    done = site.drain(capsys)
    relax.join()
    assert done["finished"] and site.names() == [] and done["evicted"] == ["default/a", "default/b"]


def test_a_pod_under_two_budgets_is_named_with_both(site, capsys):
    site.pod("a", labels={"app": "x", "tier": "y"})
    site.budget("one", {"app": "x"}, minimum=0)
    site.budget("two", {"tier": "y"}, minimum=0)
    result = site.drain(capsys, drain_timeout=1)
    assert "default/one" in result["msg"] and "default/two" in result["msg"] and "more than one budget" in result["msg"]


def test_a_cordon_of_somebody_else_stays(site, capsys):
    site.cordon(True)
    site.pod("a")
    assert site.drain(capsys)["finished"]
    assert maintenance.own_cordon(site.node()) is None
    assert not site.give_back(capsys, boot_id="b1")["changed"] and maintenance.cordoned(site.node())
    site.pod("b", labels={"app": "x"})
    site.budget("keep", {"app": "x"})
    result = site.drain(capsys, drain_timeout=1)
    assert "was cordoned before and stays cordoned" in result["msg"] and maintenance.cordoned(site.node())


def test_unmanaged_pods_are_named_and_nothing_is_touched(site, capsys):
    site.pod("debug", None)
    site.pod("a")
    result = site.drain(capsys)
    assert "pod default/debug: no controller" in result["msg"] and not result["changed"]
    assert site.names() == ["a", "debug"] and not maintenance.cordoned(site.node())
    assert site.drain(capsys, unmanaged_pods="evict")["finished"] and site.names() == []


def test_a_pod_that_does_not_end_is_named(site, capsys):
    site.pod("a", labels={"hold": "1"})
    result = site.drain(capsys, drain_timeout=2)
    assert "pod default/a is to end at" in result["msg"] and "grace period 1 s" in result["msg"]


@pytest.mark.parametrize("status", [0, 409, 429, 500, 503, 504])
def test_a_server_that_fails_for_a_while_does_not_stop_it(site, capsys, status):
    site.pod("a")
    site.pod("b")
    for method, path in (("GET", "/nodes/gpu-9"), ("POST", "/eviction"), ("PATCH", "/nodes/gpu-9"), ("GET", "/pods")):
        site.faults("POST", method=method, path=path, status=status, count=2)
    result = site.drain(capsys)
    assert result.get("finished"), result
    assert site.faults("GET") == []  # all have struck
    assert site.names() == [] and maintenance.own_cordon(site.node())


def test_a_server_that_does_not_answer_is_waited_for_and_named(cluster, capsys, tmp_path, monkeypatch):
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setattr(cluster, "kubeconfig", str(path))
    given = {"node": "gpu-9", "state": "drained", "operator_timeout": 1}
    result = cluster.run(capsys, node_drain, interval=600, **given)
    assert result["failed"] and "the API server does not answer" in result["msg"]
    assert "for the operators to leave the node alone" in result["msg"]
    path.write_text("nonsense")
    broken = cluster.run(capsys, node_drain, interval=600, **given)
    assert broken["failed"] and "K8S_AUTH_KUBECONFIG" in broken["msg"]


def kind(site, group, version, name, plural):
    """A CustomResourceDefinition that takes any fields, and the path of its objects in namespace default."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    row = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": name, "plural": plural, "singular": name.lower(), "listKind": f"{name}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [row]}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    body.update(metadata={"name": f"{plural}.{group}"}, spec=spec)
    with contextlib.suppress(ApiError):
        site.api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=body)
    path = f"/apis/{group}/{version}/namespaces/default/{plural}"
    for _try in range(100):
        with contextlib.suppress(ApiError):
            site.api.get(path)
            return path
        threading.Event().wait(0.05)
    raise AssertionError(f"{plural} is not served")


def test_operators_at_work_are_waited_for_and_named(site, capsys):
    states = kind(site, "sriovnetwork.openshift.io", "v1", "SriovNetworkNodeState", "sriovnetworknodestates")
    works = kind(site, "maintenance.nvidia.com", "v1alpha1", "NodeMaintenance", "nodemaintenances")
    site.pod("a")
    body = {
        "apiVersion": "sriovnetwork.openshift.io/v1",
        "kind": "SriovNetworkNodeState",
        "metadata": {"name": "gpu-9", "annotations": {DESIRED: "Drain_Required", CURRENT: "Draining"}},
        "spec": {"interfaces": [{"pciAddress": "0000:0c:00.0"}]},
        "status": {"syncStatus": "InProgress"},
    }
    site.api.request("POST", states, body=body)
    other = {**body, "metadata": {"name": "gpu-8", "annotations": {CURRENT: "Draining"}}}
    site.api.request("POST", states, body=other)
    site.budget("keep", {"app": "x"})
    site.pod("b", labels={"app": "x"})
    site.cordon(True)  # the operator's drain is stuck, see FC-29
    result = site.drain(capsys, operator_timeout=1)
    for part in (
        "default/gpu-9: desired-state is Drain_Required, current-state is Draining",
        "default/keep",
        "default/b",
    ):
        assert part in result["msg"], result["msg"]
    assert site.names() == ["a", "b"]
    site.wipe(BUDGETS)
    site.cordon(None)
    idle = {"metadata": {"annotations": {DESIRED: "Idle", CURRENT: "Idle"}}, "status": {"syncStatus": "Succeeded"}}
    site.api.request("PATCH", f"{states}/gpu-9", body=idle, content_type=MERGE)
    work = {
        "apiVersion": "maintenance.nvidia.com/v1alpha1",
        "kind": "NodeMaintenance",
        "metadata": {"name": "driver"},
        "spec": {"nodeName": "gpu-9", "requestorID": "network-operator"},
    }
    site.api.request("POST", works, body=work)
    held = site.drain(capsys, operator_timeout=1)
    assert "NodeMaintenance default/driver of network-operator" in held["msg"]
    free = threading.Timer(1, site.wipe, [works])
    free.start()
    assert site.drain(capsys, operator_timeout=60)["finished"]
    free.join()
    site.wipe(states)


def test_cluster_facts_tell_the_node_of_each_host(site, capsys):
    pools = kind(site, "sriovnetwork.openshift.io", "v1", "SriovNetworkPoolConfig", "sriovnetworkpoolconfigs")
    selector = {"matchLabels": {"rack": "7"}}
    body = {"apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkPoolConfig", "metadata": {"name": "p"}}
    site.api.request("POST", pools, body={**body, "spec": {"rdmaMode": "exclusive", "nodeSelector": selector}})
    found = site.cluster.run(capsys, cluster_facts, helm_binary="", hosts={"h": ["gpu-9", ""], "x": ["nobody"]})
    assert found["cluster"]["configured"] and found["cluster"]["reason"] is None
    host = found["hosts"]["h"]
    assert (host["node"], host["ready"], host["boot_id"], host["cordon"]) == ("gpu-9", True, "b1", None)
    assert [(o["path"], o["mode"]) for o in host["rdma_mode_owners"]] == [
        ("SriovNetworkPoolConfig default/p", "exclusive")
    ]
    assert found["hosts"]["x"]["node"] is None and "nobody" in found["hosts"]["x"]["reason"]
    wrong = site.cluster.run(capsys, cluster_facts, helm_binary="", hosts={"h": "gpu-9"})
    assert wrong["failed"] and "hosts.h" in wrong["msg"]
    site.wipe(pools)
