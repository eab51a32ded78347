# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is told of objects that were applied or deleted: rows, Ansible's diff, and the message of a half that failed."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.field_diff import field_diff


def public(results, check_mode=False):
    """Results as they are returned: the contents of the objects stay in the diff. In check mode with the fields that
    would change."""
    rows = []
    for result in results:
        row = {k: v for k, v in result.items() if k not in ("before", "after")}
        if check_mode and result["action"] == "changed":
            row["fields"] = field_diff(result["before"], result["after"])
        rows.append(row)
    return rows


def diff_of(results):
    """One entry of Ansible's diff for each object that changed."""
    entries = []
    for result in results:
        if result["action"] == "unchanged":
            continue
        place = f"{result['namespace']}/" if result["namespace"] else ""
        header = f"{result['kind']} {place}{result['name']}"
        entries.append(
            {
                "before_header": header,
                "after_header": header,
                "before": result["before"] or {},
                "after": result["after"] or {},
            }
        )
    return entries


def partial_message(error, verb):
    """The errors, then what was done before them and what was not: a half layout is never silent."""
    names = {"deleted": [], verb: []}
    for result in error.done:
        place = f"{result['namespace']}/" if result["namespace"] else ""
        names["deleted" if result["action"] == "deleted" else verb].append(f"{result['kind']} {place}{result['name']}")
    lines = [f"{len(error.not_done)} of {int(len(error.not_done) + len(error.done))} objects were not {verb}."]
    lines += error.errors
    lines.append(f"{verb.capitalize()}: {', '.join(names[verb]) or 'none'}.")
    if verb != "deleted" and names["deleted"]:
        lines.append(f"Deleted, as an earlier layout had them: {', '.join(names['deleted'])}.")
    lines.append(f"Not {verb}: {', '.join(error.not_done)}.")
    return "\n".join(lines)
