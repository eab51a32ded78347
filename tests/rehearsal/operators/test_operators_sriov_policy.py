# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Policies to node state, the cost of a change, and what the device plugin offers."""

from __future__ import annotations

import pytest

from rehearsal.operators.sriov_daemon import firmware_differs, netns_mode
from rehearsal.operators.sriov_drain import may_start, to_evict
from rehearsal.operators.sriov_operator import pools_of, rdma_mode
from rehearsal.operators.sriov_policy import (
    device_plugin_config,
    max_unavailable,
    node_interfaces,
    pf_change,
    plan,
    pool_devices,
)

NODE = {"metadata": {"name": "n1", "labels": {"shape": "B4.8"}}}
PF0 = {
    "pciAddress": "0000:0c:00.0",
    "name": "rdma0",
    "vendor": "15b3",
    "deviceID": "1019",
    "mtu": 4220,
    "totalvfs": 127,
}
PF1 = {**PF0, "pciAddress": "0000:0c:00.1", "name": "rdma1"}
FRONT = {**PF0, "pciAddress": "0000:6b:00.0", "name": "eth0"}


def policy(name="p", **spec):
    base = {
        "resourceName": "rdma-vf",
        "numVfs": 1,
        "priority": 90,
        "mtu": 4220,
        "isRdma": True,
        "nodeSelector": {"shape": "B4.8"},
        "nicSelector": {"vendor": "15b3", "rootDevices": ["0000:0c:00.0", "0000:0c:00.1"]},
    }
    return {"metadata": {"name": name}, "spec": {**base, **spec}}


def test_a_policy_selects_by_all_its_fields():
    rows = node_interfaces([policy()], NODE, [PF0, PF1, FRONT])
    assert [row["pciAddress"] for row in rows] == ["0000:0c:00.0", "0000:0c:00.1"]
    group = {
        "resourceName": "rdma-vf",
        "policyName": "p",
        "vfRange": "0-0",
        "deviceType": "netdevice",
        "mtu": 4220,
        "isRdma": True,
    }
    assert rows[0] == {"pciAddress": "0000:0c:00.0", "name": "rdma0", "numVfs": 1, "mtu": 4220, "vfGroups": [group]}


def test_a_vendor_only_selector_takes_the_front_end_nic_too():  # FC-38
    rows = node_interfaces([policy(nicSelector={"vendor": "15b3"})], NODE, [PF0, FRONT])
    assert [row["name"] for row in rows] == ["rdma0", "eth0"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodeSelector": {"shape": "other"}},
        {"nicSelector": {}},
        {"nicSelector": {"vendor": "15b3", "rootDevices": ["0000:0C:00.0"]}},
        {"nicSelector": {"pfNames": ["ens7f0"]}},  # FC-36
        {"numVfs": 0},
    ],
)
def test_policies_that_select_nothing(wrong):
    assert node_interfaces([policy(**wrong)], NODE, [PF0, PF1]) == []


def test_policies_wait_for_the_interfaces_of_the_node():
    assert node_interfaces([policy()], NODE, []) == []


def test_the_last_of_two_policies_wins_silently():  # FC-33
    rows = node_interfaces([policy("a", priority=10, numVfs=2), policy("b", priority=90, numVfs=1)], NODE, [PF0])
    assert rows[0]["numVfs"] == 2 and [group["policyName"] for group in rows[0]["vfGroups"]] == ["a"]


def test_equal_priorities_take_the_larger_values():
    rows = node_interfaces([policy("a", numVfs=4, mtu=9000), policy("b", numVfs=1)], NODE, [PF0])
    assert (rows[0]["numVfs"], rows[0]["mtu"]) == (4, 9000)


def test_ranges_share_a_pf():
    one = policy("a", numVfs=4, priority=20, resourceName="low", nicSelector={"pfNames": ["rdma0#0-1"]})
    two = policy("b", numVfs=4, priority=10, resourceName="high", nicSelector={"pfNames": ["rdma0#2-3"]})
    rows = node_interfaces([one, two], NODE, [PF0])
    assert {group["resourceName"]: group["vfRange"] for group in rows[0]["vfGroups"]} == {"low": "0-1", "high": "2-3"}


def wanted(**change):
    return {**node_interfaces([policy()], NODE, [PF0])[0], **change}


def vf(index=0, **change):
    return {"vfID": index, "pciAddress": "0000:0c:00.2", "driver": "mlx5_core", "mtu": 4220, **change}


@pytest.mark.parametrize(
    ("spec", "status", "needed", "drain"),
    [
        ({}, {}, True, False),  # no VFs yet: filled without a drain
        ({}, {"numVfs": 1, "Vfs": [vf()]}, False, False),
        ({"numVfs": 2}, {"numVfs": 1, "Vfs": [vf()]}, True, True),
        ({"mtu": 9000}, {"numVfs": 1, "Vfs": [vf()]}, True, True),
        ({"mtu": 1500}, {"numVfs": 1, "Vfs": [vf()]}, False, False),  # a lower mtu never lowers the PF
        ({}, {"numVfs": 1, "Vfs": [vf(mtu=1500)]}, True, True),
        ({}, {"numVfs": 1, "Vfs": [vf(mtu=None)]}, False, False),  # in a pod: not comparable
        ({}, {"numVfs": 1, "Vfs": [vf(driver=None)]}, True, True),
        ({}, {"numVfs": 1, "Vfs": [vf()], "linkAdminState": "down"}, True, True),
    ],
)
def test_what_a_difference_costs(spec, status, needed, drain):
    change = pf_change(wanted(**spec), {**PF0, **status})
    assert (change.reason is not None, change.drain, change.error) == (needed, drain, None)


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"numVfs": 128}, {}),
        ({"externallyManaged": True, "numVfs": 2}, {"numVfs": 1, "Vfs": [vf()]}),  # FC-35
        ({"externallyManaged": True, "mtu": 9000}, {"numVfs": 1, "Vfs": [vf()]}),
    ],
)
def test_what_cannot_be_done_is_an_error(spec, status):
    assert pf_change(wanted(**spec), {**PF0, **status}).error


def test_only_vfs_of_our_own_are_removed():
    left = {**PF1, "numVfs": 1, "Vfs": [vf()]}
    assert plan([], [left], set()) == {}
    assert plan([], [left], {"0000:0c:00.1"})["0000:0c:00.1"].drain


def test_device_plugin_offers_existing_vfs_per_resource():
    one = policy("a", resourceName="rdma-vf-0", nicSelector={"rootDevices": ["0000:0c:00.0"]})
    two = policy("b", resourceName="rdma-vf-1", nicSelector={"rootDevices": ["0000:0c:00.1"]})
    rows = node_interfaces([one, two], NODE, [PF0, PF1])
    config = device_plugin_config(rows)
    vfs = {"0000:0c:00.0": {0: "0000:0c:00.2"}}
    assert pool_devices(config, vfs, {"0000:0c:00.2"}) == {"rdma-vf-0": ["0000:0c:00.2"], "rdma-vf-1": []}
    assert pool_devices(config, vfs, set())["rdma-vf-0"] == []  # isRdma, but no RDMA device


@pytest.mark.parametrize(("value", "nodes", "limit"), [(None, 5, 5), (1, 5, 1), ("100%", 32, 32), ("10%", 5, 0)])
def test_max_unavailable(value, nodes, limit):
    assert max_unavailable(value, nodes) == limit


def _node(name, **labels):
    return {"metadata": {"name": name, "labels": labels}}


def _state(name, current):
    return {"metadata": {"name": name, "annotations": {"sriovnetwork.openshift.io/current-state": current}}}


def test_one_node_of_a_pool_drains_at_a_time():
    nodes = [_node("a", shape="x"), _node("b", shape="x"), _node("c")]
    pool = {"metadata": {"name": "p"}, "spec": {"maxUnavailable": 1, "nodeSelector": {"matchLabels": {"shape": "x"}}}}
    states = {"a": _state("a", "Draining"), "b": _state("b", "Idle"), "c": _state("c", "Idle")}
    assert not may_start(nodes[1], nodes, [pool], states)
    assert may_start(nodes[2], nodes, [pool], states)  # another pool: the built-in one
    assert may_start(nodes[1], nodes, [pool], {**states, "a": _state("a", "Idle")})
    assert may_start(nodes[1], nodes, [{**pool, "spec": {**pool["spec"], "maxUnavailable": "100%"}}], states)  # FC-34


def test_a_node_in_two_pools_never_drains():
    nodes = [_node("a")]
    pools = [
        {"metadata": {"name": name}, "spec": {"maxUnavailable": 5, "rdmaMode": "exclusive"}} for name in ("p", "q")
    ]
    assert not may_start(nodes[0], nodes, pools, {})
    assert rdma_mode(nodes[0], pools) is None and rdma_mode(nodes[0], pools[:1]) == "exclusive"


def test_a_plain_label_under_a_label_selector_matches_every_node():
    pool = {"metadata": {"name": "p"}, "spec": {"nodeSelector": {}}}  # what pruning leaves of {shape: x}
    assert pools_of(_node("control-plane"), [pool]) == [pool]


def test_a_drain_takes_every_pod_with_a_resource_of_the_prefix():
    def pod(name, resource, phase="Running"):
        limits = {resource: "1"} if resource else {}
        return {
            "metadata": {"name": name},
            "spec": {"nodeName": "a", "containers": [{"resources": {"limits": limits}}]},
            "status": {"phase": phase},
        }

    pods = [
        pod("vf", "nvidia.com/rdma-vf"),
        pod("gpu", "nvidia.com/gpu"),
        pod("web", None),
        pod("done", "nvidia.com/gpu", "Succeeded"),
    ]
    assert [item["metadata"]["name"] for item in to_evict(pods, "a", "nvidia.com", False)] == ["vf", "gpu"]
    assert [item["metadata"]["name"] for item in to_evict(pods, "a", "nvidia.com", True)] == ["vf", "gpu", "web"]


def test_the_mellanox_plugin_wants_other_firmware():  # FC-31
    spec = node_interfaces([policy()], NODE, [PF0])
    assert firmware_differs(spec, [PF0, PF1]) == ["0000:0c:00.0", "0000:0c:00.1"]
    assert firmware_differs(spec, [{**PF0, "totalvfs": 1}, FRONT]) == []


@pytest.mark.parametrize(("text", "mode"), [("N\n", "exclusive"), ("Y\n", "shared"), ("", None), ("1\n", None)])
def test_mode_is_that_of_the_parameter(text, mode):
    assert netns_mode(text) == mode
