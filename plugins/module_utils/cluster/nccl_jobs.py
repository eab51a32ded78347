# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far NCCL jobs are, from their pods, their MPIJobs and the launchers' logs. Judgements are functions of objects."""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pods import is_running, stuck_reason

MPI_JOB = ("kubeflow.org/v2beta1", "MPIJob")
LABEL = "railyard.io/nccl"
ROLE_LABEL = "training.kubeflow.org/job-role"
# The longest beginning of a log that is read.
LOG_BYTES = 32 * 1024 * 1024
LAST_LINES = 2000
# Waiting longer does not cure these states of a container (kubelet, pkg/kubelet/images and kuberuntime).
HOPELESS = (
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "RunContainerError",
)
_KEY = re.compile(r"^railyard-key (ssh-[a-z0-9-]+ [A-Za-z0-9+/=]+(?: [\w.@-]+)?)\s*$", re.M)


def role_of(pod):
    return ((pod.get("metadata") or {}).get("labels") or {}).get(ROLE_LABEL)


def ended(pod):
    """``{exit_code, reason, message}`` of the first container that ended, None while none did."""
    for entry in (pod.get("status") or {}).get("containerStatuses") or []:
        detail = (entry.get("state") or {}).get("terminated")
        if detail:
            return {
                "exit_code": detail.get("exitCode"),
                "reason": detail.get("reason"),
                "message": detail.get("message"),
            }
    return None


def hopeless_reason(pod):
    """Why a pod will never run, None as long as it may."""
    status = pod.get("status") or {}
    for entry in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        waiting = (entry.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in HOPELESS:
            return ": ".join(part for part in (waiting["reason"], waiting.get("message")) if part)
    return None


def condition(job, kind):
    """The true condition of an MPIJob of that type, None when it has none."""
    rows = (job.get("status") or {}).get("conditions") or []
    return next((row for row in rows if row.get("type") == kind and row.get("status") == "True"), None)


def pod_row(pod, events):
    """``{name, node, role, phase, reason}``: reason None for a pod that runs or ended well."""
    meta, status = pod.get("metadata") or {}, pod.get("status") or {}
    well = is_running(pod) or status.get("phase") == "Succeeded"
    return {
        "name": meta.get("name"),
        "node": (pod.get("spec") or {}).get("nodeName"),
        "role": role_of(pod),
        "phase": status.get("phase"),
        "reason": None if well else stuck_reason(pod, events),
    }


def end_of(pod, what):
    """One line for a pod that failed: what ended it."""
    detail = ended(pod) or {}
    status = pod.get("status") or {}
    name = pod["metadata"]["name"]
    if detail.get("reason") == "OOMKilled":
        return f"{what} {name} was killed for its memory (OOMKilled): give the pod more, or use smaller messages"
    parts = [status.get("reason"), status.get("message"), detail.get("reason"), detail.get("message")]
    code = detail.get("exit_code")
    text = ": ".join(dict.fromkeys(str(part) for part in parts if part)) or "no reason given"
    return f"{what} {name} failed: {text}" + (f" (exit code {code})" if code is not None else "")


def judge(job, workers, pods, mpi_job=None, events=None):
    """State of one job: ``{state, reason, waiting: [{pod, reason}], pods: rows}``.

    workers: number of workers that are wanted. pods: its Pod objects. mpi_job: its MPIJob, None with plain pods or when it is
    not there. events: {uid: [event]}.

    state: ``succeeded``, ``failed``, ``running`` (the launcher may work), ``starting``.
    """
    events = events or {}
    rows = [pod_row(pod, events.get((pod.get("metadata") or {}).get("uid"), ())) for pod in pods]
    launchers = [pod for pod in pods if role_of(pod) == "launcher"]
    others = [pod for pod in pods if role_of(pod) == "worker"]
    waiting = [{"pod": row["name"], "reason": row["reason"]} for row in rows if row["reason"]]
    missing = workers - len(others)
    if missing > 0:
        waiting.append({"pod": job, "reason": f"{missing} of {workers} workers are not there yet"})
    if not launchers:
        waiting.append({"pod": job, "reason": "the launcher is not there yet"})

    def answer(state, reason=None):
        return {"state": state, "reason": reason, "waiting": waiting, "pods": rows}

    done = next((p for p in launchers if (p.get("status") or {}).get("phase") == "Succeeded"), None)
    if done or condition(mpi_job or {}, "Succeeded"):
        return answer("succeeded")
    for pod in launchers:
        if (pod.get("status") or {}).get("phase") == "Failed":
            # A launcher that waited for a worker in vain says nothing of its cause.
            behind = [f"{row['name']}: {row['reason']}" for row in rows if row["role"] == "worker" and row["reason"]]
            return answer("failed", "; ".join([end_of(pod, "launcher"), *behind[:4]]))
    for pod in others:
        if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
            return answer("failed", end_of(pod, "worker"))
    for pod in launchers + others:
        never = hopeless_reason(pod)
        if never:
            return answer("failed", f"{role_of(pod)} {pod['metadata']['name']} cannot start: {never}")
    failed = condition(mpi_job or {}, "Failed")
    if failed:
        text = ": ".join(part for part in (failed.get("reason"), failed.get("message")) if part)
        return answer("failed", f"the MPI operator gave the job up: {text}")
    return answer("starting" if waiting else "running")


def public_key(log):
    """The launcher's public key from its log, None as long as it has not said it."""
    match = _KEY.search(log)
    return match.group(1) if match else None


def read_log(api, namespace, pod, tail=None):
    """Log of a launcher: its last lines, or all of it up to LOG_BYTES. Empty while its container has not started.

    Raises ApiError.
    """
    query = [("limitBytes", str(LOG_BYTES))] if tail is None else [("tailLines", str(int(tail)))]
    try:
        return api.text(api.path("v1", "Pod", namespace, pod) + "/log", query)
    except ApiError as error:
        if error.status in (400, 404):  # the container waits to start, or the pod is gone
            return ""
        raise


def whole_log(api, namespace, pod):
    """The log of a launcher. Of one that is longer than LOG_BYTES its beginning, where NCCL says what it uses, and its end,
    where the result is. Raises ApiError."""
    log = read_log(api, namespace, pod)
    if len(log) < LOG_BYTES // 2:
        return log
    return f"{log}\n{read_log(api, namespace, pod, LAST_LINES)}"


def events_of(api, namespace, pods):
    """{uid: [event]} of pods that do not run. No permission to read events only costs the better reason."""
    uids = {(pod.get("metadata") or {}).get("uid") for pod in pods if not is_running(pod)}
    if not uids:
        return {}
    try:
        items = api.list_items(api.path("v1", "Event", namespace), [("fieldSelector", "involvedObject.kind=Pod")])
    except ApiError:
        return {}
    found = {}
    for item in items:
        uid = (item.get("involvedObject") or {}).get("uid")
        if uid in uids:
            found.setdefault(uid, []).append(item)
    return found


def look(api, jobs, tail=1):
    """{name: judge()'s answer with ``launcher`` (name of its pod) and ``last`` (last line of its log)} of the jobs.

    jobs: ``[{name, namespace, workers, mpi_operator}]``. Raises ApiError.
    """
    found = {}
    for job in jobs:
        selector = [("labelSelector", f"{LABEL}={job['name']}")]
        pods = api.list_items(api.path("v1", "Pod", job["namespace"]), selector)
        mpi_job = api.find_named(*MPI_JOB, job["namespace"], job["name"]) if job["mpi_operator"] else None
        events = events_of(api, job["namespace"], pods)
        answer = judge(job["name"], job["workers"], pods, mpi_job, events)
        names = [row["name"] for row in answer["pods"] if row["role"] == "launcher"]
        answer["launcher"] = names[0] if names else None
        lines = read_log(api, job["namespace"], names[0], tail).splitlines() if names else []
        answer["last"] = lines[-1][:300] if lines else None
        found[job["name"]] = answer
    return found
