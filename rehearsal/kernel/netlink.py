# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Network interfaces through rtnetlink: only what the simulated kernel needs, over one socket.

Links and addresses of another network namespace are read through that namespace's id (IFLA_TARGET_NETNSID,
IFA_TARGET_NETNSID: rtnetlink.c, devinet.c, addrconf.c; Linux 4.20 and newer). No descriptor of the other namespace is
needed, so nothing here can keep a pod's namespace alive. Changes are made by a socket in the namespace itself: in
RTM_SETLINK the same attribute means "move it there".
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from dataclasses import dataclass

from . import linux

_HEADER = struct.Struct("=IHHII")
_IFINFO = struct.Struct("=BBHiII")
_IFADDR = struct.Struct("=BBBBI")

NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWNSID, RTM_DELNSID, RTM_GETNSID = 88, 89, 90
RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_NSID = 1, 5, 9, 28
_REQUEST, _ACK, _DUMP, _EXCL, _CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
_SOL_NETLINK, _ADD_MEMBERSHIP, _GET_STRICT_CHK = 270, 1, 12

IFF_UP = 0x1
IFA_F_NODAD = 0x02
_SKIP_STATS = 1 << 3
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_OPERSTATE = 1, 3, 4, 5, 16
_IFLA_LINKINFO, _IFLA_NET_NS_FD, _IFLA_EXT_MASK, _IFLA_CARRIER = 18, 28, 29, 33
_IFLA_LINK_NETNSID, _IFLA_TARGET_NETNSID = 37, 46
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS, _IFA_TARGET_NETNSID = 1, 2, 8, 10
_NETNSA_NSID, _NETNSA_FD = 1, 3

# The names of RFC 2863 as /sys/class/net/*/operstate prints them (net/core/net-sysfs.c).
OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")


@dataclass(frozen=True)
class Link:
    """One interface; ``peer`` and ``peer_netns`` say where the other end of a veth is (None when not said)."""

    ifindex: int
    name: str
    mac: str
    mtu: int
    flags: int
    kind: int
    operstate: str
    carrier: bool
    peer: int | None
    peer_netns: int | None

    @property
    def up(self) -> bool:
        return bool(self.flags & IFF_UP)


def attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", len(data) + 4, kind) + data + b"\0" * (-len(data) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    found, offset = {}, 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def _text(name: str) -> bytes:
    return name.encode() + b"\0"


def _u32(number: int) -> bytes:
    return struct.pack("=I", number)


def _s32(number: int) -> bytes:
    return struct.pack("=i", number)


def _mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


class Rtnl:
    """A socket in the network namespace that the thread is in when it is made. Errors are OSError with the errno."""

    def __init__(self, groups: tuple[int, ...] = ()) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self.socket.setsockopt(_SOL_NETLINK, _GET_STRICT_CHK, 1)
        self.socket.bind((0, 0))
        for group in groups:
            self.socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
        self._sequence = 0

    @classmethod
    def within(cls, netns_fd: int) -> Rtnl:
        """A socket in another network namespace; close it soon, it keeps that namespace alive."""
        home = linux.own_netns_fd()
        try:
            linux.setns(netns_fd, linux.CLONE_NEWNET)
            try:
                return cls()
            finally:
                linux.setns(home, linux.CLONE_NEWNET)
        finally:
            os.close(home)

    def close(self) -> None:
        self.socket.close()

    def request(self, kind: int, body: bytes, flags: int = _ACK) -> list[tuple[int, bytes]]:
        """Send one message and collect the answers until the acknowledgement or the end of the dump."""
        self._sequence += 1
        size = _HEADER.size + len(body)
        self.socket.send(_HEADER.pack(size, kind, flags | _REQUEST, self._sequence, 0) + body)
        answers = []
        while True:
            for sequence, answer, payload in messages(self.socket.recv(1 << 18)):
                if sequence != self._sequence:
                    continue
                if answer in (NLMSG_ERROR, NLMSG_DONE):
                    number = -struct.unpack_from("=i", payload)[0] if len(payload) >= 4 else 0
                    if number > 0:
                        raise OSError(number, os.strerror(number))
                    return answers
                answers.append((answer, payload))

    def links(self, netns: int | None = None) -> list[Link]:
        body = _IFINFO.pack(0, 0, 0, 0, 0, 0) + attribute(_IFLA_EXT_MASK, _u32(_SKIP_STATS))
        if netns is not None:
            body += attribute(_IFLA_TARGET_NETNSID, _s32(netns))
        answers = self.request(RTM_GETLINK, body, _DUMP)
        return [parse_link(payload) for kind, payload in answers if kind == RTM_NEWLINK]

    def addresses(self, netns: int | None = None) -> dict[int, list[str]]:
        """ifindex to its addresses with prefix length, IPv4 before IPv6 as the kernel dumps them."""
        body = _IFADDR.pack(0, 0, 0, 0, 0)
        if netns is not None:
            body += attribute(_IFA_TARGET_NETNSID, _s32(netns))
        found: dict[int, list[str]] = {}
        for kind, payload in self.request(RTM_GETADDR, body, _DUMP):
            if kind == RTM_NEWADDR and (parsed := parse_address(payload)):
                found.setdefault(parsed[0], []).append(parsed[1])
        return found

    def netns_id(self, fd: int) -> int:
        """The id of a network namespace as seen from the socket's; one is assigned when there is none yet."""
        body = b"\0\0\0\0" + attribute(_NETNSA_FD, _u32(fd))
        number = self._known_netns_id(body)
        if number < 0:
            self.request(RTM_NEWNSID, body + attribute(_NETNSA_NSID, _s32(-1)))
            number = self._known_netns_id(body)
        return number

    def _known_netns_id(self, body: bytes) -> int:
        for kind, payload in self.request(RTM_GETNSID, body):
            if kind == RTM_NEWNSID:
                return struct.unpack("=i", attributes(payload[4:])[_NETNSA_NSID])[0]
        return -1

    def add_veth(self, name: str, peer: str, *, mac: str, mtu: int, netns_fd: int) -> None:
        """Make a pair: ``name`` here and up, ``peer`` in the namespace ``netns_fd`` with that MAC and MTU, down."""
        far = _IFINFO.pack(0, 0, 0, 0, 0, 0)
        far += attribute(_IFLA_IFNAME, _text(peer)) + attribute(_IFLA_ADDRESS, _mac_bytes(mac))
        far += attribute(_IFLA_MTU, _u32(mtu)) + attribute(_IFLA_NET_NS_FD, _u32(netns_fd))
        data = attribute(2, attribute(1, far))
        body = _IFINFO.pack(0, 0, 0, 0, IFF_UP, IFF_UP) + attribute(_IFLA_IFNAME, _text(name))
        body += attribute(_IFLA_MTU, _u32(65535)) + attribute(_IFLA_LINKINFO, attribute(1, b"veth") + data)
        self.request(RTM_NEWLINK, body, _ACK | _CREATE | _EXCL)

    def delete(self, name: str) -> None:
        self.request(RTM_DELLINK, _IFINFO.pack(0, 0, 0, 0, 0, 0) + attribute(_IFLA_IFNAME, _text(name)))

    def set_mtu(self, ifindex: int, mtu: int) -> None:
        self.request(RTM_SETLINK, _IFINFO.pack(0, 0, 0, ifindex, 0, 0) + attribute(_IFLA_MTU, _u32(mtu)))

    def set_up(self, ifindex: int) -> None:
        self.request(RTM_SETLINK, _IFINFO.pack(0, 0, 0, ifindex, IFF_UP, IFF_UP))

    def add_address(self, ifindex: int, address: str) -> None:
        interface = ipaddress.ip_interface(address)
        family = socket.AF_INET if interface.version == 4 else socket.AF_INET6
        flags = IFA_F_NODAD if interface.version == 6 else 0
        packed = interface.packed
        body = _IFADDR.pack(family, interface.network.prefixlen, flags, 0, ifindex)
        body += attribute(_IFA_LOCAL, packed) + attribute(_IFA_ADDRESS, packed)
        self.request(RTM_NEWADDR, body, _ACK | _CREATE | _EXCL)


def messages(data: bytes):
    """Yield (sequence, type, payload) of a received buffer."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _flags, sequence, _port = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size:
            return
        yield sequence, kind, data[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3


def parse_address(payload: bytes) -> tuple[int, str] | None:
    """(ifindex, address with prefix length) of an RTM_NEWADDR or RTM_DELADDR."""
    _family, prefix, _flags, _scope, ifindex = _IFADDR.unpack_from(payload)
    fields = attributes(payload[_IFADDR.size :])
    # For a point-to-point address IFA_ADDRESS is the peer's; the own one is then IFA_LOCAL.
    packed = fields.get(_IFA_LOCAL) or fields.get(_IFA_ADDRESS)
    return (ifindex, f"{ipaddress.ip_address(packed)}/{prefix}") if packed else None


def address_changes(data: bytes):
    """Yield (type, ifindex, address) of the addresses that a notification tells of."""
    for _sequence, kind, payload in messages(data):
        if kind in (RTM_NEWADDR, RTM_DELADDR) and (parsed := parse_address(payload)):
            yield kind, *parsed


def removed_netns_id(payload: bytes) -> int | None:
    """The id in an RTM_DELNSID notification."""
    field = attributes(payload[4:]).get(_NETNSA_NSID)
    return struct.unpack("=i", field)[0] if field else None


def parse_link(payload: bytes) -> Link:
    _family, _pad, kind, ifindex, flags, _change = _IFINFO.unpack_from(payload)
    fields = attributes(payload[_IFINFO.size :])
    state = fields.get(_IFLA_OPERSTATE, b"\0")[0]
    return Link(
        ifindex=ifindex,
        name=fields[_IFLA_IFNAME].rstrip(b"\0").decode(),
        mac=fields.get(_IFLA_ADDRESS, b"").hex(":"),
        mtu=_number(fields.get(_IFLA_MTU)) or 0,
        flags=flags,
        kind=kind,
        operstate=OPERSTATES[state] if state < len(OPERSTATES) else "unknown",
        carrier=bool(fields.get(_IFLA_CARRIER, b"\0")[0]),
        peer=_number(fields.get(_IFLA_LINK)),
        peer_netns=_number(fields.get(_IFLA_LINK_NETNSID)),
    )


def _number(field: bytes | None) -> int | None:
    return struct.unpack("=i", field)[0] if field and len(field) == 4 else None
