# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a teardown says before it does anything: objects, pods, nodes, MTU, pools of others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import teardown

sys.path.insert(0, str(Path(__file__).parents[2] / "field_cases"))
import field_cluster as field

MODEL = {"layouts": [field.layout()]}


def row(kind, name, namespace=field.NS, action="deleted"):
    return {"kind": kind, "namespace": namespace, "name": name, "action": action}


GOING = [row("SriovNetwork", "rdma-vf"), row("SriovNetworkNodePolicy", "rails"), row("IPPool", "sriov-pool")]


def judged(going=None, keep=("nic_cluster_policy",), **changes):
    going = GOING if going is None else going
    state = field.cluster(**changes)
    for policy in state["policies"] or []:
        policy.setdefault("apiVersion", "sriovnetwork.openshift.io/v1")
    return teardown.consequences(MODEL, state, {"unknown": {}}, going, list(keep))


def test_objects_pods_and_nodes_are_told_before():
    found = judged()
    text = "\n".join(found["lines"])
    assert "SriovNetwork op/rdma-vf goes" in text
    assert "pod default/trainer-0 runs and uses what goes" in text
    assert "2 running pods use what goes: default/trainer-0, default/trainer-1" in found["refusals"][0]
    assert "node-a, node-b: effect" in text
    assert found["nothing"] is False and found["nic_cluster_policy"] is False
    assert "NicClusterPolicy nic-cluster-policy stays: it is kept" in text


def test_nothing_of_ours_left_is_told_and_stops_nobody():
    found = judged([row("SriovNetwork", "x", action="unchanged")])
    assert found["nothing"] and found["refusals"] == [] and found["going"] == []


@pytest.mark.parametrize(
    ("pod", "uses"),
    [
        ({"asks_for": "rdma-vf", "requests": {}}, True),
        ({"asks_for": "default/rdma-vf@net1", "requests": {}}, True),
        ({"asks_for": '[{"name": "rdma-vf"}]', "requests": {}, "namespace": "default"}, True),
        ({"asks_for": '[{"name": "rdma-vf", "namespace": "other"}]', "requests": {}}, False),
        ({"asks_for": "not json [", "requests": {}}, False),
        ({"asks_for": None, "requests": {"nvidia.com/rdma_vf": 1}}, True),
        ({"asks_for": None, "requests": {"nvidia.com/gpu": 8}}, False),
        ({"asks_for": "rdma-vf", "requests": {}, "phase": "Succeeded"}, False),
        ({"asks_for": "rdma-vf", "requests": {}, "namespace": "elsewhere"}, False),
    ],
    ids=["name", "with-interface", "json", "other-namespace", "hostile", "resource", "gpu-only", "ended", "own-space"],
)
def test_who_uses_what_goes(pod, uses):
    found = judged(pods=[field.pod("trainer", "node-a", **pod)])
    assert bool(found["users"]) is uses


def test_pods_that_could_not_be_read_are_no_reason_to_go_on():
    found = judged(pods=None, reasons={"pods": "pods is forbidden"})
    assert "which pods use the rails is not known: pods is forbidden" in found["refusals"]


def test_the_mtu_is_told_where_pfs_lose_their_vfs():
    spec = [
        {"pciAddress": pci, "numVfs": 1, "vfGroups": [{"resourceName": "rdma_vf", "vfRange": "0-0"}]}
        for pci in field.PFS
    ]
    states = []
    for name in ("node-a", "node-b"):
        states.append(field.node_state(name))
        states[-1]["spec"]["interfaces"] = spec
    text = "\n".join(judged(node_states=states, pods=[])["lines"])
    assert "2 PFs lose their VFs, their MTU falls back" in text and "1500" in text, text


def policy_of(*managers):
    obj = {"kind": "NicClusterPolicy", "metadata": {"name": "nic-cluster-policy"}, "spec": {"nvIpam": {}}}
    return [field.applied(obj, *managers)]


@pytest.mark.parametrize(
    ("managers", "pools", "goes", "said"),
    [
        (("railyard",), [field.applied(field.ip_pool(), "railyard")], True, "Multus, the CNI plugins and nv-ipam end"),
        (("railyard",), [field.ip_pool("theirs")], True, "IPPool theirs goes with it, and is not ours"),
        (("railyard", "argocd"), [], False, "stays: it was applied by argocd, too"),
        ((), [], False, "stays: it was not applied by us"),
    ],
    ids=["ours", "pools-of-others", "shared", "theirs"],
)
def test_the_nic_cluster_policy_goes_only_when_it_is_ours_and_is_asked_for(managers, pools, goes, said):
    found = judged(keep=[], nic_cluster_policies=policy_of(*managers), ip_pools=pools, pods=[])
    assert found["nic_cluster_policy"] is goes
    assert any(said in line for line in found["lines"])
    assert bool(found["refusals"]) is any(field.ip_pool("theirs") == pool for pool in pools)


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        ("networks", "got 'networks', allowed is a list"),
        (["network"], "got network, allowed are networks"),
        (["networks"], "networks without policies, pools, nic_cluster_policy"),
        (["pools"], "pools without nic_cluster_policy"),
        ([1], "allowed is a list"),
    ],
    ids=["text", "typo", "networks-alone", "pools-alone", "number"],
)
def test_a_list_that_would_leave_half_of_something_is_refused(keep, text):
    with pytest.raises(teardown.KeepError, match=text):
        teardown.check_keep(keep)
