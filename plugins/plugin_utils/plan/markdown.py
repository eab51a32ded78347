# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan as Markdown, for a comment on a merge request.

Names and values come from a cluster that others write to, and end up on a page of a forge: nothing of them may become
markup, a link, a mention of somebody, or a reference to an issue.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.plan import text as plain

# Characters that mean something to Markdown, HTML, or a forge. As numbers they are themselves on every renderer.
SPECIAL = frozenset("\\`*_{}[]()<>#+!|~@:&$%^=\"'")
# Keeps forges from reading a mention (@x), a reference (#1, !1, %1, ~x) or an address (://) out of the rendered text.
BREAK = "&#8203;"
REFERENCES = frozenset("@#!%~:$^")
# GitHub takes 65,536 characters a comment.
LONGEST = 60000


def escape(value, longest=plain.LONGEST):
    """Text of others as Markdown that shows it and does nothing else."""
    text = plain.clean(value, longest)
    return "".join(_shown(c, text[place + 1 : place + 2]) for place, c in enumerate(text))


def _shown(character, following):
    if character not in SPECIAL:
        return character
    # Before a space none of them begins anything.
    return f"&#{ord(character)};" + (BREAK if character in REFERENCES and following.strip() else "")


def code(value, longest=120):
    return f"<code>{escape(value, longest)}</code>"


def table(heading, rows):
    return [f"| {' | '.join(heading)} |", f"|{'---|' * len(heading)}", *(f"| {' | '.join(row)} |" for row in rows)]


def markdown(plan):
    """The whole comment as one text; what does not fit is cut at the end of a section, and said."""
    parts = [
        ["### Plan of the rails", "", f"**{escape(plain.verdict(plan))}**: {escape(plain.summary_line(plan))}.", ""]
    ]
    parts += [
        part
        for part in (_stops(plan), _nodes(plan), _evicted(plan), _operator(plan), _objects(plan), _others(plan))
        if part
    ]
    parts += [part for part in (_findings(plan), _unknown(plan), _assumptions(plan)) if part]
    kept, size, cut = [], 0, False
    for part in parts:
        length = sum(len(line) + 1 for line in part)
        if size + length > LONGEST - 200:
            cut = True
            continue
        kept += part
        size += length
    kept += ["_Cut to the length of a comment; plan.json has all of it._", ""] if cut else []
    return "\n".join(kept)


def _more(count, shown, noun):
    return ["", f"… and {count - shown} {noun} more."] if count > shown else []


def _stops(plan):
    if not plan["stops"]:
        return []
    rows = [
        [escape(r["playbook"]), escape(r["node"] or "-"), escape(r["text"])] for r in plan["stops"][: plain.MOST_ROWS]
    ]
    more = _more(len(plan["stops"]), plain.MOST_ROWS, "reasons")
    return ["#### Where site.yml would end", "", *table(("playbook", "node", "why"), rows), *more, ""]


def _nodes(plan):
    found = plain.touched(plan)
    if not found:
        return []
    rows = [[*map(escape, plain.node_cells(row))] for row in found[: plain.MOST_ROWS]]
    reasons = [f"- {escape(', '.join(names), 120)}: {escape(text, 1000)}" for text, names in plain.reasons_of(found)]
    return [
        "#### Nodes",
        "",
        *table(plain.NODE_COLUMNS, rows),
        *_more(len(found), plain.MOST_ROWS, "nodes"),
        "",
        *reasons[: plain.MOST_ROWS],
        "",
    ]


def _evicted(plan):
    found = [(row, pod) for row in plan["nodes"] for pod in row["evicted"] or []]
    if not found:
        return []
    rows = [
        [
            escape(row["host"] or row["node"]),
            code(f"{pod['namespace']}/{pod['name']}"),
            escape(pod["why"]),
            escape(", ".join(pod["empty_dir"]) or "-"),
        ]
        for row, pod in found[: plain.MOST_ROWS]
    ]
    heading = ("node", "pod", "why", "emptyDir that is lost")
    return ["#### Pods that are evicted", "", *table(heading, rows), *_more(len(found), plain.MOST_ROWS, "pods"), ""]


def _operator(plan):
    return ["#### Operator", "", *(f"- {escape(line.strip())}" for line in plain.operator_lines(plan)), ""]


def _objects(plan):
    if not plan["objects"]:
        return []
    rows = []
    for row in plan["objects"][: plain.MOST_ROWS]:
        name, fields = code(plain.object_name(row)), row.get("fields") or []
        name += f"<br>{escape(row['effect'])}" if row["effect"] else ""
        if not fields:
            rows.append([row["action"], name, "-", "-", "-"])
        for number, field in enumerate(fields[: plain.MOST_FIELDS]):
            values = [code(plain.shown(field[side])) for side in ("before", "after")]
            rows.append(
                [row["action"] if number == 0 else "", name if number == 0 else "", code(field["path"]), *values]
            )
    more = _more(len(plan["objects"]), plain.MOST_ROWS, "objects")
    return ["#### Objects", "", *table(("action", "object", "field", "before", "after"), rows), *more, ""]


def _others(plan):
    if not plan["foreign"]:
        return []
    rows = [[code(plain.object_name(row)), escape(row["reason"])] for row in plan["foreign"][: plain.MOST_ROWS]]
    return ["#### Objects of others, left alone", "", *table(("object", "it"), rows), ""]


def _findings(plan):
    if not plan["findings"]:
        return []
    lines = [escape(line, 1000) for line in plain.finding_lines(plan["findings"])]
    return ["#### Findings", "", *(f"- {line.strip()}" for line in lines), ""]


def _unknown(plan):
    if not plan["unknown"]:
        return []
    rows = [[escape(row["what"]), escape(row["reason"])] for row in plan["unknown"][: plain.MOST_ROWS]]
    return ["#### Not known", "", *table(("what", "why"), rows), ""]


def _assumptions(plan):
    if not plan["summary"]["minutes"]:
        return []
    rows = [[escape(row["name"]), plain.minutes(row["minutes"]), escape(row["source"])] for row in plan["assumptions"]]
    return [
        "<details><summary>What the minutes assume</summary>",
        "",
        *table(("thing", "minutes", "source"), rows),
        "",
        "</details>",
        "",
    ]
