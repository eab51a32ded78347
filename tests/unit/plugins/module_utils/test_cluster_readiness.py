# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import operator_log, readiness
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError
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
    "spec": {
        "nodeSelector": LABELS,
        "numVfs": 2,
        "mtu": 4220,
        "resourceName": "rdma-vf",
        "nicSelector": {"rootDevices": PCI},
    },
}
NETWORK = {
    "apiVersion": "sriovnetwork.openshift.io/v1",
    "kind": "SriovNetwork",
    "metadata": meta("rdma-vf"),
    "spec": {"networkNamespace": "default", "resourceName": "rdma-vf"},
}
RESOURCE = "k8s.v1.cni.cncf.io/resourceName"
POOL = {"apiVersion": "nv-ipam.nvidia.com/v1alpha1", "kind": "IPPool", "metadata": meta("pool")}
POOL["spec"] = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 100}
OBJECTS = [POLICY, NETWORK, POOL]
BLOCK = {"nodeName": "gpu-1", "startIP": "192.168.0.1", "endIP": "192.168.0.100"}
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
    interfaces = [
        {"pciAddress": pci, "numVfs": vfs, "mtu": 4220, "Vfs": [{"vfID": i} for i in range(vfs)]} for pci in PCI
    ]
    return {
        "metadata": {"name": "gpu-1", "annotations": annotations},
        "spec": {"interfaces": [{"pciAddress": pci, "numVfs": 2} for pci in PCI]},
        "status": {"interfaces": interfaces, "syncStatus": sync},
    }


def ready():
    return {
        "nodes": [node()],
        "states": {"gpu-1": node_state()},
        "attachments": {("default", "rdma-vf"): {"metadata": {"annotations": {RESOURCE: "nvidia.com/rdma-vf"}}}},
        "pools": {("IPPool", "pool"): {"status": {"allocations": [dict(BLOCK)]}}},
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
        (
            lambda s: s["pools"][("IPPool", "pool")]["status"]["allocations"][0].update(
                startIP="10.0.0.1", endIP="10.0.0.100"
            ),
            "IPPool op/pool",
            "10.0.0.1 to 10.0.0.100, is of an earlier range",
        ),
        (
            lambda s: s["pools"][("IPPool", "pool")]["status"]["allocations"][0].update(endIP="192.168.0.50"),
            "IPPool op/pool",
            "earlier range",
        ),
        (
            lambda s: s["attachments"][("default", "rdma-vf")]["metadata"].clear(),
            "SriovNetwork op/rdma-vf",
            "names the resource nothing",
        ),
        (
            lambda s: s["attachments"][("default", "rdma-vf")]["metadata"]["annotations"].update(
                {RESOURCE: "openshift.io/rdma-vf"}
            ),
            "SriovNetwork op/rdma-vf",
            "openshift.io/rdma-vf, not nvidia.com/rdma-vf",
        ),
        (
            lambda s: s["states"]["gpu-1"]["spec"]["interfaces"][0].update(vfGroups=[{"resourceName": "old"}]),
            "PF 0000:0c:00.0",
            "asks for the resource rdma-vf, the operator plans another",
        ),
        (lambda s: s["states"]["gpu-1"]["status"]["interfaces"][1].update(mtu=1500), "PF 0000:0c:00.1", "has MTU 1500"),
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


def wait(monkeypatch, answers, once=False, **params):
    looks = iter(answers)

    def look(api, given, objects):
        answer = next(looks)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(rail_wait, "look", look)
    clock = Clock()
    params = {"timeout": 10, "interval": 4, "report_interval": 30, "earlier": 0, **params}
    return rail_wait.wait(None, params, [], once, clock, clock.pause)


def test_wait_ends_when_nothing_is_missing(monkeypatch):
    left, seconds, progress, _over = wait(monkeypatch, [["a", "b"], ["a", "b"], []])
    assert (left, seconds) == ([], 8.0)
    assert progress == [{"second": 0.0, "missing": 2}, {"second": 8.0, "missing": 0}]


def test_wait_looks_a_last_time_at_the_deadline(monkeypatch):
    left, seconds, _progress, over = wait(monkeypatch, [["a"], ["a"], ["a"], ["late"]])
    assert (left, seconds, over) == (["late"], 10.0, True)


def test_wait_comes_back_to_tell_and_goes_on_from_there(monkeypatch):
    left, seconds, _progress, over = wait(monkeypatch, [["a"]] * 3, timeout=100, report_interval=8)
    assert (left, seconds, over) == (["a"], 8.0, False)
    left, seconds, progress, over = wait(monkeypatch, [["a"], []], timeout=100, report_interval=8, earlier=8.0)
    assert (left, seconds) == ([], 12.0) and progress[0]["second"] == 8.0


def test_once_looks_once(monkeypatch):
    assert wait(monkeypatch, [["a"]], once=True)[0] == ["a"]


def test_a_server_that_is_away_for_a_while_is_waited_for(monkeypatch):
    away = ApiError(0, "the API server does not answer: connection refused")
    left, _seconds, progress, _over = wait(monkeypatch, [["a", "b"], away, ApiError(503, "starting"), []], timeout=60)
    assert left == [] and [row["missing"] for row in progress] == [2, 1, 0]
    left, _seconds, _progress, over = wait(monkeypatch, [away] * 9)
    assert over and left[0]["object"] == "Kubernetes API" and "no answer: connection refused" in left[0]["reason"]
    with pytest.raises(ApiError, match="forbidden"):
        wait(monkeypatch, [ApiError(403, "forbidden")])
    with pytest.raises(ApiError, match="does not answer"):
        wait(monkeypatch, [away], once=True)


def test_one_line_tells_what_and_where():
    items = [readiness.missing("PF x", "has 0 of 1 VFs", f"gpu-{i}") for i in range(1, 6)]
    line = readiness.in_short([readiness.missing("SriovNetwork op/r", "has no attachment"), *items, items[0]])
    assert line.startswith("cluster: SriovNetwork op/r has no attachment; gpu-1: PF x has 0 of 1 VFs and 1 more; gpu-2")
    assert line.endswith("; and 2 nodes more")


LOG = """\
I0519 12:00:00.000000 1 generic.go:12] apply policy for 0000:0c:00.0
2026-05-19T12:00:01Z\tERROR\tsriov\tsriov.go:7\tConfigSriovInterfaces(): fail to set numVfs {"device": "0000:0c:00.0"}
2026-05-19T12:00:02Z\tINFO\tdaemon/daemon.go:3\tretry
E0519 12:00:03.000000 1 sriov.go:9] SetSriovNumVfs(): 0000:0c:00.1: \x1b[31mno space left on device\x1b[0m
"""


def test_the_newest_error_about_the_pf_is_picked():
    assert "fail to set numVfs" in operator_log.last_error(LOG, "0000:0c:00.0")
    assert operator_log.last_error(LOG, "0000:0c:00.1").endswith("0000:0c:00.1: no space left on device")
    assert "no space left" in operator_log.last_error(LOG, "0000:16:00.0")
    assert operator_log.last_error("all is well\n", "x") is None
    assert operator_log.last_error("", "x") is None
    assert len(operator_log.last_error("error " + "y" * 10_000, "x")) == operator_log.LONGEST


class Logs:
    """Pods of the operator and their logs, as an Api; a log may be an ApiError."""

    def __init__(self, **logs):
        self.logs, self.asked = logs, []

    def list_items(self, path, query=()):
        query = dict(query)
        app = query.get("labelSelector", "").removeprefix("app=")
        if "pods" not in path or app not in self.logs:
            return []
        pod = {"metadata": {"name": app, "creationTimestamp": "1"}, "spec": {"containers": [{"name": app}]}}
        return [{"metadata": {"name": "older", "creationTimestamp": "0"}, "spec": {}}, pod]

    def text(self, path, query=()):
        self.asked.append(path)
        found = self.logs[path.split("/")[-2]]
        if isinstance(found, Exception):
            raise found
        return found


def test_a_failure_names_node_pf_and_the_line_of_the_log(monkeypatch):
    monkeypatch.setattr(rail_wait.drain, "held_up", lambda api, node: ["pod default/a is held by budget b"])
    snapshot = ready()
    snapshot["states"]["gpu-1"] = node_state(vfs=0, sync="InProgress")
    snapshot["attachments"].clear()
    api = Logs(
        **{operator_log.DAEMON: LOG, operator_log.OPERATOR: "ERROR rdma-vf: rendered configuration is not JSON\n"}
    )
    text = "\n".join(readiness.summary(rail_wait.explained(api, pending(snapshot), OBJECTS)))
    assert "PF 0000:0c:00.0: has 0 of 2 VFs; the config daemon says: 2026-05-19T12:00:01Z ERROR" in text
    assert "no space left on device" in text
    assert "default/rdma-vf yet; the operator says: ERROR rdma-vf: rendered configuration is not JSON" in text
    assert "drain: pod default/a is held by budget b" in text
    assert len(api.asked) <= 4


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ({}, "there is no pod of sriov-network-config-daemon on gpu-1"),
        ({operator_log.DAEMON: ApiError(403, "pods is forbidden")}, "cannot be read: pods is forbidden"),
        ({operator_log.DAEMON: "I0519 fine\n"}, "the log of the config daemon tells no error"),
    ],
    ids=["no-pod", "forbidden", "no-error"],
)
def test_a_log_that_does_not_help_is_told_too(monkeypatch, logs, said):
    monkeypatch.setattr(rail_wait.drain, "held_up", lambda api, node: [])
    snapshot = ready()
    snapshot["states"]["gpu-1"] = node_state(vfs=1)
    found = rail_wait.explained(Logs(**logs), pending(snapshot), OBJECTS)
    assert all(said in item["reason"] for item in found if item["object"].startswith("PF "))


def test_a_cluster_that_goes_away_at_the_end_hides_nothing(monkeypatch):
    def gone(api, node):
        raise ApiError(0, "the API server does not answer")

    monkeypatch.setattr(rail_wait.drain, "held_up", gone)
    snapshot = ready()
    snapshot["states"]["gpu-1"] = node_state(sync="InProgress")
    found = rail_wait.explained(Logs(), pending(snapshot), OBJECTS)
    assert [item["object"] for item in found] == ["SriovNetworkNodeState", "Kubernetes API"]


OWNER = "sriovnetwork.openshift.io/owner-ref"
TAKEN_AWAY = {
    "network": "sriov",
    "hosts": ["gpu-1"],
    "namespaces": {"operator": "op", "networks": "default"},
    "rails": [{"pci": pci, "network": "rdma-vf"} for pci in PCI],
    "resources": [{"name": "rdma-vf", "full_name": "nvidia.com/rdma-vf", "count": 4}],
}


def gone():
    """A node of which everything was taken away."""
    state = node_state(vfs=0)
    state["spec"]["interfaces"] = []
    return {"nodes": [node(**{"nvidia.com/rdma-vf": "0"})], "states": {"gpu-1": state}, "attachments": {}}


def left(snapshot, **changes):
    return readiness.leftovers([{**TAKEN_AWAY, **changes}], {}, snapshot)


def test_nothing_is_left_when_all_is_taken_away():
    assert left(gone()) == []
    assert left({"nodes": [], "states": {}, "attachments": {}}) == []


@pytest.mark.parametrize(
    ("change", "subject", "reason"),
    [
        (
            lambda s: s["states"]["gpu-1"]["spec"].update(
                interfaces=[{"pciAddress": PCI[0], "vfGroups": [{"resourceName": "rdma-vf"}]}]
            ),
            f"PF {PCI[0]}",
            "still in the operator's plan",
        ),
        (lambda s: s["states"]["gpu-1"]["status"]["interfaces"][1].update(numVfs=2), f"PF {PCI[1]}", "still has 2 VFs"),
        (
            lambda s: s["states"]["gpu-1"]["status"].update(syncStatus="InProgress"),
            "SriovNetworkNodeState",
            "InProgress",
        ),
        (lambda s: s.update(nodes=[node()]), "resource nvidia.com/rdma-vf", "still offers 4"),
        (
            lambda s: s["attachments"].update(
                {("default", "rdma-vf"): {"metadata": {"annotations": {OWNER: "SriovNetwork.x/op/rdma-vf"}}}}
            ),
            "NetworkAttachmentDefinition default/rdma-vf",
            "still there",
        ),
    ],
    ids=["plan", "vfs", "drain", "resource", "attachment"],
)
def test_what_is_left_is_named(change, subject, reason):
    snapshot = gone()
    change(snapshot)
    (found,) = left(snapshot)
    assert subject == found["object"] and reason in found["reason"]


def test_what_others_own_is_not_waited_for():
    snapshot = gone()
    snapshot["states"]["gpu-1"]["status"]["interfaces"][0].update(numVfs=2)
    assert left(snapshot, externally_managed=True) == []
    snapshot = gone()
    snapshot["states"]["gpu-1"]["spec"]["interfaces"] = [
        {"pciAddress": PCI[0], "numVfs": 2, "vfGroups": [{"resourceName": "somebody"}]}
    ]
    snapshot["states"]["gpu-1"]["status"]["interfaces"][0].update(numVfs=2)
    snapshot["attachments"][("default", "rdma-vf")] = {"metadata": {}}
    assert left(snapshot) == []


def test_the_device_plugin_of_vfs_may_idle_when_no_policy_is_wanted():
    status = {"desiredNumberScheduled": 0, "observedGeneration": 1}
    plugin = {"metadata": {"name": "sriov-device-plugin", "generation": 1}, "status": status}
    other = {"metadata": {"name": "kube-multus-ds", "generation": 1}, "status": status}
    assert len(readiness.daemon_sets_pending([plugin, other])) == 2
    (row,) = readiness.daemon_sets_pending([plugin, other], readiness.IDLE_WITHOUT_POLICIES)
    assert "kube-multus-ds" in row["object"]
