# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verdicts of NCCL jobs, and the findings about them: each with a job that is well and one that is not."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.collect import contexts
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import RULES
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.result import text_lines
from ansible_collections.railyard.rdma.tests.unit.plugins.plugin_utils.nccl_samples import HOSTS, facts, judged, log

OURS = [name for name in RULES if name.startswith("NCCL-")]


def findings(known, found, told=None):
    told = told or dict.fromkeys(HOSTS, facts())
    return evaluate(contexts(known, told, nccl=found), ("facts", "nccl"), only=OURS)


def ids(rows):
    return {(row["id"], row["severity"]) for row in rows}


def test_the_published_job_passes_without_a_finding():
    known, found = judged(log)
    (job,) = found["jobs"]
    assert (job["verdict"], job["busbw_gbs"], job["expected_gbs"]) == ("pass", 190.55, 200.0)
    assert job["gdrdma"] == {"channels": 1, "with_gdrdma": 1}
    assert job["nics"][0] == {
        "host": job["pods"][0]["pod"], "number": 2, "name": "mlx5_18+mlx5_19", "devices": ["mlx5_18", "mlx5_19"],
        "speed_mbps": 200000,
    }  # fmt: skip
    channel = job["channels"][0]
    assert (channel["host"], channel["gpu"], channel["rails"]) == ("gpu-1", "0000:0f:00.0", [0, 1])
    assert found["environment"]["NCCL_IB_HCA"] == "=mlx5_18,mlx5_19" and found["environment"]["reasons"]["NCCL_IB_HCA"]
    assert json.loads(json.dumps(found)) == found
    assert findings(known, found) == []


def test_the_text_can_be_pasted():
    _known, found = judged(log)
    text = text_lines(found)
    assert "export NCCL_IB_GID_INDEX=3" in "\n".join(text)
    rows = yaml.safe_load("\n".join(text[text.index("as env of a container:") + 1 :]))
    assert {"name": "NCCL_IB_HCA", "value": "=mlx5_18,mlx5_19"} in rows


@pytest.mark.parametrize(
    ("arguments", "verdict", "text"),
    [
        ({"text": lambda job: log(job, busbw="17.95")}, "low", "9% of 200 GB/s (16 rails with 1600 Gb/s"),
        ({"text": lambda job: log(job, wrong=7)}, "failed", "7 elements of the sums were wrong"),
        ({"text": "", "state": "failed", "reason": "launcher x failed: Error"}, "failed", "launcher x failed"),
        ({"text": "", "state": "unfinished", "reason": "it did not end"}, "failed", "it did not end"),
        ({"text": "", "state": "unseen", "reason": "Kubernetes API: away"}, "unknown", "Kubernetes API: away"),
        ({"text": "nothing"}, "unknown", "no row of a result"),
        ({"text": log, "rate": None}, "unknown", "rates of the ports of gpu-1 are not known"),
        ({"text": log, "expected": 250.0}, "low", "76% of 250 GB/s (rdma_nccl_expected_gbs)"),
        ({"text": lambda job: log(job).replace("8589934592", "     16384")}, "unknown", "too few to judge"),
    ],
    ids=["low", "wrong", "failed", "hangs", "unseen", "no-table", "no-rate", "expected", "small"],
)
def test_verdicts(arguments, verdict, text):
    _known, found = judged(**arguments)
    (job,) = found["jobs"]
    assert (job["verdict"], text in job["reason"]) == (verdict, True), job["reason"]


def test_two_jobs_on_the_same_ports_are_measured_by_half_of_them():
    _known, found = judged(lambda job: log(job, busbw="96.40"), rails={"rails_vfs_per_pf": 2}, jobs_per_node=2)
    assert [(job["verdict"], job["expected_gbs"]) for job in found["jobs"]] == [("pass", 100.0)] * 2
    _known, found = judged(lambda job: log(job, busbw="17.95"), jobs_per_node=2)
    assert [(job["verdict"], job["expected_gbs"]) for job in found["jobs"]] == [("low", 100.0)] * 2


QP = "x:1:2 [0] NCCL WARN Call to ibv_modify_qp failed with 61 No data available, on dev mlx5_18:1, local GID index 3"
CASES = {
    "NCCL-001": ({"text": lambda job: log(job, busbw="17.95")}, {("NCCL-001", "error")}),
    "NCCL-001-unknown": ({"text": log, "rate": None}, {("NCCL-001", "unknown")}),
    "NCCL-002": ({"text": lambda job: log(job, more=QP), "state": "failed"}, {("NCCL-002", "error")}),
    "NCCL-003": ({"text": lambda job: log(job, wrong=7)}, {("NCCL-003", "error")}),
    "NCCL-004": ({"text": lambda job: log(job, gdrdma=False)}, {("NCCL-004", "warning")}),
    "NCCL-005": (
        {"text": lambda job: log(job, network="Socket", busbw="2.4")},
        {("NCCL-005", "error"), ("NCCL-001", "error")},
    ),
    "NCCL-006": (
        {"text": lambda job: log(job).replace("name=mlx5_18+mlx5_19 speed", "name=mlx5_18 speed")},
        {("NCCL-006", "warning")},
    ),
    "NCCL-007": ({"text": lambda job: log(job, far=True)}, {("NCCL-007", "warning")}),
    "NCCL-008": (
        {"text": lambda job: log(job, index=5), "environment": {"NCCL_IB_GID_INDEX": 3}},
        {("NCCL-008", "error")},
    ),
    "NCCL-009": ({"text": lambda job: log(job, hca="mlx5_18")}, {("NCCL-009", "warning")}),
    "NCCL-010": ({"text": lambda job: log(job, tclass="0")}, {("NCCL-010", "error")}),
}


@pytest.mark.parametrize("case", CASES)
def test_findings(case):
    arguments, wanted = CASES[case]
    known, found = judged(**arguments)
    assert ids(findings(known, found)) == wanted


def test_the_finding_of_a_failed_job_names_the_remedy_of_its_nearest_cause():
    known, found = judged(lambda job: log(job, more=QP), state="failed", reason="launcher failed")
    (row,) = findings(known, found)
    assert "NCCL_IB_GID_INDEX" in row["remedy"] and "61 No data available" in row["summary"]


def test_a_job_that_hangs_without_a_word_points_to_the_rails():
    known, found = judged("", state="unfinished", reason="it did not end within 1800 s")
    assert [(row["id"], "benchmark.yml" in row["remedy"]) for row in findings(known, found)] == [("NCCL-002", True)]


def test_a_class_that_a_pod_does_not_see_is_that_of_its_node():
    known, found = judged(lambda job: log(job, tclass="absent"))
    ports = {1: {"traffic_class": {"state": "set", "value": 0, "rules": []}}}
    told = {host: {**facts(), "devices": {"mlx5_18": {"pci": "0000:0c:00.2", "ports": ports}}} for host in HOSTS}
    rows = findings(known, found, told)
    assert {row["node"] for row in rows if row["id"] == "NCCL-010"} == set(HOSTS)
    assert rows[0]["evidence"]["forced"] == {"mlx5_18": 0}


def test_classes_that_differ_in_the_ecn_bits_are_one():
    known, found = judged(lambda job: log(job, tclass="40"))
    assert findings(known, found) == []


def test_without_facts_the_rules_that_need_them_are_unknown():
    known, found = judged(log)
    rows = findings(known, found, {"gpu-1": None, "gpu-2": facts()})
    assert {(row["id"], row["node"], row["severity"]) for row in rows} == {
        ("NCCL-007", "gpu-1", "unknown"),
        ("NCCL-010", "gpu-1", "unknown"),
    }


def test_a_test_that_did_not_run_is_unknown_and_not_healthy():
    known, _found = judged(log)
    rows = evaluate(contexts(known, dict.fromkeys(HOSTS, facts())), ("facts", "nccl"), only=OURS)
    assert {row["severity"] for row in rows} == {"unknown"} and len(rows) == len(OURS) * len(HOSTS)
