# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan as lines for a terminal, in the order and with the words of site.yml."""

from __future__ import annotations

import unicodedata

from ansible_collections.railyard.rdma.plugins.plugin_utils.report_table import NOT_KNOWN, columns, finding_lines

NODE_COLUMNS = ("node", "prepare", "effect", "at once", "pods evicted", "minutes")
WORDS = {"device_plugin_restart": "restart of the device plugin"}
LONGEST = 300
MOST_ROWS, MOST_FIELDS = 60, 20


def clean(value, longest=LONGEST):
    """Text of others on one line, without characters that steer a terminal or turn the reading direction."""
    # The line and paragraph separators of Unicode break lines too.
    text = "".join(" " if c in "\r\n\t\u2028\u2029" else c for c in str(value))
    text = "".join(c for c in text if unicodedata.category(c)[0] != "C")
    return text if len(text) <= longest else text[: longest - 1] + "…"


def word(effect):
    return WORDS.get(effect, effect)


def minutes(value):
    return NOT_KNOWN if value is None else f"{value:g}"


def several(count, noun):
    return f"{count} {noun}{'' if count == 1 else 's'}"


def prepare_text(prepare):
    """What prepare_nodes does to a node, in a few words."""
    if prepare is None:
        return "-"
    if prepare["file"] is None:
        return NOT_KNOWN
    parts = ["option file"] if prepare["file"] else []
    parts += [several(len(prepare["images"]), "boot image")] if prepare["images"] else []
    parts += ["reboot"] if prepare["reboot"] else ["switch of the running kernel"] if prepare["runtime"] else []
    return ", ".join(parts) or "-"


def why(row, longest=LONGEST):
    """The reasons of a row in one text: PFs with the same reason together, by rail where it is known."""
    groups = {}
    for reason in row["reasons"]:
        place = reason["pci"] if reason["rail"] is None else f"rail {reason['rail']}"
        groups.setdefault(reason["text"], []).append(place)
    texts = []
    for text, places in groups.items():
        named = [place for place in places if place]
        texts.append(f"{_places(named)}: {text}" if named else text)
    slow = [f"may take longer: {text}" for text in row["holdups"]]
    return clean("; ".join([*row["prepare_errors"], *row["errors"], *texts, *slow]), longest)


def _places(named):
    if len(named) > 3 and all(name.startswith("rail ") for name in named):
        return several(len(named), "rail") + f" ({named[0].removeprefix('rail ')} to {named[-1].removeprefix('rail ')})"
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


def node_cells(row):
    busy = row["operator"] in ("drain", "reboot")
    evicted = NOT_KNOWN if row["evicted"] is None else str(len(row["evicted"]))
    at_once = NOT_KNOWN if row["at_once"] is None else str(row["at_once"])
    return [
        clean(row["host"] or row["node"], 60),
        prepare_text(row["prepare"]),
        word(row["effect"]),
        at_once if busy else "-",
        evicted,
        minutes(row["minutes"]),
    ]


def touched(plan):
    """Rows of nodes on which something happens, or may."""
    return [
        row
        for row in plan["nodes"]
        if row["effect"] != "nothing" or prepare_text(row["prepare"]) != "-" or row["errors"] or row["prepare_errors"]
    ]


def reasons_of(rows):
    """[(reasons, names of the nodes)]: nodes with the same reasons together."""
    groups = {}
    for row in rows:
        groups.setdefault(why(row, 1000), []).append(row["host"] or row["node"])
    return [(reasons, names) for reasons, names in groups.items() if reasons]


def object_name(row):
    return clean(f"{row['kind']} {row['namespace'] + '/' if row.get('namespace') else ''}{row['name']}")


def object_lines(plan):
    """A line an object, its fields below."""
    lines = []
    for row in plan["objects"][:MOST_ROWS]:
        mark = "" if row.get("validated", True) else " (not validated)"
        lines.append(f"{row['action']}  {object_name(row)}{mark}")
        fields = row.get("fields") or []
        lines += field_lines(fields)
        lines += [f"    and {len(fields) - MOST_FIELDS} fields more"] if len(fields) > MOST_FIELDS else []
        lines += [f"    effect: {clean(row['effect'])}"] if row["effect"] else []
    if len(plan["objects"]) > MOST_ROWS:
        lines.append(f"and {len(plan['objects']) - MOST_ROWS} objects more; plan.json has all")
    return lines


def field_lines(fields):
    return [
        f"    {clean(field['path'])}: {clean(shown(field['before']), 120)} -> {clean(shown(field['after']), 120)}"
        for field in fields[:MOST_FIELDS]
    ]


def shown(value):
    return "not set" if value is None else value


def operator_lines(plan):
    operator = plan["operator"]
    before, after = operator["version"]["before"], operator["version"]["after"]
    if operator["action"] == "none":
        return [f"none: the release is as wanted ({clean(after)})"]
    if operator["action"] == "unknown":
        return [f"unknown: {clean(operator['reason'])}"]
    lines = [f"{operator['action']}: {clean(shown(before))} -> {clean(after)}"]
    if operator["action"] == "upgrade":
        lines += field_lines(operator["values"])
    lines += [f"    CustomResourceDefinition {clean(crd['name'])}: {crd['action']}" for crd in operator["crds"]]
    return lines + [f"    {clean(text)}" for text in operator["effects"]]


def summary_line(plan):
    """The plan in one sentence."""
    summary = plan["summary"]
    counts, nodes = summary["objects"], summary["nodes"]
    kept = [action for action in counts if action != "foreign" or counts[action]]
    listed = "not known" if None in counts.values() else ", ".join(f"{counts[action]} {action}" for action in kept)
    parts = [f"objects: {listed}"]
    told = [
        f"{nodes[effect]} {word(effect)}"
        for effect in ("reboot", "drain", "device_plugin_restart", "unknown", "nothing")
        if nodes[effect]
    ]
    parts.append(f"nodes: {', '.join(told) or 'none'}")
    evicted = NOT_KNOWN if summary["evicted_pods"] is None else summary["evicted_pods"]
    parts.append(f"pods evicted: {evicted}")
    parts.append(f"minutes: {_minutes_text(summary)}")
    return "; ".join(parts)


def _minutes_text(summary):
    if summary["minutes"] is not None:
        return f"about {minutes(summary['minutes'])}"
    return "not known (" + ", ".join(f"{name} {minutes(value)}" for name, value in summary["minutes_of"].items()) + ")"


def verdict(plan):
    if plan["stops"]:
        return "site.yml would not get through"
    return {
        True: "site.yml would change this",
        False: "site.yml would change nothing",
        None: "whether site.yml would change anything is not known",
    }[plan["changes"]]


def sections(plan):
    """[(heading, lines)] in the order of site.yml; empty ones are left out."""
    rows = touched(plan)
    table = columns(NODE_COLUMNS, list(map(node_cells, rows[:MOST_ROWS]))) if rows else []
    table += [f"and {len(rows) - MOST_ROWS} nodes more; plan.json has all"] if len(rows) > MOST_ROWS else []
    table += [f"{clean(', '.join(names), 120)}: {reasons}" for reasons, names in reasons_of(rows)[:MOST_ROWS]]
    evicted = [_pod_line(row, pod) for row in plan["nodes"] for pod in row["evicted"] or []]
    if len(evicted) > MOST_ROWS:
        evicted = [*evicted[:MOST_ROWS], f"and {len(evicted) - MOST_ROWS} pods more; plan.json has all"]
    foreign = [
        f"{object_name(row)} is not ours and is left alone: it {clean(row['reason'])}" for row in plan["foreign"]
    ]
    found = [
        ("Inspect the nodes: findings", [clean(line, 1000) for line in finding_lines(plan["findings"])]),
        ("Prepare the nodes, and what the operator does to them", table),
        ("Pods that are evicted", evicted),
        ("Install the operator", operator_lines(plan)),
        ("Apply the rails: objects", object_lines(plan)),
        ("Objects of others", foreign),
        ("Not known", [f"{clean(row['what'])}: {clean(row['reason'])}" for row in plan["unknown"]]),
        ("Where site.yml would end", [_stop(row) for row in plan["stops"]]),
    ]
    return [(heading, lines) for heading, lines in found if lines]


def _pod_line(row, pod):
    lost = f"; its emptyDir is lost: {clean(', '.join(pod['empty_dir']))}" if pod["empty_dir"] else ""
    return f"{clean(row['host'] or row['node'])}: {clean(pod['namespace'])}/{clean(pod['name'])} ({clean(pod['why'])}{lost})"


def _stop(row):
    return f"{row['playbook']}: " + (f"{clean(row['node'])}: " if row["node"] else "") + clean(row["text"], 1000)


def text_lines(plan):
    """All of it."""
    lines = []
    for heading, part in sections(plan):
        lines += [heading, *(f"  {line}" for line in part), ""]
    return [*lines, f"Plan: {summary_line(plan)}.", f"{verdict(plan)}."]
