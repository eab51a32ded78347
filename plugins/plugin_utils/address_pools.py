# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Address arithmetic of nv-ipam's pools: how many nodes a pool serves, and how many addresses each node really gets.

The rules are those of Mellanox/nvidia-k8s-ipam (commit 3ce4a34ced96). An IPPool cuts its subnet, from the address after
the network address on, into blocks of the same size. A CIDRPool gives each node a subnet of the same prefix length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

try:
    import netaddr
except ImportError:  # The action plugin reports it; the documentation must stay readable without the library.
    netaddr = None


class AddressError(ValueError):
    """Text that is no address or network as wanted; the text of the error says what is allowed."""


@dataclass(frozen=True)
class Block:
    """The addresses of one node, as numbers, both ends included, and those among them that pods cannot get."""

    first: int
    last: int
    # Where the positions of per-node exclusions are counted from.
    base: int
    taken: tuple[tuple[int, int], ...] = field(default=())

    def free(self) -> int:
        """Return how many addresses pods can get."""
        return (self.last - self.first + 1) - _covered(self.first, self.last, self.taken)


def network(text: str):
    """Parse a network in CIDR notation.

    :returns: C(netaddr.IPNetwork)
    :raises AddressError: no network, no prefix length, or host bits set.
    """
    if not isinstance(text, str) or "/" not in text or not text.rpartition("/")[2].isdecimal():
        raise AddressError("a network with a prefix length, such as 192.168.0.0/16")
    try:
        parsed = netaddr.IPNetwork(text)
    except (netaddr.AddrFormatError, ValueError) as error:
        raise AddressError("a network with a prefix length, such as 192.168.0.0/16") from error
    if parsed.ip != parsed.network:
        raise AddressError(f"a network without host bits, here {parsed.cidr}")
    return parsed


def address(text: str):
    """Parse one address. :raises AddressError: it is none. :returns: C(netaddr.IPAddress)"""
    if not isinstance(text, str):
        raise AddressError("an IP address")
    try:
        return netaddr.IPAddress(text, flags=netaddr.INET_PTON)
    except (netaddr.AddrFormatError, ValueError) as error:
        raise AddressError("an IP address") from error


def overlap(first, second) -> bool:
    """Return whether two networks share an address."""
    return first.version == second.version and first.first <= second.last and second.first <= first.last


def usable_range(net) -> tuple[int, int]:
    """Return the first and last address of a network that a host can have, as numbers.

    IPv4 loses the network and the broadcast address, IPv6 the network address (subnet router anycast, RFC 4291, 2.6.1).
    Networks of one or two addresses lose none (RFC 3021, RFC 6164).
    """
    if net.size <= 2:
        return net.first, net.last
    return net.first + 1, net.last - (1 if net.version == 4 else 0)


def ip_pool_nodes(net, block_size: int) -> int:
    """Return how many blocks an IPPool has; /31 and /32 are not usable as such a pool."""
    first, last = usable_range(net)
    return (last - first + 1) // block_size


def ip_pool_block(net, block_size: int, index: int) -> Block:
    """Return the block with a number, counted from 0, of an IPPool."""
    first = usable_range(net)[0] + index * block_size
    return Block(first, first + block_size - 1, first)


def cidr_pool_nodes(net, node_prefix: int) -> int:
    """Return how many node subnets a CIDRPool has."""
    return 2 ** (node_prefix - net.prefixlen)


def cidr_pool_block(net, node_prefix: int, index: int) -> Block:
    """Return the node subnet with a number, counted from 0, of a CIDRPool."""
    size = 2 ** ((32 if net.version == 4 else 128) - node_prefix)
    subnet = netaddr.IPNetwork((net.first + index * size, node_prefix), version=net.version)
    first, last = usable_range(subnet)
    return Block(first, last, subnet.first)


def without(block: Block, ranges: Iterable[tuple[int, int]] = (), positions: Iterable[tuple[int, int]] = ()) -> Block:
    """Return a block less some ranges of addresses and some ranges of positions in the block."""
    taken = [*block.taken, *ranges, *((block.base + start, block.base + end) for start, end in positions)]
    return Block(block.first, block.last, block.base, tuple(taken))


def _covered(first: int, last: int, ranges: Iterable[tuple[int, int]]) -> int:
    """Return how many numbers from first to last lie in at least one of the ranges."""
    count, reached = 0, first - 1
    for start, end in sorted(ranges):
        start, end = max(start, reached + 1), min(end, last)
        if start <= end:
            count += end - start + 1
            reached = end
    return count
