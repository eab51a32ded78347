# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What rail_state reads of a real API, judged by the rules: a healthy cluster, and one with the faults of others."""

from __future__ import annotations

import json

import pytest
from ansible_collections.railyard.rdma.plugins.modules import rail_objects, rail_state
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.collect import contexts
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate

from tests.rehearsal.cluster import layouts

PFS = ("0000:0c:00.0", "0000:0c:00.1")
GPU = {"type": "gpu"}
STATE = "/apis/sriovnetwork.openshift.io/v1/namespaces/op/sriovnetworknodestates"
MERGE = "application/merge-patch+json"
OURS = [o for o in layouts.layout("new") if o["kind"] not in ("NetworkAttachmentDefinition", "CIDRPool")]
RAILS = [{"rail": i, "pci": pci, "network": f"new-{i}", "resource": f"nvidia.com/vf_{i}"} for i, pci in enumerate(PFS)]
LAYOUT = {
    "name": "b4",
    "hosts": ["node-a", "node-b"],
    "network": "sriov",
    "vfs_per_pf": 1,
    "node_selector": GPU,
    "namespaces": {"operator": "op", "networks": "default"},
    "rails": RAILS,
    "resources": [{"name": f"vf_{i}", "full_name": f"nvidia.com/vf_{i}", "count": 1, "rails": [i]} for i in range(2)],
    "pools": [{"name": "new-pool"}],
}
MODEL = {"layouts": [LAYOUT], "hosts": {"node-a": "b4", "node-b": "b4"}}


def with_status(api, path, name, status):
    api.request("PATCH", f"{path}/{name}/status", body={"status": status}, content_type=MERGE)


@pytest.fixture(scope="module")
def rails(cluster):
    """Two nodes with their states, our layout, attachments as the operator makes them, a pod with a network."""
    api = cluster.api()
    layouts.install_kinds(api)
    ids = {"metadata": {"name": "supported-nic-ids"}, "data": {"x": "15b3 1019 101a"}}
    api.request("POST", "/api/v1/namespaces/op/configmaps", body={"apiVersion": "v1", "kind": "ConfigMap", **ids})
    for name in LAYOUT["hosts"]:
        node = {"metadata": {"name": name, "labels": GPU}}
        api.request("POST", "/api/v1/nodes", body={"apiVersion": "v1", "kind": "Node", **node})
        with_status(api, "/api/v1/nodes", name, {"allocatable": {"nvidia.com/vf_0": "1", "nvidia.com/vf_1": "1"}})
        state = {"apiVersion": layouts.SRIOV, "kind": "SriovNetworkNodeState", "metadata": {"name": name}, "spec": {}}
        api.request("POST", STATE, body=state)
        rows = [{"pciAddress": pci, "vendor": "15b3", "deviceID": "1019", "name": f"rdma{i}", "mtu": 4220, "numVfs": 1,
                 "totalvfs": 8, "driver": "mlx5_core"} for i, pci in enumerate(PFS)]  # fmt: skip
        with_status(api, STATE, name, {"syncStatus": "Succeeded", "interfaces": rows})
    for rail in RAILS:
        owner = f"SriovNetwork.sriovnetwork.openshift.io/op/{rail['network']}"
        notes = {"k8s.v1.cni.cncf.io/resourceName": rail["resource"], "sriovnetwork.openshift.io/owner-ref": owner}
        meta = {"name": rail["network"], "namespace": "default", "annotations": notes}
        body = {
            "apiVersion": layouts.CNI,
            "kind": "NetworkAttachmentDefinition",
            "metadata": meta,
            "spec": {"config": "{}"},
        }
        api.request("POST", f"/apis/{layouts.CNI}/namespaces/default/network-attachment-definitions", body=body)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "trainer",
            "namespace": "default",
            "annotations": {"k8s.v1.cni.cncf.io/networks": "new-0"},
        },
        "spec": {
            "nodeName": "node-a",
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/vf_0": "1"}}}],
        },
    }
    pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/vf_0": "1"}
    api.request("POST", "/api/v1/namespaces/default/pods", body=pod)
    return cluster


def judge(cluster, capsys, wanted=OURS, **changes):
    state = cluster.run(capsys, rail_state, namespace="op", resource_prefixes=["nvidia.com"])["state"]
    given = {**state, "wanted": wanted, "drain_limit": "50%", "operator_version": "26.7.1", **changes}
    rows = evaluate(contexts(MODEL, {}, cluster=given), ["cluster"])
    return {row["id"] for row in rows if not row["id"].startswith(("HELM", "RESOURCE-012", "RESOURCE-013"))}, state


def test_a_healthy_cluster_has_no_finding_before_and_after_the_apply(rails, capsys):
    assert judge(rails, capsys)[0] == set()
    rails.run(capsys, rail_objects, objects=OURS, prune=layouts.PRUNE)
    found, state = judge(rails, capsys)
    assert found == set()
    assert state["reasons"] == {} and state["nic_ids"] == ["15b3 1019 101a"]
    (pod,) = state["pods"]
    assert (pod["node"], pod["requests"], pod["empty_dir"], pod["asks_for"]) == (
        "node-a",
        {"nvidia.com/vf_0": 1},
        True,
        "new-0",
    )
    assert all(set(node["status"]) == {"addresses", "allocatable", "conditions"} for node in state["nodes"])


@pytest.mark.parametrize(
    ("rule", "version", "obj"),
    [
        ("POL-001", layouts.SRIOV, layouts.obj(layouts.SRIOV, "SriovNetworkNodePolicy", "by-hand", resourceName="x",
            numVfs=1, nodeSelector=GPU, nicSelector={"pfNames": ["rdma1"]})),
        ("POL-010", layouts.SRIOV, layouts.obj(layouts.SRIOV, "SriovNetworkPoolConfig", "everyone", maxUnavailable=1)),
    ],
    ids=["policy-by-name", "pool-of-every-node"],
)  # fmt: skip
def test_what_others_made_by_hand_is_found_and_stays(rails, capsys, rule, version, obj):
    api = rails.api()
    path = f"/apis/{version}/namespaces/op/{layouts.PLURALS[obj['kind']]}"
    api.request("POST", path, body=obj)
    try:
        assert judge(rails, capsys)[0] == {rule}
        done = rails.run(capsys, rail_objects, objects=OURS, prune=layouts.PRUNE)
        assert [(row["kind"], row["name"]) for row in done["foreign"]] == [(obj["kind"], obj["metadata"]["name"])]
        assert not done["changed"]
        assert api.get(f"{path}/{obj['metadata']['name']}")["spec"] == obj["spec"]
    finally:
        api.request("DELETE", f"{path}/{obj['metadata']['name']}")


def test_an_attachment_by_hand_with_another_resource_is_found(rails, capsys):
    path = f"/apis/{layouts.CNI}/namespaces/default/network-attachment-definitions/new-0"
    before = rails.api().get(path)
    chain = [{"type": "rdma", "args": {"cni": {"rdmaQoS": {"tc": 41}}}}]
    notes = {"k8s.v1.cni.cncf.io/resourceName": "openshift.io/vf_0", "sriovnetwork.openshift.io/owner-ref": None}
    change = {"metadata": {"annotations": notes}, "spec": {"config": json.dumps({"plugins": chain})}}
    rails.api().request("PATCH", path, body=change, content_type=MERGE)
    try:
        found, _state = judge(rails, capsys)
        assert {"RESOURCE-010", "CNI-010"} <= found
    finally:
        back = {"metadata": {"annotations": before["metadata"]["annotations"]}, "spec": before["spec"]}
        rails.api().request("PATCH", path, body=back, content_type=MERGE)


def test_a_part_alone_is_read_alone(rails, capsys):
    with rails.requests() as seen:
        state = rails.run(capsys, rail_state, namespace="op", parts=["policies"])["state"]
    assert set(state) == {"policies", "reasons"}
    assert [path for _method, path in seen if "sriovnetworknodepolicies" in path]
    assert not [path for _method, path in seen if path.endswith("/pods")]


@pytest.mark.parametrize(
    ("where", "found"), [(["default", "default"], ["new-0", "new-1"]), (["op"], []), ([], [])], ids=str
)
def test_attachments_are_looked_for_where_it_is_told(rails, capsys, where, found):
    with rails.requests() as seen:
        state = rails.run(capsys, rail_state, namespace="op", parts=["attachments"], attachments_in=where)["state"]
    assert sorted(one["metadata"]["name"] for one in state["attachments"]) == found
    asked = [path for _method, path in seen if path.endswith("network-attachment-definitions")]
    assert asked == [f"/apis/{layouts.CNI}/namespaces/{name}/network-attachment-definitions" for name in set(where)]


def test_kinds_are_told_from_what_the_server_serves(rails, capsys):
    kinds = [f"{layouts.CNI}/NetworkAttachmentDefinition", f"{layouts.CNI}/Nothing", "none.railyard.io/v1/MPIJob"]
    with rails.requests() as seen:
        served = rails.run(capsys, rail_state, namespace="op", parts=[], kinds=kinds)["served"]
    assert served == dict(zip(kinds, (True, False, False)))
    assert [path for _method, path in seen] == [f"/apis/{layouts.CNI}", "/apis/none.railyard.io/v1"]


@pytest.mark.parametrize("wrong", ["Pod", "v1/Pod", "g//Kind", "/v1/Pod", "g/v1/Kind/more", ""], ids=repr)
def test_a_kind_in_another_form_is_refused(rails, capsys, wrong):
    said = rails.run(capsys, rail_state, namespace="op", parts=[], kinds=[wrong])
    assert said["failed"] and repr(wrong) in said["msg"] and "GROUP/VERSION/KIND" in said["msg"]


@pytest.mark.parametrize("parts", [{}, {"parts": ["nodes"]}], ids=["all", "one-part"])
def test_drains_are_read_from_the_same_list_of_pods(rails, capsys, parts):
    with rails.requests() as seen:
        found = rails.run(capsys, rail_state, namespace="op", resource_prefixes=["nvidia.com"], drains=True, **parts)
    (pod,) = found["drains"]["pods"]
    assert (pod["name"], pod["resources"], pod["empty_dirs"]) == ("trainer", ["nvidia.com/vf_0"], ["scratch"])
    assert found["drains"]["unknown"] == {} and found["drains"]["resource_prefix"] is None
    assert sum(path.partition("?")[0] == "/api/v1/pods" for _method, path in seen) == 1
    assert "drains" not in rails.run(capsys, rail_state, namespace="op", parts=["nodes"])
