# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about locked memory, which RDMA memory registration needs."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule

MIB = 1 << 20
# The defaults of kernels and of systemd (64 KiB, 8 MiB, 64 MiB) are far below what a job registers.
TOO_LITTLE = 64 * MIB


@rule("MEMLOCK-001", "error", "Containers may not lock enough memory", needs=("facts",))
def limit_too_low(context: Context):
    """Symptom: ibv_reg_mr fails in pods, "Couldn't allocate MR", with ENOMEM; on some nodes only.

    Cause: containers start with the limit for locked memory of their runtime, 8 MiB by default, unless the runtime
    gives them another: default_ulimits of CRI-O, LimitMEMLOCK of the containerd service. A pod with the capability
    IPC_LOCK is not limited; unprivileged pods have none. An error up to 64 MiB, a warning above.

    Evidence: the limit that containers get, and for each runtime the limits of its process and what its configuration
    sets.

    Remedy: CRI-O: default_ulimits = ["memlock=-1:-1"] in a file of /etc/crio/crio.conf.d. containerd: a drop-in of its
    service with LimitMEMLOCK=infinity. Then restart the runtime.

    Source: k8snetworkplumbingwg/sriov-network-device-plugin#271; oracle-quickstart/oci-hpc-oke, cloud-init.
    """
    memlock = context.facts["memlock"]
    containers = memlock["containers"]
    evidence = {"containers": containers, "runtimes": memlock["runtimes"]}
    limit = containers["soft"]
    if limit is None:
        yield Unknown(f"The limit for locked memory in containers is not known: {containers.get('reason')}", evidence)
    elif limit != "unlimited":
        limit = int(limit)
        yield Problem(
            f"Containers may lock {limit // 1024} KiB of memory",
            "Raise it to unlimited (CRI-O: default_ulimits memlock=-1:-1; containerd: LimitMEMLOCK=infinity) and restart "
            "the runtime.",
            evidence,
            severity="error" if limit <= TOO_LITTLE else "warning",
        )


@rule("MEMLOCK-002", "error", "A process in the pod may not lock enough memory", needs=("pod",))
def limit_in_pod_too_low(context: Context):
    """Symptom: ibv_reg_mr fails in this pod, "Couldn't allocate MR", with ENOMEM.

    Cause: the limit for locked memory that the container got from its runtime, and no capability IPC_LOCK, with which it
    would not count. Pods get both at their start. An error up to 64 MiB, a warning above.

    Evidence: soft and hard limit as the process sees them, in KiB, and whether it has IPC_LOCK.

    Remedy: as for MEMLOCK-001: the runtime's limit. Or IPC_LOCK for the pod, which needs the Pod Security level
    privileged.

    Source: k8snetworkplumbingwg/sriov-network-device-plugin#271; kernel mm/mlock.c (can_do_mlock).
    """
    pod = context.pod
    if not pod["reachable"]:
        return
    memlock = pod["memlock"]
    limit = memlock["soft_kib"]
    if memlock["ipc_lock"] or limit == "unlimited":
        return
    if limit is None or memlock["ipc_lock"] is None:
        what = "limit for locked memory is" if limit is None else "capabilities are"
        yield Unknown(f"The {what} not known of a process in the pod", {"memlock": memlock})
        return
    yield Problem(
        f"A process in the pod may lock {limit} KiB of memory and has no IPC_LOCK",
        "Raise the runtime's limit to unlimited (CRI-O: default_ulimits memlock=-1:-1; containerd: LimitMEMLOCK=infinity) "
        "and restart it.",
        {"memlock": memlock},
        severity="error" if limit * 1024 <= TOO_LITTLE else "warning",
    )
