# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about how near rails and GPUs are on the PCIe bus."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import Hit, node_rails, spread
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, rule

# One or several PCIe switches and no host bridge between them, in the words of nvidia-smi topo.
NEAR = ("PIX", "PXB")


@rule(
    "TOPOLOGY-001", "warning", "A rail and its GPU are not below the same PCIe switch", needs=("facts",),
    unrehearsed="it follows from the machine and the intent; a fault changes neither",
)  # fmt: skip
def gpu_is_far(context: Context):
    """Symptom: GPUDirect RDMA is slow on some rails, though GPU and NIC are on the same NUMA node.

    Cause: the way from GPU to NIC crosses a host bridge. NUMA alignment is not PCIe alignment. The intent may pair
    rail and GPU wrongly, the GPU may be gone from the bus, or a virtual machine may hide the switches.

    Evidence: the GPU of the intent, its distance to the rail, and all GPUs of the node by distance from the rail.

    Remedy: correct gpu_pci of the rails, or pair each job's GPU with a near rail (rails_resource_scope=rail lets pods
    choose).

    Source: k8snetworkplumbingwg/sriov-network-operator#736.
    """
    told = {rail["rail"]: rail for rail in context.facts["rails"]}
    far, missing, open_ones = [], [], []
    for rail in node_rails(context):
        wanted = rail.intent.get("gpu_pci")
        if wanted is None or rail.name is None:
            continue
        gpus = told[rail.number]["gpus"]
        evidence = {"gpu": wanted, "pci_path": rail.device.get("pci_path"), "gpus": gpus}
        if gpus is None:
            open_ones.append(Hit(rail, evidence))
            continue
        distance = next((gpu["distance"] for gpu in gpus if gpu["pci"] == wanted), None)
        if distance is None:
            missing.append(Hit(rail, evidence))
        elif distance not in NEAR:
            far.append(Hit(rail, {**evidence, "distance": distance}))
    yield from spread(
        context,
        far,
        lambda where: f"The GPU of the intent is not below the PCIe switch of {where}",
        "Compare gpu_pci with the nearest GPUs of the evidence; in a virtual machine ask the provider for the topology.",
    )
    yield from spread(
        context,
        missing,
        lambda where: f"The node has no GPU at the PCI address that the intent names for {where}",
        "Is the GPU on the bus (lspci)? Else correct gpu_pci of the rails.",
    )
    yield from spread(
        context, open_ones, lambda where: f"The distance to the GPUs is not known of {where}", unknown=True
    )
