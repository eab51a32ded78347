# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cell for each node and rail: what was found there, and whether it is proven."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import (
    address_rows,
    device_of,
    forced_class,
    interfaces,
    usable_rails,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import mapping, number, rows, whole, words

# From bad to good: the first one that holds is the state of the whole.
STATES = FAIL, UNKNOWN, WARNING, PASS = ("fail", "unknown", "warning", "pass")
# What facts of another version, a cache or a damaged pod may end in. The cell is unknown then, with the reason.
ODD = (KeyError, TypeError, ValueError, AttributeError, IndexError)
_SEEN = ("seen_in", "netdev", "device", "gid_index", "gid_type", "address", "mtu", "traffic_class")


def worst(states: Iterable[str]) -> str:
    """Return the worst of states; pass when there is none."""
    found = set(states)
    return next((state for state in STATES if state in found), PASS)


def cells(context: Context, findings: list[dict], measured: dict, with_pods: bool) -> list[dict]:
    """The cells of one node.

    :param findings: those of this node.
    :param measured: {rail: of :func:`..bandwidth.measured`} of this node.
    :param with_pods: whether there were test pods; without them a node's own facts have to do.
    :returns: ``[{node, rail, name, state, because, pf, seen_in, netdev, device, gid_index, gid_type, address, mtu,
        traffic_class, port_gbps, gbps, of_gbps, ratio, findings, reason}]``. because is ``rail`` or ``node``, for what the
        state comes from; seen_in ``pod`` or ``node``. traffic_class is a number or ``app`` where the application
        chooses. gbps is the lowest rate of the rail in 10^9 bit/s, ratio its share of of_gbps, what the port can carry.
    """
    made = []
    inside = _inside(context)
    for rail in context.layout["rails"]:
        index = rail["rail"]
        seen, reason = _seen(context, index, with_pods, inside)
        own = [item for item in findings if concerns(item, index)]
        wide = [item for item in findings if item["rail"] is None and "rails" not in mapping(item.get("evidence"))]
        rate = measured.get(index) or {}
        state, because = _state(own, wide, rate, reason)
        port = number(_node_rail(context, index).get("rate_gbps"))
        made.append(
            {
                "node": context.node,
                "rail": index,
                "name": words(rail.get("name")),
                "state": state,
                "because": because,
                "pf": words(rail.get("pci")) or words(_node_rail(context, index).get("pci")),
                **seen,
                "port_gbps": rate.get("port_gbps") or port,
                "gbps": rate.get("gbps"),
                "of_gbps": rate.get("of_gbps"),
                "ratio": rate.get("ratio"),
                "findings": sorted({item["id"] for item in own}),
                "reason": reason or rate.get("reason"),
            }
        )
    return made


def concerns(finding: dict, rail: int) -> bool:
    """Whether a finding is about this rail: it names it, or lists it in its evidence."""
    if finding["rail"] is not None:
        return finding["rail"] == rail
    listed = mapping(finding.get("evidence")).get("rails")
    return isinstance(listed, list) and rail in listed


def _state(own: list[dict], wide: list[dict], rate: dict, reason: str | None) -> tuple[str, str]:
    """A node's error or gap holds for all of its rails. Its warnings do not: they would hide those of the rails."""
    at_rail = [_of(item) for item in own]
    if reason:
        at_rail.append(UNKNOWN)
    if not any(map(about_rate, own)) and rate.get("state"):
        # The rules judge a rate, and tell it at the client: at the server it is something to look at. A rate about which
        # they say nothing (no rule was asked) is never a pass all the same.
        at_rail.append(WARNING if rate.get("told") and rate["state"] == FAIL else rate["state"])
    rail, node = worst(at_rail), worst(state for state in map(_of, wide) if state != WARNING)
    return (rail, "rail") if STATES.index(rail) <= STATES.index(node) else (node, "node")


def about_rate(finding: dict) -> bool:
    """Whether a finding judges a measured rate."""
    return finding["id"].startswith("BW-")


def _of(finding: dict) -> str:
    if finding.get("tolerated"):
        return PASS
    return {"error": FAIL, "unknown": UNKNOWN, "warning": WARNING}.get(finding["severity"], PASS)


def _inside(context: Context) -> tuple[dict, dict] | str | None:
    """(Interface by rail, GID index by rail) in the node's pod, None without one, or why they cannot be read."""
    if not (context.pod and context.pod.get("reachable")):
        return None
    try:
        return interfaces(context.layout, context.pod), usable_rails(context)
    except ODD as error:
        return _odd(error)


def _odd(error: Exception) -> str:
    return f"cannot be read from these facts ({type(error).__name__}: {error})"


def _seen(context: Context, rail: int, with_pods: bool, inside) -> tuple[dict, str | None]:
    """What is known about a rail, and why it is not proven. inside: of _inside."""
    empty = dict.fromkeys(_SEEN)
    pod = context.pod
    without = None if context.facts else "there are no facts of the node"
    try:
        if isinstance(inside, str):
            return empty, inside
        if inside:
            found, reason = _in_pod(context, rail, *inside)
            return {**empty, **found, "seen_in": "pod"}, reason or without
        at_node = _at_node(context, rail)
        found = {**empty, **at_node, "seen_in": "node"} if at_node else empty
        if with_pods:
            why = (pod or {}).get("reason") or "there is no test pod on the node"
            return found, f"not seen in a pod: {why}"
        return found, without
    except ODD as error:
        return empty, _odd(error)


def _in_pod(context: Context, rail: int, names: dict, usable: dict) -> tuple[dict, str | None]:
    name = names[rail]
    if name is None:
        return {}, "the rail has no interface in the pod"
    found = {"netdev": name, "mtu": whole(context.pod["netdevs"][name].get("mtu"))}
    device = device_of(context.pod, name)
    if device is None:
        return found, "the rail has no RDMA device in the pod"
    found["device"] = device
    found["traffic_class"] = _class(
        [forced_class(context, device, port) for port in context.pod["devices"][device]["ports"]]
    )
    index = usable[rail]
    row = next((row for row in address_rows(context.pod, name, device) if row["index"] == index), {})
    found.update(gid_index=index, gid_type=words(row.get("type")), address=words(row.get("address")))
    return found, "no GID of the rail can be used in the pod" if index is None else None


def _at_node(context: Context, rail: int) -> dict:
    entry = _node_rail(context, rail)
    device = mapping(mapping(mapping(context.facts).get("devices")).get(entry.get("device")))
    index = whole(entry.get("gid_index"))
    table = [row for port in mapping(device.get("ports")).values() for row in rows(mapping(port).get("gids"))]
    row = next((row for row in table if row.get("index") == index), {})
    return entry and {
        "netdev": words(entry.get("netdev")),
        "device": words(entry.get("device")),
        "gid_index": index,
        "gid_type": words(row.get("type")),
        "address": words(entry.get("address")),
        "mtu": whole(entry.get("mtu")),
        "traffic_class": _class([mapping(entry.get("traffic_class"))]),
    }


def _node_rail(context: Context, rail: int) -> dict:
    return next((row for row in rows(mapping(context.facts).get("rails")) if row.get("rail") == rail), {})


def _class(ports: list[dict]) -> int | str | None:
    """One class of all ports, None where they differ or do not tell."""
    found = {
        whole(port.get("value"))
        if port.get("state") == "set"
        else "app"
        if port.get("state") in ("unset", "absent")
        else None
        for port in ports
    }
    return found.pop() if len(found) == 1 else None
