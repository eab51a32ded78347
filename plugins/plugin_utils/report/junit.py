# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The proof document as JUnit XML, which CI systems and AWX show as test results.

A suite for each node, in it a case for each rail and one for each rule that found something about the whole node. Elements
and attributes are those that Jenkins, GitLab and the schema of Ant's JUnit task have in common.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from xml.etree import ElementTree

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import RULES
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.cells import concerns
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.jobs import jobs, state
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import visible, words

NAME = "railyard.rdma"
# Characters that XML 1.0 has not got (2.2); visible() makes escapes of nearly all.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Case(NamedTuple):
    """One test case; body is shown with every state, message where it failed or was skipped."""

    name: str
    state: str
    body: str
    message: str
    kind: str


def junit(document: dict) -> bytes:
    """Return the XML of a proof document, UTF-8."""
    cells: dict[str, list[dict]] = {}
    for cell in document["cells"]:
        cells.setdefault(cell["node"], []).append(cell)
    found: dict[str, list[dict]] = {}
    for item in document["findings"]:
        found.setdefault(item["node"], []).append(item)
    nodes = dict.fromkeys([*(row["node"] for row in document["rows"]), *cells, *found])
    suites = {node: _node_cases(cells.get(node, []), found.get(node, [])) for node in nodes}
    ran = [_job(job) for job in jobs(document["nccl"])]
    top = ElementTree.Element("testsuites", {"name": NAME})
    # The schema wants the time without a zone.
    stamp = (document["made_at"] or "1970-01-01T00:00:00").rstrip("Z")
    total = failures = 0
    for name, cases in [*suites.items(), *([("NCCL", ran)] if ran else [])]:
        total += len(cases)
        failures += _suite(top, name, cases, stamp)
    top.attrib.update(tests=str(total), failures=str(failures), errors="0")
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="utf-8", xml_declaration=True) + b"\n"


def _node_cases(cells: list[dict], findings: list[dict]) -> list[Case]:
    cases = []
    for cell in cells:
        own = [item for item in findings if concerns(item, cell["rail"])]
        body = _body(_cell_text(cell), own, cell["reason"])
        cases.append(Case(f"rail {cell['rail']}", cell["state"], body, _short(own, cell["reason"]), _kind(own)))
    at_node: dict[str, list[dict]] = {}
    for item in findings:
        if not any(concerns(item, cell["rail"]) for cell in cells):
            at_node.setdefault(item["id"], []).append(item)
    for rule_id, items in at_node.items():
        title = f"{rule_id} {RULES[rule_id].title}" if rule_id in RULES else rule_id
        cases.append(Case(title, _state(items), _body("", items, None), _short(items, None), _kind(items)))
    return cases


def _job(job: dict) -> Case:
    reason = words(job.get("reason")) or "no reason is given"
    return Case(str(job.get("name")), state(job), f"bus bandwidth {job.get('busbw_gbs')} GB/s", reason, "NCCL")


def _suite(top, name: str, cases: list[Case], stamp: str) -> int:
    """Add a suite; return how many of its cases failed."""
    suite = _element(top, "testsuite", name=name, hostname=name, time="0", timestamp=stamp)
    for case in cases:
        entry = _element(suite, "testcase", name=case.name, classname=f"{NAME}.{name}", time="0")
        if case.state == "fail":
            _element(entry, "failure", case.body or case.message, message=case.message, type=case.kind)
        elif case.state == "unknown":
            # Some readers show only the message, others only the text.
            _element(entry, "skipped", case.body or case.message, message=case.message)
        elif case.body:
            _element(entry, "system-out", case.body)
    states = [case.state for case in cases]
    failed, skipped = states.count("fail"), states.count("unknown")
    suite.attrib.update(tests=str(len(cases)), failures=str(failed), errors="0", skipped=str(skipped))
    return failed


def _element(parent, tag: str, body: str = "", **attributes: str):
    child = ElementTree.SubElement(parent, tag, {key: _safe(value) for key, value in attributes.items()})
    if body:
        child.text = _safe(body)
    return child


def _safe(text) -> str:
    return _NOT_XML.sub("\ufffd", visible(text))


def _state(items: list[dict]) -> str:
    told = {item["severity"] for item in items if not item.get("tolerated")}
    return "fail" if "error" in told else "unknown" if "unknown" in told else "pass"


def _short(items: list[dict], reason: str | None) -> str:
    first = next(
        (item for item in items if item["severity"] in ("error", "unknown") and not item.get("tolerated")), None
    )
    if first:
        return f"{first['id']}: {first['summary']}"
    return reason or "the node fails as a whole: see its other cases"


def _kind(items: list[dict]) -> str:
    return next((item["id"] for item in items if item["severity"] == "error" and not item.get("tolerated")), "node")


def _body(told: str, items: list[dict], reason: str | None) -> str:
    lines = []
    for item in items:
        mark = f"{item['severity']}, tolerated" if item.get("tolerated") else item["severity"]
        lines.append(f"{item['id']} ({mark}): {item['summary']}\n  remedy: {item['remedy']}")
    return "\n".join(part for part in (told, *lines, reason) if part)


def _cell_text(cell: dict) -> str:
    keys = ("pf", "netdev", "device", "gid_index", "gid_type", "address", "mtu", "traffic_class", "gbps", "ratio")
    return ", ".join(f"{key} {cell[key]}" for key in keys if cell.get(key) is not None)
