# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kind V: IPv6 on rails of the node, and address ranges of pods that prove nothing there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import (
    FieldNode,
    address,
    context,
    found,
    layout,
    only,
)

ROOT = Path(__file__).resolve().parents[3]
SLAAC = {"network": "ipvlan", "ip_family": "ipv6_slaac"}
ADVERTISED = "2001:db8:0:a1:2aa:ff:fe00:107/64"


@pytest.fixture
def node(tmp_path):
    node = FieldNode(tmp_path)
    for number in range(2):
        own = address(f"2001:db8:0:a{number}:2aa:ff:fe00:107/64", dynamic=True, origin="kernel_ra")
        node.links[f"rdma{number}"]["addresses"] = [own, address(f"fe80::{number + 1}/64")]
    return node


def test_fc13_a_second_address_from_an_advertisement(node):
    node.links["rdma0"]["addresses"].append(address("2001:db8:0:a1::4f/64"))
    item = only("ADDRESS-003", context(node, layout(**SLAAC)))
    assert (item["severity"], item["rail"]) == ("warning", 0)
    assert [row["origin"] for row in item["evidence"]["addresses"]] == ["kernel_ra", None]


def test_fc13_link_local_and_deprecated_addresses_do_not_count(node):
    node.links["rdma0"]["addresses"].append(address("2001:db8:0:a1::9/64", deprecated=True))
    assert found(context(node, layout(**SLAAC))) == []


@pytest.mark.parametrize(("network", "severity"), [("ipvlan", "warning"), ("host_network", "error")])
def test_fc14_ipv6_that_is_disabled_on_the_rails(node, network, severity):
    for name in ("rdma0", "rdma1"):
        node.sysctls(name, disable_ipv6=1)
    item = only("ADDRESS-001", context(node, layout(network=network, ip_family="ipv6_slaac")))
    assert (item["severity"], item["rail"]) == (severity, None)
    assert "net.ipv6.conf.rdma1.disable_ipv6=0" in item["remedy"]


def test_fc14_ipv4_rails_need_no_ipv6(tmp_path):
    node = FieldNode(tmp_path)
    node.sysctls("rdma0", disable_ipv6=1)
    assert found(context(node)) == []


def test_fc14_a_kernel_without_ipv6_is_unknown(node):
    for path in (node.root / "proc/sys/net/ipv6/conf/rdma0").iterdir():
        path.unlink()
    assert {("ADDRESS-001", "unknown", 0), ("ADDRESS-002", "unknown", 0)} <= set(found(context(node, layout(**SLAAC))))


def test_fc16_forwarding_makes_the_kernel_ignore_advertisements(node):
    node.sysctls("rdma0", forwarding=1, accept_ra=1)
    node.links["rdma0"]["addresses"] = [address("fe80::1/64")]
    item = only("ADDRESS-002", context(node, layout(**SLAAC)))
    assert (item["severity"], item["rail"]) == ("error", 0)
    assert "net.ipv6.conf.rdma0.accept_ra=2" in item["remedy"]
    assert item["evidence"] == {"netdev": "rdma0", "forwarding": 1, "accept_ra": 1, "addresses": []}


@pytest.mark.parametrize(("forwarding", "accept_ra"), [(1, 2), (0, 1), (0, 2)])
def test_fc16_rails_that_accept_advertisements(node, forwarding, accept_ra):
    node.sysctls("rdma0", forwarding=forwarding, accept_ra=accept_ra)
    assert found(context(node, layout(**SLAAC))) == []


def test_fc16_a_program_may_handle_advertisements_itself(node):
    """systemd-networkd sets accept_ra=0 and forms the address; without one nobody does."""
    node.sysctls("rdma0", forwarding=1, accept_ra=0)
    assert found(context(node, layout(**SLAAC))) == []
    node.links["rdma0"]["addresses"] = [address("fe80::1/64")]
    assert found(context(node, layout(**SLAAC))) == [("ADDRESS-002", "error", 0)]


def test_fc17_an_address_that_is_still_tentative(node):
    node.links["rdma1"]["addresses"][0]["tentative"] = True
    item = only("ADDRESS-004", context(node, layout(**SLAAC)))
    assert (item["severity"], item["rail"]) == ("warning", 1)


def test_fc19_no_role_and_no_playbook_changes_how_hosts_take_routes():
    """The host's route through a rail is a contract with the site's health check."""
    words = re.compile(r"accept_ra_defrtr|accept_ra_rtr_pref|ip -6 route|ip route (add|del|replace)|ip rule (add|del)")
    places = [path for folder in ("roles", "playbooks") for path in (ROOT / folder).rglob("*.y*ml")]
    assert places, "nothing was looked at"
    assert [str(path) for path in places if words.search(path.read_text(encoding="utf-8"))] == []
