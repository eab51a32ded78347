# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import readiness
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import node_of, term_match
from ansible_collections.railyard.rdma.plugins.modules import rail_wait

PCI = ["0000:0c:00.0", "0000:0c:00.1"]
LABELS = {"node.kubernetes.io/instance-type": "BM.GPU.B4.8"}


def meta(name, namespace="op"):
    return {"name": name, "namespace": namespace}


POLICY = {
    "apiVersion": "sriovnetwork.openshift.io/v1",
    "kind": "SriovNetworkNodePolicy",
    "metadata": meta("b4"),
    "spec": {"nodeSelector": LABELS, "numVfs": 2, "resourceName": "rdma-vf", "nicSelector": {"rootDevices": PCI}},
}
NETWORK = {
    "apiVersion": "sriovnetwork.openshift.io/v1",
    "kind": "SriovNetwork",
    "metadata": meta("rdma-vf"),
    "spec": {"networkNamespace": "default"},
}
POOL = {"apiVersion": "nv-ipam.nvidia.com/v1alpha1", "kind": "IPPool", "metadata": meta("pool"), "spec": {}}
OBJECTS = [POLICY, NETWORK, POOL]
LAYOUT = {"hosts": ["gpu-1"], "resources": [{"full_name": "nvidia.com/rdma-vf", "count": 4}]}


def node(name="gpu-1", **allocatable):
    return {
        "metadata": {"name": name, "labels": {**LABELS, "kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"nvidia.com/rdma-vf": "4", **allocatable},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def node_state(vfs=2, sync="Succeeded", **annotations):
    interfaces = [{"pciAddress": pci, "numVfs": vfs, "Vfs": [{"vfID": i} for i in range(vfs)]} for pci in PCI]
    return {
        "metadata": {"name": "gpu-1", "annotations": annotations},
        "spec": {"interfaces": [{"pciAddress": pci, "numVfs": 2} for pci in PCI]},
        "status": {"interfaces": interfaces, "syncStatus": sync},
    }


def ready():
    return {
        "nodes": [node()],
        "states": {"gpu-1": node_state()},
        "attachments": {("default", "rdma-vf")},
        "pools": {("IPPool", "pool"): {"status": {"allocations": [{"nodeName": "gpu-1"}]}}},
    }


def pending(snapshot):
    return readiness.layout_pending(OBJECTS, [LAYOUT], {}, snapshot)


def test_a_finished_layout_lacks_nothing():
    assert pending(ready()) == []


@pytest.mark.parametrize(
    ("change", "subject", "reason"),
    [
        (lambda s: s.update(nodes=[]), "Node", "no Kubernetes node"),
        (lambda s: s.update(states={}), "SriovNetworkNodeState", "config daemon does not run"),
        (lambda s: s["states"].update({"gpu-1": node_state(vfs=1)}), "PF 0000:0c:00.0", "has 1 of 2 VFs"),
        (lambda s: s["states"]["gpu-1"]["status"]["interfaces"].pop(), "PF 0000:0c:00.1", "not among the NICs"),
        (lambda s: s["states"]["gpu-1"]["spec"].update(interfaces=[]), "PF 0000:0c:00.0", "the operator plans none"),
        (lambda s: s["states"].update({"gpu-1": node_state(sync="InProgress")}), "SriovNetworkNodeState", "InProgress"),
        (
            lambda s: s["states"].update(
                {"gpu-1": node_state(**{"sriovnetwork.openshift.io/current-state": "Draining"})}
            ),
            "SriovNetworkNodeState",
            "current-state Draining",
        ),
        (
            lambda s: s.update(nodes=[node(**{"nvidia.com/rdma-vf": "3"})]),
            "resource nvidia.com/rdma-vf",
            "offers 3 of 4",
        ),
        (lambda s: s["nodes"][0]["status"]["allocatable"].clear(), "resource nvidia.com/rdma-vf", "offers 0 of 4"),
        (lambda s: s["attachments"].clear(), "SriovNetwork op/rdma-vf", "default/rdma-vf"),
        (lambda s: s["pools"].clear(), "IPPool op/pool", "no block for this node"),
    ],
)
def test_what_is_missing_is_named(change, subject, reason):
    snapshot = ready()
    change(snapshot)
    found = pending(snapshot)
    assert any(subject in p["object"] and reason in p["reason"] for p in found), found


def test_old_success_with_an_unserved_plan_is_not_ready():
    """Right after a change syncStatus still says Succeeded; the plan in spec is what tells."""
    snapshot = ready()
    for interface in snapshot["states"]["gpu-1"]["spec"]["interfaces"]:
        interface["numVfs"] = 1
    assert [p["node"] for p in pending(snapshot)] == ["gpu-1", "gpu-1"]


def test_policy_for_other_nodes_is_not_waited_for():
    other = copy.deepcopy(POLICY)
    other["spec"]["nodeSelector"] = {"node.kubernetes.io/instance-type": "other"}
    snapshot = ready()
    snapshot["states"] = {}
    assert readiness.layout_pending([other], [LAYOUT], {}, snapshot) == []


def test_nodes_are_found_by_name_label_and_address():
    nodes = [node("10.0.0.1"), node("other")]
    nodes[0]["metadata"]["labels"]["kubernetes.io/hostname"] = "gpu-9"
    nodes[1]["status"]["addresses"] = []
    assert node_of("other", None, nodes) is nodes[1]
    assert node_of("gpu-9", None, nodes) is nodes[0]
    assert node_of("gpu-1", "10.0.0.1", nodes) is nodes[0]
    assert node_of("gpu-1", None, nodes) is None


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        ({"key": "a", "operator": "In", "values": ["1"]}, True),
        ({"key": "a", "operator": "In", "values": ["2"]}, False),
        ({"key": "b", "operator": "NotIn", "values": ["2"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "b", "operator": "Exists"}, False),
        ({"key": "b", "operator": "DoesNotExist"}, True),
        ({"key": "a", "operator": "Gt", "values": ["0"]}, True),
        ({"key": "a", "operator": "Lt", "values": ["0"]}, False),
        ({"key": "a", "operator": "Strange"}, False),
    ],
)
def test_node_selector_operators(requirement, matches):
    item = {"metadata": {"name": "n", "labels": {"a": "1"}}}
    assert term_match({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}, item) is matches


def test_node_selector_terms_are_alternatives_and_an_empty_term_selects_nothing():
    item = {"metadata": {"name": "n", "labels": {}}}
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    assert term_match(None, item)
    assert not term_match({"nodeSelectorTerms": [{}]}, item)
    assert term_match({"nodeSelectorTerms": [{}, by_name]}, item)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"state": "ready"}, None),
        ({}, "state is not set"),
        (
            {
                "state": "notReady",
                "appliedStates": [{"name": "state-multus-cni", "state": "notReady", "message": "0/2"}],
            },
            "state-multus-cni notReady (0/2)",
        ),
        (
            {"state": "ready", "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]},
            "has seen generation 1, not yet 2",
        ),
    ],
)
def test_cluster_policy_state(status, reason):
    policy = {"kind": "NicClusterPolicy", "metadata": {"name": "nic-cluster-policy"}}
    live = {"metadata": {"generation": 2}, "status": status}
    found = readiness.cluster_policy_pending(policy, live)
    assert [reason in p["reason"] for p in found] == ([] if reason is None else [True])


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2, "observedGeneration": 1},
            None,
        ),
        (
            {"desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2, "observedGeneration": 1},
            "1 of 2",
        ),
        ({"desiredNumberScheduled": 0, "observedGeneration": 1}, "matches no node"),
        ({"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}, "newest generation"),
        ({}, "newest generation"),
    ],
)
def test_daemon_set_roll_out(status, reason):
    found = readiness.daemon_sets_pending([{"metadata": {"name": "kube-multus-ds", "generation": 1}, "status": status}])
    assert [reason in p["reason"] for p in found] == ([] if reason is None else [True])


def test_crd_must_exist_and_be_established():
    crds = {
        "a": {"status": {"conditions": [{"type": "Established", "status": "True"}]}},
        "b": {"status": {}},
        "c": None,
    }
    assert [p["object"][-1] for p in readiness.crds_pending(["a", "b", "c"], crds)] == ["b", "c"]


def test_summary_groups_by_node_and_is_bounded():
    items = [readiness.missing("PF x", "has 0 of 1 VFs", f"gpu-{i}") for i in range(40)]
    lines = readiness.summary([readiness.missing("Node", "gone"), *items])
    assert lines[0] == "cluster:"
    assert lines[2:4] == ["gpu-0:", "  - PF x: has 0 of 1 VFs"]
    assert lines[-1].endswith("lines more")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def pause(self, seconds):
        self.now += seconds


def wait(monkeypatch, answers, **options):
    looks = iter(answers)
    monkeypatch.setattr(rail_wait, "look", lambda api, params, objects: next(looks))
    clock = Clock()
    params = {"timeout": 10, "interval": 4}
    return rail_wait.wait(None, params, [], clock=clock, pause=clock.pause, **options)


def test_wait_ends_when_nothing_is_missing(monkeypatch):
    left, seconds, progress = wait(monkeypatch, [["a", "b"], ["a", "b"], []])
    assert (left, seconds) == ([], 8.0)
    assert progress == [{"second": 0.0, "missing": 2}, {"second": 8.0, "missing": 0}]


def test_wait_looks_a_last_time_at_the_deadline(monkeypatch):
    left, seconds, _progress = wait(monkeypatch, [["a"], ["a"], ["a"], ["late"]])
    assert (left, seconds) == (["late"], 10.0)


def test_once_looks_once(monkeypatch):
    assert wait(monkeypatch, [["a"]], once=True)[0] == ["a"]
