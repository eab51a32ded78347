# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""benchmark.yml over simulated nodes in both netns modes: the rates, priorities and verdicts of the source articles, and each
fault of the fabric under its own finding. Two pods a node share the ports, so each has half; one pod a node is measured in
tests/rehearsal/access, and its rates in tests/rehearsal/kernel."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

import bench_site
import pytest

from rehearsal.fleet import checks
from rehearsal.fleet.faults import Catalogue
from rehearsal.machine import enter

pytestmark = pytest.mark.fleet


@dataclass
class Outcome:
    """What a run told and left, and what the one before it left, which was killed."""

    report: dict
    text: str
    pods_left: list[str]
    killed: list[str]
    pods_of_killed: list[str]


def measuring(site) -> int:
    """Processes of ib_write_bw on all nodes."""
    look = "grep -la 'ib_write_b[w]' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"
    folders = [site.state.folder / "nodes" / node for names in bench_site.NODES.values() for node in names]
    return sum(int(asyncio.run(enter.run(folder, ["sh", "-c", look]))[1]) for folder in folders)


def pods(site) -> list[str]:
    """Names of the pods of a benchmark that there are."""
    names = [pod["metadata"]["name"] for pod in site.items("/api/v1/pods")]
    return [name for name in names if name.startswith("railyard-bandwidth")]


def kill_a_run(site, playbook, **variables) -> list[str]:
    """Kill a run in the middle of its tests; the pods that it left, when none of its processes runs any more."""
    site.kill_when(lambda: measuring(site) > 0, playbook, **variables)
    limit = time.monotonic() + 60  # far less than the deadline of a round
    while measuring(site):
        assert time.monotonic() < limit, "ib_write_bw runs on although nobody waits for it"
        time.sleep(0.2)
    return pods(site)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory) -> Outcome:
    lacking = checks.missing()
    if lacking:
        pytest.skip("; ".join(lacking))
    site = bench_site.start(tmp_path_factory.mktemp("benchmark"))
    try:
        path = site.state.folder.parent / "report.json"
        playbook, image = bench_site.PLAYBOOKS / "benchmark.yml", "registry.example/nccl-tests:1"
        # Two pairs must overlap on a busy machine, so tests are long.
        variables = {"rdma_bandwidth_share": True, "rdma_bandwidth_seconds": 30, "rdma_bandwidth_image": image}
        left = kill_a_run(site, playbook, **variables)
        text = site.play(playbook, code=2, forks=6, report_file=str(path), **variables)
        logs = [path.read_text(errors="replace") for path in site.state.folder.rglob("*.log")]
        killed = [line for log in logs for line in log.splitlines() if "did not end with its client" in line]
        return Outcome(json.loads(path.read_text()), text, pods(site), killed, left)
    finally:
        site.down()


def results_of(report: dict) -> dict[tuple, list[dict]]:
    """Results by (client, server, rail)."""
    found: dict[tuple, list[dict]] = {}
    for row in report["bandwidth"]["results"]:
        found.setdefault((row["client"]["host"], row["server"]["host"], row["rail"]), []).append(row)
    return found


def verdicts(report: dict) -> dict[tuple, str]:
    """(verdict, kind) by (client, server, rail); streams of a pair must agree."""
    found = {key: {(row["verdict"], row["kind"]) for row in rows} for key, rows in results_of(report).items()}
    assert all(len(words) == 1 for words in found.values()), found
    return {key: next(iter(words)) for key, words in found.items()}


# The neighbours of s-1 and s-2 on rail 1: pods of this mode see no counters, and a device that also had another test has
# counted that too, so only one pair can be told for sure.
EXPECTED = {
    ("e-1", "e-2", 0): ("full", None),
    ("e-1", "e-2", 1): ("low", "slow"),
    ("e-2", "e-1", 0): ("full", None),
    ("e-2", "e-1", 1): ("low", "slow"),
    ("s-1", "s-2", 0): ("full", None),
    ("s-1", "s-2", 1): ("failed", "lost"),
    ("s-2", "s-3", 0): ("low", "slow"),
    ("s-2", "s-3", 1): ("failed", "retry"),
    ("s-3", "s-4", 0): ("low", "slow"),
    ("s-3", "s-4", 1): ("full", None),
    ("s-4", "s-1", 0): ("full", None),
    ("s-4", "s-1", 1): ("failed", "connect"),
}


def test_every_pair_has_its_verdict(outcome):
    assert verdicts(outcome.report) == EXPECTED


def test_two_pods_share_a_port_and_are_judged_by_their_sum(outcome):
    for key, both in results_of(outcome.report).items():
        assert [row["stream"] for row in both] == [0, 1]
        if EXPECTED[key] == ("full", None):
            assert [row["gbps"] for row in both] == [48.44, 48.44]
            assert {row["shared_gbps"] for row in both} == {96.88}
        if key[0].startswith("e") and EXPECTED[key][0] == "low":
            assert 43.20 <= both[0]["shared_gbps"] <= 59.45
            assert all(row["counters"]["server"]["hw_counters/out_of_sequence"] > 1000 for row in both)
    assert outcome.report["bandwidth"]["settings"]["share"] is True


def test_the_forced_class_is_named_and_the_others_are_right(outcome):
    table = {(row["host"], row["rail"]): row for row in outcome.report["bandwidth"]["priorities"]}
    for (host, rail), row in table.items():
        if host.startswith("e") and rail == 1:
            assert row["reason"] == "priority 1: forced class 0 on the VF"
            assert "rdmaQoS with tc 41" in row["remedy"]
            assert row["bytes"]["1"]["tx"] > 10**9 and row["bytes"]["0"] == {"tx": 0, "rx": 0}
        else:
            assert (row["verdict"], row["reason"]) == ("right", "right class on priority 0")
    assert len(table) == 12


def found(report: dict) -> set[tuple]:
    rows = report["findings"]
    return {
        (row["id"], row["node"], row["rail"]) for row in rows if row["id"].startswith("BW-") or row["id"] == "QOS-001"
    }


def test_findings(outcome):
    assert found(outcome.report) == {
        ("BW-002", "e-1", 1), ("BW-002", "e-2", 1), ("BW-003", "e-1", 1), ("BW-003", "e-2", 1),
        ("QOS-001", "e-1", 1), ("QOS-001", "e-2", 1),
        ("BW-004", "s-1", 1), ("BW-001", "s-2", 1), ("BW-002", "s-2", 0), ("BW-002", "s-3", 0), ("BW-001", "s-4", 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", sorted({name for name in Catalogue().names() if Catalogue().get(name).shows_in_a_benchmark})
)
def test_a_fault_of_the_fabric_gives_its_finding(outcome, name):
    fault = Catalogue().get(name)
    nodes = {node for node, own in bench_site.FAULTS.items() if own == name}
    hit = {(row["node"], row["rail"]) for row in outcome.report["findings"] if row["id"] == fault.finding}
    assert hit & {(node, fault.rail) for node in nodes}


def test_progress_is_shown_for_each_round(outcome):
    assert outcome.text.count("round 1 of 2, ") == 1
    assert outcome.text.count("round 2 of 2, ") == 1


def test_a_killed_run_leaves_pods_that_the_next_one_replaces(outcome):
    """Its processes have ended by themselves: see kill_a_run."""
    assert len(outcome.pods_of_killed) == 12


def test_nothing_is_left(outcome):
    assert (outcome.pods_left, outcome.killed) == ([], [])
