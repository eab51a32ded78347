# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Block arithmetic of nv-ipam pools."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal.operators.ipam import Ipam, IpamError
from rehearsal.operators.pools import PoolError, allocate_cidrpool, allocate_ippool, ippool_block_count, node_range

FLAT = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 100, "gateway": "192.168.0.1"}


@pytest.mark.parametrize(
    ("subnet", "block", "nodes"),
    [
        ("192.168.0.0/16", 100, 655),
        ("192.168.0.0/16", 32, 2047),
        ("192.168.0.0/16", 64, 1023),
        ("10.0.0.0/20", 100, 40),
        ("10.0.0.0/22", 100, 10),
        ("10.0.0.0/24", 100, 2),
        ("fd00::/112", 100, 655),
    ],
)
def test_number_of_blocks(subnet, block, nodes):
    assert ippool_block_count({"subnet": subnet, "perNodeBlockSize": block}) == nodes


@pytest.mark.parametrize(
    "change", [{"perNodeBlockSize": 0}, {"perNodeBlockSize": 65535}, {"subnet": "192.168.0.0.0/16"}]
)
def test_a_pool_that_makes_no_sense(change):
    with pytest.raises(PoolError):
        allocate_ippool({**FLAT, **change}, ["a"], [])


def test_blocks_start_after_the_network_address_and_stay():
    rows = allocate_ippool(FLAT, ["b", "a"], [])
    assert rows == [
        {"nodeName": "a", "startIP": "192.168.0.1", "endIP": "192.168.0.100"},
        {"nodeName": "b", "startIP": "192.168.0.101", "endIP": "192.168.0.200"},
    ]
    # node a leaves, c comes: b keeps its block, c gets the free one
    assert allocate_ippool(FLAT, ["b", "c"], rows) == [
        {"nodeName": "c", "startIP": "192.168.0.1", "endIP": "192.168.0.100"},
        {"nodeName": "b", "startIP": "192.168.0.101", "endIP": "192.168.0.200"},
    ]


def test_a_changed_block_size_drops_what_no_longer_fits():
    rows = allocate_ippool(FLAT, ["a", "b"], [])
    again = allocate_ippool({**FLAT, "perNodeBlockSize": 50}, ["a", "b"], rows)
    assert [row["endIP"] for row in again] == ["192.168.0.50", "192.168.0.100"]


def test_an_exhausted_pool_leaves_nodes_without_entry():
    rows = allocate_ippool({**FLAT, "subnet": "10.0.0.0/24"}, ["a", "b", "c"], [])
    assert [row["nodeName"] for row in rows] == ["a", "b"]


@given(prefix=st.integers(16, 30), block=st.integers(1, 300), nodes=st.integers(0, 20))
def test_blocks_are_disjoint_and_inside(prefix, block, nodes):
    network = ipaddress.ip_network(f"10.0.0.0/{prefix}")
    spec = {"subnet": str(network), "perNodeBlockSize": block}
    if block > network.num_addresses - 2:
        with pytest.raises(PoolError):
            allocate_ippool(spec, ["n"], [])
        return
    rows = allocate_ippool(spec, [f"n{i}" for i in range(nodes)], [])
    assert len(rows) == min(nodes, (network.num_addresses - 2) // block)
    last = network.network_address
    for row in rows:
        first, end = ipaddress.ip_address(row["startIP"]), ipaddress.ip_address(row["endIP"])
        assert last < first and int(end) - int(first) + 1 == block and end < network.broadcast_address
        last = end


def test_cidr_pool_static_first_then_free():
    spec = {
        "cidr": "10.8.0.0/16",
        "perNodeNetworkPrefix": 24,
        "gatewayIndex": 1,
        "staticAllocations": [
            {"nodeName": "b", "prefix": "10.8.0.0/24", "gateway": "10.8.0.254"},
            {"prefix": "10.8.1.0/24"},
        ],
    }
    assert allocate_cidrpool(spec, ["a", "b"], []) == [
        {"nodeName": "b", "prefix": "10.8.0.0/24", "gateway": "10.8.0.254"},
        {"nodeName": "a", "prefix": "10.8.2.0/24", "gateway": "10.8.2.1"},
    ]
    with pytest.raises(PoolError):
        allocate_cidrpool({**spec, "perNodeNetworkPrefix": 8}, ["a"], [])


def _pool(**spec):
    spec = {**FLAT, **spec}
    return {"spec": spec, "status": {"allocations": allocate_ippool(spec, ["a", "b"], [])}}


def test_the_node_whose_block_holds_the_gateway_has_one_address_less():
    pool = _pool(perNodeBlockSize=3)
    ipam = Ipam("a", {}, lambda kind, name: pool)
    given_out = [ipam.add({"type": "nv-ipam", "poolName": "p"}, f"pod/{i}", [])["ips"][0]["address"] for i in range(2)]
    assert given_out == ["192.168.0.2/16", "192.168.0.3/16"]
    with pytest.raises(IpamError, match="no free IPs"):
        ipam.add({"type": "nv-ipam", "poolName": "p"}, "pod/9", [])


def test_addresses_go_round_so_that_a_freed_one_is_not_next():
    store: dict = {}
    ipam = Ipam("b", store, lambda kind, name: _pool(perNodeBlockSize=3))
    assert ipam.add({"type": "nv-ipam", "poolName": "p"}, "one", [])["ips"] == [
        {"address": "192.168.0.4/16", "gateway": "192.168.0.1"}
    ]
    ipam.release("one")
    assert ipam.add({"type": "nv-ipam", "poolName": "p"}, "two", [])["ips"][0]["address"] == "192.168.0.5/16"
    # the same owner asks again (a repeated ADD) and keeps its address
    assert ipam.add({"type": "nv-ipam", "poolName": "p"}, "two", [])["ips"][0]["address"] == "192.168.0.5/16"


def test_no_block_for_this_node_is_an_error_of_the_plugin():
    with pytest.raises(IpamError, match='configuration for pool "p", poolType "ippool" not found'):
        Ipam("elsewhere", {}, lambda kind, name: _pool()).add({"type": "nv-ipam", "poolName": "p"}, "x", [])
    assert node_range({"spec": FLAT}, "a") is None
