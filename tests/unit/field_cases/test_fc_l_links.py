# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kind L: several rails on one link, and MTUs. The values of the host are those of pods on the host's network only."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import (
    FieldNode,
    address,
    context,
    found,
    layout,
    only,
    source_rule,
)

HOST = {"network": "host_network"}
FLAT = ["192.168.0.11", "192.168.0.12"]


@pytest.fixture
def node(tmp_path):
    """Rails in one subnet, each with a rule for what it sends."""
    node = FieldNode(tmp_path)
    for number, text in enumerate(FLAT):
        node.links[f"rdma{number}"]["addresses"] = [address(f"{text}/16")]
    node.rules = [source_rule(f"{text}/32", 100 + number) for number, text in enumerate(FLAT)]
    return node


def test_the_flat_twin_is_healthy(node):
    assert found(context(node, layout(**HOST))) == []


def test_fc48_rails_that_answer_for_each_other(node):
    for scope in ("all", "rdma0", "rdma1"):
        node.sysctls(scope, arp_ignore=0)
    item = only("ARP-001", context(node, layout(**HOST)))
    assert item["rail"] is None and item["evidence"]["each"][0] == {"arp_ignore": 0, "arp_announce": 2}


def test_fc48_the_larger_of_all_and_interface_counts(node):
    for scope in ("rdma0", "rdma1"):
        node.sysctls(scope, arp_ignore=0, arp_announce=0)
    assert found(context(node, layout(**HOST))) == []


def test_fc48_rails_in_subnets_of_their_own_cannot_mix(tmp_path):
    node = FieldNode(tmp_path)
    for scope in ("all", "rdma0", "rdma1"):
        node.sysctls(scope, arp_ignore=0, arp_announce=0)
    assert found(context(node, layout(**HOST))) == []


@pytest.mark.parametrize("network", ["sriov", "ipvlan", "macvlan"])
def test_fc48_values_of_the_host_prove_nothing_for_pods_with_interfaces_of_their_own(node, network):
    for scope in ("all", "rdma0", "rdma1"):
        node.sysctls(scope, arp_ignore=0, rp_filter=1)
    assert found(context(node, layout(network=network))) == []


def test_fc49_strict_filtering_on_all_beats_the_interface(node):
    node.sysctls("all", rp_filter=1)
    item = only("ARP-002", context(node, layout(**HOST)))
    assert item["evidence"]["each"] == [{"rp_filter": 1}, {"rp_filter": 1}]
    node.sysctls("all", rp_filter=2)
    assert found(context(node, layout(**HOST))) == []


@pytest.mark.parametrize("prefix", ["2001:db8:0:a::1{}/64", "192.168.0.1{}/16"])
def test_fc52_rails_of_one_prefix_without_a_rule(node, prefix):
    node.rules = []
    for number in range(2):
        node.links[f"rdma{number}"]["addresses"] = [address(prefix.format(number + 1))]
    item = only("ARP-003", context(node, layout(**HOST)))
    assert (item["severity"], item["evidence"]["rails"]) == ("warning", [0, 1])
    node.rules = [source_rule(prefix.format(number + 1).partition("/")[0], 100 + number) for number in range(2)]
    assert found(context(node, layout(**HOST))) == []


def test_fc52_a_rule_that_leads_into_the_main_table_is_none(node):
    node.rules[1]["table"] = 254
    item = only("ARP-003", context(node, layout(**HOST)))
    assert (item["rail"], item["evidence"]["addresses"]) == (1, {"1": ["192.168.0.12"]})


def test_fc51_a_rail_below_the_wanted_mtu(node):
    node.write("/sys/class/net/rdma0/mtu", "1500")
    item = only("LINK-002", context(node, layout(**HOST)))
    assert (item["rail"], item["evidence"]) == (
        0,
        {"mtu": 1500, "active_mtu": 1024, "wanted": 4220, "wanted_active": 4096},
    )


def test_fc51_unequal_ends_of_a_rail(tmp_path):
    nodes = [FieldNode(tmp_path / name) for name in ("a", "b", "c")]
    nodes[1].write("/sys/class/net/rdma0/mtu", "1500")
    contexts = [context(one, layout(mtu=1500), name=f"node-{name}") for one, name in zip(nodes, "abc", strict=True)]
    item = only("LINK-003", *contexts)
    assert (item["node"], item["rail"], item["severity"]) == ("node-b", 0, "error")
    (groups,) = item["evidence"]["groups"]
    assert {"mtu": 4220, "active_mtu": 4096, "nodes": ["node-a", "node-c"]} in groups


def test_fc51_larger_frames_with_the_same_rdma_mtu_are_a_warning(tmp_path):
    nodes = [FieldNode(tmp_path / name) for name in ("a", "b")]
    nodes[1].write("/sys/class/net/rdma0/mtu", "9000")
    contexts = [context(one, name=f"node-{name}") for one, name in zip(nodes, "ab", strict=True)]
    assert found(*contexts) == [("LINK-003", "warning", 0)]
    nodes[0].write("/sys/class/net/rdma0/mtu", "9000")
    assert found(*(context(one, name=f"node-{name}") for one, name in zip(nodes, "ab", strict=True))) == []
