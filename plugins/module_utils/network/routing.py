# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Default routes of netdevs and the policy rules of this network namespace, from the kernel by rtnetlink.

Rails get a default route from router advertisements (kubernetes-sigs/dranet#153), often in a table of their own, which
a rule selects by source address. Message layouts: linux/rtnetlink.h, linux/fib_rules.h.
"""

from __future__ import annotations

import socket
import struct

from ansible_collections.railyard.rdma.plugins.module_utils.network.netlink import (
    Dump,
    number,
    parse_attributes,
    string,
)
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import describe

_RTM_GETROUTE, _RTM_GETRULE = 26, 34
_RTMSG = struct.Struct("=BBBBBBBBI")
_RULE = struct.Struct("=BBBBBBBBI")
_NEXTHOP = struct.Struct("=HBBi")
_RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_MULTIPATH, _RTA_TABLE, _RTA_VIA = 4, 5, 6, 9, 15, 18
_RTN_UNICAST, _RTM_F_CLONED = 1, 0x200
_FRA_DST, _FRA_SRC, _FRA_IIFNAME, _FRA_PRIORITY, _FRA_FWMARK = 1, 2, 3, 6, 10
_FRA_SUPPRESS_PREFIXLEN, _FRA_TABLE, _FRA_FWMASK, _FRA_OIFNAME, _FRA_L3MDEV, _FRA_PROTOCOL = 14, 15, 16, 17, 19, 21
_FIB_RULE_INVERT = 2
_PREFIX_LENGTH_ZERO = (1, 0)  # rtm_dst_len
_ACTIONS = {1: "lookup", 2: "goto", 3: "nop", 6: "blackhole", 7: "unreachable", 8: "prohibit"}
# The names that ip(8) prints (rt_protos); the kernel itself only sets redirect, kernel, boot and ra.
_PROTOCOLS = {1: "redirect", 2: "kernel", 3: "boot", 4: "static", 9: "ra", 11: "zebra", 12: "bird", 16: "dhcp"}
_PROTOCOLS.update({18: "keepalived", 186: "bgp", 188: "ospf"})
_FAMILIES = {socket.AF_INET: ("ipv4", 4), socket.AF_INET6: ("ipv6", 16)}
_MOST_RULES = 10_000


def parse_default_route(payload: bytes) -> list[tuple[int, dict]] | None:
    """Parse RTM_NEWROUTE of a default route: ``[(ifindex, {family, gateway, metric, table, origin})]``, one entry for
    each netdev that it leads through. None for other routes and for malformed messages.

    gateway is None when the route has none (on-link); table is a number (254 is main); origin is the name that ip(8)
    prints for the route's protocol (``ra``, ``dhcp``, ``static``, ``kernel``) or its number as text.
    """
    if len(payload) < _RTMSG.size:
        return None
    family, length, _source, _tos, table, protocol, _scope, kind, flags = _RTMSG.unpack_from(payload)
    if length or kind != _RTN_UNICAST or flags & _RTM_F_CLONED or family not in _FAMILIES:
        return None
    attributes = dict(parse_attributes(payload, _RTMSG.size))
    route = {
        "family": _FAMILIES[family][0],
        "gateway": None,
        "metric": number(attributes.get(_RTA_PRIORITY, b"")) or 0,
        "table": number(attributes.get(_RTA_TABLE, b"")) or table,
        "origin": _PROTOCOLS.get(protocol, str(protocol)),
    }
    if _RTA_MULTIPATH in attributes:
        return [
            (index, {**route, "gateway": _gateway(hop, family)}) for index, hop in _nexthops(attributes[_RTA_MULTIPATH])
        ]
    index = number(attributes.get(_RTA_OIF, b""))
    return None if index is None else [(index, {**route, "gateway": _gateway(attributes, family)})]


def parse_rule(payload: bytes) -> dict | None:
    """Parse RTM_NEWRULE: ``{family, priority, from, to, iif, oif, fwmark, fwmask, invert, l3mdev,
    suppress_prefixlength, table, action, origin}``; None for other families and for malformed messages.

    from and to are ``all`` or ``ADDRESS/LENGTH``; action is ip(8)'s word (``lookup``, ``goto``, ``unreachable`` …);
    table is a number (253 default, 254 main, 255 local), None unless action is ``lookup`` in a fixed table.
    """
    if len(payload) < _RULE.size:
        return None
    family, to_length, from_length, _tos, table, _r1, _r2, action, flags = _RULE.unpack_from(payload)
    if family not in _FAMILIES:
        return None
    attributes = dict(parse_attributes(payload, _RULE.size))
    master = attributes.get(_FRA_L3MDEV, b"\0")[:1] == b"\1"
    suppress = number(attributes.get(_FRA_SUPPRESS_PREFIXLEN, b""))
    origin = attributes.get(_FRA_PROTOCOL, b"\0")[:1] or b"\0"
    table = number(attributes.get(_FRA_TABLE, b"")) or table
    return {
        "family": _FAMILIES[family][0],
        "priority": number(attributes.get(_FRA_PRIORITY, b"")) or 0,
        "from": _prefix(attributes.get(_FRA_SRC), from_length, family),
        "to": _prefix(attributes.get(_FRA_DST), to_length, family),
        "iif": string(attributes[_FRA_IIFNAME]) if _FRA_IIFNAME in attributes else None,
        "oif": string(attributes[_FRA_OIFNAME]) if _FRA_OIFNAME in attributes else None,
        "fwmark": number(attributes.get(_FRA_FWMARK, b"")),
        "fwmask": number(attributes.get(_FRA_FWMASK, b"")),
        "invert": bool(flags & _FIB_RULE_INVERT),
        "l3mdev": master,
        "suppress_prefixlength": None if suppress in (None, 0xFFFFFFFF) else suppress,
        "table": table if action == 1 and table else None,
        "action": _ACTIONS.get(action, str(action)),
        "origin": _PROTOCOLS.get(origin[0], str(origin[0])) if origin[0] else None,
    }


def read_default_routes(indexes) -> dict[int, list[dict]]:
    """Return ``{ifindex: [route]}`` (see :func:`parse_default_route`) for these netdevs, from all tables.

    Each family is dumped once. The kernel could filter by netdev, but then it walks the whole table for each of them,
    and a netdev may well have all the routes; here a route that is no default route costs one comparison. Raises
    OSError; EOVERFLOW beyond three million routes, ETIMEDOUT after 10 seconds.
    """
    found: dict[int, list[dict]] = {index: [] for index in indexes}
    with Dump() as dump:
        for family in _FAMILIES:
            header = _RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
            answers = dump.run(_RTM_GETROUTE, header, parse_default_route, only=_PREFIX_LENGTH_ZERO)
            for index, route in (pair for answer in answers for pair in answer):
                if index in found and route not in found[index]:
                    found[index].append(route)
    return found


def read_rules() -> dict:
    """Return the fact ``routing``: ``{rules, reason}``; rules (see :func:`parse_rule`) is None when they cannot be
    read."""
    rules: list[dict] = []
    try:
        with Dump() as dump:
            for family in _FAMILIES:
                rules += dump.run(_RTM_GETRULE, _RULE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0), parse_rule, _MOST_RULES)
    except OSError as error:
        return {"rules": None, "reason": f"netlink: {error.strerror or describe(error)}"}
    return {"rules": rules, "reason": None}


def _nexthops(data: bytes) -> list[tuple[int, dict]]:
    """Split RTA_MULTIPATH into ``(ifindex, attributes)``."""
    hops = []
    offset = 0
    while offset + _NEXTHOP.size <= len(data):
        length, _flags, _hops, index = _NEXTHOP.unpack_from(data, offset)
        if length < _NEXTHOP.size or offset + length > len(data):
            break
        hops.append((index, dict(parse_attributes(data[offset + _NEXTHOP.size : offset + length]))))
        offset += (length + 3) & ~3
    return hops


def _gateway(attributes: dict, family: int) -> str | None:
    raw = attributes.get(_RTA_GATEWAY, b"")
    if len(raw) == _FAMILIES[family][1]:
        return socket.inet_ntop(family, raw)
    via = attributes.get(_RTA_VIA, b"")  # an IPv4 route through an IPv6 router: struct rtvia
    if len(via) == 18 and struct.unpack_from("=H", via)[0] == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, via[2:])
    return None


def _prefix(raw: bytes | None, length: int, family: int) -> str:
    if raw is None or len(raw) != _FAMILIES[family][1]:
        return "all"
    return f"{socket.inet_ntop(family, raw)}/{length}"
