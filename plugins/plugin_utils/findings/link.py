# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the links of rails: port state and MTU."""

from __future__ import annotations

from collections import Counter

from ansible_collections.railyard.rdma.plugins.module_utils.rdma.devices import roce_mtu
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import Hit, node_rails, spread
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import FLEET, Context, Problem, rule


@rule("LINK-001", "error", "The port of a rail is not active", needs=("facts",))
def port_not_active(context: Context):
    """Symptom: everything hangs or fails on one rail; the others work.

    Cause: no cable, a switch port that is off, a failed authentication (802.1X), or an interface that nobody brought
    up. An active port alone does not prove a rail: see the GID rules for its addresses.

    Evidence: state and physical state of the port, and the state of the interface.

    Remedy: bring the interface up (ip link set INTERFACE up); with a physical state of Disabled or Polling look at
    cable and switch.

    Source: Mellanox/k8s-rdma-shared-dev-plugin#101; kernel Documentation/ABI/stable/sysfs-class-infiniband.
    """
    hits, open_ones = [], []
    for rail in node_rails(context):
        if rail.name is None:
            continue  # NAMING-001 speaks about it.
        state = rail.port.get("state")
        evidence = {
            "device": rail.name,
            "state": state,
            "phys_state": rail.port.get("phys_state"),
            "interface": rail.interface.get("state"),
        }
        if state is None:
            open_ones.append(Hit(rail, evidence))
        elif state != "ACTIVE":
            hits.append(Hit(rail, evidence))
    yield from spread(
        context,
        hits,
        lambda where: f"The port is not ACTIVE on {where}",
        "Bring the interface up; with a physical state other than LinkUp look at cable, switch port and 802.1X.",
    )
    yield from spread(
        context, open_ones, lambda where: f"The state of the port cannot be read on {where}", unknown=True
    )


@rule("LINK-002", "warning", "The MTU of a rail is smaller than wanted", needs=("facts",))
def mtu_too_small(context: Context):
    """Symptom: less bandwidth, or pods that do not start since a VF or child may not have a larger MTU than its PF.

    Cause: the interface has another MTU than the intent, and the RDMA MTU follows from it: 4220 and 9000 give 4096,
    1500 gives 1024. The SR-IOV operator sets the MTU of PFs that it manages.

    Evidence: MTU and RDMA MTU of the rail, and what the intent gives.

    Remedy: set the MTU where the image configures the rail, or correct rails_mtu.

    Source: NVIDIA/nccl#1524, NVIDIA/nccl#2135; kernel include/rdma/ib_addr.h (iboe_get_mtu).
    """
    wanted = context.layout.get("mtu")
    hits, open_ones = [], []
    for rail in node_rails(context):
        if not rail.interface:
            continue
        mtu, active = rail.interface["mtu"], rail.port.get("active_mtu")
        evidence = {"mtu": mtu, "active_mtu": active, "wanted": wanted, "wanted_active": roce_mtu(wanted)}
        if wanted is None:
            continue
        if mtu is None:
            open_ones.append(Hit(rail, evidence))
        elif mtu < wanted or (active is not None and roce_mtu(wanted) is not None and active < roce_mtu(wanted)):
            hits.append(Hit(rail, evidence))
    yield from spread(
        context,
        hits,
        lambda where: f"The MTU is smaller than {wanted} on {where}",
        f"Set MTU {wanted} where the image configures the rails, or correct rails_mtu.",
    )
    yield from spread(context, open_ones, lambda where: f"The MTU cannot be read on {where}", unknown=True)


@rule(
    "LINK-003", "error", "Nodes of one layout have different MTUs on a rail", needs=("facts",), scope=FLEET,
    unrehearsed="a fault is on one node, and this takes two of one layout",
)  # fmt: skip
def mtus_differ(contexts: list[Context]):
    """Symptom: small messages pass and larger ones hang between two nodes.

    Cause: the ends of a rail have different MTUs: one interface was left at 1500. A warning while the RDMA MTU that
    follows is the same (4220 and 9000).

    Evidence: for the rail, every pair of MTU and RDMA MTU with the nodes that have it.

    Remedy: give all nodes the same MTU on the rail.

    Source: NVIDIA/nccl#1524, NVIDIA/nccl#2135.
    """
    by_rail: dict[int, dict[str, tuple]] = {}
    for context in contexts:
        for rail in node_rails(context):
            if rail.interface:
                by_rail.setdefault(rail.number, {})[context.node] = (rail.interface["mtu"], rail.port.get("active_mtu"))
    odd: dict[tuple[str, bool], dict[int, list]] = {}
    for number, values in by_rail.items():
        usual, times = Counter(values.values()).most_common(1)[0]
        if times == len(values):
            continue
        groups = [
            {"mtu": mtu, "active_mtu": active, "nodes": [n for n, own in values.items() if own == (mtu, active)]}
            for mtu, active in Counter(values.values())
        ]
        for node, own in values.items():
            if own != usual:
                odd.setdefault((node, own[1] == usual[1]), {})[number] = groups
    for (node, same), rails in odd.items():
        numbers = sorted(rails)
        yield Problem(
            f"The MTU differs from that of most nodes on rail{'s' if len(numbers) > 1 else ''} "
            f"{', '.join(map(str, numbers))}",
            "Give all nodes the same MTU on the rail.",
            {"rails": numbers, "groups": [rails[number] for number in numbers]},
            numbers[0] if len(numbers) == 1 else None,
            severity="warning" if same else None,
            node=node,
        )
