# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of Jobs, as the Job controller sets it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from rehearsal.operators.jobs import finished, job_status
from rehearsal.operators.nodes import system_node_object

READY = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "110"}}
NODE = {**system_node_object("system-1"), "status": READY}
POD = {"containers": [{"name": "c", "image": "i"}]}


def job(status=None, **spec):
    return {"metadata": {"name": "j"}, "spec": {"template": {"spec": POD}, **spec}, "status": status or {}}


def ago(seconds):
    return (datetime.now(timezone.utc) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def kinds_of(status):
    return [condition["type"] for condition in status.get("conditions", [])]


def test_pods_run_to_their_end_where_a_node_takes_them():
    status = job_status(job(completions=3), [NODE])
    assert (status["succeeded"], kinds_of(status)) == (3, ["SuccessCriteriaMet", "Complete"])
    assert finished(job(status)) == status["completionTime"]
    for waiting in (job_status(job(), []), job_status(job(parallelism=0, completions=1), [NODE])):
        assert waiting["startTime"] and kinds_of(waiting) == [] and finished(job(waiting)) is None


@pytest.mark.parametrize("nodes", [[NODE], []], ids=["node", "no-node"])
def test_a_deadline_ends_what_has_no_pods(nodes):
    limits = {"parallelism": 0, "activeDeadlineSeconds": 10}
    assert kinds_of(job_status(job({"startTime": ago(5)}, **limits), nodes)) == []
    late = job_status(job({"startTime": ago(10)}, **limits), nodes)
    assert kinds_of(late) == ["FailureTarget", "Failed"] and late["conditions"][1]["reason"] == "DeadlineExceeded"
    assert finished(job(late)) and "completionTime" not in late


def test_a_suspended_job_has_no_start():
    assert job_status(job(suspend=True, activeDeadlineSeconds=1), [NODE]) is None
