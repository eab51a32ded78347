# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import math

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils.report import bandwidth, heatmap
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.document import proof
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.drawing import drawings
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import visible
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.version import version
from ansible_collections.railyard.rdma.tests.unit.plugins.plugin_utils import report_fleet


@pytest.fixture(scope="module")
def healthy():
    return report_fleet.documents()["healthy"]()


@pytest.fixture(scope="module")
def faulty():
    return report_fleet.document("faulty")


def cell(document, node, rail):
    (found,) = [one for one in document["cells"] if (one["node"], one["rail"]) == (node, rail)]
    return found


def not_measured(document):
    return {entry["what"]: entry for entry in document["not_measured"]}


def test_a_healthy_fleet_is_proven(healthy):
    document = proof(**healthy)
    assert document["verdict"] == "pass"
    assert {one["state"] for one in document["cells"]} == {"pass"}
    assert len(document["cells"]) == 4 * 16
    first = cell(document, "gpu-1", 0)
    wanted = {"pf": "0000:0c:00.0", "seen_in": "pod", "netdev": "net4", "device": "mlx5_20", "gid_index": 3}
    wanted |= {"gid_type": "RoCE v2", "address": "10.150.0.1", "mtu": 4220, "traffic_class": 41, "port_gbps": 100.0}
    assert {key: first[key] for key in wanted} == wanted
    assert set(not_measured(document)) == {
        "the switches",
        "queue pairs that a GPU starts itself (NVSHMEM IBGDA, NCCL GIN)",
    }


@pytest.mark.parametrize("missing", ["facts", "pods", "result", "bandwidth", "nccl"])
def test_what_is_missing_is_told_and_never_proven(healthy, missing):
    document = proof(**{**healthy, missing: None})
    assert document["verdict"] == ("unknown" if missing in ("facts", "result") else "pass")
    told = {"facts": "facts of the node", "result": "findings", "nccl": "NCCL"}.get(missing, missing)
    assert not_measured(document)[told]["why"]
    if missing == "facts":
        assert document["topology"] == []
        assert not_measured(document)[told]["where"] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]


def test_without_anything_all_is_unknown(healthy):
    document = proof(healthy["model"])
    assert document["verdict"] == "unknown"
    assert {one["state"] for one in document["cells"]} == {"unknown"}
    assert {one["reason"] for one in document["cells"]} == {"there are no facts of the node"}


def test_no_hosts_at_all_is_unknown():
    assert proof({"layouts": [], "hosts": {}})["verdict"] == "unknown"


@pytest.mark.parametrize("value", ["text", 3, [1]], ids=["text", "number", "list"])
@pytest.mark.parametrize("name", ["result", "bandwidth", "nccl"])
def test_an_input_of_another_type_counts_as_missing(healthy, name, value):
    document = proof(**{**healthy, name: value})
    assert document["not_measured"][0] == {
        "what": name,
        "where": [],
        "why": f"must be a mapping, got {type(value).__name__}",
    }


def test_faults_are_where_they_are(faulty):
    assert faulty["verdict"] == "fail"
    assert {rail for rail in range(16) if cell(faulty, "gpu-1", rail)["state"] == "fail"} == {2, 3, 9}
    assert cell(faulty, "gpu-1", 2)["findings"] == ["GID-002"]
    assert {cell(faulty, "gpu-2", rail)["because"] for rail in range(16)} == {"rail"}
    # The mode is that of the whole node.
    assert {(cell(faulty, "gpu-4", rail)["state"], cell(faulty, "gpu-4", rail)["because"]) for rail in range(16)} == {
        ("fail", "node")
    }
    assert {cell(faulty, "gpu-5", rail)["state"] for rail in range(16)} == {"unknown"}
    assert "Insufficient" in cell(faulty, "gpu-6", 0)["reason"]
    assert cell(faulty, "gpu-6", 0)["seen_in"] == "node"
    assert {cell(faulty, "gpu-7", rail)["state"] for rail in range(16)} == {"warning"}


def test_a_low_rate_without_a_finding_is_no_pass(faulty):
    for node in ("gpu-8", "gpu-1"):  # client and server
        assert (cell(faulty, node, 5)["state"], cell(faulty, node, 5)["gbps"], cell(faulty, node, 5)["ratio"]) == (
            "warning",
            71.3,
            0.713,
        )
    assert cell(faulty, "gpu-8", 5)["reason"].startswith("gpu-8 to gpu-1: ")


def test_inspection_says_that_pods_were_not_tested():
    document = report_fleet.document("inspected")
    assert document["verdict"] == "pass"
    assert {one["seen_in"] for one in document["cells"]} == {"node"}
    assert (cell(document, "gpu-1", 1)["netdev"], cell(document, "gpu-1", 1)["gid_type"]) == ("rdma1", "RoCE v2")
    assert "pods" in not_measured(document)


def finding(**changes):
    base = {
        "id": "GID-002",
        "severity": "error",
        "node": "gpu-1",
        "pod": None,
        "rail": None,
        "summary": "s",
        "evidence": {},
    }
    return {**base, "remedy": "r", "tolerated": False, **changes}


def rows_with(verdict):
    """Rows of the four nodes, the first with this verdict."""
    return [{"node": f"gpu-{number}", "verdict": verdict if number == 1 else "pass"} for number in range(1, 5)]


def test_a_node_that_was_not_judged_is_unknown(healthy):
    document = proof(**{**healthy, "result": {"findings": [], "rows": rows_with("pass")[:3]}})
    assert {one["node"] for one in document["cells"] if one["state"] == "unknown"} == {"gpu-4"}
    assert document["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("changes", "states", "because"),
    [
        ({"rail": 1}, {1}, "rail"),
        ({"evidence": {"rails": [0, 2]}}, {0, 2}, "rail"),
        ({}, set(range(16)), "node"),
    ],
    ids=["one rail", "rails of the evidence", "the node"],
)
@pytest.mark.parametrize(("severity", "state"), [("error", "fail"), ("unknown", "unknown")], ids=["error", "unknown"])
def test_state_of_cells_by_findings(healthy, changes, states, because, severity, state):
    judged = {"findings": [finding(severity=severity, **changes)], "rows": rows_with(state)}
    document = proof(**{**healthy, "result": judged, "bandwidth": None})
    own = {one["rail"]: one for one in document["cells"] if one["node"] == "gpu-1"}
    assert {rail for rail, one in own.items() if one["state"] == state} == states
    assert {one["because"] for rail, one in own.items() if rail in states} == {because}
    assert {one["state"] for one in document["cells"] if one["node"] != "gpu-1"} == {"pass"}


def test_tolerated_and_warnings_of_the_node_leave_its_rails(healthy):
    for item in (finding(tolerated=True), finding(severity="warning"), finding(severity="info", rail=1)):
        judged = {"findings": [item], "rows": rows_with("pass")}
        assert {one["state"] for one in proof(**{**healthy, "result": judged})["cells"]} == {"pass"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda facts: facts.update(rails="x"),
        lambda facts: facts.update(devices=None),
        lambda facts: facts.update(rails=[{"rail": 0, "device": ["x"]}]),
        lambda facts: facts.pop("gpus"),
        lambda facts: facts["devices"]["mlx5_0"].update(pci_path=7),
    ],
    ids=["rails", "devices", "device", "gpus", "path"],
)
def test_damaged_facts_break_nothing(healthy, damage):
    given = copy.deepcopy(healthy)
    damage(given["facts"]["gpu-1"])
    given["pods"] = None
    document = proof(**given)
    json.dumps(document, allow_nan=False)
    assert len(document["cells"]) == 64


@pytest.mark.parametrize("key", ["netdevs", "devices"])
def test_a_damaged_pod_is_unknown(healthy, key):
    given = copy.deepcopy(healthy)
    given["pods"]["railyard-verify-gpu-1"][key] = [1]
    own = [one for one in proof(**given)["cells"] if one["node"] == "gpu-1"]
    assert {one["state"] for one in own} == {"unknown"}
    assert all("cannot be read" in one["reason"] or "no " in one["reason"] for one in own)


def test_nan_is_not_known(healthy):
    given = copy.deepcopy(healthy)
    given["bandwidth"]["results"][0].update(gbps=math.nan, ratio=math.inf, verdict="unknown", reason="no output")
    document = proof(**given)
    assert cell(document, "gpu-1", 0)["state"] == "unknown"
    assert cell(document, "gpu-1", 0)["gbps"] is None
    json.dumps(document, allow_nan=False)
    assert not_measured(document)["bandwidth"]["where"] == ["gpu-1 to gpu-2 rail 0"]


# Bandwidth -----------------------------------------------------------------------------------------------------------


def stream(client="a", server="b", rail=0, gbps=96.0, **changes):
    ends = {"client": {"host": client}, "server": {"host": server}}
    return {
        "round": 0,
        "rail": rail,
        "stream": 0,
        **ends,
        "gbps": gbps,
        "port_gbps": 100.0,
        "verdict": "full",
        "reason": None,
        **changes,
    }


def test_streams_that_share_a_port_are_added():
    (pair,) = bandwidth.pairs({"results": [stream(gbps=48.4), stream(gbps=48.5, stream=1)]})
    assert (pair["gbps"], pair["ratio"], pair["streams"]) == (96.9, 0.969, 2)


def test_a_stream_without_a_rate_makes_the_sum_unknown():
    (pair,) = bandwidth.pairs({"results": [stream(gbps=48.4), stream(gbps=None, verdict="failed", reason="r")]})
    assert (pair["gbps"], pair["ratio"], pair["verdict"], pair["reason"]) == (None, None, "failed", "r")


def test_both_directions_share_twice_the_rate():
    (pair,) = bandwidth.pairs({"settings": {"bidirectional": True}, "results": [stream(gbps=190.0)]})
    assert (pair["of_gbps"], pair["ratio"]) == (200.0, 0.95)


def test_a_rail_has_the_lowest_rate_of_its_pairs():
    given = {"results": [stream(gbps=96.0), stream("b", "c", gbps=50.0, verdict="low")]}
    rates = bandwidth.measured(given)
    assert [rates[node][0]["gbps"] for node in "abc"] == [96.0, 50.0, 50.0]


@pytest.mark.parametrize(
    "results", [None, "x", [None], [{}], [{"client": "a", "server": "b", "rail": 0}], [{"rail": True}]], ids=repr
)
def test_damaged_results_have_no_pairs(results):
    assert bandwidth.pairs({"results": results}) == []


def test_a_failure_told_at_the_client_is_a_warning_at_the_server(healthy):
    given = copy.deepcopy(healthy)
    given["bandwidth"]["results"][3].update(gbps=None, ratio=None, verdict="failed", reason="no answer")
    told = finding(id="BW-001", rail=3)
    given["result"] = {"findings": [told], "rows": rows_with("fail")}
    document = proof(**given)
    assert [cell(document, node, 3)["state"] for node in ("gpu-1", "gpu-2", "gpu-3")] == ["fail", "warning", "pass"]
    given["result"] = {"findings": [], "rows": rows_with("pass")}
    document = proof(**given)
    assert [cell(document, node, 3)["state"] for node in ("gpu-1", "gpu-2", "gpu-3")] == ["fail", "fail", "pass"]
    assert document["verdict"] == "fail"


@pytest.mark.parametrize(
    ("verdict", "whole"),
    [("pass", "pass"), ("low", "fail"), ("failed", "fail"), ("unknown", "unknown"), (None, "unknown")],
)
def test_a_job_counts_for_the_whole(healthy, verdict, whole):
    given = copy.deepcopy(healthy)
    given["nccl"]["jobs"][0]["verdict"] = verdict
    assert proof(**given)["verdict"] == whole


# Paths ---------------------------------------------------------------------------------------------------------------


def test_paths_by_root(healthy):
    (first, *_others) = proof(**healthy)["topology"]
    assert first["node"] == "gpu-1"
    assert [root["rails"] for root in first["roots"]] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert first["roots"][0]["gpus"] == ["0000:0f:00.0", "0000:15:00.0"]
    assert [root["numa"] for root in first["roots"]] == [0, 0, 1, 1]


def test_a_function_without_a_root_port_stands_at_its_bus(healthy):
    given = copy.deepcopy(healthy)
    given["facts"]["gpu-1"]["devices"]["mlx5_0"]["pci_path"] = "0000:0c:00.0"
    (root,) = [root for root in proof(**given)["topology"][0]["roots"] if 0 in root["rails"]]
    assert root["root"] == "0000:0c"


def test_equal_layouts_are_drawn_once(healthy):
    given = copy.deepcopy(healthy)
    for gpu in given["facts"]["gpu-2"]["gpus"][:2]:
        gpu["pci_path"] = "0000:09:01.1/" + gpu["pci"]
    drawn = drawings(proof(**given)["topology"])
    assert [len(layout["nodes"]) for layout in drawn] == [3, 1]
    assert [layout["alone"] for layout in drawn] == [[], [0, 1, 2, 3]]
    for part in drawn[0]["numas"]:
        assert part["width"] <= 338
        for box in part["boxes"]:
            assert box["x"] >= 0 and box["x"] + box["width"] <= part["width"]
            assert 0 <= box["y"] <= part["height"] - 24


# Grid ----------------------------------------------------------------------------------------------------------------


def simple(node, states, **changes):
    base = dict.fromkeys(
        ("name", "pf", "seen_in", "netdev", "device", "gid_type", "address", "mtu", "traffic_class", "reason")
    )
    base |= {
        "gid_index": 3,
        "port_gbps": 100.0,
        "of_gbps": 100.0,
        "gbps": None,
        "ratio": None,
        "because": "rail",
        "findings": [],
    }
    return [{**base, "node": node, "rail": rail, "state": state, **changes} for rail, state in enumerate(states)]


def test_many_nodes_alike_are_one_row_and_the_worst_come_first():
    cells, rows = [], []
    for number in range(1000):
        bad = number in (7, 400)
        cells += simple(f"n{number}", ["pass", "fail" if bad else "pass"], gid_index=3 + number % 2)
        rows.append({"node": f"n{number}", "verdict": "fail" if bad else "pass", "shape": "s"})
    made = heatmap.grid(cells, rows)
    assert [row["nodes"] for row in made["rows"]] == [1, 1, 998]
    assert [row["names"][0] for row in made["rows"]] == ["n7", "n400", "n0"]
    assert (
        "GID index 3 or 4" in made["rows"][2]["cells"][0]["tip"]
        or "GID index 4 or 3" in made["rows"][2]["cells"][0]["tip"]
    )
    assert made["counts"] == {"pass": 1998, "fail": 2}


def test_a_thousand_nodes_that_differ_stay_a_page():
    cells, rows = [], []
    for number in range(1000):
        cells += simple(f"n{number}", ["fail" if number >> rail & 1 else "pass" for rail in range(10)])
        rows.append({"node": f"n{number}", "verdict": "fail" if number else "pass", "shape": "s"})
    made = heatmap.grid(cells, rows)
    assert len(made["rows"]) == heatmap.MOST_ROWS
    assert made["left_out"]["nodes"] == 1000 - sum(row["nodes"] for row in made["rows"])
    assert made["left_out"]["states"]["fail"] + made["left_out"]["states"]["pass"] == made["left_out"]["nodes"]


def test_a_rail_that_a_node_has_not_is_no_cell():
    made = heatmap.grid([*simple("a", ["pass"]), *simple("b", ["pass", "pass"])], [])
    gaps = {row["names"][0]: [one is None for one in row["cells"]] for row in made["rows"]}
    assert gaps == {"a": [False, True], "b": [False, False]}


def test_version_of_a_clone_of_an_installed_collection_and_of_neither(tmp_path):
    assert version(tmp_path) is None
    (tmp_path / "galaxy.yml").write_text("version: 1.2.3\n")
    assert version(tmp_path) == "1.2.3"
    (tmp_path / "MANIFEST.json").write_text('{"collection_info": {"version": "1.2.4"}}')
    assert version(tmp_path) == "1.2.4"
    (tmp_path / "MANIFEST.json").write_text("[")
    assert version(tmp_path) is None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("gpu-1", "gpu-1"),
        ("a\x00b", "a\\x00b"),
        ("a\u202eb", "a\\u202eb"),
        ("عقدة", "عقدة"),
        ("\u2028", "\\u2028"),
        ("\U000e0001", "\\U000e0001"),
    ],
    ids=["plain", "nul", "override", "arabic", "line", "tag"],
)
def test_signs_that_hide_are_shown(given, shown):
    assert visible(given) == shown
