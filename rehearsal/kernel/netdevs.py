# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's real interfaces: veth pairs whose far ends lie in a namespace of their own, the wire.

A far end never moves, and the kernel tells for it in which namespace (by id) and under which ifindex the near end is
now. So an interface is found wherever it was moved to and however it was renamed, without holding on to any namespace.
One socket on the wire hears the changes of all namespaces that have an id there (NETLINK_LISTEN_ALL_NSID).
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import socket
import struct
import sys
from collections.abc import Callable

from . import linux, netlink
from .devices import Netdev
from .netlink import Link, Rtnl

_LISTEN_ALL_NSID, _SOL_NETLINK = 8, 270
_CHANGES = (netlink.RTNLGRP_LINK, netlink.RTNLGRP_IPV4_IFADDR, netlink.RTNLGRP_IPV6_IFADDR)


class Netdevs:
    """Makes, finds and removes interfaces. Made in the node's network namespace, which becomes ``home``."""

    def __init__(self) -> None:
        self._home_fd = linux.own_netns_fd()
        self._home = Rtnl()
        with linux.new_netns() as wire_fd:
            self._wire_fd = wire_fd  # keeps the wire alive; when this process ends the interfaces go with it
            self._wire = Rtnl()
            self.changes = Rtnl(_CHANGES).socket
            self.endings = Rtnl((netlink.RTNLGRP_NSID,)).socket  # ids as the wire numbers them, so of the wire only
        self.changes.setsockopt(_SOL_NETLINK, _LISTEN_ALL_NSID, 1)
        self.changes.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.changes.setblocking(False)
        self.endings.setblocking(False)
        self._news = select.poll()
        self._news.register(self.changes, select.POLLIN)
        self._news.register(self.endings, select.POLLIN)
        self.home = self._wire.netns_id(self._home_fd)
        self._ids: dict[str, int] = {os.readlink(f"/proc/self/fd/{self._home_fd}"): self.home}
        self.all: dict[str, Netdev] = {}
        self._stale = True
        self._told_netns = -1
        self._where: dict[str, tuple[int, int]] = {}
        self._at: dict[tuple[int, int], str] = {}
        self._links: dict[int, dict[int, Link]] = {}
        self._addresses: dict[int, dict[int, list[str]]] = {}
        # (namespace, ifindex, address) -> when it appeared: dumps have another order.
        self._since: dict[tuple[int, int, str], int] = {}
        self._moments = itertools.count()
        self.on_namespace_gone: Callable[[int], None] = lambda netns: None
        self.on_change: Callable[[], None] = lambda: None
        self.on_passed: Callable[[Netdev], None] = lambda netdev: None

    # -- namespaces --------------------------------------------------------------------------------------------------

    def netns_of_pid(self, pid: int) -> int:
        """The namespace id of a process; the node's own when the process is gone or unknown (pid 0)."""
        try:
            name = os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            return self.home
        self._hear()
        if name not in self._ids:
            try:
                fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return self.home
            try:
                self.netns_of_fd(fd)
            finally:
                os.close(fd)
        return self._ids.get(name, self.home)

    def netns_of_fd(self, fd: int) -> int:
        number = self._wire.netns_id(fd)
        self._ids[os.readlink(f"/proc/self/fd/{fd}")] = number
        return number

    def _hear(self) -> None:
        """Take in what happened since the last look. Notifications are queued before the change's caller goes on."""
        if not self._news.poll(0):
            return
        while (data := self._receive(self.endings)) is not None:
            for _sequence, kind, payload in netlink.messages(data):
                if kind == netlink.RTM_DELNSID:
                    gone = netlink.removed_netns_id(payload)
                    self._ids = {name: number for name, number in self._ids.items() if number != gone}
                    self._since = {key: when for key, when in self._since.items() if key[0] != gone}
                    self.on_namespace_gone(gone)
        while (data := self._receive(self.changes)) is not None:
            self._stale = True
            for kind, ifindex, address in netlink.address_changes(data):
                key = self._told_netns, ifindex, address
                if kind == netlink.RTM_DELADDR:
                    self._since.pop(key, None)
                else:
                    self._since.setdefault(key, next(self._moments))

    def _receive(self, sock: socket.socket) -> bytes | None:
        """The next message; ``_told_netns`` is then the namespace that it is about."""
        try:
            data, ancillary, _flags, _address = sock.recvmsg(1 << 16, socket.CMSG_SPACE(4))
            told = [text for level, kind, text in ancillary if (level, kind) == (_SOL_NETLINK, _LISTEN_ALL_NSID)]
            self._told_netns = struct.unpack("=i", told[0][:4])[0] if told else -1
            return data
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.ENOBUFS:  # notifications were lost: look at everything again
                raise
            self._stale = True
            return b""

    # -- interfaces --------------------------------------------------------------------------------------------------

    def attach(self, netdev: Netdev, netns_fd: int | None = None) -> None:
        """Make the interface in a namespace, the node's own by default. EEXIST when the name is taken there."""
        where = self._home_fd if netns_fd is None else netns_fd
        self._wire.add_veth(netdev.wire, netdev.name, mac=netdev.mac, mtu=netdev.mtu, netns_fd=where)
        self.all[netdev.wire] = netdev
        self._stale = True

    def detach(self, netdev: Netdev) -> None:
        """Remove it, in whatever namespace it is."""
        del self.all[netdev.wire]
        self._stale = True
        try:
            self._wire.delete(netdev.wire)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise

    def configure(self) -> None:
        """Bring interfaces up and give them their addresses as the image's network agent does at boot."""
        self.refresh()
        for wire, netdev in self.all.items():
            _netns, ifindex = self._where[wire]
            try:
                if netdev.up:
                    self._home.set_up(ifindex)
                for address in netdev.addresses:
                    self._home.add_address(ifindex, address)
            except OSError as error:
                wanted = ", ".join(netdev.addresses) or "no address"
                text = f"interface {netdev.name} cannot be brought up with {wanted}: {error.strerror}"
                raise OSError(error.errno, text) from None
        loopback = next(link for link in self._home.links() if link.name == "lo")
        self._home.set_up(loopback.ifindex)
        self._stale = True

    def refresh(self) -> None:
        """Look again if anything changed; an interface that vanished with its namespace comes back to the node."""
        self._hear()
        while self._stale:
            self._stale = False
            ends = {link.name: link for link in self._wire.links()}
            lost = [netdev for wire, netdev in self.all.items() if wire not in ends]
            for netdev in lost:
                if netdev.passes:
                    del self.all[netdev.wire]
                    self.on_passed(netdev)
            returned = [self._return_home(netdev) for netdev in lost if not netdev.passes]
            if any(returned):
                self._stale = True
                continue
            self._where = {wire: (ends[wire].peer_netns, ends[wire].peer) for wire in self.all if wire in ends}
            self._at = {place: wire for wire, place in self._where.items()}
            namespaces = {netns for netns, _ifindex in self._where.values()} | {self.home}
            self._links = {netns: self._dump_links(netns) for netns in namespaces}
            self._addresses = {netns: self._dump_addresses(netns) for netns in namespaces}
            for wire, (netns, ifindex) in self._where.items():
                link = self._links[netns].get(ifindex)
                if link is not None:
                    self.all[wire].name, self.all[wire].mtu = link.name, link.mtu
            self.on_change()
            self._hear()

    def _return_home(self, netdev: Netdev) -> bool:
        """default_device_exit_net, net/core/dev.c: the old name if it is free, else a new one; down, no addresses.

        False when it did not work: the interface is then missing until the next change is heard.
        """
        taken = {link.name for link in self._home.links()}
        if netdev.name in taken:
            netdev.name = next(f"dev{n}" for n in range(1 << 16) if f"dev{n}" not in taken)
        try:
            self._wire.add_veth(netdev.wire, netdev.name, mac=netdev.mac, mtu=netdev.mtu, netns_fd=self._home_fd)
        except OSError as error:
            print(f"interface {netdev.name} does not come back: {error.strerror}", file=sys.stderr, flush=True)
            return False
        return True

    def _dump_links(self, netns: int) -> dict[int, Link]:
        try:
            return {link.ifindex: link for link in self._wire.links(netns)}
        except OSError:  # the namespace ended a moment ago; the notification about its interfaces follows
            return {}

    def _dump_addresses(self, netns: int) -> dict[int, list[str]]:
        """Addresses by ifindex, in the order in which they appeared.

        One that was not told of yet (it is tentative) counts as new. The kernel dumps IPv6 addresses of a scope newest
        first (ipv6_link_dev_addr).
        """
        try:
            found = self._wire.addresses(netns)
        except OSError:
            return {}
        self._hear()  # what is in the dump may have been told of meanwhile
        for ifindex, addresses in found.items():
            old = [address for address in addresses if ":" not in address]
            for address in [*old, *(address for address in reversed(addresses) if ":" in address)]:
                self._since.setdefault((netns, ifindex, address), next(self._moments))
            addresses.sort(key=lambda address, ifindex=ifindex: self._since[netns, ifindex, address])
        return found

    # -- what is seen ------------------------------------------------------------------------------------------------

    def where(self, netdev: Netdev) -> tuple[int, int] | None:
        """(namespace id, ifindex), or None when it was removed."""
        self.refresh()
        return self._where.get(netdev.wire)

    def link(self, netdev: Netdev) -> Link | None:
        place = self.where(netdev)
        return self._links[place[0]].get(place[1]) if place else None

    def addresses(self, netdev: Netdev) -> list[str]:
        place = self.where(netdev)
        return self._addresses[place[0]].get(place[1], []) if place else []

    def place(self, netdev: Netdev) -> tuple[int, int] | None:
        """As :meth:`where`, but of the last refresh: for use while a refresh is going on."""
        return self._where.get(netdev.wire)

    def seen(self, place: tuple[int, int]) -> tuple[Link | None, list[str]]:
        """Interface and addresses at a place, of the last refresh."""
        netns, ifindex = place
        return self._links[netns].get(ifindex), self._addresses[netns].get(ifindex, [])

    def links(self, netns: int) -> dict[int, Link]:
        """All interfaces of a namespace."""
        self.refresh()
        if netns not in self._links:
            self._links[netns] = self._dump_links(netns)
        return self._links[netns]

    def wire_at(self, netns: int, ifindex: int) -> str | None:
        """The far end's name when the interface is one of a function, as of the last refresh."""
        return self._at.get((netns, ifindex))

    def wire_socket(self, protocol: int) -> socket.socket:
        """A packet socket that hears and sends frames of this type on every far end, for whoever plays the other machines
        of the wire.
        """
        linux.setns(self._wire_fd, linux.CLONE_NEWNET)
        try:
            return socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.htons(protocol))
        finally:
            linux.setns(self._home_fd, linux.CLONE_NEWNET)

    def set_mtu(self, pid: int, ifindex: int, mtu: int) -> None:
        """Change an interface of the caller's namespace. Errors are the kernel's (EINVAL out of range)."""
        fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            socket_there = Rtnl.within(fd)
        finally:
            os.close(fd)
        try:
            socket_there.set_mtu(ifindex, mtu)
        finally:
            socket_there.close()
            self._stale = True
