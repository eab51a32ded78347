# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs: their status follows the nodes that they could run on, without pods of their own, and finished ones go.

Sources: pkg/controller/job/job_controller.go (syncJob, pastActiveDeadline) and
pkg/controller/ttlafterfinished/ttlafterfinished_controller.go of Kubernetes.
"""

from __future__ import annotations

from datetime import datetime, timezone

from rehearsal.operators.client import now
from rehearsal.operators.kinds import JOB, MPI_JOB, NODE, name_of, namespace_of
from rehearsal.operators.runtime import Controller
from rehearsal.operators.scheduler import obstacles


def age(stamp: str) -> float:
    """Seconds since a metav1.Time."""
    return (datetime.now(timezone.utc) - datetime.fromisoformat(stamp.replace("Z", "+00:00"))).total_seconds()


def _conditions(kinds: tuple[str, ...], reason: str, text: str) -> list[dict]:
    stamp = now()
    common = {"status": "True", "reason": reason, "message": text, "lastProbeTime": stamp, "lastTransitionTime": stamp}
    return [{"type": kind, **common} for kind in kinds]


def finished(job: dict) -> str | None:
    """When a Job completed or failed, as metav1.Time; None while it has not."""
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return condition["lastTransitionTime"]
    return None


def remaining(job: dict, started: str) -> float | None:
    """Seconds until the deadline of a Job that started then; None when it has none."""
    seconds = job["spec"].get("activeDeadlineSeconds")
    return None if seconds is None else seconds - age(started)


def job_status(job: dict, nodes: list[dict]) -> dict | None:
    """Status of a Job: its pods run to their end at once where a node takes them. With a parallelism of 0 it has none, so
    only a deadline ends it. None while it is suspended."""
    spec = job["spec"]
    if spec.get("suspend"):
        return None
    started = (job.get("status") or {}).get("startTime") or now()
    status: dict = {"startTime": started, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}
    left = remaining(job, started)
    if left is not None and left <= 0:
        text = "Job was active longer than specified deadline"
        return {**status, "conditions": _conditions(("FailureTarget", "Failed"), "DeadlineExceeded", text)}
    fits = any(not obstacles(spec["template"]["spec"], node, {}) for node in nodes)
    if not fits or spec.get("parallelism") == 0:
        return status
    done = _conditions(
        ("SuccessCriteriaMet", "Complete"), "CompletionsReached", "Reached expected number of succeeded pods"
    )
    return {**status, "completionTime": now(), "succeeded": spec.get("completions", 1), "conditions": done}


class Jobs(Controller):
    """Keys are "<namespace>/<name>"; a change of any node looks at all Jobs again."""

    watches = (JOB, NODE)

    def keys(self, kind, obj):
        found = [obj] if kind == JOB else self.cache(JOB)
        return [f"{namespace_of(job)}/{name_of(job)}" for job in found]

    async def reconcile(self, key: str) -> float | None:
        namespace, name = key.split("/")
        job = self.cache(JOB).get(name, namespace)
        if job is None or any(owner["kind"] == MPI_JOB.kind for owner in job["metadata"].get("ownerReferences") or []):
            return None  # the MPI operator looks after the pods of its Jobs itself
        end = finished(job)
        if end is not None:
            return await self._remove(job, end)
        status = job_status(job, list(self.cache(NODE)))
        if status is None:
            return None
        old = job.get("status") or {}
        if any(old.get(field) != value for field, value in status.items()):
            await self.api.patch(JOB, job, {"status": status}, "status")
        return remaining(job, status["startTime"])

    async def _remove(self, job: dict, end: str) -> float | None:
        keep = job["spec"].get("ttlSecondsAfterFinished")
        if keep is None or job["metadata"].get("deletionTimestamp"):
            return None
        left = keep - age(end)
        if left <= 0:
            await self.api.delete(JOB, job, policy="Foreground")
        return max(left, 0.1)
