# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far NCCL jobs are, from their pods, MPIJobs and logs; and the module's wait over an API that fails now and then."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import nccl_jobs
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError
from ansible_collections.railyard.rdma.plugins.modules import nccl_wait
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.timed_api import TimedServer

RUNNING = {"running": {"startedAt": "x"}}


def pod(name, role, phase="Running", state=None, **status):
    labels = {nccl_jobs.LABEL: "job", nccl_jobs.ROLE_LABEL: role}
    entry = {
        "name": "c",
        "state": state or (RUNNING if phase == "Running" else {"waiting": {"reason": "ContainerCreating"}}),
    }
    meta = {"name": name, "namespace": "n", "uid": name, "labels": labels}
    return {
        "metadata": meta,
        "spec": {"nodeName": "gpu-1"},
        "status": {"phase": phase, "containerStatuses": [entry], **status},
    }


def workers(**kwargs):
    return [pod("w-0", "worker"), pod("w-1", "worker", **kwargs)]


def ended(reason, code):
    return {"terminated": {"reason": reason, "exitCode": code}}


UNSCHEDULED = {
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient nvidia.com/gpu"}]
}
FAILED = {
    "status": {
        "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded/", "message": "gone"}]
    }
}
CASES = {
    "running": ([pod("l", "launcher"), *workers()], None, "running", None),
    "no-pods": ([], None, "starting", None),
    "pending": ([pod("l", "launcher"), *workers(phase="Pending", **UNSCHEDULED)], None, "starting", None),
    "succeeded": ([pod("l", "launcher", "Succeeded", ended("Completed", 0)), *workers()], None, "succeeded", None),
    "launcher-failed": ([pod("l", "launcher", "Failed", ended("Error", 3)), *workers()], None, "failed", "exit code 3"),
    "launcher-alone": (
        [pod("l", "launcher", "Failed", ended("Error", 1)), *workers(phase="Pending", **UNSCHEDULED)],
        None, "failed", "(exit code 1); w-1: Pending: not scheduled",
    ),
    "oom": ([pod("l", "launcher"), *workers(phase="Failed", state=ended("OOMKilled", 137))], None, "failed", "OOMKilled"),
    "evicted": ([pod("l", "launcher"), *workers(phase="Failed", reason="Evicted")], None, "failed", "Evicted"),
    "bad-image": (
        [pod("l", "launcher"), *workers(phase="Pending", state={"waiting": {"reason": "InvalidImageName", "message": "x"}})],
        None, "failed", "InvalidImageName: x",
    ),
    "given-up": ([], FAILED, "failed", "BackoffLimitExceeded/: gone"),
    "worker-ended": ([*workers(phase="Succeeded", state=ended("Completed", 0))], None, "failed", "worker w-1"),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "mpi_job", "state", "text"), CASES.values(), ids=CASES)
def test_states(pods, mpi_job, state, text):
    answer = nccl_jobs.judge("job", 2, pods, mpi_job)
    assert answer["state"] == state and (text is None or text in answer["reason"]), answer


def test_what_is_missing_is_named():
    answer = nccl_jobs.judge("job", 3, workers(phase="Pending", **UNSCHEDULED))
    assert [row["reason"] for row in answer["waiting"]] == [
        "Pending: not scheduled: 0/3 nodes: Insufficient nvidia.com/gpu",
        "1 of 3 workers are not there yet",
        "the launcher is not there yet",
    ]


class Server(TimedServer):
    """An API of pods and logs."""

    def __init__(self, *looks, log="railyard-key ssh-ed25519 AAAA x\nlast line\n", faults=()):
        super().__init__(faults)
        self.looks, self.log = list(looks), log

    def answer(self, method, path, query, body, content_type):
        if path.endswith("/log"):
            if isinstance(self.log, ApiError):
                raise self.log
            return {"text/plain": self.log}
        if path == "/api/v1":
            return {
                "resources": [
                    {"name": name, "kind": kind, "namespaced": True}
                    for name, kind in (("pods", "Pod"), ("events", "Event"))
                ]
            }
        if path == "/apis/kubeflow.org/v2beta1":
            return {"resources": []}
        if path.endswith("/events"):
            return {"items": []}
        return {"items": self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]}

    def wait(self, **params):
        jobs = [{"name": "job", "namespace": "n", "workers": 2, "mpi_operator": False}]
        given = {
            "jobs": jobs,
            "until": "ended",
            "start_timeout": 60,
            "timeout": 300,
            "interval": 2,
            "report_interval": 1000,
            "earlier": 0,
        }
        params = {**given, **params}
        found, waiting, second, over = nccl_wait.wait(self.api, params, clock=lambda: self.clock, pause=self.sleep)
        return nccl_wait.results(self.api, params, found, waiting, second)["job"] if over else waiting


GOOD = [pod("l", "launcher"), *workers()]
DONE = [pod("l", "launcher", "Succeeded", ended("Completed", 0)), *workers()]
LATE = [pod("l", "launcher"), *workers(phase="Pending", **UNSCHEDULED)]


def test_the_module_waits_until_a_job_has_ended_and_brings_its_log():
    found = Server(LATE, GOOD, GOOD, DONE).wait()
    assert (found["state"], found["reason"], found["log"].splitlines()[-1]) == ("succeeded", None, "last line")
    assert [row["name"] for row in found["pods"]] == ["l", "w-0", "w-1"]


def test_pods_that_do_not_start_fail_the_job_with_their_reasons():
    server = Server(LATE)
    found = server.wait()
    assert found["state"] == "failed" and "w-1: Pending: not scheduled" in found["reason"] and 60 <= server.clock < 65


def test_a_job_that_does_not_end_is_unfinished_and_says_what_was_last_heard():
    found = Server(GOOD).wait()
    assert found["state"] == "unfinished" and "it said last: last line" in found["reason"]


def test_it_waits_for_the_key_alone():
    found = Server([pod("l", "launcher")]).wait(until="key")
    assert found["key"] == "ssh-ed25519 AAAA x"
    assert Server([pod("l", "launcher")], log="nothing yet").wait(until="key", timeout=10)["key"] is None


def test_a_report_comes_in_between():
    waiting = Server(LATE).wait(report_interval=10)
    assert waiting == [
        {"job": "job", "pod": "w-1", "reason": "Pending: not scheduled: 0/3 nodes: Insufficient nvidia.com/gpu"}
    ]


@pytest.mark.parametrize("status", [0, 429, 500, 503], ids=str)
def test_a_server_that_is_away_is_waited_for(status):
    assert Server(DONE, faults=[ApiError(status, "away")]).wait()["state"] == "succeeded"


def test_a_refusal_ends_the_wait():
    with pytest.raises(ApiError):
        Server(DONE, faults=[ApiError(403, "pods is forbidden")]).wait()


def test_a_server_that_stays_away_leaves_the_job_unfinished():
    found = Server(DONE, faults=[ApiError(503, "away")] * 1000).wait(timeout=20)
    assert found["state"] == "unseen" and "Kubernetes API: away" in found["reason"]


@pytest.mark.parametrize(
    ("status", "kept"), [(400, True), (404, True), (403, False)], ids=["starts", "gone", "forbidden"]
)
def test_a_log_that_is_not_there_yet_is_empty(status, kept):
    server = Server(GOOD, log=ApiError(status, "no"))
    if kept:
        assert server.wait(timeout=4)["log"] == ""
    else:
        with pytest.raises(ApiError):
            server.wait(timeout=4)


def test_of_a_log_that_is_too_long_the_end_is_read_as_well(monkeypatch):
    monkeypatch.setattr(nccl_jobs, "LOG_BYTES", 20)
    server = Server(DONE, log="x" * 20)
    asked = []
    answer = server.answer
    server.api = Api(lambda *request: (asked.append(request[2]), answer(*request))[1], pause=server.sleep, attempts=1)
    assert server.wait()["log"] == "x" * 20 + "\n" + "x" * 20
    assert [query for query in asked if query][-2:] == [[("limitBytes", "20")], [("tailLines", "2000")]]
