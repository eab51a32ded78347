# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Routes and policy rules of a pod, as ``ip route`` and ``ip rule`` print them (iproute2 and busybox).

The keys are those of module_utils/network/routing.py, which asks the kernel itself on nodes. There is no file under
/proc that has the rules or the tables, so without ``ip`` in the image they are not known.
"""

from __future__ import annotations

import ipaddress

# linux/rtnetlink.h; busybox prints numbers where /etc/iproute2 is missing.
_TABLES = {"default": 253, "main": 254, "local": 255, "unspec": 0}
_MAIN = 254
_KINDS = frozenset(
    {"unicast", "local", "broadcast", "multicast", "anycast", "blackhole", "unreachable", "prohibit", "throw", "nat"}
)
_ACTIONS = frozenset({"blackhole", "unreachable", "prohibit", "nop", "goto"})
# As many lines the probe prints at most.
MOST_LINES = 999


def _table(word):
    """Number of a table; a name that only this image's rt_tables knows stays text."""
    return int(word) if word.isascii() and word.isdigit() else _TABLES.get(word, word)


def _prefix(word, family):
    """``all`` or ``ADDRESS/LENGTH``; None for what is neither."""
    if word == "all":
        return word
    try:
        network = ipaddress.ip_network(word, strict=False)
    except ValueError:
        return None
    return str(network) if network.version == (4 if family == "ipv4" else 6) else None


def _number(word):
    return int(word) if word is not None and word.isascii() and word.isdigit() and len(word) < 11 else None


def parse_rule(line, family):
    """``{family, priority, from, to, table, action}`` of a line such as ``32765:\\tfrom 192.0.2.7 lookup 100``; None for
    anything else. table is a number (255 local, 254 main, 253 default) or a name that is unknown to us."""
    head, colon, rest = line.partition(":")
    priority = _number(head.strip())
    if not colon or priority is None:
        return None
    words = rest.split()
    pairs = dict(zip(words, words[1:]))
    source = _prefix(pairs.get("from", "all"), family)
    if source is None:
        return None
    table = pairs.get("lookup") or pairs.get("table")
    action = "lookup" if table else next((word for word in words if word in _ACTIONS), None)
    return {
        "family": family,
        "priority": priority,
        "from": source,
        "to": _prefix(pairs.get("to", "all"), family),
        "table": None if table is None else _table(table),
        "action": action,
    }


def parse_route(line, family):
    """``{family, to, gateway, netdev, table, metric, origin, source}`` of a route to somewhere else; None for local,
    broadcast and multicast ones and for what is none. ``to`` is ``default`` or a prefix."""
    words = line.replace("\\", " ").split()
    if words and words[0] in _KINDS:
        if words[0] != "unicast":
            return None
        words = words[1:]
    if not words:
        return None
    to = words[0]
    if to != "default":
        to = _prefix(to, family)
        if to is None:
            return None
    pairs = dict(zip(words[1:], words[2:]))
    return {
        "family": family,
        "to": to,
        "gateway": pairs.get("via"),
        "netdev": pairs.get("dev"),
        "table": _table(pairs["table"]) if "table" in pairs else _MAIN,
        "metric": _number(pairs.get("metric")) or 0,
        "origin": pairs.get("proto"),
        "source": pairs.get("src"),
    }


def _all(tree, record, parse):
    """(rows of both families, reason). There is always a rule and a local route, so no line means no answer."""
    rows = []
    for family, number in (("ipv4", 4), ("ipv6", 6)):
        lines = tree.lines(f"{record}{number}")
        if not lines and family == "ipv4":
            return None, f"the image's 'ip' does not show {record}s"
        if len(lines) >= MOST_LINES:
            return None, f"the pod has {MOST_LINES} or more {record}s"
        rows += [row for row in (parse(line, family) for line in lines) if row is not None]
    return rows, None


def routing(tree):
    """``{rules, routes, reasons}`` of the pod; rules and routes are None when they are not known."""
    if tree.state("ip") != "ok":
        why = "the image has no 'ip'"
        return {"rules": None, "routes": None, "reasons": {"rules": why, "routes": why}}
    rules, no_rules = _all(tree, "rule", parse_rule)
    routes, no_routes = _all(tree, "route", parse_route)
    told = {"rules": no_rules, "routes": no_routes}
    return {"rules": rules, "routes": routes, "reasons": {key: why for key, why in told.items() if why}}
