# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about what the CNI plugins moved into a pod."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import device_of, interfaces
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, rule


@rule("CNI-001", "error", "The rail's interface is in the pod, its RDMA device is not", needs=("pod",))
def device_not_moved(context: Context):
    """Symptom: the pod has the rail's interface with an address, and /sys/class/infiniband does not show its device.

    Cause: in exclusive mode an RDMA device is visible in one network namespace only. The CNI chain of the network
    moved the netdev but
    has no rdma plugin, so the device stayed in the host's namespace. An IPvlan or macvlan child never owns a device:
    these
    kinds need shared mode.

    Evidence: the interface, its PCI address, the mode as the pod sees it, and the RDMA devices in the pod.

    Remedy: SR-IOV in exclusive mode: add the rdma plugin (with rdmaQoS) to the network. Other kinds: switch the node
    to shared.

    Source: k8snetworkplumbingwg/rdma-cni; kernel drivers/infiniband/core/device.c.
    """
    if not context.pod["reachable"]:
        return
    mode = context.pod.get("netns_mode")
    for rail, interface in interfaces(context.layout, context.pod).items():
        if interface is None or device_of(context.pod, interface) is not None:
            continue
        evidence = {
            "interface": interface,
            "pci": context.pod["netdevs"][interface].get("pci"),
            "netns_mode": mode,
            "devices": sorted(context.pod.get("devices") or {}),
        }
        network = context.layout.get("network")
        remedy = (
            "Add the rdma plugin with a top-level rdmaQoS to the network's plugins, or switch the nodes to shared mode."
        )
        if network in ("ipvlan", "macvlan"):
            remedy = f"Switch the nodes to shared mode: a {network} child cannot own an RDMA device."
        elif mode == "shared":
            remedy = "In shared mode every device is visible: does it exist on the node, and is ib_uverbs loaded?"
        yield Problem(f"{interface} has no RDMA device in the pod (mode {mode or 'unknown'})", remedy, evidence, rail)
