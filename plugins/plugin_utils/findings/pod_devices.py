# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about what a process in the pod may use: device files, MTU, and variables that its device overrides."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.rdma.devices import roce_mtu
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.traffic_class import dscp
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import Hit, spread
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_places import (
    PodRail,
    pod_has_own_network,
    pod_rails,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import forced_class
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, rule

# Variables by which libraries ask for a class, whose number is the class itself.
_CLASS_VARIABLES = ("NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS")


@rule("RESOURCE-014", "error", "A process in the pod cannot open the device file of a rail", needs=("pod",))
def device_file_does_not_open(context: Context):
    """Symptom: ibv_devinfo lists the device in the pod, and opening it fails with "Permission denied" or "No such file".

    Cause: the pod has no /dev/infiniband/uverbsN of the device: it asked for no resource, or the device plugin started
    before the modules were there. Or the file is there and opening it is refused: the device cgroup does not allow it, or
    the device is in another network namespace. In shared mode sysfs shows all devices of the node; only the files tell
    which of them a pod may use.

    Evidence: the device, and for each device file of the pod the device that it belongs to and the answer to opening it.

    Remedy: let the pod ask for the resource of the rail; restart the device plugin pod of the node.

    Source: k8snetworkplumbingwg/sriov-network-device-plugin#424; kernel drivers/infiniband/core/uverbs_main.c
    (ib_uverbs_open).
    """
    rails = [rail for rail in pod_rails(context) if rail.device]
    if not rails:
        return
    files = context.pod["device_files"] or {}
    lacking, refused, open_ones = [], [], []
    for rail in rails:
        own = {name: row for name, row in files.items() if row["device"] == rail.device and name.startswith("uverbs")}
        evidence = {"device": rail.device, "files": files}
        if any(row["opens"] for row in own.values()):
            continue
        if own:
            refused.append(Hit(rail, {**evidence, "reason": list(own.values())[0]["reason"]}))
        elif any(row["device"] is None for name, row in files.items() if name.startswith("uverbs")):
            open_ones.append(Hit(rail, evidence))
        else:
            lacking.append(Hit(rail, evidence))
    ask = "Let the pod ask for the resource of the rail; restart the device plugin pod of the node when it does."
    yield from spread(context, lacking, lambda where: f"The pod has no device file of the RDMA device of {where}", ask)
    yield from spread(
        context,
        refused,
        lambda where: f"The pod has the device file and may not open it on {where}: {refused[0].evidence['reason']}",
        "Look at the device cgroup of the container, and whether the device is in another network namespace.",
    )
    yield from spread(
        context, open_ones, lambda where: f"Nothing tells which device file belongs to {where}", unknown=True
    )
    shut = {name: row["reason"] for name, row in files.items() if name == "rdma_cm" and not row["opens"]}
    if files and ("rdma_cm" not in files or shut):
        yield Problem(
            f"/dev/infiniband/rdma_cm cannot be opened: {shut['rdma_cm'] if shut else 'it is not in the pod'}",
            "Connections by RDMA CM fail in the pod; is rdma_ucm loaded on the node? Restart its device plugin pod.",
            {"files": files},
            severity="warning",
        )


@rule("LINK-004", "warning", "A rail in the pod has another MTU than wanted", needs=("pod",))
def mtu_in_pod(context: Context):
    """Symptom: less bandwidth in pods than on the host; or small messages pass and larger ones hang.

    Cause: the VF or child did not get the MTU of its network or policy: it is smaller than the intent (a warning), or
    larger than that of the PF, which drops its frames (an error).

    Evidence: MTU of the interface in the pod and of the PF on the node, the RDMA MTU, and what the intent gives.

    Remedy: the MTU of the node policy or network; recreate VFs that were made before it was set.

    Source: NVIDIA/nccl#1524, NVIDIA/nccl#2135; kernel include/rdma/ib_addr.h (iboe_get_mtu).
    """
    wanted = context.layout.get("mtu")
    if not pod_has_own_network(context):
        return  # LINK-002 judges the node's own interfaces.
    small, large, open_ones = [], [], []
    for rail in pod_rails(context):
        mtu, physical = rail.interface["mtu"], _mtu_of_pf(context, rail)
        ports = list(rail.rdma.get("ports", {}).values())
        active = ports[0].get("active_mtu") if ports else None
        evidence = {"interface": rail.name, "mtu": mtu, "pf_mtu": physical, "active_mtu": active, "wanted": wanted}
        if mtu is None:
            open_ones.append(Hit(rail, evidence))
        elif physical is not None and mtu > physical:
            large.append(Hit(rail, evidence))
        elif wanted is not None and (mtu < wanted or (active or roce_mtu(wanted) or 0) < (roce_mtu(wanted) or 0)):
            small.append(Hit(rail, evidence))
    yield from spread(
        context,
        small,
        lambda where: f"The MTU in the pod is smaller than {wanted} on {where}",
        "Set the MTU in the network or node policy, and recreate VFs that are older.",
    )
    yield from spread(
        context,
        large,
        lambda where: f"The MTU in the pod is larger than that of the PF on {where}",
        "Give PF and VF the same MTU: the PF drops larger frames.",
        "error",
    )
    yield from spread(context, open_ones, lambda where: f"The MTU cannot be read in the pod on {where}", unknown=True)


def _mtu_of_pf(context: Context, rail: PodRail) -> int | None:
    netdevs = (context.facts or {}).get("netdevs") or {}
    found = [entry.get("mtu") for entry in netdevs.values() if entry.get("pci") == rail.intent["pci"]]
    return found[0] if len(found) == 1 else None


@rule(
    "QOS-010", "warning", "A variable in the pod asks for another class than the device sends", needs=("pod",),
    unrehearsed="test pods have no variables of NCCL or UCX",
)  # fmt: skip
def variable_is_overridden(context: Context):
    """Symptom: the job sets NCCL_IB_TC, and its packets carry another class.

    Cause: a class that is forced on the device overrides what applications ask for.

    Evidence: the variables of a process in the pod, and the class that the device forces.

    Remedy: one class in both places: rails_traffic_class, and the variable of the job.

    Source: kvcache-ai/Mooncake#1699.
    """
    if not context.pod["reachable"]:
        return
    environment = context.pod["environment"]
    asked = {name: environment[name] for name in _CLASS_VARIABLES if environment.get(name, "").isdecimal()}
    hits = []
    for rail in pod_rails(context) if asked else []:
        for number in rail.rdma.get("ports", {}):
            forced = forced_class(context, rail.device, number)
            if forced["state"] != "set":
                continue
            other = {name: text for name, text in asked.items() if dscp(int(text)) != dscp(forced["value"])}
            if other:
                hits.append(Hit(rail, {"device": rail.device, "forced": forced["value"], "environment": other}))
    yield from spread(
        context,
        hits,
        lambda where: f"{' and '.join(sorted(hits[0].evidence['environment']))} of the pod has no effect on {where}",
        "Set the same class in rails_traffic_class and in the variables of the job.",
    )
