# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the traffic class that a device forces."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.rdma.traffic_class import dscp
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import (
    device_of,
    forced_class,
    interfaces,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule


@rule("QOS-001", "error", "A device forces another traffic class than wanted", needs=("pod",))
def forced_class_differs(context: Context):
    """Symptom: half of the bandwidth, out-of-sequence packets, bytes on another priority than the RDMA one.

    Cause: the RDMA CNI writes a traffic class for the whole device when it moves it into the pod. Without a top-level
    rdmaQoS it
    writes 0, and the class that the application asks for is ignored. The class also stays behind on a VF after the
    pod is gone.

    Evidence: the content of tc/1/traffic_class of the rail's device, and the class of the intent. In shared mode it is
    read on the node, since pods do not see it. Classes that differ only in the two ECN bits have the same DSCP and
    count as equal.

    Remedy: exclusive mode: let the rdma plugin of the network carry rdmaQoS with tc at its top level. Shared mode:
    recreate the VFs (a
    reboot does) to clear what an RDMA CNI left behind.

    Source: Mellanox/rdma-cni; not covered: queue pairs that the GPU makes itself (NVIDIA/nccl#2383).
    """
    wanted = context.layout.get("traffic_class")
    if wanted is None or not context.pod["reachable"]:
        return
    for rail, interface in interfaces(context.layout, context.pod).items():
        name = device_of(context.pod, interface) if interface else None
        if name is None:
            continue  # GID-001, CNI-001 and RESOURCE-002 speak about missing interfaces and devices.
        for number in context.pod["devices"][name]["ports"]:
            forced = forced_class(context, name, number)
            evidence = {"device": name, "port": number, "forced": forced, "wanted": wanted}
            if forced.get("state") is None:
                reason = forced.get("reason") or "no reason given"
                yield Unknown(f"The traffic class of {name} cannot be read: {reason}", evidence, rail)
            elif forced["state"] == "set" and dscp(forced["value"]) != dscp(wanted):
                yield Problem(
                    f"{name} forces traffic class {forced['value']}, wanted is {wanted}",
                    f"Give the rdma plugin of the rail's network a top-level rdmaQoS with tc {wanted}."
                    if context.pod.get("netns_mode") == "exclusive"
                    else "Recreate the VFs, and find what forces this class on them: an RDMA CNI leaves one behind, a boot "
                    "service may write one.",
                    evidence,
                    rail,
                )
