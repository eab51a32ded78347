# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Endpoints of a benchmark from what test pods see, and the verdict of a benchmark from what was measured."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth import judge, priorities
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import (
    address_rows,
    device_of,
    forced_class,
    interfaces,
    usable_rails,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context


def endpoint(context: Context, row: dict, stream: int) -> dict:
    """The endpoint of one test pod: ``{host, node, pod, namespace, container, stream, traffic_class, rails, missing}``.

    :param row: an entry of verify_pods.pods.

    rails is ``{rail: {device, pci, interface, function, gid_index, address, port_gbps, forced}}``, missing ``{rail: reason}``.
    """
    meta = row["pod"]["metadata"]
    made = {
        "host": context.node,
        "node": row["node"],
        "pod": meta["name"],
        "namespace": meta["namespace"],
        "container": row["pod"]["spec"]["containers"][0]["name"],
        "stream": stream,
        "traffic_class": context.layout.get("traffic_class"),
        "rails": {},
        "missing": {},
    }
    numbers = [
        rail["rail"] for rail in context.layout["rails"] if row.get("rails") is None or rail["rail"] in row["rails"]
    ]
    pod = context.pod
    if pod is None or not pod.get("reachable"):
        why = (pod or {}).get("reason") or "there is no test pod"
        made["missing"] = dict.fromkeys(numbers, f"the pod cannot be used: {why}")
        return made
    indexes, places = usable_rails(context), interfaces(context.layout, pod)
    for number in numbers:
        found = _rail(context, places.get(number), indexes.get(number))
        made["missing" if isinstance(found, str) else "rails"][number] = found
    return made


def _rail(context: Context, interface: str | None, index: int | None) -> dict | str:
    pod = context.pod
    if interface is None:
        return "the pod has no interface on this rail"
    name = device_of(pod, interface)
    if name is None:
        return f"{interface} has no RDMA device in the pod"
    row = next((row for row in address_rows(pod, interface, name) if row["index"] == index), None)
    if row is None:
        return f"{name} has no usable RoCE v2 GID of an address of {interface}"
    device, netdev = pod["devices"][name], pod["netdevs"][interface]
    number, port = next(iter(device["ports"].items()))
    return {
        "device": name,
        "pci": device.get("pci"),
        "interface": interface,
        "function": "child" if netdev.get("pci") is None else "vf" if netdev.get("parent_pci") else "pf",
        "gid_index": index,
        "address": row["address"],
        "port_gbps": port.get("rate_gbps"),
        "forced": forced_class(context, name, number),
    }


def endpoints(model: dict, facts: dict, pods: dict, test_pods: list[dict]) -> dict:
    """``{endpoints, groups, streams}`` for the module rail_bandwidth.

    :param facts: {host: ``ansible_facts.rdma`` or None}.
    :param pods: what pod_rdma_facts returned as ``pods``.
    :param test_pods: what verify_pods.pods made.
    :raises ValueError: pods of one node do not have the same rails, so they do not share ports.
    """
    layouts = {host: layout for layout in model["layouts"] for host in layout["hosts"]}
    seen: dict[str, int] = {}
    made = []
    for row in test_pods:
        host = row["host"]
        stream = seen[host] = seen.get(host, -1) + 1
        pod = pods.get(row["pod"]["metadata"]["name"])
        context = Context(host, layouts[host], facts.get(host), None, pod)
        if stream and row.get("count") not in (None, len(layouts[host]["rails"])):
            raise ValueError(
                f"share: {host} has no VFs enough for two pods with all rails each: rails_vfs_per_pf must be 2 or more"
            )
        made.append(endpoint(context, row, stream))
    groups = [[host for host in layout["hosts"] if host in seen] for layout in model["layouts"]]
    return {"endpoints": made, "groups": groups, "streams": max(seen.values(), default=0) + 1}


def counters(facts: dict | None, layout: dict) -> dict | None:
    """What a verdict needs of the facts of a node that were gathered with counters: the PFs' interfaces and the devices."""
    if facts is None:
        return None
    wanted = {rail["pci"] for rail in layout["rails"]}
    netdevs = {
        name: {key: netdev.get(key) for key in ("pci", "qos", "counters", "reasons")}
        for name, netdev in (facts.get("netdevs") or {}).items()
        if netdev.get("pci") in wanted
    }
    devices = {
        name: {
            "pci": device.get("pci"),
            "ports": {number: {"counters": port.get("counters")} for number, port in device["ports"].items()},
        }
        for name, device in (facts.get("devices") or {}).items()
        if {device.get("pci"), device.get("parent_pci")} & wanted
    }
    return {"netdevs": netdevs, "devices": devices}


def result(model: dict, measured: dict, found: dict, before: dict, after: dict) -> dict:
    """The result of a benchmark, schema 1: what was measured with the priorities that the packets took.

    :param measured: what the module rail_bandwidth returned.
    :param found: what :func:`endpoints` returned.
    :param before: {host: what :func:`counters` made of the facts from before the tests, or None}; after: from afterwards.
    """
    rails = {(one["host"], int(number)): rail for one in found["endpoints"] for number, rail in one["rails"].items()}
    rows = [dict(row) for row in measured["results"]]
    judge.add_host_counters(
        rows, {h: f or {} for h, f in before.items()}, {h: f or {} for h, f in after.items()},
        {key: rail["function"] for key, rail in rails.items()},
    )  # fmt: skip
    table = []
    for layout in model["layouts"]:
        for host in layout["hosts"]:
            mine = [row for row in rows if host in (row["client"]["host"], row["server"]["host"])]
            for rail in layout["rails"] if mine else []:
                taking = [row for row in mine if row["rail"] == rail["rail"]]
                forced = [
                    {"device": one["device"], "function_name": _FUNCTIONS[one["function"]], **one["forced"]}
                    for end in found["endpoints"]
                    if end["host"] == host
                    for number, one in end["rails"].items()
                    if int(number) == rail["rail"]
                ]
                wanted = measured["settings"]["traffic_class"]
                wanted = layout.get("traffic_class") if wanted is None else wanted
                table.append(priorities.row(host, rail, before.get(host), after.get(host), wanted, forced, taking))
    return {
        "schema": 1,
        "settings": measured["settings"],
        "rounds": measured["rounds"],
        "results": rows,
        "priorities": table,
        "slow_hosts": judge.slow_hosts(rows),
    }


_FUNCTIONS = {"vf": "VF", "pf": "PF", "child": "PF"}


def of_host(measured: dict, host: str) -> dict:
    """The part of a result that is about one host."""
    return {
        **{key: measured[key] for key in ("settings", "slow_hosts") if key in measured},
        "results": [row for row in measured["results"] if host in (row["client"]["host"], row["server"]["host"])],
        "priorities": [row for row in measured["priorities"] if row["host"] == host],
    }


def lines(measured: dict) -> list[str]:
    """The result as a table of text: a line for each pair and rail, then one for each rail's priority."""
    told = [f"{'rail':>4}  {'client':<20} {'server':<20} {'Gb/s':>8} {'share':>6}  verdict"]
    for row in sorted(
        measured["results"], key=lambda row: (row["round"], row["client"]["host"], row["rail"], row["stream"])
    ):
        rate = "-" if row["gbps"] is None else f"{row['gbps']:.2f}"
        share = "-" if row["ratio"] is None else f"{row['ratio']:.1%}"
        reason = f": {row['reason']}" if row["reason"] else ""
        hosts = f"{row['client']['host']:<20} {row['server']['host']:<20}"
        told.append(f"{row['rail']:>4}  {hosts} {rate:>8} {share:>6}  {row['verdict']}{reason}")
    for row in measured["priorities"]:
        told.append(f"{row['rail']:>4}  {row['host']:<20} {row['verdict']}: {row['reason']}")
    return told
