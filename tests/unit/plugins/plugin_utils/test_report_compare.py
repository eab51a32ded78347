# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
from xml.etree import ElementTree

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils.report import compare, files
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.document import proof
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.junit import junit
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import ReportError
from ansible_collections.railyard.rdma.tests.unit.plugins.plugin_utils import report_fleet


@pytest.fixture(scope="module")
def earlier():
    return proof(**report_fleet.documents()["healthy"](), made_at="2026-11-22T18:00:00Z", version="0.1.0")


def moved(old, new, percent=5.0):
    return [
        (one["what"], one["node"], one["rail"], one["before"], one["after"])
        for one in compare.compare(old, new, percent)["moved"]
    ]


def changed(document, **values):
    later = copy.deepcopy(document)
    later["cells"][0].update(values)
    return later


def test_nothing_moves_between_equal_reports(earlier):
    found = compare.compare(earlier, copy.deepcopy(earlier))
    assert (found["moved"], found["not_compared"], found["made_at"]) == ([], [], "2026-11-22T18:00:00Z")


@pytest.mark.parametrize(
    ("key", "after", "what"),
    [
        ("gid_index", 5, "GID index"),
        ("gid_index", None, "GID index"),
        ("gid_type", "IB/RoCE v1", "GID type"),
        ("device", "mlx5_7", "device"),
        ("netdev", None, "interface"),
        ("address", None, "address"),
        ("mtu", 1500, "MTU"),
        ("traffic_class", 0, "traffic class"),
        ("pf", "0000:0c:00.1", "PF"),
    ],
    ids=str,
)
def test_what_moved_at_a_rail(earlier, key, after, what):
    before = earlier["cells"][0][key]
    assert moved(earlier, changed(earlier, **{key: after})) == [(what, "gpu-1", 0, before, after)]


@pytest.mark.parametrize(
    ("key", "after", "what"), [("netdev", "rdma9", "interface"), ("address", "10.0.0.9", "address")]
)
def test_names_and_addresses_count_at_nodes_and_are_new_with_each_pod(earlier, key, after, what):
    assert moved(earlier, changed(earlier, **{key: after})) == []
    at_node = changed(earlier, seen_in="node")
    assert moved(at_node, changed(at_node, **{key: after})) == [(what, "gpu-1", 0, earlier["cells"][0][key], after)]


@pytest.mark.parametrize(
    ("rate", "percent", "tells"), [(92.5, 5, False), (91.0, 5, True), (96.8, 0.05, True), (96.9, 0, False)]
)
def test_a_rate_moves_by_more_than_some_percent(earlier, rate, percent, tells):
    first = changed(earlier, gbps=96.9)
    found = moved(first, changed(first, gbps=rate), percent)
    assert found == ([("rate", "gpu-1", 0, 96.9, rate)] if tells else [])


def test_names_in_pods_are_not_compared_with_those_at_nodes(earlier):
    found = compare.compare(earlier, changed(earlier, seen_in="node", device="mlx5_0"))
    assert found["moved"] == []
    assert found["not_compared"] == [
        {"what": "1 rails", "why": "one report saw them in pods, the other one at their nodes or not at all"}
    ]


def test_verdicts_findings_and_nodes_come_and_go(earlier):
    later = report_fleet.document("faulty")
    later["moved"] = None
    found = {(what, node, rail) for what, node, rail, _before, _after in moved(earlier, later)}
    assert ("verdict", "gpu-2", None) in found
    assert ("finding GID-002", "gpu-1", 2) in found
    assert ("node", "gpu-8", None) in found
    better = {one["what"]: one["better"] for one in compare.compare(later, earlier)["moved"] if one["node"] == "gpu-1"}
    assert better["finding GID-002"] is True and better["verdict"] is True


def test_a_checks_gap_is_no_finding(earlier):
    later = copy.deepcopy(earlier)
    item = {"id": "GID-002", "severity": "unknown", "node": "gpu-1", "rail": None, "summary": "s"}
    later["findings"] = [item]
    assert moved(earlier, later) == []


def test_rate_of_a_job(earlier):
    later = copy.deepcopy(earlier)
    later["nccl"]["jobs"][0]["busbw_gbs"] = 90.0
    assert [what for what, *_others in moved(earlier, later)] == ["bus bandwidth of all-rails"]


def test_a_report_from_before_the_schema_is_compared_as_far_as_it_goes(earlier):
    old = {
        "rows": [{"node": "gpu-1", "verdict": "fail"}],
        "findings": [{"id": "GID-002", "severity": "error", "node": "gpu-1", "rail": 1}],
    }
    given = compare.read(json.dumps(old).encode(), "old.json")
    found = compare.compare(given, earlier)
    assert found["schema"] == 0
    assert ("verdict", "gpu-1", None, "fail", "pass") in moved(given, earlier)
    assert ("finding GID-002", "gpu-1", 1, "error", None) in moved(given, earlier)
    assert {"what": "rails", "why": "the earlier report has no cells"} in found["not_compared"]


def test_keys_that_an_earlier_version_did_not_know_are_no_change(earlier):
    old = copy.deepcopy(earlier)
    for cell in old["cells"]:
        del cell["mtu"], cell["gid_type"]
    assert moved(old, earlier) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"{", "is not JSON, or only a part"),
        (b'{"schema": 1, "rows": [', "is not JSON, or only a part"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 200000, "is not JSON"),
        (b"[]", "holds a list"),
        (b"{}", "rows: got NoneType"),
        (b'{"schema": 2, "rows": [], "findings": []}', "schema: got 2"),
        (b'{"schema": true, "rows": [], "findings": []}', "schema: got True"),
        (b'{"schema": "1", "rows": [], "findings": []}', "schema: got '1'"),
        (b'{"rows": {}, "findings": []}', "rows: got dict"),
    ],
    ids=["empty", "blank", "cut", "cut later", "binary", "deep", "list", "no rows", "later", "bool", "text", "rows"],
)
def test_a_damaged_report_is_refused_with_its_name(content, says):
    with pytest.raises(ReportError, match="report_compare_with: old.json") as caught:
        compare.read(content, "old.json")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "odd",
    [
        {"rows": [1, None, {"node": 3}, {"node": "gpu-1"}]},
        {"cells": "x"},
        {"cells": [{"node": "gpu-1"}, {"node": "gpu-1", "rail": "x", "gbps": "fast"}, 7]},
        {"findings": [{"id": 1}, "x"]},
        {"nccl": {"jobs": [{"name": "all-rails", "busbw_gbs": "x"}, 1]}},
    ],
    ids=["rows", "cells", "cell", "findings", "nccl"],
)
def test_odd_parts_of_an_earlier_report_break_nothing(earlier, odd):
    given = compare.read(json.dumps({**earlier, **odd}).encode(), "old.json")
    json.dumps(compare.compare(given, earlier), allow_nan=False)


# JUnit ---------------------------------------------------------------------------------------------------------------


def cases(document):
    top = ElementTree.fromstring(junit(document))
    return {
        (suite.get("name"), case.get("name")): next(
            (child.tag for child in case if child.tag != "system-out"), "passed"
        )
        for suite in top
        for case in suite.iter("testcase")
    }


def test_cases_of_nodes_and_rails(earlier):
    found = cases(earlier)
    assert len(found) == 4 * 16 + 1
    assert set(found.values()) == {"passed"}
    assert found[("NCCL", "all-rails")] == "passed"


def test_failures_and_gaps_of_a_faulty_fleet():
    document = report_fleet.document("faulty")
    found = cases(document)
    assert {rail for rail in range(16) if found[("gpu-1", f"rail {rail}")] == "failure"} == {2, 3, 9}
    assert found[("gpu-4", "NETNS-001 The RDMA netns mode is another one than wanted")] == "failure"
    assert found[("gpu-5", "rail 0")] == "skipped"
    top = ElementTree.fromstring(junit(document))
    assert int(top.get("failures")) == sum(state == "failure" for state in found.values())
    assert int(top.get("tests")) == len(found)
    for suite in top:
        assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped"))
    (failure,) = top.findall("testsuite[@name='gpu-1']/testcase[@name='rail 2']/failure")
    assert failure.get("type") == "GID-002" and "remedy: " in failure.text


# Files ---------------------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_as_a_whole_and_a_link_stays_one(tmp_path):
    real = tmp_path / "real.json"
    real.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(real)
    files.write("report_file", files.target("report_file", str(link)), b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o644
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.json", "real.json"]


def test_where_no_file_can_be_says_why(tmp_path):
    (tmp_path / "pipe").mkdir()
    for path, says in [
        (tmp_path / "none" / "x.json", "does not exist"),
        (tmp_path, "is a folder"),
        ("/dev/null", "no regular file"),
        (tmp_path / ("x" * 300), "too long"),
        ("a\0b", "must be the path"),
    ]:
        with pytest.raises(ReportError, match="^report_html: ") as caught:
            files.target("report_html", str(path))
        assert says in str(caught.value)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    path.write_text("old")

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(ReportError, match="no space is left"):
        files.write("report_file", path, b"new")
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]


def test_an_earlier_report_that_is_not_there(tmp_path):
    for path, says in [(tmp_path / "none", "does not exist"), (tmp_path, "no regular file")]:
        with pytest.raises(ReportError, match=says):
            files.read("report_compare_with", str(path))
