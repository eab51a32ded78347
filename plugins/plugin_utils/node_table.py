# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of nodes as their facts show them, before any pod: the netns mode where it is set, and the rails."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import verdict
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context
from ansible_collections.railyard.rdma.plugins.plugin_utils.report_table import NOT_KNOWN, columns, vfs

# The mode in four columns: wanted, in effect, in the option files, and in the boot image; they differ by image of the
# provider, and only all four together tell what a reboot does.
COLUMNS = ("node", "shape", "wanted", "live", "modprobe.d", "boot image", "next boot", "rails ok", "VFs", "verdict")


def node_row(context: Context, findings: list[dict]) -> dict:
    """One row as data: ``{node, shape, wanted, live, configured, boot_image, next_boot, rails_ok, rails, vfs, vfs_wanted,
    verdict, errors, warnings, unknown}``; None is what is not known, and for ``configured`` and ``boot_image`` also
    what nobody sets."""
    layout, facts = context.layout, context.facts
    own = [f for f in findings if f["node"] == context.node]
    mode = (facts or {}).get("netns_mode") or {}
    rails = (facts or {}).get("rails")
    result = verdict(own)
    return {
        "node": context.node,
        "shape": layout.get("shape") or layout["name"],
        "wanted": layout.get("netns_mode"),
        **{key: mode.get(key) for key in ("live", "configured", "boot_image", "next_boot")},
        "rails_ok": None if rails is None else sum(rail["reason"] is None for rail in rails),
        "rails": len(layout["rails"]),
        "vfs": vfs(layout, facts),
        "vfs_wanted": len(layout["rails"]) * layout["vfs_per_pf"] if layout["network"] == "sriov" else None,
        "verdict": "unknown" if result == "pass" and facts is None else result,
        **{f"{name}s": sum(f["severity"] == name and not f["tolerated"] for f in own) for name in ("error", "warning")},
        "unknown": sum(f["severity"] == "unknown" for f in own),
    }


def node_lines(rows: list[dict]) -> list[str]:
    """The rows as aligned text."""
    return columns(COLUMNS, [_cells(row) for row in rows])


def _cells(data: dict) -> list[str]:
    counts = [(data["errors"], "error"), (data["warnings"], "warning"), (data["unknown"], "unknown")]
    told = [f"{number} {name}{'s' if number > 1 and name != 'unknown' else ''}" for number, name in counts if number]

    def of(number, total):
        return "-" if total is None else f"{NOT_KNOWN if number is None else number} of {total}"

    return [
        data["node"],
        data["shape"],
        data["wanted"] or "keep",
        data["live"] or NOT_KNOWN,
        data["configured"] or "-",
        data["boot_image"] or "-",
        data["next_boot"] or NOT_KNOWN,
        of(data["rails_ok"], data["rails"]),
        of(data["vfs"], data["vfs_wanted"]),
        data["verdict"] + (f" ({', '.join(told)})" if told else ""),
    ]
