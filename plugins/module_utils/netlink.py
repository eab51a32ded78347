# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Links and addresses of this network namespace, from the kernel by rtnetlink.

sysfs knows no addresses, and ``/sys/class/net`` shows the namespace in which sysfs was mounted, which need not be the
caller's. Netlink always answers for the caller. Only the standard library is used, and no command is run.
Message layouts: linux/netlink.h, linux/rtnetlink.h, linux/if_link.h and linux/if_addr.h.
"""

from __future__ import annotations

import socket
import struct

_RTM_NEWLINK, _RTM_GETLINK, _RTM_NEWADDR, _RTM_GETADDR = 16, 18, 20, 22
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_REQUEST, _NLM_F_DUMP, _NLM_F_DUMP_INTR = 0x1, 0x300, 0x10
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBI")
_IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO = 3, 4, 10, 18
_IFLA_EXT_MASK, _IFLA_PROP_LIST, _IFLA_ALT_IFNAME = 29, 52, 53
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS, _IFA_PROTO = 1, 2, 8, 11
_IFA_F_TEMPORARY, _IFA_F_DADFAILED, _IFA_F_DEPRECATED = 0x01, 0x08, 0x20
_IFA_F_TENTATIVE, _IFA_F_PERMANENT = 0x40, 0x80
_SCOPES = {0: "global", 200: "site", 253: "link", 254: "host", 255: "nowhere"}
_ORIGINS = {1: "kernel_lo", 2: "kernel_ra", 3: "kernel_ll"}
_TIMEOUT_SECONDS = 10.0


def parse_messages(data: bytes) -> list[tuple[int, int, bytes]]:
    """Split a netlink datagram into ``(type, flags, payload)``; stops at the first malformed header."""
    messages = []
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, flags, _sequence, _port = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size or offset + length > len(data):
            break
        messages.append((kind, flags, data[offset + _HEADER.size : offset + length]))
        offset += (length + 3) & ~3
    return messages


def parse_attributes(data: bytes) -> list[tuple[int, bytes]]:
    """Split route attributes into ``(type, value)`` without the nesting flags; stops at the first malformed one."""
    attributes = []
    offset = 0
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size or offset + length > len(data):
            break
        attributes.append((kind & 0x3FFF, data[offset + _ATTRIBUTE.size : offset + length]))
        offset += (length + 3) & ~3
    return attributes


def parse_link(payload: bytes) -> dict | None:
    """Parse RTM_NEWLINK: ``{index, name, mtu, up, master, kind, altnames}``; None when it carries no name."""
    if len(payload) < _IFINFO.size:
        return None
    _family, _type, index, flags, _change = _IFINFO.unpack_from(payload)
    link: dict = {"index": index, "name": None, "mtu": None, "up": bool(flags & 1), "master": None, "kind": None}
    link["altnames"] = []
    for kind, value in parse_attributes(payload[_IFINFO.size :]):
        if kind == _IFLA_IFNAME:
            link["name"] = _string(value)
        elif kind == _IFLA_MTU:
            link["mtu"] = _number(value)
        elif kind == _IFLA_MASTER:
            link["master"] = _number(value)
        elif kind == _IFLA_LINKINFO:
            link["kind"] = next((_string(text) for key, text in parse_attributes(value) if key == 1), None)
        elif kind == _IFLA_PROP_LIST:
            link["altnames"] = [_string(text) for key, text in parse_attributes(value) if key == _IFLA_ALT_IFNAME]
    return link if link["name"] else None


def parse_address(payload: bytes) -> dict | None:
    """Parse RTM_NEWADDR: ``{index, address, prefix, family, scope, dynamic, tentative, temporary, deprecated,
    origin}``.

    family is ``ipv4`` or ``ipv6``; origin is ``kernel_ra`` for an address from a router advertisement (kernel 5.18 and
    newer say so), None when the kernel does not tell. None for other families and for malformed messages.
    """
    if len(payload) < _IFADDR.size:
        return None
    family, prefix, short_flags, scope, index = _IFADDR.unpack_from(payload)
    size = {socket.AF_INET: 4, socket.AF_INET6: 16}.get(family)
    if size is None:
        return None
    attributes = dict(parse_attributes(payload[_IFADDR.size :]))
    # On a point-to-point link IFA_ADDRESS is the other end; IFA_LOCAL, where present, is always ours.
    raw = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS) or b""
    if len(raw) != size:
        return None
    flags = _number(attributes.get(_IFA_FLAGS, b""))
    flags = short_flags if flags is None else flags
    origin = attributes.get(_IFA_PROTO) or b""
    return {
        "index": index,
        "address": socket.inet_ntop(family, raw),
        "prefix": prefix,
        "family": "ipv4" if size == 4 else "ipv6",
        "scope": _SCOPES.get(scope, str(scope)),
        "dynamic": not flags & _IFA_F_PERMANENT,
        "tentative": bool(flags & (_IFA_F_TENTATIVE | _IFA_F_DADFAILED)),
        "temporary": bool(family == socket.AF_INET6 and flags & _IFA_F_TEMPORARY),
        "deprecated": bool(flags & _IFA_F_DEPRECATED),
        "origin": _ORIGINS.get(origin[0]) if origin else None,
    }


def read_links() -> dict[str, dict]:
    """Return every link of this namespace by name, each with its ``addresses`` (shape of :func:`parse_address`).

    Raises OSError when the kernel refuses or does not answer within 10 seconds.
    """
    mask = _ATTRIBUTE.pack(8, _IFLA_EXT_MASK) + struct.pack("=I", 1 << 3)  # RTEXT_FILTER_SKIP_STATS: less to read
    links = [
        link
        for kind, payload in _dump(_RTM_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + mask)
        if kind == _RTM_NEWLINK and (link := parse_link(payload))
    ]
    by_index = {link["index"]: link for link in links}
    for link in links:
        link["addresses"] = []
        link["master"] = by_index.get(link["master"], {}).get("name")
    for kind, payload in _dump(_RTM_GETADDR, _IFADDR.pack(0, 0, 0, 0, 0)):
        address = parse_address(payload) if kind == _RTM_NEWADDR else None
        if address and address["index"] in by_index:
            by_index[address.pop("index")]["addresses"].append(address)
    return {link["name"]: link for link in links}


def _dump(kind: int, body: bytes) -> list[tuple[int, bytes]]:
    """Run one dump request; repeats it when the kernel says that the tables changed meanwhile."""
    result: list[tuple[int, bytes]] = []
    for _attempt in range(5):
        result, interrupted = _dump_once(kind, body)
        if not interrupted:
            break
    return result


def _dump_once(kind: int, body: bytes) -> tuple[list[tuple[int, bytes]], bool]:
    interrupted = False
    result: list[tuple[int, bytes]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(_TIMEOUT_SECONDS)
        netlink.bind((0, 0))
        netlink.send(_HEADER.pack(_HEADER.size + len(body), kind, _NLM_F_REQUEST | _NLM_F_DUMP, 1, 0) + body)
        while True:
            messages = parse_messages(netlink.recv(1 << 18))
            if not messages:
                raise OSError("malformed netlink answer")
            for answer, flags, payload in messages:
                interrupted = interrupted or bool(flags & _NLM_F_DUMP_INTR)
                if answer == _NLMSG_DONE:
                    return result, interrupted
                if answer == _NLMSG_ERROR:
                    code = -struct.unpack_from("=i", payload)[0] if len(payload) >= 4 else 0
                    raise OSError(code, f"netlink dump refused (error {code})")
                result.append((answer, payload))


def _string(value: bytes) -> str:
    return value.split(b"\0", 1)[0].decode("utf-8", "replace")


def _number(value: bytes) -> int | None:
    return struct.unpack_from("=I", value)[0] if len(value) >= 4 else None
