# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What moved between two proof documents."""

from __future__ import annotations

import json

from ansible_collections.railyard.rdma.plugins.plugin_utils.report.document import SCHEMA
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.jobs import jobs
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import (
    ReportError,
    mapping,
    number,
    plain,
    rows,
    words,
)

REMEDY = "Name a file that a run wrote as report_file, or none."
# What of a cell is compared, with the name of the change. Names and addresses in a pod and at its node are not the same
# thing, so they are compared only where both documents saw the rail from the same place.
_PLACED = {
    "netdev": "interface",
    "device": "device",
    "gid_index": "GID index",
    "gid_type": "GID type",
    "address": "address",
    "mtu": "MTU",
    "traffic_class": "traffic class",
}
# Each test pod gets new ones: there only that they came or went says something.
_OF_A_POD = ("netdev", "address")
# A place of two names is no name of either, whatever signs they hold.
Place = tuple[str, "int | None"]


def read(content: bytes, where: str) -> dict:
    """Return an earlier document, also of a version without cells.

    :param where: name of the file, for the error.
    :raises ReportError: it is no JSON, no report, or of a later version than this one.
    """
    if not content.strip():
        raise ReportError(f"report_compare_with: {where} is empty. {REMEDY}")
    try:
        found = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ReportError(
            f"report_compare_with: {where} is not JSON, or only a part of it ({' '.join(str(error).split())[:200]}). {REMEDY}"
        ) from error
    if not isinstance(found, dict):
        raise ReportError(f"report_compare_with: {where} holds a {type(found).__name__}, must be an object. {REMEDY}")
    # Before there was a version there were rows and findings.
    schema = found.get("schema", 0)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 0:
        raise ReportError(f"report_compare_with: {where}: schema: got {schema!r}, allowed are 0 to {SCHEMA}. {REMEDY}")
    if schema > SCHEMA:
        raise ReportError(
            f"report_compare_with: {where}: schema: got {schema}, allowed are 0 to {SCHEMA}. A later version of the "
            "collection wrote it: use that one, or name no file."
        )
    for key in ("rows", "findings"):
        if not isinstance(found.get(key), list):
            raise ReportError(
                f"report_compare_with: {where}: {key}: got {type(found.get(key)).__name__}, must be a list. {REMEDY}"
            )
    return plain(found)


def compare(old: dict, new: dict, percent: float = 5.0) -> dict:
    """What moved from an earlier document to this one.

    :param percent: a rate counts as moved when it differs by more than this share of the earlier one.
    :returns: ``{made_at, version, schema, percent, moved: [{what, node, rail, before, after, better}], not_compared:
        [{what, why}]}``. made_at, version and schema are the earlier document's. before is None for what came, after for
        what went; better is True, False, or None where neither is better.
    """
    moved, left = [], []
    ours, theirs = ({row["node"]: row for row in rows(doc.get("rows")) if words(row.get("node"))} for doc in (new, old))
    for node in [*theirs, *(name for name in ours if name not in theirs)]:
        before, after = (mapping(table.get(node)).get("verdict") for table in (theirs, ours))
        if node not in theirs or node not in ours:
            moved.append(_move("node", node, None, before, after))
        elif before != after:
            moved.append(
                _move("verdict", node, None, before, after, after == "pass" if "pass" in (before, after) else None)
            )
    moved += _cells(old, new, left, percent)
    moved += _findings(old, new)
    moved += _nccl(old, new, left, percent)
    return {
        "made_at": words(old.get("made_at")),
        "version": words(old.get("version")),
        "schema": old.get("schema", 0),
        "percent": percent,
        "moved": moved,
        "not_compared": left,
    }


def _move(what: str, node: str | None, rail: int | None, before, after, better: bool | None = None) -> dict:
    return {"what": what, "node": node, "rail": rail, "before": before, "after": after, "better": better}


def _grid(doc: dict) -> dict[Place, dict]:
    return {(cell["node"], cell.get("rail")): cell for cell in rows(doc.get("cells")) if words(cell.get("node"))}


def _cells(old: dict, new: dict, left: list[dict], percent: float) -> list[dict]:
    theirs, ours = _grid(old), _grid(new)
    if not theirs:
        left.append({"what": "rails", "why": "the earlier report has no cells"})
        return []
    moved, elsewhere, unrated = [], 0, 0
    nodes = {node for node, _rail in theirs} & {node for node, _rail in ours}
    for place in [*theirs, *(one for one in ours if one not in theirs)]:
        node, rail = place
        before, after = theirs.get(place), ours.get(place)
        if before is None or after is None:
            if node in nodes:
                moved.append(_move("rail", node, rail, mapping(before).get("state"), mapping(after).get("state")))
            continue
        if before.get("pf") != after.get("pf"):
            moved.append(_move("PF", node, rail, before.get("pf"), after.get("pf")))
        if before.get("seen_in") != after.get("seen_in") or not after.get("seen_in"):
            elsewhere += 1
        else:
            moved += [
                _move(_PLACED[key], node, rail, before[key], after.get(key))
                for key in _PLACED
                if _differs(key, before, after)
            ]
        first, second = number(before.get("gbps")), number(after.get("gbps"))
        if first is None or second is None:
            unrated += first is not second
        elif abs(second - first) * 100 > percent * abs(first):
            moved.append(_move("rate", node, rail, first, second, second > first))
    if elsewhere:
        left.append(
            {
                "what": f"{elsewhere} rails",
                "why": "one report saw them in pods, the other one at their nodes or not at all",
            }
        )
    if unrated:
        left.append({"what": f"the rate of {unrated} rails", "why": "only one of the reports has it"})
    return moved


def _differs(key: str, before: dict, after: dict) -> bool:
    """Whether a value of a rail changed. What an earlier version did not know is no change."""
    if key not in before or before[key] == after.get(key):
        return False
    return after["seen_in"] != "pod" or key not in _OF_A_POD or None in (before[key], after.get(key))


def _findings(old: dict, new: dict) -> list[dict]:
    """Findings that came or went. Their texts may change with every version, so id and place make a finding."""

    def table(doc):
        found = {}
        for item in rows(doc.get("findings")):
            if words(item.get("id")) and words(item.get("node")) and item.get("severity") != "unknown":
                found.setdefault((item["id"], item["node"], item.get("rail")), item)
        return found

    theirs, ours = table(old), table(new)
    gone = [
        _move(f"finding {key[0]}", key[1], key[2], _told(item), None, True)
        for key, item in theirs.items()
        if key not in ours
    ]
    came = [
        _move(f"finding {key[0]}", key[1], key[2], None, _told(item), False)
        for key, item in ours.items()
        if key not in theirs
    ]
    return came + gone


def _told(item: dict) -> str:
    return words(item.get("summary")) or words(item.get("severity")) or "found"


def _nccl(old: dict, new: dict, left: list[dict], percent: float) -> list[dict]:
    theirs, ours = (
        {job["name"]: number(job.get("busbw_gbs")) for job in jobs(doc.get("nccl")) if words(job.get("name"))}
        for doc in (old, new)
    )
    if ours and not theirs:
        left.append({"what": "NCCL", "why": "the earlier report has no NCCL job"})
    moved = []
    for name in [name for name in theirs if name in ours]:
        before, after = theirs[name], ours[name]
        if before is not None and after is not None and abs(after - before) * 100 > percent * abs(before):
            moved.append(_move(f"bus bandwidth of {name}", None, None, before, after, after > before))
    return moved
