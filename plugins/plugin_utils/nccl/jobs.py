# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NCCL jobs of a rail model as Kubernetes objects: an MPIJob each, or a Service with pods where no MPI operator is.

A job takes all hosts of a layout. With two jobs a node each has half of the GPUs, and all rails where the node has VFs
enough, else half of them. Both forms give their pods the same names and labels, so what waits and reads need not know.
"""

from __future__ import annotations

import hashlib
import re

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import node_of
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl import environment, scripts
from ansible_collections.railyard.rdma.plugins.plugin_utils.verify_pods import NETWORKS, shares

PREFIX = "railyard-nccl"
# Labels of the MPI operator (pkg/apis/kubeflow/v2beta1/constants.go); pods made without it carry them, too.
JOB_LABEL, ROLE_LABEL = "training.kubeflow.org/job-name", "training.kubeflow.org/job-role"
LABEL = "railyard.io/nccl"
# "-launcher-xxxxx" is added for pods, which may have 63 letters as host names.
LONGEST_NAME = 46
JOBS = "ab"
# With the host's network port 22 is the node's own.
SSH_PORT, HOST_SSH_PORT = 22, 2222
PROGRAMS = ("all_reduce_perf", "/workspace/nccl-tests/build/all_reduce_perf", "/opt/nccl-tests/build/all_reduce_perf")
DEFAULTS = {
    "jobs_per_node": 1,
    "gpus": None,
    "gpu_resource": "nvidia.com/gpu",
    "min_bytes": "1G",
    "max_bytes": "8G",
    "iterations": 20,
    "tolerations": (),
    "ipc_lock": False,
    "shared_memory": "16Gi",
    "pull_secrets": (),
    "environment": {},
    "mpi_arguments": ("--bind-to", "numa", "--mca", "coll", "^hcoll"),
    "programs": PROGRAMS,
    "deadline": 1800,
    "ssh_wait": 300,
    "address_wait": 60,
    "mpi_operator": True,
}
_SIZE = re.compile(r"[1-9][0-9]{0,14}[KMGT]?")
_WORD = re.compile(r"[\w./:^,=@%+-]{1,200}")


def job_name(layout: str, part: str = "") -> str:
    """Name of a job: a DNS label, the same from run to run, that leaves room for what the MPI operator adds."""
    wanted = f"{PREFIX}-{layout}{'-' * bool(part)}{part}"
    name = re.sub(r"[^a-z0-9-]+", "-", wanted.lower()).strip("-")
    if name == wanted and len(name) <= LONGEST_NAME:
        return name
    mark = hashlib.sha256(wanted.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9].rstrip('-')}-{mark}"


def check(options: dict) -> list[str]:
    """What is wrong with the options, each with what it got and what is allowed."""
    faults = environment.check_names(options["environment"])

    def refuse(name, wanted):
        faults.append(f"rdma_nccl_{name}: got {options[name]!r}, must be {wanted}")

    if not isinstance(options.get("image"), str) or not options["image"].strip():
        options = {"image": None, **options}
        refuse("image", "an image with nccl-tests, Open MPI and an ssh server")
    if options["jobs_per_node"] not in (1, 2) or isinstance(options["jobs_per_node"], bool):
        refuse("jobs_per_node", "1 or 2")
    for name in ("iterations", "deadline", "ssh_wait", "address_wait"):
        if isinstance(options[name], bool) or not isinstance(options[name], int) or options[name] < 1:
            refuse(name, "a number from 1")
    if options["gpus"] is not None and (not isinstance(options["gpus"], int) or not 1 <= options["gpus"] <= 64):
        refuse("gpus", "a number from 1 to 64, or empty for all of a node")
    for name in ("min_bytes", "max_bytes"):
        if not _SIZE.fullmatch(str(options[name])):
            refuse(name, "a size such as 8G")
    readable = all(_SIZE.fullmatch(str(options[name])) for name in ("min_bytes", "max_bytes"))
    if readable and bytes_of(options["min_bytes"]) > bytes_of(options["max_bytes"]):
        refuse("min_bytes", f"at most rdma_nccl_max_bytes ({options['max_bytes']})")
    for name in ("mpi_arguments", "programs"):
        if not all(isinstance(word, str) and _WORD.fullmatch(word) for word in options[name]):
            refuse(name, "a list of words without spaces and quotes")
    return faults


def bytes_of(size: str) -> int:
    """Bytes of a size as nccl-tests reads it: K, M, G and T are powers of 1024 (parsesize in src/common.cu)."""
    text = str(size)
    power = "KMGT".find(text[-1]) + 1
    return int(text[:-1] if power else text) << (10 * power)


def plan(model: dict, nodes: list[dict], addresses: dict, shapes: dict, options: dict) -> list[dict]:
    """The jobs of a model.

    :param nodes: Node objects; addresses: {host: ansible_host}, to find nodes of another name.
    :param shapes: the shape catalogue.
    :param options: as DEFAULTS, with ``image``.
    :returns: ``[{name, namespace, layout, part, hosts, nodes: {host: node name or None}, gpus_per_node, shares_ports, rails,
        objects (to apply first), workers (pods that need the launcher's key, made by :func:`worker_pods`), environment:
        [{name, value, reason}], reason: why the job cannot be, or None}]``.
    :raises ValueError: options are wrong; all faults, one a line.
    """
    options = {**DEFAULTS, **options}
    faults = check(options)
    if faults:
        raise ValueError("\n".join(faults))
    made = []
    for layout in model["layouts"]:
        parts = options["jobs_per_node"]
        found = {host: node_of(host, addresses.get(host), nodes) for host in layout["hosts"]}
        for place in range(parts):
            made.append(_job(layout, JOBS[place] if parts > 1 else "", found, shapes, options))
    return made


def _gpus(layout: dict, found: dict, shapes: dict, options: dict) -> tuple[int | None, str | None]:
    """(GPUs of a pod, why it is not known): the option, what the nodes offer, or the catalogue."""
    parts = options["jobs_per_node"]
    if options["gpus"]:
        return options["gpus"], None
    offers = []
    for node in found.values():
        text = str(((node or {}).get("status") or {}).get("allocatable", {}).get(options["gpu_resource"], ""))
        offers += [int(text)] if text.isdigit() else []
    count = min(offers) if offers else ((shapes.get(layout["shape"]) or {}).get("gpu") or {}).get("count")
    if not count:
        return None, f"no node offers {options['gpu_resource']}; set rdma_nccl_gpus"
    if count < parts:
        return None, f"a node has {count} GPU, too few for {parts} jobs; set rdma_nccl_jobs_per_node to 1"
    return count // parts, None


def _job(layout: dict, part: str, found: dict, shapes: dict, options: dict) -> dict:
    parts = options["jobs_per_node"]
    job = {
        "name": job_name(layout["name"], part),
        "namespace": layout["pod"].get("namespace") or layout["namespaces"]["networks"],
        "layout": layout["name"],
        "part": part,
        "hosts": list(layout["hosts"]),
        "nodes": {host: node and node["metadata"]["name"] for host, node in found.items()},
        "environment": environment.fixed(layout, shapes.get(layout["shape"]), options["environment"]),
        "objects": [],
        "workers": [],
        "reason": None,
    }
    job["gpus_per_node"], job["reason"] = _gpus(layout, found, shapes, options)
    try:
        share = shares(layout, parts)[JOBS.index(part) if part else 0]
    except ValueError as error:
        return {**job, "rails": None, "rails_per_node": 0, "shares_ports": False, "reason": str(error)}
    # Where both jobs of a node have every rail, each port carries two jobs.
    everything = len(share["networks"] or layout["rails"]) == len(layout["rails"])
    job |= {"rails": share["rails"], "rails_per_node": share["count"], "shares_ports": parts > 1 and everything}
    missing = sorted(host for host, name in job["nodes"].items() if name is None)
    if missing:
        job["reason"] = f"the cluster has no node for {', '.join(missing)}"
    elif len(layout["hosts"]) < 2:
        job["reason"] = f"{layout['hosts'][0]} is the only host of its layout, and a job on one node uses no rail"
    elif layout["pod"].get("host_network") and parts > 1:
        job["reason"] = "pods with the host's network cannot divide its rails; set rdma_nccl_jobs_per_node to 1"
    if job["reason"] is None:
        worker = _worker_template(layout, job, share, options)
        launcher = _launcher_template(layout, job, share, options)
        if options["mpi_operator"]:
            job["objects"] = [_mpi_job(job, launcher, worker, options)]
        else:
            job["objects"] = [_service(job), _plain_launcher(job, launcher)]
            job["workers"] = _plain_workers(job, worker)
    return job


def worker_names(job: dict) -> list[str]:
    return [f"{job['name']}-worker-{number}" for number in range(len(job["hosts"]))]


def _labels(job: dict, role: str) -> dict:
    return {LABEL: job["name"], JOB_LABEL: job["name"], ROLE_LABEL: role}


def _ssh_port(layout: dict) -> int:
    return HOST_SSH_PORT if layout["pod"].get("host_network") else SSH_PORT


def _env(rows: dict[str, str]) -> list[dict]:
    return [{"name": name, "value": value} for name, value in rows.items()]


def _pod_spec(container: dict, options: dict) -> dict:
    spec: dict = {
        "containers": [container],
        "tolerations": [dict(item) for item in options["tolerations"]],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": options["deadline"],
    }
    if options["pull_secrets"]:
        spec["imagePullSecrets"] = [{"name": name} for name in options["pull_secrets"]]
    return spec


def _worker_template(layout: dict, job: dict, share: dict, options: dict) -> dict:
    resources = {**share["resources"], options["gpu_resource"]: str(job["gpus_per_node"])}
    container: dict = {
        "name": "worker",
        "image": options["image"],
        "command": ["/bin/sh", "-c", scripts.WORKER],
        "env": _env({"RAILYARD_SSH_PORT": str(_ssh_port(layout))}),
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    if options["ipc_lock"]:
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    spec = _pod_spec(container, options)
    spec["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": options["shared_memory"]}}]
    # A field selector takes one value, so each node is a term of its own; the terms are alternatives.
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        for name in job["nodes"].values()
    ]
    # The launcher may be on a node with a worker.
    workers = {"matchLabels": {LABEL: job["name"], ROLE_LABEL: "worker"}}
    apart = {"labelSelector": workers, "topologyKey": "kubernetes.io/hostname"}
    spec["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
    }
    if layout["pod"].get("host_network"):
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    networks = ",".join(share["networks"])
    metadata: dict = {"labels": _labels(job, "worker"), "annotations": {NETWORKS: networks} if networks else {}}
    return {"metadata": metadata, "spec": spec}


def _interfaces(layout: dict, share: dict) -> list[str]:
    """Where the rails are in a pod: net1, net2 … in the order of the networks (Multus), or the functions themselves."""
    if layout["pod"].get("host_network"):
        return [rail["pci"] for rail in layout["rails"]]
    return [f"net{number}" for number in range(1, len(share["networks"]) + 1)]


def _launcher_template(layout: dict, job: dict, share: dict, options: dict) -> dict:
    pools = layout.get("pools") or [] if layout.get("ip_family") == "ipv6_slaac" else []
    placeholders = scripts.gid_patterns([text for pool in pools if (text := pool.get("subnet") or pool.get("cidr"))])
    variables = {row["name"]: row["value"] for row in job["environment"]}
    # Open MPI's own messages go over the pod network; MNNVL would carry the test past the rails.
    variables |= {"UCX_TLS": "tcp", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV", "NCCL_MNNVL_ENABLE": "0"}
    if not layout["pod"].get("host_network"):
        variables["UCX_NET_DEVICES"] = environment.POD_INTERFACE
    own = {
        "RAILYARD_JOB": job["name"],
        "RAILYARD_INTERFACES": " ".join(_interfaces(layout, share)),
        "RAILYARD_PLACEHOLDERS": " ".join(placeholders),
        "RAILYARD_ADDRESS_WAIT": str(options["address_wait"]),
        "RAILYARD_PROGRAMS": " ".join(options["programs"]),
    }
    sizes = f"-b {options['min_bytes']} -e {options['max_bytes']} -f 2 -g 1 -c 1 -n {options['iterations']}"
    rest = {
        "RAILYARD_HOSTS": " ".join(f"{name}.{job['name']}" for name in worker_names(job)),
        "RAILYARD_GPUS": str(job["gpus_per_node"]),
        "RAILYARD_NAMES": " ".join([*variables, *own]),
        "RAILYARD_SSH_PORT": str(_ssh_port(layout)),
        "RAILYARD_SSH_WAIT": str(options["ssh_wait"]),
        "RAILYARD_MPI_ARGUMENTS": " ".join(options["mpi_arguments"]),
        "RAILYARD_ARGUMENTS": sizes,
        "RAILYARD_DISCOVER": scripts.DISCOVER,
        "RAILYARD_RANK": scripts.RANK,
    }
    container = {
        "name": "launcher",
        "image": options["image"],
        "command": ["/bin/sh", "-c", scripts.LAUNCHER],
        "env": _env({**variables, **own, **rest}),
    }
    return {"metadata": {"labels": _labels(job, "launcher")}, "spec": _pod_spec(container, options)}


def _mpi_job(job: dict, launcher: dict, worker: dict, options: dict) -> dict:
    spec = {
        "slotsPerWorker": job["gpus_per_node"],
        "sshAuthMountPath": "/root/.ssh",
        # One try: a launcher that is started again would take the first one's log away, and fail in the same way.
        # Workers stay until the job is removed: which node they were on belongs to the result.
        "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0, "activeDeadlineSeconds": options["deadline"]},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
            "Worker": {"replicas": len(job["hosts"]), "restartPolicy": "Never", "template": worker},
        },
    }
    metadata = {"name": job["name"], "namespace": job["namespace"], "labels": {LABEL: job["name"]}}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata, "spec": spec}


def _service(job: dict) -> dict:
    """Names of the workers in the cluster's DNS, before they are ready: the launcher asks for them."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job["name"], "namespace": job["namespace"], "labels": {LABEL: job["name"]}},
        "spec": {"clusterIP": "None", "selector": {LABEL: job["name"]}, "publishNotReadyAddresses": True},
    }


def _plain(job: dict, name: str, template: dict) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": job["namespace"], **template["metadata"]},
        "spec": {**template["spec"], "restartPolicy": "Never", "hostname": name, "subdomain": job["name"]},
    }


def _plain_launcher(job: dict, template: dict) -> dict:
    return _plain(job, f"{job['name']}-launcher", template)


def _plain_workers(job: dict, template: dict) -> list[dict]:
    return [_plain(job, name, template) for name in worker_names(job)]


def with_key(workers: list[dict], key: str) -> list[dict]:
    """The workers with the launcher's public key, which is no secret."""
    made = []
    for pod in workers:
        first = pod["spec"]["containers"][0]
        container = {**first, "env": [*first["env"], {"name": "RAILYARD_KEY", "value": key}]}
        made.append({**pod, "spec": {**pod["spec"], "containers": [container]}})
    return made
