# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The grid of nodes and rails as a person can read it: faults first, and nodes alike as one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ansible_collections.railyard.rdma.plugins.plugin_utils.report.cells import PASS, STATES, worst
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import counted

# Up to so many nodes each has a row of its own.
ALONE = 24
# A row less than this many nodes is not worth a group.
FEW = 3
MOST_ROWS = 100
# Names of a group that are listed; the JSON file has all.
MOST_NAMES = 1000
_TOLD = (
    ("pf", "PF"),
    ("netdev", "interface"),
    ("device", "device"),
    ("gid_index", "GID index"),
    ("gid_type", "GID type"),
    ("address", "address"),
    ("mtu", "MTU"),
    ("traffic_class", "class"),
)


def grid(cells: list[dict], rows: list[dict]) -> dict:
    """``{rails: [rail], rows: [{nodes, names, more_names, state, verdict, shape, cells}], left_out: {nodes, states},
    counts: {state: cells}}`` with cells ``[{rail, nodes, node, state, because, share, finding, tip}|None]``.

    share is a text such as "97 %" or None; tip a list of texts.
    """
    by_node: dict[str, dict[int, dict]] = {row["node"]: {} for row in rows}
    for cell in cells:
        by_node.setdefault(cell["node"], {})[cell["rail"]] = cell
    rails = sorted({cell["rail"] for cell in cells})
    table = {row["node"]: row for row in rows}
    groups = _groups(by_node, table)
    shown = groups[:MOST_ROWS]
    cut = [node for group in groups[MOST_ROWS:] for node in group]
    return {
        "rails": rails,
        "rows": [_row(nodes, by_node, table, rails) for nodes in shown],
        "left_out": {
            "nodes": len(cut),
            "states": Counter(worst(cell["state"] for cell in by_node[node].values()) for node in cut),
        },
        "counts": Counter(cell["state"] for cell in cells),
    }


def _groups(by_node: dict[str, dict[int, dict]], table: dict[str, dict]) -> list[list[str]]:
    """Lists of nodes, one a row, the worst first. Nodes alike have the same states and findings."""

    def alike(node: str, exact: bool) -> tuple:
        cells = by_node[node].items()
        head = (table.get(node, {}).get("verdict"), table.get(node, {}).get("shape"))
        return head, tuple(
            (rail, cell["state"], cell["because"], tuple(cell["findings"]) if exact else ()) for rail, cell in cells
        )

    nodes = list(by_node)
    if len(nodes) <= ALONE:
        groups = [[node] for node in nodes]
    else:
        groups = _collect(nodes, lambda node: alike(node, True))
        if len(groups) > MOST_ROWS:
            groups = _collect(nodes, lambda node: alike(node, False))

    def rank(group: list[str]) -> tuple:
        # A state of the whole node counts as its cells' states do.
        states = Counter(cell["state"] for cell in by_node[group[0]].values())
        verdict = table.get(group[0], {}).get("verdict") or PASS
        return (
            STATES.index(worst([*states, verdict])),
            len(group) if worst(states) == PASS else 0,
            [-states[s] for s in STATES],
        )

    return sorted(groups, key=rank)


def _collect(nodes: list[str], key) -> list[list[str]]:
    found: dict[tuple, list[str]] = {}
    for node in nodes:
        found.setdefault(key(node), []).append(node)
    return [part for group in found.values() for part in ([group] if len(group) >= FEW else [[node] for node in group])]


def _row(nodes: list[str], by_node: dict, table: dict, rails: list[int]) -> dict:
    first = table.get(nodes[0], {})
    made = []
    for rail in rails:
        cells = [by_node[node][rail] for node in nodes if rail in by_node[node]]
        made.append(_cell(rail, cells) if cells else None)
    return {
        "nodes": len(nodes),
        "names": nodes[:MOST_NAMES],
        "more_names": max(0, len(nodes) - MOST_NAMES),
        "state": worst([cell["state"] for cell in made if cell] + [first.get("verdict") or PASS]),
        "verdict": first.get("verdict"),
        "shape": first.get("shape"),
        "cells": made,
    }


def _cell(rail: int, cells: list[dict]) -> dict:
    first = cells[0]
    tip = [f"{name} {told}" for key, name in _TOLD if (told := distinct(cell[key] for cell in cells))]
    rate = rates(cells)
    if rate:
        tip.append(rate)
    ids = sorted({name for cell in cells for name in cell["findings"]})
    if ids:
        tip.append("findings: " + ", ".join(ids))
    if first["because"] == "node":
        tip.append("for a reason that concerns the whole node")
    reasons = distinct(cell["reason"] for cell in cells)
    if reasons:
        tip.append(reasons)
    return {
        "rail": rail,
        "nodes": len(cells),
        "node": first["node"],
        "state": worst(cell["state"] for cell in cells),
        "because": first["because"],
        "share": _share(cells),
        "finding": ids[0] if ids else None,
        "tip": tip,
    }


def distinct(values: Iterable) -> str | None:
    """Different values as text, None when nothing is known: "3", "3 or 5", "3, 5 and 4 more values"."""
    found = [str(value) for value, _n in Counter(value for value in values if value is not None).most_common()]
    if len(found) > 3:
        return f"{', '.join(found[:2])} and {counted(len(found) - 2, 'more value', 'more values')}"
    return " or ".join(found) or None


def rates(cells: list[dict]) -> str | None:
    known = sorted(cell["gbps"] for cell in cells if cell["gbps"] is not None)
    if not known:
        return None
    ports = distinct(f"{cell['of_gbps']:g}" for cell in cells if cell["of_gbps"])
    span = f"{known[0]:.1f}" if known[0] == known[-1] else f"{known[0]:.1f} to {known[-1]:.1f}"
    return f"{span} of {ports} Gb/s" if ports else f"{span} Gb/s"


def _share(cells: list[dict]) -> str | None:
    known = [cell["ratio"] for cell in cells if cell["ratio"] is not None]
    return f"{min(known) * 100:.0f} %" if known else None
