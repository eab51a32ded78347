# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about which device is which rail."""

from __future__ import annotations

import re
from collections import Counter

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import Hit, NodeRail, node_rails, spread
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import FLEET, Context, Problem, rule

_MAIN_TABLE, _BY_ADVERTISEMENT = 254, "ra"
# What Multus calls an interface in the pod, and what the SR-IOV CNI calls it while it moves.
_NAME_IN_A_POD = re.compile(r"net[0-9]+|pod[0-9a-f]{11}|temp_[0-9]+")


@rule("NAMING-001", "error", "A rail is not on the node", needs=("facts",))
def rail_not_found(context: Context):
    """Symptom: a rail is missing on one node; policies select nothing there and pods stay Pending.

    Cause: no RDMA device has the PCI address of the rail: a card is gone from the bus, its driver did not bind, the
    node is of another shape than its label says, or the whole device was moved into a pod.

    Evidence: the PCI address, whether a network device has it, and the addresses of all RDMA devices of the node.

    Remedy: compare lspci with the shape; look for the address in the kernel log. Name the rails by PCI address, never
    by the name that another operating system gave to its interface.

    Source: NVIDIA Base Command Manager 11, custom OS; openshift/openshift-docs#60041; uccl-project/uccl#120.
    """
    known = {name: device["pci"] for name, device in sorted(context.facts["devices"].items())}
    reasons = (context.facts.get("reasons") or {}).get("devices")
    hits = [
        Hit(rail, {"pci": rail.intent["pci"], "netdev": rail.netdev, "devices": known, "reasons": reasons})
        for rail in node_rails(context)
        if rail.name is None
    ]
    yield from spread(
        context,
        hits,
        lambda where: f"No RDMA device on the node has the PCI address of {where}",
        "Compare the node with its shape: is the card on the bus (lspci), and has its driver bound it?",
    )


@rule("NAMING-002", "error", "A front-end NIC is selected as a rail", needs=("facts",))
def front_end_nic_selected(context: Context):
    """Symptom: VFs are made on the NIC that carries the node's own address, or it is moved away, and the node is lost.

    Cause: the front-end NIC has the same vendor as the rails and often the same device id. Told by any of: a default
    route in the main table that did not come from a router advertisement, an address by which the node is reached,
    being a port of a bond or bridge (a bond that is an RDMA device itself is none of these), or standing among the
    shape's front-end NICs. A default route from a router advertisement proves nothing: every routed IPv6 rail has one.

    Evidence: the address and everything that tells the front-end NIC.

    Remedy: take the PCI address out of the rails; compare the rails with the shape of the machine.

    Source: kubernetes-sigs/dranet#153.
    """
    netdevs = context.facts["netdevs"]
    hits, open_ones = [], []
    for rail in node_rails(context):
        signs = _front_end_signs(context, rail, netdevs)
        if signs:
            hits.append(Hit(rail, {"pci": rail.intent["pci"], "netdev": rail.netdev, "signs": signs}))
        elif rail.interface and None in (rail.interface["addresses"], rail.interface["default_routes"]):
            open_ones.append(Hit(rail, {"netdev": rail.netdev, "reasons": rail.interface.get("reasons")}))
    yield from spread(
        context,
        hits,
        lambda where: f"The front-end NIC is selected as {where}",
        "Take this PCI address out of the rails before anything makes VFs on it.",
    )
    yield from spread(
        context, open_ones, lambda where: f"Addresses and default routes are not known of {where}", unknown=True
    )


def _front_end_signs(context: Context, rail: NodeRail, netdevs: dict) -> list[str]:
    signs = []
    if rail.intent["pci"] in context.layout.get("front_end_nics", []):
        signs.append("the shape lists it among the front-end NICs")
    for route in rail.interface.get("default_routes") or []:
        # Rails may have default routes in tables of their own, too.
        if route["origin"] != _BY_ADVERTISEMENT and route["table"] == _MAIN_TABLE:
            signs.append(f"default route via {route['gateway']}, metric {route['metric']}")
    own = {row["address"] for row in rail.interface.get("addresses") or []}
    signs += [f"the node is reached by its address {address}" for address in context.addresses if address in own]
    master = rail.interface.get("master")
    kind = netdevs.get(master, {}).get("kind")
    if master and kind != "vrf":  # a VRF of its own is how a rail gets a routing table of its own
        signs.append(f"port of {kind or 'interface'} {master}")
    return signs


@rule("NAMING-003", "error", "The network names an interface that is not the rail's", needs=("facts",))
def interface_has_another_name(context: Context):
    """Symptom: pods of an IPvlan or macvlan network do not start, or get a child of another rail's interface.

    Cause: these networks name the rail's interface on the host (master), and names follow the image: ens7f0 became
    ens7f0np0, enp170s0f1np1 of one distribution is ens8f1np1 of the other.

    Evidence: the PCI address, the name in the intent, the name on this node, and the rail that has the named interface.

    Remedy: set rails_netdev_pattern or the netdev of the rails to the names that the nodes have. Nodes with different
    names need groups with rails of their own.

    Source: openshift/openshift-docs#60041; NVIDIA Base Command Manager 11, custom OS;
    Mellanox/k8s-rdma-shared-dev-plugin#297.
    """
    rails = node_rails(context)
    if context.layout["network"] not in ("ipvlan", "macvlan"):
        return
    owners = {rail.netdev: rail.number for rail in rails if rail.netdev}
    hits = []
    for rail in rails:
        named = rail.intent.get("netdev")
        # Without a device NAMING-001 speaks; an interface that is known by two names has the second as an altname.
        if rail.netdev is None or named in (None, rail.netdev, *(rail.interface.get("altnames") or [])):
            continue
        evidence = {
            "pci": rail.intent["pci"],
            "named": named,
            "netdev": rail.netdev,
            "named_is_rail": owners.get(named),
        }
        hits.append(Hit(rail, evidence))
    yield from spread(
        context,
        hits,
        lambda where: f"The network of {where} names another interface than the node has at its PCI address",
        lambda names: f"Set rails_netdev_pattern or the netdev of the rails; here they are {', '.join(names)}.",
    )


@rule(
    "NAMING-004", "warning", "Nodes of one layout name their devices differently", needs=("facts",), scope=FLEET,
    unrehearsed="a fault is on one node, and this takes two of one layout",
)  # fmt: skip
def layouts_differ(contexts: list[Context]):
    """Symptom: a setting that names devices (NCCL_IB_HCA, a master interface) works on some nodes of a pool only.

    Cause: image or provisioning changed between nodes: mlx5_N here, rdma_railN there, though all have the same
    instance type.

    Evidence: the patterns of device and interface names (numbers as N) with the nodes that have them.

    Remedy: bring the nodes to one image, or give settings by PCI address and not by name.

    Source: kubernetes-sigs/dranet#153; NVIDIA Base Command Manager 11, custom OS.
    """
    patterns = {context.node: _name_patterns(context) for context in contexts}
    counts = Counter(patterns.values())
    if len(counts) < 2:
        return
    usual = counts.most_common(1)[0][0]
    groups = [
        {
            "devices": devices,
            "netdevs": netdevs,
            "nodes": [node for node, own in patterns.items() if own == (devices, netdevs)],
        }
        for devices, netdevs in counts
    ]
    for node, own in patterns.items():
        if own != usual:
            yield Problem(
                f"{len(counts)} ways of naming among {len(contexts)} nodes: {', '.join(own[0] + own[1])} here, "
                f"{', '.join(usual[0] + usual[1])} on most",
                "Bring the nodes of the pool to one image, or name no devices in settings.",
                {"groups": groups},
                node=node,
            )


@rule("NAMING-005", "warning", "A VF on the node has kept the name that it had in a pod", needs=("facts",))
def name_of_a_pod(context: Context):
    """Symptom: a pod cannot start again after it was deleted; the SR-IOV CNI repeats "file exists".

    Cause: the VF came back from a pod and kept net1 or the like, as its name or as an alternative name. No two
    interfaces of a namespace may have one name, so the next VF cannot be renamed on its way, whichever it is.

    Evidence: the VF, its PF, its name and its alternative names.

    Remedy: take the alternative name away (ip link property del), or give the VF its name back (ip link set name), when
    no pod uses it. Nothing is renamed by this collection.

    Source: k8snetworkplumbingwg/sriov-cni#250.
    """
    hits, open_ones = [], []
    for rail in node_rails(context):
        vfs = [
            {"vf": netdev["pci"], "netdev": name, "altnames": netdev["altnames"]}
            for name, netdev in sorted(context.facts["netdevs"].items())
            if netdev.get("vf_of") == rail.intent["pci"]
        ]
        kept = [vf for vf in vfs if any(map(_NAME_IN_A_POD.fullmatch, [vf["netdev"], *(vf["altnames"] or [])]))]
        unasked = [vf for vf in vfs if vf["altnames"] is None]
        if kept:
            hits.append(Hit(rail, {"pf": rail.intent["pci"], "vfs": kept}))
        elif unasked:
            open_ones.append(Hit(rail, {"pf": rail.intent["pci"], "vfs": unasked}))
    yield from spread(
        context,
        hits,
        lambda where: f"A VF of {where} has kept the name that it had in a pod",
        "When no pod uses it: ip link property del dev NAME altname KEPT, or ip link set dev NAME name OTHER.",
    )
    yield from spread(
        context, open_ones, lambda where: f"The alternative names are not known of VFs of {where}", unknown=True
    )


def _name_patterns(context: Context) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rails = node_rails(context)
    names = [[rail.name for rail in rails], [rail.netdev for rail in rails]]
    devices, netdevs = ({re.sub(r"[0-9]+", "N", name) for name in group if name} for group in names)
    return tuple(sorted(devices)), tuple(sorted(netdevs))
