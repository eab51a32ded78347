# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IPvlan and macvlan children of the rails.

A veth stands in for every child, also where the machine's kernel has the real drivers: a rail is a veth itself, and one
way of behaving on all machines is worth more. Its far end is on the wire like that of a rail, so it is found in
whatever namespace it is. Unlike a rail it ends with the namespace that it is in.
"""

from __future__ import annotations

import errno
import ipaddress
import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from .devices import Devices, Netdev, Port
from .errors import failure
from .netdevs import Netdevs

IPVLAN, MACVLAN = "ipvlan", "macvlan"
KINDS = (IPVLAN, MACVLAN)
LAST_DEV_ID = 0xFFFD  # drivers/net/ipvlan/ipvlan_main.c, ipvlan_link_new


@dataclass(frozen=True)
class Child:
    """A child of a port's interface; ``dev_id`` tells the IPvlan children of one parent apart (0 for macvlan)."""

    parent: Port
    netdev: Netdev
    kind: str
    dev_id: int

    @property
    def interface_id(self) -> str | None:
        """Lower half of the IPv6 addresses that the kernel makes for it, as text to put behind "::"; None for the usual one
        of the MAC.

        Children that share a MAC differ by their number in the middle, and the universal bit is not turned
        (addrconf_ifid_eui48, net/ipv6).
        """
        if not self.dev_id:
            return None
        octets = bytes.fromhex(self.netdev.mac.replace(":", ""))
        identifier = octets[:3] + self.dev_id.to_bytes(2, "big") + octets[3:]
        return str(ipaddress.ip_address(b"\0" * 8 + identifier)).removeprefix("::")


class Children:
    """All children of a node, in the order in which they were made."""

    def __init__(self, devices: Devices, netdevs: Netdevs) -> None:
        self.devices, self.netdevs = devices, netdevs
        self._all: dict[str, Child] = {}
        self._wires = itertools.count()
        self._next_id: dict[str, int] = {}

    def add(self, lower: str, name: str, kind: str, netns_fd: int, mtu: int | None, mac: str | None) -> Child:
        """Make a child of the node's interface ``lower`` in a network namespace, as RTM_NEWLINK with IFLA_LINK does.

        Errors: ENODEV no such interface, EEXIST the name is taken there, EINVAL a kind or an MTU that the driver refuses.
        """
        if kind not in KINDS or (kind == IPVLAN and mac):
            raise failure(errno.EINVAL)
        parent = self._port(lower)
        link = self.netdevs.link(parent.netdev)
        if link is None:
            raise failure(errno.ENODEV)
        if mtu is not None and not 68 <= mtu <= link.mtu:
            raise failure(errno.EINVAL)
        own = link.mac if kind == IPVLAN else mac or _random_mac()
        netdev = Netdev(name, own, mtu or link.mtu, f"c{next(self._wires)}", up=False, passes=True)
        child = Child(parent, netdev, kind, self._number(parent) if kind == IPVLAN else 0)
        self.netdevs.attach(netdev, netns_fd)
        self._all[netdev.wire] = child
        return child

    def of(self, port: Port) -> Iterator[Child]:
        return (child for child in self._all.values() if child.parent is port)

    def at(self, wire: str | None) -> Child | None:
        """The child with this far end."""
        return self._all.get(wire or "")

    def gone(self, netdev: Netdev) -> None:
        """The kernel removed it together with its namespace, or somebody deleted it."""
        self._all.pop(netdev.wire, None)

    def parent_gone(self, port: Port) -> None:
        """Children go with their parent (NETDEV_UNREGISTER)."""
        for child in list(self.of(port)):
            self.gone(child.netdev)
            self.netdevs.detach(child.netdev)

    def _port(self, lower: str) -> Port:
        for port in self.devices.ports():
            place = self.netdevs.where(port.netdev)
            if place and place[0] == self.netdevs.home and port.netdev.name == lower:
                return port
        raise failure(errno.ENODEV)

    def _number(self, parent: Port) -> int:
        """The next free number: they are given out in turn, and start anew when the parent has no child."""
        used = {child.dev_id for child in self.of(parent)}
        first = self._next_id.get(parent.netdev.wire, 1) if used else 1
        turn = itertools.chain(range(first, LAST_DEV_ID + 1), range(1, first))
        number = next((number for number in turn if number not in used), None)
        if number is None:
            raise failure(errno.ENOSPC)
        self._next_id[parent.netdev.wire] = number + 1
        return number


def _random_mac() -> str:
    """Locally administered (eth_hw_addr_random)."""
    octets = secrets.token_bytes(6)
    return bytes([octets[0] & 0xFC | 0x02, *octets[1:]]).hex(":")
