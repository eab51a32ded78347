# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about traffic classes and QoS of a node's devices.

What the stamp of a packet means is decided on the PF: VFs have no trust state, DSCP map or PFC of their own. Counters
and wires are not looked at here.
"""

from __future__ import annotations

from functools import lru_cache

from ansible_collections.railyard.rdma.plugins.module_utils.rdma.traffic_class import dscp
from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import Hit, NodeRail, node_rails, spread
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, rule

NOT_COVERED = "queue pairs that the GPU makes itself (NVSHMEM IBGDA, NCCL GIN): they bypass the forced class"


@lru_cache(maxsize=1)
def _shapes() -> dict:
    return catalogue.load()


def _forced(device: dict) -> dict:
    return next(iter(device["ports"].values()), {}).get("traffic_class") or {}


@rule("QOS-002", "warning", "An idle VF forces another traffic class than wanted", needs=("facts",))
def class_left_on_vf(context: Context):
    """Symptom: the next pod on the VF sends another class than it asks for, mostly class 0.

    Cause: the RDMA CNI wrote back 0 as the value before when the file was empty; or a boot service forces a class.
    "Global tclass=0" is a forced class 0, not an unset one. A hint where the networks have the RDMA CNI with a class
    of its own: it writes the class again for every pod.

    Evidence: the VFs whose interface is on the node, with the class that they force, and the wanted one.

    Remedy: recreate the VFs (sriov_numvfs, a reboot), or write the wanted class to tc/1/traffic_class.

    Source: k8snetworkplumbingwg/rdma-cni; Mellanox/rdma-cni (rdmaQoS); not covered: NVIDIA/nccl#2383.
    """
    wanted, found = context.layout.get("traffic_class"), {}
    parents = {rail.intent["pci"]: rail.number for rail in node_rails(context)}
    for name, device in sorted(context.facts["devices"].items()):
        if device["function"] != "vf" or device["parent_pci"] not in parents:
            continue
        if device["netdev"] not in context.facts["netdevs"]:
            continue  # A pod has it: QOS-001 speaks about pods.
        forced = _forced(device)
        if wanted is not None and forced.get("state") == "set" and dscp(forced["value"]) != dscp(wanted):
            found[name] = {"rail": parents[device["parent_pci"]], "value": forced["value"]}
    if found:
        rails = sorted({entry["rail"] for entry in found.values()})
        yield Problem(
            f"{len(found)} idle VFs force class {', '.join(sorted({str(e['value']) for e in found.values()}))}, wanted is {wanted}",
            "Recreate the VFs, and find what forces this class on them.",
            {"rails": rails, "devices": found, "wanted": wanted, "not_covered": NOT_COVERED},
            rails[0] if len(rails) == 1 else None,
            severity="info" if context.layout.get("rdma_cni") else None,
        )


@rule("QOS-003", "warning", "The device of a rail forces another traffic class than wanted", needs=("facts",))
def class_on_rail(context: Context):
    """Symptom: half of the bandwidth and bytes on another priority, on host jobs and on pods that share the device.

    Cause: a global class on the PF beats what NCCL_IB_TC or UCX_IB_TRAFFIC_CLASS ask for, also for pods of IPvlan,
    macvlan and host networks, which use this device.

    Evidence: the forced class of each rail's device and its rules by destination.

    Remedy: write the wanted class to /sys/class/infiniband/DEVICE/tc/1/traffic_class, and keep it with whatever wrote
    the other one.

    Source: kvcache-ai/Mooncake#1699; not covered: NVIDIA/nccl#2383.
    """
    wanted = context.layout.get("traffic_class")
    hits, open_ones = [], []
    for rail in node_rails(context):
        forced = rail.port.get("traffic_class")
        if forced is None or wanted is None:
            continue
        evidence = {"device": rail.name, "forced": forced, "wanted": wanted, "not_covered": NOT_COVERED}
        if forced["state"] is None:
            open_ones.append(Hit(rail, evidence))
        elif forced["state"] == "set" and dscp(forced["value"]) != dscp(wanted):
            hits.append(Hit(rail, evidence))
    yield from spread(
        context,
        hits,
        lambda where: f"The device forces another traffic class than {wanted} on {where}",
        f"Write {wanted} to the device's tc/1/traffic_class, and correct what wrote the other class.",
    )
    yield from spread(
        context, open_ones, lambda where: f"The forced traffic class cannot be read on {where}", unknown=True
    )


@rule("QOS-004", "warning", "RDMA CM connections get another class than other queue pairs", needs=("facts",))
def cm_class_differs(context: Context):
    """Symptom: storage and rping (RDMA CM) are not marked, while tests with verbs are.

    Cause: two settings: tc/1/traffic_class forces the class of queue pairs, default_roce_tos in configfs gives that of
    RDMA CM connections. The kernel forgets the latter when the device changes its network namespace.

    Evidence: both values of the rail's device.

    Remedy: mkdir /sys/kernel/config/rdma_cm/DEVICE and write the class to ports/1/default_roce_tos.

    Source: Mellanox/network-operator#179; kernel Documentation/ABI/testing/configfs-rdma_cm.
    """
    hits = []
    for rail in node_rails(context):
        forced, tos = rail.port.get("traffic_class") or {}, rail.port.get("rdma_cm_tos")
        if forced.get("state") == "set" and tos is not None and dscp(tos) != dscp(forced["value"]):
            hits.append(Hit(rail, {"device": rail.name, "traffic_class": forced["value"], "rdma_cm_tos": tos}))
    yield from spread(
        context,
        hits,
        lambda where: f"RDMA CM connections have another class than the forced one on {where}",
        "Write the same class to ports/1/default_roce_tos of the device in /sys/kernel/config/rdma_cm.",
    )


def _judged(context: Context) -> list[NodeRail]:
    """Rails whose QoS settings decide about a wanted class."""
    if context.layout.get("traffic_class") is None:
        return []
    return [rail for rail in node_rails(context) if rail.is_mlx5 and rail.interface]


def _unsupported(context: Context) -> bool:
    """The kernel's own driver has no such files, and its DCB answers may be missing: not supported is no failure."""
    return context.facts["driver"]["flavour"] != "doca_ofed"


@rule("QOS-005", "warning", "A rail does not trust DSCP", needs=("facts",))
def trust_is_not_dscp(context: Context):
    """Symptom: every packet lands on one priority whatever its class; no PFC where it is wanted, drops under load.

    Cause: the port's trust state is pcp, so the NIC looks at the VLAN priority, which untagged packets have not.

    Evidence: the trust state of each rail and who owns DCB (firmware or operating system).

    Remedy: mlnx_qos -i INTERFACE --trust dscp, or any dscp-prio entry with dcb app, kept by a boot service.

    Source: NVIDIA MLNX_OFED documentation, RoCE and QoS; kernel drivers/net/ethernet/mellanox/mlx5/core/en_dcbnl.c.
    """
    hits, open_ones = [], []
    for rail in _judged(context):
        qos = rail.interface["qos"]
        evidence = {"netdev": rail.netdev, "trust": qos["trust"], "dcbx": qos.get("dcbx")}
        if qos["trust"] is None:
            open_ones.append(Hit(rail, {**evidence, "reason": (qos.get("reasons") or {}).get("trust")}))
        elif qos["trust"] != "dscp":
            hits.append(Hit(rail, evidence))
    yield from spread(
        context,
        hits,
        lambda where: f"The NIC does not look at the DSCP of packets on {where}",
        lambda names: f"Set trust dscp (mlnx_qos -i INTERFACE --trust dscp) on {', '.join(names)} and keep it at boot.",
    )
    if not _unsupported(context):
        yield from spread(context, open_ones, lambda where: f"The trust state is not known on {where}", unknown=True)


@rule("QOS-006", "warning", "The wanted class has a priority without flow control", needs=("facts",))
def priority_without_pfc(context: Context):
    """Symptom: out_of_sequence and retransmissions under load; throughput of a lossy class.

    Cause: the DSCP of the wanted class maps to a priority that has no PFC, since the map or the PFC setting is that of
    another site. Which priority is right is the site's: 41 goes to 0 at one, 106 to 3 at another.

    Evidence: class, DSCP, the priority that the NIC's map gives it, and the priorities with PFC.

    Remedy: map the DSCP to the lossless priority (dcb app, mlnx_qos --dscp2prio) or turn PFC on there (dcb pfc,
    mlnx_qos --pfc), as the switches have it.

    Source: NVIDIA MLNX_OFED documentation, RoCE and QoS; not covered: NVIDIA/nccl#2383.
    """
    wanted = context.layout.get("traffic_class")
    hits, open_ones = [], []
    for rail in _judged(context):
        qos = rail.interface["qos"]
        if qos["trust"] not in (None, "dscp"):
            continue  # QOS-005 speaks about it; the map has no effect.
        table, pfc = qos["dscp_to_priority"], qos["pfc"]
        priority = None if table is None else table.get(str(dscp(wanted)))
        enabled = None if pfc is None else pfc["enabled"]
        evidence = {
            "netdev": rail.netdev,
            "traffic_class": wanted,
            "dscp": dscp(wanted),
            "priority": priority,
            "pfc": enabled,
            "reasons": qos.get("reasons"),
            "not_covered": NOT_COVERED,
        }
        if priority is None or enabled is None:
            open_ones.append(Hit(rail, evidence))
        elif priority not in enabled:
            hits.append(Hit(rail, evidence))
    yield from spread(
        context,
        hits,
        lambda where: f"DSCP {dscp(wanted)} of the wanted class {wanted} has a priority without PFC on {where}",
        "Make the NIC's DSCP map and PFC agree with the switches for this class.",
    )
    if not _unsupported(context):
        yield from spread(
            context,
            open_ones,
            lambda where: f"The priority of class {wanted}, or whether it has PFC, is not known on {where}",
            unknown=True,
        )


@rule("QOS-007", "warning", "Congestion notification is off for the wanted class", needs=("facts",))
def ecn_off(context: Context):
    """Symptom: pause frames spread through the fabric under load (victim flows), or drops where there is no PFC.

    Cause: the NIC does not send or does not heed congestion notification packets (RoCE notification and reaction point)
    for the priority of the wanted class.

    Evidence: the priority, and both settings for it.

    Remedy: write 1 to /sys/class/net/INTERFACE/ecn/roce_np/enable/P and roce_rp/enable/P, and keep it at boot.

    Source: NVIDIA MLNX_OFED documentation, explicit congestion notification.
    """
    wanted = context.layout.get("traffic_class")
    hits = []
    for rail in _judged(context):
        qos = rail.interface["qos"]
        table, ecn = qos["dscp_to_priority"], qos["ecn"]
        priority = None if table is None else table.get(str(dscp(wanted)))
        if priority is None or ecn is None:
            continue  # QOS-006 speaks about an unknown priority; the kernel's own driver has no such switches.
        states = {side: (ecn.get(side) or {}).get(str(priority)) for side in ("notification", "reaction")}
        if False in states.values():
            hits.append(Hit(rail, {"netdev": rail.netdev, "traffic_class": wanted, "priority": priority, **states}))
    yield from spread(
        context,
        hits,
        lambda where: f"Congestion notification is off for the priority of class {wanted} on {where}",
        "Turn roce_np and roce_rp on for this priority.",
    )


@rule(
    "QOS-008", "info", "The shape has two published traffic classes", needs=("facts",),
    unrehearsed="it follows from the intent alone; a fault does not change it",
)  # fmt: skip
def shape_has_two_classes(context: Context):
    """Symptom: NCCL settings of the provider's documentation name another class than the one its agent programs.

    Cause: two sources with different intent: the agent's default class serves all RDMA traffic, the published
    NCCL_IB_TC serves GPUs. There is no class that is right everywhere.

    Evidence: the shape, its default class, the published NCCL_IB_TC, and the class of the intent.

    Remedy: choose one and set rails_traffic_class to it; compare with the NIC's DSCP map (QOS-006).

    Source: oracle-quickstart/oci-hpc-oke, agent shapes and recommended NCCL parameters.
    """
    rails = node_rails(context)
    shape = _shapes().get(context.layout.get("shape") or "") or {}
    default, nccl = (shape.get("qos") or {}).get("default_tclass"), (shape.get("nccl") or {}).get("NCCL_IB_TC")
    chosen = context.layout.get("traffic_class")
    # A site that set a class of its own has chosen.
    if rails and None not in (default, nccl) and dscp(default) != dscp(nccl) and chosen == default:
        yield Problem(
            f"{context.layout['shape']}: the agent's class is {default}, the published NCCL_IB_TC is {nccl}",
            "Choose one and set rails_traffic_class.",
            {"shape": context.layout["shape"], "default_tclass": default, "NCCL_IB_TC": nccl, "wanted": chosen},
        )


@rule("QOS-009", "info", "A forced class does not reach queue pairs of the GPU", needs=("facts",))
def not_for_gpu_queue_pairs(context: Context):
    """Symptom: the global class is set, and GPU-initiated traffic still leaves on priority 0.

    Cause: queue pairs that the GPU makes itself (NVSHMEM IBGDA, NCCL GIN) are made through DevX and bypass the
    kernel's override. Facts cannot see it.

    Evidence: the rails whose device forces a class.

    Remedy: set the class in the application too, and compare the counters tx_prioN_bytes of the PF during a test.

    Source: NVIDIA/nccl#2383, NVIDIA/nvshmem#25.
    """
    hits = [
        Hit(rail, {"device": rail.name, "forced": rail.port["traffic_class"]["value"]})
        for rail in node_rails(context)
        if (rail.port.get("traffic_class") or {}).get("state") == "set"
    ]
    yield from spread(
        context,
        hits,
        lambda where: f"A class is forced on {where}; it does not reach queue pairs that a GPU makes itself",
        "Set the class in such applications, and prove it by the PF's counters.",
    )
