# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pool arithmetic against counting with the standard library."""

from __future__ import annotations

import ipaddress

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import address_pools as pools
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def small_networks(draw):
    """IPv4 and IPv6 networks of up to 1024 addresses, so that they can be counted."""
    version = draw(st.sampled_from([4, 6]))
    bits = 32 if version == 4 else 128
    prefix = draw(st.integers(bits - 10, bits))
    base = draw(st.integers(0, 2**32 - 1 if version == 4 else 2**128 - 1)) >> (bits - prefix) << (bits - prefix)
    return (ipaddress.IPv4Network if version == 4 else ipaddress.IPv6Network)((base, prefix))


def usable(net) -> list[int]:
    """The addresses that hosts can have, counted one by one."""
    if net.num_addresses <= 2:
        return [int(address) for address in net]
    drop_last = 1 if net.version == 4 else 0
    return [int(address) for address in net][1 : net.num_addresses - drop_last]


@given(small_networks(), st.integers(1, 64))
def test_blocks_of_an_ip_pool_follow_each_other_and_fit(net, size):
    parsed = pools.network(str(net))
    hosts = usable(net)
    count = pools.ip_pool_nodes(parsed, size)
    assert count == len(hosts) // size
    for index in (0, count - 1) if count else ():
        block = pools.ip_pool_block(parsed, size, index)
        assert list(range(block.first, block.last + 1)) == hosts[index * size : (index + 1) * size]
        assert block.free() == size


@given(small_networks(), st.integers(0, 10), st.data())
def test_node_subnets_of_a_cidr_pool_are_those_of_the_standard_library(net, longer, data):
    prefix = min(net.prefixlen + longer, net.max_prefixlen)
    parsed = pools.network(str(net))
    subnets = list(net.subnets(new_prefix=prefix))
    assert pools.cidr_pool_nodes(parsed, prefix) == len(subnets)
    index = data.draw(st.integers(0, len(subnets) - 1))
    block = pools.cidr_pool_block(parsed, prefix, index)
    assert list(range(block.first, block.last + 1)) == usable(subnets[index])
    assert block.base == int(subnets[index].network_address)


RANGES = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 20)).map(lambda r: (r[0], r[0] + r[1])), max_size=6)


@given(st.integers(0, 60), st.integers(0, 60), RANGES, RANGES)
def test_free_addresses_are_those_in_no_exclusion(start, length, ranges, positions):
    block = pools.without(pools.Block(start, start + length, start), ranges, positions)
    taken = {n for low, high in ranges for n in range(low, high + 1)}
    taken |= {start + n for low, high in positions for n in range(low, high + 1)}
    assert block.free() == len(set(range(start, start + length + 1)) - taken)


@given(small_networks(), small_networks())
def test_overlap_is_that_of_the_standard_library(first, second):
    expected = first.version == second.version and first.overlaps(second)
    assert pools.overlap(pools.network(str(first)), pools.network(str(second))) == expected


@pytest.mark.parametrize(
    ("subnet", "size", "nodes"),
    [
        ("192.168.0.0/16", 100, 655),
        ("192.168.0.0/16", 32, 2047),
        ("192.168.0.0/16", 64, 1023),
        ("10.0.0.0/20", 100, 40),
        ("10.0.0.0/22", 100, 10),
        ("10.0.0.0/24", 100, 2),
        ("fd01:0:0:100::/112", 100, 655),
    ],
)
def test_known_figures(subnet, size, nodes):
    assert pools.ip_pool_nodes(pools.network(subnet), size) == nodes


@pytest.mark.parametrize("text", ["192.168.0.0/16", "fd01:0:0:100::/112", "10.0.0.1/32", "0.0.0.0/0"])
def test_networks_are_taken(text):
    assert pools.network(text).prefixlen == int(text.rpartition("/")[2])


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("192.168.0.5/16", "without host bits, here 192.168.0.0/16"),
        ("fd01::1/112", "without host bits, here fd01::/112"),
        ("192.168.0.0", "with a prefix length"),
        ("192.168.0.0/33", "with a prefix length"),
        ("192.168.0.0/255.255.0.0", "with a prefix length"),
        ("10/8", "with a prefix length"),
        ("rails", "with a prefix length"),
        (None, "with a prefix length"),
    ],
)
def test_other_text_is_refused_with_what_is_allowed(text, allowed):
    with pytest.raises(pools.AddressError, match=allowed):
        pools.network(text)


@pytest.mark.parametrize("text", ["10.1", "10.0.0.256", "", None, 7, "10.0.0.1/32"])
def test_addresses_are_whole(text):
    with pytest.raises(pools.AddressError):
        pools.address(text)
