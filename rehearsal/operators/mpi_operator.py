# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MPI operator: MPIJobs of kubeflow.org/v2beta1 become workers, a launcher's Job, host file, keys and a Service.

What it makes, and the conditions that it sets, are those of mpi-operator 0.8 (pkg/controller/mpi_job_controller.go), Open MPI only.
The launcher's pod is made here, too: the controller of Jobs makes none.
"""

from __future__ import annotations

import base64

from rehearsal.operators.client import now
from rehearsal.operators.install import running_in
from rehearsal.operators.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    MPI_JOB,
    POD,
    SECRET,
    SERVICE,
    Kind,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
)
from rehearsal.operators.runtime import Controller

COMPONENT = "mpi-operator"
JOB_NAME, ROLE, INDEX, OPERATOR = (
    f"training.kubeflow.org/{name}" for name in ("job-name", "job-role", "replica-index", "operator-name")
)
SSH_ITEMS = [
    {"key": "ssh-privatekey", "path": "id_rsa"},
    {"key": "ssh-publickey", "path": "id_rsa.pub"},
    {"key": "ssh-publickey", "path": "authorized_keys"},
]
OPEN_MPI = {
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
}
FINISHED = ("Succeeded", "Failed")


def slots(job: dict) -> int:
    return job["spec"].get("slotsPerWorker", 1)


def replica(job: dict, role: str) -> dict:
    return (job["spec"].get("mpiReplicaSpecs") or {}).get(role) or {}


def worker_names(job: dict) -> list[str]:
    return [f"{name_of(job)}-worker-{number}" for number in range(replica(job, "Worker").get("replicas", 0))]


def host_file(job: dict) -> str:
    own = f"{name_of(job)}.{namespace_of(job)}.svc"
    return "".join(f"{worker}.{own} slots={slots(job)}\n" for worker in worker_names(job))


def pod_of(job: dict, role: str, name: str, env: dict[str, str], extra_labels: dict[str, str]) -> dict:
    """A pod of a replica's template, with ssh keys, name and labels as the operator adds them."""
    spec = replica(job, role)
    template = spec["template"]
    metadata = template.get("metadata") or {}
    labels = {
        **(metadata.get("labels") or {}),
        OPERATOR: "mpi-operator",
        JOB_NAME: name_of(job),
        ROLE: role.lower(),
        **extra_labels,
    }
    pod_spec = {
        **template["spec"],
        "hostname": name,
        "subdomain": name_of(job),
        "restartPolicy": spec.get("restartPolicy", "Never"),
    }
    first = pod_spec["containers"][0]
    more = [{"name": key, "value": value} for key, value in env.items()]
    mount = {"name": "ssh-auth", "mountPath": job["spec"].get("sshAuthMountPath", "/root/.ssh")}
    first = {
        **first,
        "env": [*(first.get("env") or []), *more],
        "volumeMounts": [*(first.get("volumeMounts") or []), mount],
    }
    if role == "Worker" and not first.get("command") and not first.get("args"):
        first["command"] = ["/usr/sbin/sshd", "-De"]
    secret = {"secretName": f"{name_of(job)}-ssh", "defaultMode": 0o600, "items": SSH_ITEMS}
    volumes = [*(pod_spec.get("volumes") or []), {"name": "ssh-auth", "secret": secret}]
    if role == "Launcher":
        items = [{"key": "hostfile", "path": "hostfile", "mode": 0o444}]
        volumes.append({"name": "mpi-job-config", "configMap": {"name": f"{name_of(job)}-config", "items": items}})
        first["volumeMounts"] = [*first["volumeMounts"], {"name": "mpi-job-config", "mountPath": "/etc/mpi"}]
    pod_spec |= {"containers": [first, *pod_spec["containers"][1:]], "volumes": volumes}
    made = {
        "name": name,
        "namespace": namespace_of(job),
        "labels": labels,
        "annotations": metadata.get("annotations") or {},
    }
    return {"metadata": {**made, "ownerReferences": [owner_reference(job, MPI_JOB)]}, "spec": pod_spec}


def children(job: dict) -> list[tuple[Kind, dict]]:
    """Everything but the launcher, in the order in which the operator makes it."""
    name, space = name_of(job), namespace_of(job)
    key = base64.b64encode(f"ssh-ecdsa {job['metadata']['uid'].replace('-', '')}".encode()).decode()

    def own(suffix: str, **fields) -> dict:
        metadata = {"name": f"{name}{suffix}", "namespace": space, "labels": {"app": name}}
        return {"metadata": {**metadata, "ownerReferences": [owner_reference(job, MPI_JOB)]}, **fields}

    selector = {OPERATOR: "mpi-operator", JOB_NAME: name}
    made = [
        (SERVICE, own("", spec={"clusterIP": "None", "selector": selector})),
        (CONFIG_MAP, own("-config", data={"hostfile": host_file(job)})),
        (SECRET, own("-ssh", type="kubernetes.io/ssh-auth", data={"ssh-privatekey": key, "ssh-publickey": key})),
    ]
    for number, worker in enumerate(worker_names(job)):
        made.append((POD, pod_of(job, "Worker", worker, {"K_MPI_JOB_ROLE": "worker"}, {INDEX: str(number)})))
    return made


def launcher_job(job: dict) -> dict:
    """The Job of the launcher; its pod is launcher_pod."""
    policy = job["spec"].get("runPolicy") or {}
    pod = pod_of(job, "Launcher", f"{name_of(job)}-launcher", {}, {})
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    spec = {"backoffLimit": policy.get("backoffLimit", 6), "template": template}
    if policy.get("activeDeadlineSeconds"):
        spec["activeDeadlineSeconds"] = policy["activeDeadlineSeconds"]
    metadata = {"name": f"{name_of(job)}-launcher", "namespace": namespace_of(job), "labels": {"app": name_of(job)}}
    return {"metadata": {**metadata, "ownerReferences": [owner_reference(job, MPI_JOB)]}, "spec": spec}


def launcher_pod(job: dict, number: int) -> dict:
    env = {"K_MPI_JOB_ROLE": "launcher", **OPEN_MPI, "OMPI_MCA_orte_set_default_slots": str(slots(job))}
    pod = pod_of(job, "Launcher", f"{name_of(job)}-launcher", env, {})
    pod["metadata"]["name"] += f"-{job['metadata']['uid'][:4]}{number}"
    return pod


def phase(pod: dict) -> str:
    return (pod.get("status") or {}).get("phase") or "Pending"


def conditions(job: dict, launchers: list[dict], workers: list[dict]) -> list[tuple[str, str, str]]:
    """(type, reason, message) of the conditions that hold now, in the order in which they came."""
    name = f"{namespace_of(job)}/{name_of(job)}"
    found = [("Created", "MPIJobCreated", f"MPIJob {name} is created.")]
    states = [phase(pod) for pod in launchers]
    limit = (job["spec"].get("runPolicy") or {}).get("backoffLimit", 6)
    if "Succeeded" in states:
        return [*found, ("Succeeded", "MPIJobSucceeded", f"MPIJob {name} successfully completed.")]
    if states.count("Failed") > limit:
        last = [pod for pod in launchers if phase(pod) == "Failed"][-1]["status"]
        text = f"Job has reached the specified backoff limit: {last.get('message') or ''}"
        return [*found, ("Failed", f"BackoffLimitExceeded/{last.get('reason') or ''}", text)]
    wanted = len(worker_names(job))
    if "Running" in states and sum(1 for pod in workers if phase(pod) == "Running") == wanted:
        found.append(("Running", "MPIJobRunning", f"MPIJob {name} is running."))
    return found


def status_of(job: dict, launchers: list[dict], workers: list[dict]) -> dict:
    """Status of the MPIJob; conditions keep the time at which they came, and Running ends with the job."""
    old = {row["type"]: row for row in (job.get("status") or {}).get("conditions") or []}
    held = conditions(job, launchers, workers)
    ended = next((kind for kind, _reason, _text in held if kind in FINISHED), None)
    rows = []
    for kind, reason, message in held:
        before = old.get(kind) if (old.get(kind) or {}).get("status") == "True" else None
        stamp = {"lastTransitionTime": now(), "lastUpdateTime": now()}
        rows.append(before or {"type": kind, "status": "True", "reason": reason, "message": message, **stamp})
    if "Running" in old and "Running" not in {row["type"] for row in rows}:
        rows.append({**old["Running"], "status": "False"} if ended else old["Running"])
    status: dict = {"conditions": rows, "startTime": (job.get("status") or {}).get("startTime") or now()}
    counts = {}
    for role, pods in (("Launcher", launchers), ("Worker", workers)):
        told = {"active": "Running", "succeeded": "Succeeded", "failed": "Failed"}
        counts[role] = {
            key: number for key, state in told.items() if (number := sum(phase(pod) == state for pod in pods))
        }
    status["replicaStatuses"] = counts
    if ended:
        status["completionTime"] = (job.get("status") or {}).get("completionTime") or now()
    return status


class MpiJobs(Controller):
    """Keys are "<namespace>/<name>". Acts while a Deployment of the operator is available."""

    watches = (MPI_JOB, POD, DEPLOYMENT)
    resync = 5.0

    def keys(self, kind: Kind, obj: dict) -> list[str]:
        if kind == POD:
            job = labels_of(obj).get(JOB_NAME)
            return [f"{namespace_of(obj)}/{job}"] if job else []
        if kind == DEPLOYMENT:
            return [f"{namespace_of(job)}/{name_of(job)}" for job in self.cache(MPI_JOB)]
        return [f"{namespace_of(obj)}/{name_of(obj)}"]

    async def reconcile(self, key: str) -> float | None:
        namespace, name = key.split("/")
        job = self.cache(MPI_JOB).get(name, namespace)
        if (
            job is None
            or job["metadata"].get("deletionTimestamp")
            or running_in(self.cache(DEPLOYMENT), COMPONENT) is None
        ):
            return None
        own = [
            pod
            for pod in self.cache(POD)
            if any(owner["uid"] == job["metadata"]["uid"] for owner in pod["metadata"].get("ownerReferences") or [])
        ]
        launchers = sorted((pod for pod in own if labels_of(pod).get(ROLE) == "launcher"), key=name_of)
        workers = [pod for pod in own if labels_of(pod).get(ROLE) == "worker"]
        status = status_of(job, launchers, workers)
        finished = any(row["type"] in FINISHED and row["status"] == "True" for row in status["conditions"])
        if finished:
            await self._clean(job, workers)
        else:
            await self._make(job, launchers, {name_of(pod) for pod in workers})
        if status != job.get("status"):
            await self.api.patch(MPI_JOB, job, {"status": status}, "status")
        return None

    async def _make(self, job: dict, launchers: list[dict], workers: set[str]) -> None:
        for kind, obj in children(job):
            if kind != POD or name_of(obj) not in workers:
                await self.api.create(kind, obj)
        await self.api.create(JOB, launcher_job(job))
        if all(phase(pod) == "Failed" for pod in launchers):
            await self.api.create(POD, launcher_pod(job, len(launchers)))

    async def _clean(self, job: dict, workers: list[dict]) -> None:
        policy = (job["spec"].get("runPolicy") or {}).get("cleanPodPolicy") or "None"
        for pod in workers:
            if policy == "All" or (policy == "Running" and phase(pod) in ("Running", "Pending")):
                await self.api.delete(POD, pod)
