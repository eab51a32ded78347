# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses of a pod's interfaces from the probe's records: from ``ip`` where the image has it, else from /proc.

An address is ``{address, prefix, family: "ipv4"|"ipv6", scope: "global"|"link"|"host"|…, dynamic, tentative,
dadfailed}``. An address that failed duplicate address detection is tentative for ever.
"""

from __future__ import annotations

import ipaddress
import re

_IP_LINE = re.compile(r"^\d+:\s+([^\s@]+)(?:@\S+)?\s+(inet6?)\s+(\S+)\s?(.*)$")
# include/uapi/linux/if_addr.h
_PERMANENT, _TENTATIVE, _DADFAILED = 0x80, 0x40, 0x08
# Scopes of /proc/net/if_inet6: include/net/ipv6.h (IPV6_ADDR_LOOPBACK, _LINKLOCAL, _SITELOCAL); 0 is global.
_SCOPES = {0x00: "global", 0x10: "host", 0x20: "link", 0x40: "site"}


def _address(text, prefix, family, scope, dynamic, tentative, dadfailed=False):
    return {
        "address": text,
        "prefix": prefix,
        "family": family,
        "scope": scope,
        "dynamic": dynamic,
        "tentative": tentative,
        "dadfailed": dadfailed,
    }


def from_ip(lines):
    """{netdev: [address, …]} of ``ip -o addr``. Lines that are something else are skipped."""
    found = {}
    for line in lines:
        match = _IP_LINE.match(line)
        if not match:
            continue
        name, family, network, rest = match.groups()
        # A point-to-point address is printed as "local peer remote/prefix".
        if rest.startswith("peer "):
            network = f"{network}/{rest.split()[1].partition('/')[2]}"
        text, _slash, prefix = network.partition("/")
        words = rest.split("\\")[0].split()
        scope = words[words.index("scope") + 1] if "scope" in words[:-1] else None
        try:
            ipaddress.ip_address(text)
            length = int(prefix)
        except ValueError:
            continue
        found.setdefault(name, []).append(
            _address(
                text,
                length,
                "ipv6" if family == "inet6" else "ipv4",
                scope,
                "dynamic" in words,
                "tentative" in words or "dadfailed" in words,
                "dadfailed" in words,
            )
        )
    return found


def from_if_inet6(lines):
    """{netdev: [address, …]} of /proc/net/if_inet6: address, ifindex, prefix, scope, flags, name, all but the name in
    hex."""
    found = {}
    for line in lines:
        parts = line.split()
        try:
            if len(parts) != 6 or len(parts[0]) != 32:
                continue
            text = str(ipaddress.IPv6Address(int(parts[0], 16)))
            prefix, scope, flags = (int(p, 16) for p in parts[2:5])
        except ValueError:
            continue
        found.setdefault(parts[5], []).append(
            _address(
                text,
                prefix,
                "ipv6",
                _SCOPES.get(scope & 0xF0),
                not flags & _PERMANENT,
                bool(flags & (_TENTATIVE | _DADFAILED)),
                bool(flags & _DADFAILED),
            )
        )
    return found


def local_ipv4(lines):
    """The IPv4 addresses of this namespace by /proc/net/fib_trie: each leaf that has a ``/32 host LOCAL`` line below
    it."""
    found, leaf = set(), None
    for line in lines:
        words = line.split()
        if len(words) >= 2 and words[0] == "|--":
            leaf = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"] and leaf is not None:
            found.add(leaf)
    return sorted(found)


def connected_ipv4(lines):
    """[(netdev, IPv4Network)] of the routes without a gateway in /proc/net/route (little-endian hex on all our
    machines)."""
    found = []
    for line in lines:
        parts = line.split()
        if len(parts) < 8 or parts[2] != "00000000":
            continue
        try:
            target, mask = (bytes.fromhex(parts[i])[::-1] for i in (1, 7))
            found.append((parts[0], ipaddress.IPv4Network((target, ipaddress.IPv4Address(mask).compressed))))
        except ValueError:
            continue
    return found


def ipv4_from_proc(fib_lines, route_lines):
    """({netdev: [address, …]}, [address without a known netdev, …]).

    fib_trie does not name interfaces. An address belongs to the one interface whose connected route holds it; when
    several rails share
    a subnet nobody can tell, and the address stays without an interface rather than being guessed.
    """
    routes = [(name, network) for name, network in connected_ipv4(route_lines) if network.prefixlen]
    found, homeless = {}, []
    for text in local_ipv4(fib_lines):
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            continue
        if address.is_loopback:
            found.setdefault("lo", []).append(_address(text, 8, "ipv4", "host", False, False))
            continue
        homes = {(name, network.prefixlen) for name, network in routes if address in network}
        if len(homes) == 1:
            name, prefix = homes.pop()
            found.setdefault(name, []).append(_address(text, prefix, "ipv4", "global", None, False))
        else:
            homeless.append(text)
    return found, homeless


def pending(netdevs, placeholders):
    """Why the addresses of a pod are not final yet, or None.

    Addresses from router advertisements come some time after the pod runs, and no CNI result tells of them
    (containernetworking/plugins#1016).

    :param netdevs: {interface: entry with ``addresses``}.
    :param placeholders: [ip_network], whose addresses only let a CNI plugin start.
    """
    for name, entry in sorted(netdevs.items()):
        rows = [row for row in entry.get("addresses") or [] if row["scope"] == "global"]
        waiting = [row["address"] for row in rows if row["tentative"] and not row.get("dadfailed")]
        if waiting:
            return f"{waiting[0]} of {name} is tentative"
        held = [row["address"] for row in rows if any(ipaddress.ip_address(row["address"]) in p for p in placeholders)]
        if held and len(held) == len(rows):
            return f"{name} has only the placeholder {held[0]}"
    return None
