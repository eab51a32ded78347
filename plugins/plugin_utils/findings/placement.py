# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about which rails and GPUs a pod was given together.

The kubelet asks one device plugin for GPUs and another one for VFs, and neither knows of the other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import node_rails
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_places import pod_rails
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule

_LAYOUT = (
    "Use rails_vfs_per_pf 2 with rails_resource_scope rail: every pod then gets a VF on every rail. Aligning by NUMA node "
    "(Topology Manager, policy single-numa-node) is not enough where a NUMA node has several PCIe roots."
)


def root_of(pci_path: str | None) -> str | None:
    """The PCIe root that a function hangs on, ``domain:bus`` of its root port; None when the path is not known.

    :param pci_path: addresses from the root port down, separated by slashes.
    """
    first = (pci_path or "").partition("/")[0]
    return first.rpartition(":")[0] or None


def whole(context: Context) -> Context:
    """The same with all rails of the node, also where its pod asked for a part of them."""
    layout = context.layout
    return replace(context, layout={**layout, "rails": layout.get("all_rails") or layout["rails"]})


def placement(context: Context) -> list[dict]:
    """``[{root, numa, gpus: [pci], rails: [rail], pod_gpus, pod_rails}]`` of a node by PCIe root, in order. pod_gpus and
    pod_rails are those that the pod has, None where that is not known.

    :param context: with the facts of the node; the pod may be missing.
    :raises Unreadable: the facts have no devices or netdevs.
    """
    facts, context = context.facts, whole(context)
    rows: dict[str | None, dict] = {}

    def row(path, numa):
        entry = {"numa": numa, "gpus": [], "rails": [], "pod_gpus": None, "pod_rails": None}
        return rows.setdefault(root_of(path), {"root": root_of(path), **entry})

    for rail in node_rails(context):
        row(rail.device.get("pci_path"), rail.device.get("numa_node"))["rails"].append(rail.number)
    for gpu in facts.get("gpus") or []:
        row(gpu.get("pci_path"), gpu.get("numa_node"))["gpus"].append(gpu["pci"])
    pod = context.pod
    if pod is not None and pod["reachable"]:
        mine = {rail.number for rail in pod_rails(context)}
        for entry in rows.values():
            entry["pod_rails"] = [number for number in entry["rails"] if number in mine]
            if pod.get("gpus") is not None:
                entry["pod_gpus"] = [pci for pci in entry["gpus"] if pci in pod["gpus"]]
    return [rows[key] for key in sorted(rows, key=lambda key: (key is None, key or ""))]


@rule("TOPOLOGY-002", "warning", "A pod has GPUs at one PCIe root and rails at another", needs=("facts", "pod"))
def roots_are_mixed(context: Context):
    """Symptom: two jobs share a node and get 18 and 9 GB/s instead of 96 each; NCCL uses GPUDirect RDMA on a few channels
    only.

    Cause: the kubelet took the GPUs from one device plugin and the VFs from another one, and did not match them. A GPU
    sends over rails of other roots through CPU memory, so it should have its share of the rails at its own root. A pod with
    every rail cannot have this fault, whatever its GPUs are. Judged in pods that ask for a part of the rails
    (rdma_verify_pods_per_node 2); without GPUs in them nobody can say.

    Evidence: GPUs and rails of the node by PCIe root, and which of them the pod has.

    Remedy: rails_vfs_per_pf 2 and rails_resource_scope rail, so that every pod gets a VF on every rail; or host network
    for such jobs. Topology Manager with single-numa-node helps where each NUMA node has one PCIe root.

    Source: k8snetworkplumbingwg/sriov-network-operator#736; NCCL documentation (NCCL_NET_GDR_LEVEL).
    """
    pod = context.pod
    if not pod["reachable"]:
        return
    if "all_rails" not in context.layout:
        return  # It asked for every rail; RESOURCE-002 speaks when one is missing.
    roots = placement(context)
    with_rails = [row for row in roots if row["rails"]]
    if not any(row["pod_rails"] for row in with_rails):
        return  # A pod without any rail is what other rules speak about.
    if any(row["root"] is None for row in with_rails):
        yield Unknown("The PCIe root of a rail is not known", {"roots": roots})
        return
    if all(row["pod_rails"] == row["rails"] for row in with_rails):
        return
    if pod.get("gpus") is None:
        reason = (pod.get("reasons") or {}).get("gpus") or "no reason given"
        yield Unknown(f"The pod's GPUs are not known: {reason}", {"roots": roots})
        return
    known = {pci for row in roots for pci in row["gpus"]}
    if not pod["gpus"]:
        yield Unknown(
            "The test pod has rails of some PCIe roots only and no GPU, so nobody can say whether they fit together; ask for "
            "GPUs with rdma_verify_gpu_resource",
            {"roots": roots},
        )
        return
    if set(pod["gpus"]) - known:
        odd = ", ".join(sorted(set(pod["gpus"]) - known))
        yield Unknown(f"The node's facts have no GPU {odd}", {"roots": roots})
        return
    # A root's GPUs share its rails; two of four GPUs need two of four rails.
    short = [
        row for row in with_rails if len(row["pod_rails"]) * len(row["gpus"]) < len(row["rails"]) * len(row["pod_gpus"])
    ]
    if short:
        places = [
            f"{', '.join(row['pod_gpus'])} (root {row['root']}: {len(row['pod_rails'])} of {len(row['rails'])} rails)"
            for row in short
        ]
        alone = [str(number) for row in roots if not row["pod_gpus"] for number in row["pod_rails"]]
        more = f"; the pod's rails {', '.join(alone)} are at roots without a GPU of it" if alone else ""
        yield Problem(
            f"GPUs of the pod lack rails at their PCIe root: {'; '.join(places)}{more}",
            _LAYOUT,
            {"gpus": pod["gpus"], "roots": roots},
        )


@rule(
    "TOPOLOGY-003", "error", "A pod has several VFs of one rail", needs=("pod",),
    unrehearsed="which VFs the kubelet takes of one resource is chance",
)  # fmt: skip
def several_vfs_of_a_rail(context: Context):
    """Symptom: a pod asks for as many VFs as there are rails and lacks some rails, while others are there twice.

    Cause: one resource for the VFs of all rails, with several VFs a PF: the kubelet does not know which rail a VF is on.

    Evidence: the rails that the pod has several VFs of, and those that it lacks.

    Remedy: a resource for each rail (rails_resource_scope rail).

    Source: k8snetworkplumbingwg/sriov-network-device-plugin, README (one resource for each selector).
    """
    pod = context.pod
    if not pod["reachable"]:
        return
    numbers = {rail["pci"]: rail["rail"] for rail in context.layout["rails"]}
    parents = [entry.get("parent_pci") for entry in (pod.get("netdevs") or {}).values()]
    counts = Counter(numbers[pci] for pci in parents if pci in numbers)
    twice = sorted(number for number, count in counts.items() if count > 1)
    lacking = sorted(set(numbers.values()) - set(counts))
    if twice and lacking:
        yield Problem(
            f"The pod has several VFs of the rails {', '.join(map(str, twice))} and none of {', '.join(map(str, lacking))}",
            "Give each rail a resource of its own: rails_resource_scope rail.",
            {"twice": twice, "lacking": lacking},
        )
