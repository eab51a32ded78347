# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several rails in one subnet, on a node or in a pod: which they are, and whose addresses have no routing table."""

from __future__ import annotations

import ipaddress
from itertools import combinations

_NO_OWN_TABLE = (None, 253, 254, 255)  # default, main, local


def in_one_subnet(rows: dict[int, list[dict]]) -> set[int]:
    """Numbers of the rails of which another one has an address in the same subnet.

    :param rows: {rail: [{address, prefix}]}.
    """
    subnets = {
        number: {ipaddress.ip_interface(f"{row['address']}/{row['prefix']}").network for row in own}
        for number, own in rows.items()
    }
    return {
        number
        for one, other in combinations(subnets, 2)
        if any(a.version == b.version and a.overlaps(b) for a in subnets[one] for b in subnets[other])
        for number in (one, other)
    }


def source_rules(rows: list[dict]) -> list[dict]:
    """Of policy rules those that give what some address sends a routing table of its own."""
    return [row for row in rows if row["from"] not in (None, "all") and row["table"] not in _NO_OWN_TABLE]


def without_rule(addresses: list[dict], rules: list[dict]) -> list[str]:
    """The addresses that none of the rules of :func:`source_rules` is for."""
    networks = [ipaddress.ip_network(row["from"], strict=False) for row in rules]
    own = [ipaddress.ip_address(row["address"]) for row in addresses]
    return [str(a) for a in own if not any(n.version == a.version and a in n for n in networks)]
