# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kind D: names of devices, and which device is which rail."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import (
    PCI,
    FieldNode,
    address,
    context,
    default_route,
    findings,
    found,
    layout,
    only,
)


@pytest.fixture
def node(tmp_path):
    return FieldNode(tmp_path)


def renamed(*names, **variables):
    """The intent with other names of the rails' interfaces."""
    rails = [{"pci": pci, "netdev": name} for pci, name in zip(PCI, names, strict=True)]
    return layout(rails=rails, **variables)


def test_fc36_a_name_from_before_the_kernel_upgrade(node):
    item = only("NAMING-003", context(node, renamed("ens7f0", "rdma1", network="ipvlan")))
    assert (item["severity"], item["rail"]) == ("error", 0)
    assert item["evidence"] == {"pci": PCI[0], "named": "ens7f0", "netdev": "rdma0", "named_is_rail": None}


def test_fc36_names_do_not_matter_where_rails_are_selected_by_pci_address(node):
    assert found(context(node, renamed("ens7f0", "ens7f1"))) == []
    assert found(context(node, renamed("rdma0", "rdma1", network="ipvlan"))) == []


def test_fc37_names_of_another_distribution(node):
    item = only("NAMING-003", context(node, renamed("enp170s0f0np0", "enp170s0f1np1", network="ipvlan")))
    assert item["rail"] is None and item["evidence"]["rails"] == [0, 1]
    assert "rdma0, rdma1" in item["remedy"]


def test_fc53_names_that_shifted_point_at_the_other_rail(node):
    items = findings(context(node, renamed("rdma1", "rdma0", network="ipvlan")))
    assert [item["id"] for item in items] == ["NAMING-003"]
    assert [each["named_is_rail"] for each in items[0]["evidence"]["each"]] == [1, 0]


def test_fc37_a_rail_that_is_not_at_its_address(node):
    intent = layout(rails=[{"pci": PCI[0], "netdev": "rdma0"}, {"pci": "0000:aa:00.1", "netdev": "rdma1"}])
    item = only("NAMING-001", context(node, intent))
    assert (item["rail"], item["evidence"]["pci"]) == (1, "0000:aa:00.1")
    assert set(item["evidence"]["devices"].values()) == set(PCI), "the evidence shows what is there instead"


def test_fc38_the_default_route_tells_the_front_end_nic(node):
    node.links["rdma1"]["default_routes"] = [default_route("198.51.100.1", "dhcp", metric=100)]
    item = only("NAMING-002", context(node))
    assert (item["severity"], item["rail"]) == ("error", 1)
    assert item["evidence"]["signs"] == ["default route via 198.51.100.1, metric 100"]


def test_fc38_the_address_of_the_node_tells_it(node):
    item = only("NAMING-002", context(node, addresses=("198.51.100.6",)))
    assert item["rail"] == 0 and "reached by its address" in item["evidence"]["signs"][0]
    assert found(context(node, addresses=("203.0.113.9",))) == []


@pytest.mark.parametrize(("kind", "expected"), [("bond", 1), ("bridge", 1), ("vrf", 0)])
def test_fc38_a_port_of_a_bond_or_bridge_is_no_rail(node, kind, expected):
    node.add("/sys/class/net/up0 -> ../../devices/virtual/net/up0\n/sys/devices/virtual/net/up0/mtu = 4220")
    node.links["up0"] = {"kind": kind, "vrf_table": 100 if kind == "vrf" else None}
    node.links["rdma0"]["master"] = "up0"
    node.add("/sys/devices/virtual/net/up0/operstate = up")
    assert [name for name, *_rest in found(context(node))].count("NAMING-002") == expected


def test_fc38_the_shape_lists_the_front_end_nics(node):
    intent = {**layout(), "front_end_nics": [PCI[1]]}
    assert only("NAMING-002", context(node, intent))["rail"] == 1


def test_fc18_routes_from_advertisements_make_no_front_end_nic(node):
    """Every rail of a routed fabric has one; only the other kind of default route tells the uplink."""
    for name in ("rdma0", "rdma1"):
        node.links[name]["default_routes"] = [default_route("fe80::5:1", "ra")]
    assert found(context(node)) == []


def test_fc18_default_routes_in_tables_of_their_own_do_not_either(node):
    node.links["rdma0"]["default_routes"] = [default_route("198.51.100.1", "static", table=100)]
    assert found(context(node)) == []


def test_fc38_what_the_kernel_does_not_tell_is_unknown(node):
    facts = node.facts()
    facts["netdevs"]["rdma0"].update(addresses=None, default_routes=None)
    assert ("NAMING-002", "unknown", 0) in found(context(facts))


def test_fc39_two_ways_of_naming_in_one_pool(tmp_path):
    nodes = [FieldNode(tmp_path / "a"), FieldNode(tmp_path / "b"), Other(tmp_path / "c")]
    item = only("NAMING-004", *(context(one, name=f"node-{place}") for place, one in enumerate(nodes)))
    assert (item["severity"], item["node"], item["rail"]) == ("warning", "node-2", None)
    assert item["summary"].startswith("2 ways of naming among 3 nodes")
    groups = item["evidence"]["groups"]
    assert [group["nodes"] for group in groups] == [["node-0", "node-1"], ["node-2"]]


class Other(FieldNode):
    """An image that names the devices by rail."""

    def rail(self, number, pci, netdev=None, device=None):
        super().rail(number, pci, netdev, f"rdma_rail{number}")


def test_fc39_numbers_that_differ_are_one_way_of_naming(tmp_path):
    class Counted(FieldNode):
        def rail(self, number, pci, netdev=None, device=None):
            super().rail(number, pci, netdev, f"mlx5_{number + 4}")

    nodes = [FieldNode(tmp_path / "a"), Counted(tmp_path / "b")]
    assert found(*(context(one, name=f"node-{place}") for place, one in enumerate(nodes))) == []


def test_fc39_addresses_have_nothing_to_do_with_names(tmp_path):
    nodes = [FieldNode(tmp_path / "a"), FieldNode(tmp_path / "b")]
    nodes[1].links["rdma0"]["addresses"] = [address("203.0.113.5/24")]
    ids = [name for name, *_rest in found(*(context(one, name=f"n{place}") for place, one in enumerate(nodes)))]
    assert "NAMING-004" not in ids
