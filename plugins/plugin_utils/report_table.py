# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict table: a row for each node, and text columns that a person reads at the end of a run."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import verdict
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import (
    device_of,
    forced_class,
    interfaces,
    usable_rails,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context

COLUMNS = ("node", "shape", "mode", "VFs", "GIDs ok", "class", "verdict")
NOT_KNOWN = "?"


def row(context: Context, findings: list[dict]) -> dict:
    """One row as data: ``{node, shape, mode, vfs, vfs_wanted, gids_ok, rails, gid_indexes, traffic_class, verdict,
    errors, unknown}``. Where a node has several test pods ``gids_ok`` and ``rails`` count the rails of all of them.

    Numbers are None when they could not be found out. A node without facts or pod has the verdict unknown at best.
    """
    layout, facts = context.layout, context.facts
    each = context.of_each_pod()
    own = [f for f in findings if f["node"] == context.node]
    rails = layout["rails"]
    ready = all(one.pod and one.pod["reachable"] for one in each)
    usable = [index for one in each for index in usable_rails(one).values()] if ready else []
    result = verdict(own)
    if result == "pass" and (facts is None or not ready):
        result = "unknown"
    return {
        "node": context.node,
        "shape": layout.get("shape") or layout["name"],
        "mode": ((facts or {}).get("netns_mode") or {}).get("live"),
        "mode_wanted": layout.get("netns_mode"),
        "vfs": vfs(layout, facts),
        "vfs_wanted": len(rails) * layout["vfs_per_pf"] if layout["network"] == "sriov" else None,
        "gids_ok": sum(index is not None for index in usable) if ready else None,
        "rails": sum(len(one.layout["rails"]) for one in each),
        "gid_indexes": sorted({index for index in usable if index is not None}),
        "traffic_class": sorted({text for one in each for text in classes(one)}) if ready else None,
        "verdict": result,
        "errors": sum(f["severity"] == "error" and not f["tolerated"] for f in own),
        "unknown": sum(f["severity"] == "unknown" for f in own),
    }


def vfs(layout: dict, facts: dict | None) -> int | None:
    """VFs that the node's rail PFs have now; None when a PF does not tell."""
    if facts is None or layout["network"] != "sriov":
        return None
    counts = {n.get("pci"): (n.get("sriov") or {}).get("num") for n in (facts.get("netdevs") or {}).values()}
    found = [counts.get(rail["pci"]) for rail in layout["rails"]]
    return None if None in found else sum(found)


def classes(context: Context) -> list[str]:
    """The distinct traffic classes that the rails' devices force in the pod; "app" where the application chooses."""
    found = set()
    for interface in interfaces(context.layout, context.pod).values():
        name = device_of(context.pod, interface) if interface else None
        for port in context.pod["devices"][name]["ports"] if name else ():
            forced = forced_class(context, name, port)
            found.add({"set": str(forced["value"]), "unset": "app", "absent": "app"}.get(forced["state"], NOT_KNOWN))
    return sorted(found)


def cells(data: dict) -> list[str]:
    """The texts of a row, in the order of COLUMNS."""

    def of(number, total):
        if total is None:
            return "-"
        return f"{NOT_KNOWN if number is None else number} of {total}"

    mode = data["mode"] or NOT_KNOWN
    if data["mode_wanted"] not in (None, "keep", data["mode"]):
        mode += f" (wanted {data['mode_wanted']})"
    text = data["verdict"]
    if data["errors"]:
        text += f" ({data['errors']} error{'s' if data['errors'] > 1 else ''})"
    elif data["verdict"] == "unknown" and data["unknown"]:
        text += f" ({data['unknown']} check{'s' if data['unknown'] > 1 else ''} not made)"
    forced = NOT_KNOWN if data["traffic_class"] is None else ", ".join(data["traffic_class"]) or "-"
    return [
        data["node"],
        data["shape"],
        mode,
        of(data["vfs"], data["vfs_wanted"]),
        of(data["gids_ok"], data["rails"]),
        forced,
        text,
    ]


def width(text: str) -> int:
    """Columns that a text takes on a terminal: wide characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def lines(rows: list[dict]) -> list[str]:
    """The table as lines of text: a heading, a rule, a line for each node."""
    return columns(COLUMNS, [cells(r) for r in rows])


def columns(heading: Sequence[str], rows: list[list[str]]) -> list[str]:
    """Texts as aligned columns: the heading, a rule, a line for each row."""
    table = [list(heading), *rows]
    widths = [max(width(line[i]) for line in table) for i in range(len(heading))]

    def render(line):
        return "  ".join(text + " " * (w - width(text)) for text, w in zip(line, widths, strict=True)).rstrip()

    return [render(table[0]), "  ".join("-" * w for w in widths), *[render(line) for line in table[1:]]]


def finding_lines(findings: list[dict], limit: int = 30) -> list[str]:
    """Findings as text: where, what, remedy. Equal ones on several rails or nodes are told once with the list of
    places."""
    groups: dict[tuple, list[dict]] = {}
    for item in findings:
        # What nobody gathered makes every rule about it unknown: one line for all of them.
        evidence = item["evidence"]
        absent = (evidence["not_gathered"], evidence["reason"]) if "not_gathered" in evidence else None
        rule_id = None if absent else item["id"]
        groups.setdefault((item["severity"], rule_id, item["remedy"], item["tolerated"], absent), []).append(item)
    text = []
    for (severity, rule_id, remedy, tolerated, absent), items in groups.items():
        first = items[0]
        mark = f"{severity}, tolerated" if tolerated else severity
        if absent:
            ids = sorted({item["id"] for item in items})
            text.append(f"{', '.join(ids)} ({mark}) {place(first)}: not checked, {absent[1]}")
        else:
            text.append(f"{rule_id} ({mark}) {place(first)}: {first['summary']}")
        others = [other for other in dict.fromkeys(map(place, items)) if other != place(first)]
        if others:
            more = f" and {len(others) - 8} more" if len(others) > 8 else ""
            text.append(f"    also: {', '.join(others[:8])}{more}")
        text.append(f"    remedy: {remedy}")
    if len(text) > limit:
        text = [*text[:limit], f"… and {len(text) - limit} lines more"]
    return text


def place(item: dict) -> str:
    return item["node"] + (f" rail {item['rail']}" if item["rail"] is not None else "")
