# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about what NCCL measured and said. Those that judge a job as a whole name its first host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ansible_collections.railyard.rdma.plugins.module_utils.rdma.traffic_class import dscp
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import (
    FLEET,
    Context,
    Problem,
    Unknown,
    rule,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.topology import NEAR

REHEARSED_APART = "NCCL runs only in the NCCL test; tests/rehearsal/nccl shows it over simulated nodes"
# What helps, by the kind of the nearest cause (plugin_utils/nccl/errors.py).
REMEDIES = {
    "launcher": "The line says what the launcher missed.",
    "no_program": "Use an image that holds all_reduce_perf of nccl-tests, built with MPI, or name its place in rdma_nccl_programs.",
    "slots": "mpirun got fewer places than ranks: is rdma_nccl_gpus the number of GPUs of a pod?",
    "ssh": "The workers' sshd must let the launcher in: does the image run sshd as root, with its host keys?",
    "address": "The pod network or a rail does not reach the other node: see the findings ADDRESS and ARP of verify.yml.",
    "gid": "The GID at the index in use is not usable in the pod: run verify.yml, and do not set NCCL_IB_GID_INDEX to one "
    "index for pods that differ.",
    "unreachable": "The other end does not answer on this rail: compare the two GIDs, and run benchmark.yml to find the rail. "
    "VFs need a fabric that takes their MAC addresses.",
    "queue_pair": "Run verify.yml: devices, GIDs and limits of the pod.",
    "memlock": "Locked memory is limited: set rdma_nccl_ipc_lock, or raise the limit of the container runtime (MEMLOCK findings).",
    "completion": "Packets got lost until a timeout: run benchmark.yml to find the rail and its priority.",
    "gpu_memory": "Use smaller messages (rdma_nccl_max_bytes).",
    "gpu": "Do driver and image fit, and does the pod have its GPUs (nvidia-smi in the pod)?",
    "killed": "A process was killed: more memory for the pods, or smaller messages.",
}
NO_CAUSE = "Read the errors in the evidence."
SILENT = (
    "Nothing in the log says why. A job that hangs often has a rail on which nothing arrives, or ends with different MTUs: run "
    "benchmark.yml to find it."
)


def _jobs(contexts: list[Context]) -> Iterator[tuple[str, dict]]:
    """(first host, job) of each job of a layout, once."""
    seen = set()
    for context in contexts:
        for job in context.nccl["jobs"]:
            if job["name"] not in seen:
                seen.add(job["name"])
                yield context.node, job


def _own(context: Context) -> Iterable[dict]:
    """The host's jobs of which NCCL said anything."""
    return [job for job in context.nccl["jobs"] if job["channels"] or job["networks"] or job["devices"]]


def _listed(numbers: Iterable[int]) -> str:
    numbers = sorted(set(numbers))
    return ("rail " if len(numbers) == 1 else "rails ") + ", ".join(map(str, numbers))


@rule(
    "NCCL-001", "error", "The bus bandwidth of NCCL is low", needs=("nccl",), scope=FLEET, unrehearsed=REHEARSED_APART
)
def bandwidth_is_low(contexts: list[Context]):
    """Symptom: training over several nodes is slower than the network allows.

    Cause: rails that carry less than they can (wrong traffic class, loss, a port with a low rate), NICs far from the
    GPUs, channels without GPUDirect RDMA, rails that NCCL does not use, or another job on the same ports.

    Evidence: the bus bandwidth of the largest message out of place, the sum of the ports that the job has on a node,
    and their share. Healthy nodes reach 94 % and more.

    Remedy: look at the other NCCL findings first, then run benchmark.yml, which measures each rail by itself.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md (bus bandwidth); NVIDIA/nccl#2135.
    """
    for node, job in _jobs(contexts):
        keys = ("busbw_gbs", "expected_gbs", "expected_by", "ratio", "gdrdma")
        evidence = {"job": job["name"], **{key: job[key] for key in keys}}
        if job["verdict"] == "low":
            summary = f"{job['name']} reached {job['reason']}"
            yield Problem(
                summary, "See the other NCCL findings, then measure each rail with benchmark.yml.", evidence, node=node
            )
        elif job["verdict"] == "unknown":
            yield Unknown(f"{job['name']}: {job['reason']}", evidence, node=node)


@rule("NCCL-002", "error", "The NCCL job failed", needs=("nccl",), scope=FLEET, unrehearsed=REHEARSED_APART)
def job_failed(contexts: list[Context]):
    """Symptom: all_reduce_perf ends with an error, hangs, or never starts.

    Cause: the nearest one that the launcher's log or the cluster names: a pod that cannot be scheduled or pulled, a
    queue pair that cannot be connected (110: no answer; 19 or 61: the GID is not usable), locked memory, ssh, a
    missing program.

    Evidence: the reason, and the errors of the log, nearest cause first.

    Remedy: depends on the kind of the first error; the finding names it.

    Source: NVIDIA/nccl#925, NVIDIA/nccl#769, NVIDIA/nccl-tests#227.
    """
    for node, job in _jobs(contexts):
        if job["verdict"] != "failed" or _wrong(job):
            continue
        kinds = [error["kind"] for error in job["errors"]]
        remedy = next((REMEDIES[kind] for kind in kinds if kind in REMEDIES), NO_CAUSE if kinds else SILENT)
        evidence = {"job": job["name"], "reason": job["reason"], "errors": job["errors"][:8]}
        yield Problem(f"{job['name']} failed: {job['reason']}", remedy, evidence, node=node)


def _wrong(job: dict) -> list[dict]:
    halves = ("out_of_place", "in_place")
    return [size for size in job["sizes"] if any((size[half] or {}).get("wrong") for half in halves)]


@rule("NCCL-003", "error", "NCCL computed wrong sums", needs=("nccl",), scope=FLEET, unrehearsed=REHEARSED_APART)
def sums_are_wrong(contexts: list[Context]):
    """Symptom: losses that differ from run to run, or become no number.

    Cause: data is damaged on its way: a faulty GPU, NIC or cable, or PCIe access control and relaxed ordering that do
    not fit.

    Evidence: the sizes with wrong elements, out of place and in place.

    Remedy: repeat the job with half of the nodes to find the one, then check its GPUs (dcgmi diag) and the counters
    of its ports.

    Source: NVIDIA/nccl-tests, README (option -c).
    """
    for node, job in _jobs(contexts):
        sizes = _wrong(job)
        if sizes or job["out_of_bounds"]:
            evidence = {"job": job["name"], "sizes": sizes, "out_of_bounds": job["out_of_bounds"]}
            summary = f"{job['name']} had wrong elements in {len(sizes)} of {len(job['sizes'])} sizes"
            yield Problem(
                summary,
                "Find the node by repeating the job with half of them, then check its GPUs and ports.",
                evidence,
                node=node,
            )


@rule("NCCL-004", "warning", "Channels of NCCL have no GPUDirect RDMA", needs=("nccl",), unrehearsed=REHEARSED_APART)
def no_gpudirect(context: Context):
    """Symptom: bandwidth far below the ports, load on the CPU's memory.

    Cause: NCCL uses GPUDirect RDMA only up to a distance between GPU and NIC, which it takes from the topology
    (NCCL_NET_GDR_LEVEL). A pod whose VFs are on other PCIe roots than its GPUs gets channels without it. Or the
    kernel module nvidia-peermem (dma-buf with newer kernels) is not there.

    Evidence: the channels of this host without it, with GPU and NIC.

    Remedy: give each pod the rails of its GPUs' PCIe roots (rails_vfs_per_pf=2 gives every job all rails), or load
    nvidia-peermem.

    Source: NVIDIA/nccl documentation (NCCL_NET_GDR_LEVEL); k8snetworkplumbingwg/sriov-network-operator#736.
    """
    for job in _own(context):
        network = [row for row in job["channels"] if row["network"].startswith("IB")]
        without = [row for row in network if not row["gdrdma"]]
        if not without:
            continue
        numbers = sorted({row["channel"] for row in without})
        keys = ("channel", "direction", "gpu", "gpu_index", "nic", "rails")
        evidence = {"job": job["name"], "channels": [{key: row[key] for key in keys} for row in without[:32]]}
        total = len({row["channel"] for row in network})
        everywhere = len(numbers) == total
        remedy = (
            "Is nvidia-peermem loaded on the node, or does kernel and driver offer dma-buf?"
            if everywhere
            else "Give each pod the rails of its GPUs' PCIe roots, or every rail (rails_vfs_per_pf: 2)."
        )
        yield Problem(
            f"{len(numbers)} of {total} channels of {job['name']} have no GPUDirect RDMA here", remedy, evidence
        )


@rule("NCCL-005", "error", "NCCL fell back to sockets", needs=("nccl",), unrehearsed=REHEARSED_APART)
def socket_fallback(context: Context):
    """Symptom: some GB/s instead of hundreds, traffic on eth0.

    Cause: NCCL found no RDMA device that it may use: NCCL_IB_HCA names none of the pod's, the pod has none, or they
    cannot be opened.

    Evidence: the networks that NCCL chose, the value of NCCL_IB_HCA, and the devices of the pod.

    Remedy: set NCCL_IB_HCA from the devices of the pod, with '=' in front, and run verify.yml.

    Source: NVIDIA/nccl, src/init.cc ("Using network").
    """
    for job in context.nccl["jobs"]:
        sockets = [row for row in job["channels"] if row["network"] == "Socket"]
        if not sockets and not (
            "Socket" in job["networks"] and not any(name.startswith("IB") for name in job["networks"])
        ):
            continue
        devices = [rail["device"] for rail in (job["pod"] or {}).get("rails", [])]
        evidence = {"job": job["name"], "networks": job["networks"], "devices": devices}
        evidence["NCCL_IB_HCA"] = job["environment"].get("NCCL_IB_HCA")
        remedy = "Set NCCL_IB_HCA to the devices of the pod with '=' in front, or leave it unset; run verify.yml for the devices."
        yield Problem(f"{job['name']} used sockets instead of the rails", remedy, evidence)


@rule("NCCL-006", "warning", "NCCL uses fewer rails than the pod has", needs=("nccl",), unrehearsed=REHEARSED_APART)
def rails_unused(context: Context):
    """Symptom: the bandwidth is that of some rails only, while others stay idle.

    Cause: NCCL_IB_HCA leaves devices out, their ports are down, NCCL found too few channels for the topology, or the
    GPUs of the pod are near some of its NICs only.

    Evidence: the rails of the pod, and those of the NICs in the channels.

    Remedy: compare NCCL_IB_HCA with the devices of the pod; with more GPUs a pod uses more rails.

    Source: NVIDIA/nccl, src/transport/net.cc (channels).
    """
    for job in _own(context):
        rows = (job["pod"] or {}).get("rails") or []
        used = {device for row in job["channels"] for device in row["devices"]}
        idle = [row for row in rows if row["device"] not in used]
        if not used or not idle:
            continue
        told = [row["rail"] for row in idle if row["rail"] is not None]
        evidence = {"job": job["name"], "idle": [row["device"] for row in idle], "used": sorted(used), "rails": told}
        evidence["NCCL_IB_HCA"] = job["environment"].get("NCCL_IB_HCA")
        where = _listed(told) if told else ", ".join(evidence["idle"])
        remedy = "Compare NCCL_IB_HCA with the devices of the pod, and the GPUs of the pod with the NICs near them."
        yield Problem(f"{job['name']} uses {len(rows) - len(idle)} of {len(rows)} rails, not {where}", remedy, evidence)


@rule(
    "NCCL-007", "warning", "A GPU uses a NIC of another PCIe root", needs=("facts", "nccl"), unrehearsed=REHEARSED_APART
)
def nic_is_far(context: Context):
    """Symptom: low bandwidth though every rail by itself is at full rate.

    Cause: the kubelet gives GPUs and VFs to a pod without looking at PCIe roots, so a GPU may get no VF near it.
    Traffic then crosses host bridges, often without GPUDirect RDMA: two such jobs on a node reached 17.95 and 8.99
    GB/s instead of 96.

    Evidence: for each pair GPU and NIC of a channel the distance, in the words of nvidia-smi topo.

    Remedy: let every job have all rails with rails_vfs_per_pf 2 and a resource for each rail, or run one job a node.

    Source: k8snetworkplumbingwg/sriov-network-operator#736; nvidia-smi topo -m.
    """
    distances = {
        rail["rail"]: {gpu["pci"]: gpu["distance"] for gpu in rail["gpus"] or []} for rail in context.facts["rails"]
    }
    for job in _own(context):
        pairs, open_ones = {}, set()
        for row in job["channels"]:
            for rail in row["rails"]:
                distance = distances.get(rail, {}).get(row["gpu"])
                if distance is None:
                    open_ones.add(row["gpu"])
                elif distance not in NEAR:
                    pairs[(row["gpu"], rail)] = distance
        if pairs:
            told = [{"gpu": gpu, "rail": rail, "distance": distance} for (gpu, rail), distance in sorted(pairs.items())]
            gpus = sorted({gpu for gpu, _rail in pairs})
            remedy = "Give each job every rail (rails_vfs_per_pf: 2), or run one job a node."
            summary = f"{job['name']}: {len(gpus)} GPUs use NICs that are not below their PCIe switch"
            yield Problem(summary, remedy, {"job": job["name"], "pairs": told[:64]})
        elif open_ones:
            names = ", ".join(sorted(str(gpu) for gpu in open_ones))
            yield Unknown(
                f"{job['name']}: how far GPUs ({names}) are from their NICs is not known", {"job": job["name"]}
            )


@rule("NCCL-008", "error", "NCCL_IB_GID_INDEX does not fit a rail", needs=("nccl",), unrehearsed=REHEARSED_APART)
def index_does_not_fit(context: Context):
    """Symptom: the job works in some pods and fails or hangs in others.

    Cause: IPvlan and macvlan children share the GID table of their rail, so the index depends on what was there
    before; a published index is that of hosts. One value for all pods breaks those whose rows are elsewhere.

    Evidence: the value, and the index of the routed RoCE v2 row of each rail in this pod.

    Remedy: leave the variable unset (NCCL since 2.21 finds a RoCE v2 row), or set it in each pod from its own table.

    Source: k8snetworkplumbingwg/multus-cni#1100, NVIDIA/nccl#1333.
    """
    for job in context.nccl["jobs"]:
        value = str(job["environment"].get("NCCL_IB_GID_INDEX", ""))
        rows = (job["pod"] or {}).get("rails") or []
        if not value.isdigit():
            continue
        other = [row for row in rows if row["gid_index"] != int(value)]
        if other:
            told = {row["device"]: row["gid_index"] for row in other}
            evidence = {"job": job["name"], "NCCL_IB_GID_INDEX": value, "indexes": told}
            rails = [row["rail"] for row in other if row["rail"] is not None]
            summary = f"{job['name']} sets NCCL_IB_GID_INDEX={value}, but {_listed(rails)} of this pod have their row elsewhere"
            yield Problem(summary, "Leave NCCL_IB_GID_INDEX unset, or set it in each pod from its own table.", evidence)


@rule(
    "NCCL-009", "warning", "NCCL_IB_HCA takes more devices than it names", needs=("nccl",), unrehearsed=REHEARSED_APART
)
def prefix_match(context: Context):
    """Symptom: NCCL also uses devices of the front end or of other pods, or fails on them.

    Cause: without '=' in front the names of NCCL_IB_HCA are the starts of names: mlx5_1 also takes mlx5_10 to
    mlx5_19. In shared mode a pod sees all devices of its node.

    Evidence: the value, and the devices that it took without naming them.

    Remedy: put '=' in front of the value: NCCL_IB_HCA==mlx5_1,mlx5_2.

    Source: NCCL documentation (NCCL_IB_HCA).
    """
    for job in context.nccl["jobs"]:
        value = str(job["environment"].get("NCCL_IB_HCA", ""))
        if not value or value[0] in "=^":
            continue
        named = {part.split(":")[0] for part in value.split(",")}
        more = [name for name in job["devices"] if name not in named]
        if more:
            evidence = {"job": job["name"], "NCCL_IB_HCA": value, "also": more}
            summary = f"{job['name']}: NCCL_IB_HCA={value} also takes {', '.join(more)}"
            yield Problem(summary, f"Set NCCL_IB_HCA=={value}: the value starts with '='.", evidence)


@rule(
    "NCCL-010",
    "error",
    "A device forces another class than NCCL asks for",
    needs=("facts", "nccl"),
    unrehearsed=REHEARSED_APART,
)
def class_is_overridden(context: Context):
    """Symptom: NCCL's packets are on another priority than those of other tests; out-of-sequence packets, half of the
    bandwidth with one queue pair.

    Cause: a class that is set for the whole device wins over NCCL_IB_TC. The RDMA CNI sets 0 where the network has no
    rdmaQoS.

    Evidence: NCCL_IB_TC, and the class that each device forces, as the pod sees it or (shared mode) as its node does.
    Classes that differ only in the two ECN bits count as equal.

    Remedy: give the rdma plugin of the network a top-level rdmaQoS with the class; recreate VFs on which a class was
    left behind.

    Source: Mellanox/rdma-cni, kvcache-ai/Mooncake#1699; not covered: queue pairs that the GPU makes itself
    (NVIDIA/nccl#2383).
    """
    by_pci = {entry["pci"]: entry for entry in (context.facts.get("devices") or {}).values() if entry.get("pci")}
    for job in context.nccl["jobs"]:
        value = str(job["environment"].get("NCCL_IB_TC", ""))
        if not value.isdigit():
            continue
        forced = {}
        for row in (job["pod"] or {}).get("rails") or []:
            told = row["class"]
            if told["state"] != "set" and row["pci"] in by_pci:
                ports = list(by_pci[row["pci"]]["ports"].values())
                told = ports[0]["traffic_class"] if ports else told
            if told["state"] == "set" and dscp(told["value"]) != dscp(int(value)):
                forced[row["device"]] = told["value"]
        if forced:
            evidence = {"job": job["name"], "NCCL_IB_TC": value, "forced": forced}
            summary = f"{job['name']} asks for class {value}, but {len(forced)} devices force {_classes(forced)}"
            yield Problem(
                summary, f"Give the rdma plugin of the networks a top-level rdmaQoS with tc {value}.", evidence
            )


def _classes(forced: dict) -> str:
    return ", ".join(map(str, sorted(set(forced.values()))))
