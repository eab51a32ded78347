# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about what the CNI plugins moved into a pod."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import device_of, interfaces
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule


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


@rule("CNI-002", "error", "A network's plugins do not fit the node's RDMA netns mode", needs=("facts", "kubernetes"))
def chain_contradicts_mode(context: Context):
    """Symptom: pods stay in ContainerCreating with "RDMA subsystem namespace awareness mode is set to shared"; or, in
    exclusive mode, they run with the rails' interfaces and without their RDMA devices.

    Cause: the rdma plugin works in exclusive mode only, and only there it is needed. The network was made for the other
    mode, by hand or by an earlier intent, or the node came up in another mode than the network was made for.

    Evidence: the networks with their plugins, and the node's live mode.

    Remedy: shared: take the rdma plugin out of the network. Exclusive: add it after tuning and before sbr, with a
    top-level rdmaQoS. Or bring the node into the mode of the network.

    Source: k8snetworkplumbingwg/rdma-cni, cmd/rdma.
    """
    if context.layout["network"] != "sriov":
        return
    chains, mode = context.kubernetes.get("chains"), context.facts["netns_mode"]["live"]
    if chains is None or mode is None:
        lacking = "the networks were not listed" if chains is None else "the node's live RDMA netns mode is not known"
        yield Unknown(f"The networks' plugins cannot be compared with the node's mode: {lacking}")
        return
    namespace, wrong, unread = context.layout["namespaces"]["networks"], {}, []
    for rail in context.layout["rails"]:
        name = f"{namespace}/{rail['network']}"
        if name not in chains:
            continue  # RESOURCE-002
        if chains[name] is None:
            unread.append(name)
        elif ("rdma" in chains[name]) is not (mode == "exclusive") and not _waits_for_mode(context, chains[name]):
            wrong.setdefault(name, []).append(rail["rail"])
    for name in dict.fromkeys(unread):
        yield Unknown(f"The configuration of {name} is not JSON", {"network": name})
    for name, rails in wrong.items():
        evidence = {"network": name, "plugins": chains[name], "netns_mode": mode}
        if mode == "shared":
            text = f"{name} has the rdma plugin, and the node is in shared mode: pods do not start"
            remedy = "Take the rdma plugin out of the network, or switch the node to exclusive mode."
        else:
            text = f"{name} lacks the rdma plugin, and the node is in exclusive mode: pods get no RDMA device"
            remedy = "Add the rdma plugin with a top-level rdmaQoS to the network, or switch the node to shared mode."
        yield Problem(text, remedy, evidence, rails[0] if len(rails) == 1 else None)


@rule("CNI-003", "error", "A child interface is on another rail", needs=("pod",))
def child_of_another_rail(context: Context):
    """Symptom: traffic of two rails shares one port while another idles; a GPU uses a NIC below another PCIe switch.

    Cause: the network's master is not the interface of the rail: names shifted with an image or were copied from
    another network. The pod runs, and its GIDs are in the table of the wrong device.

    Evidence: the interface, the RDMA device that has its GIDs, and the rail that this device is.

    Remedy: name each rail's own interface as master, by rails_netdev_pattern or the netdev of the rails.

    Source: Mellanox/k8s-rdma-shared-dev-plugin#297, Mellanox/k8s-rdma-shared-dev-plugin#112.
    """
    pod, rails = context.pod, {rail["pci"]: rail["rail"] for rail in context.layout["rails"]}
    if not pod["reachable"]:
        return
    wanted = {number: pci for pci, number in rails.items()}
    for rail, interface in interfaces(context.layout, pod).items():
        if interface is None or pod["netdevs"][interface].get("pci") is not None:
            continue
        name = device_of(pod, interface)
        if name is None:
            continue  # GID-002, CNI-001
        device = pod["devices"][name]
        places = {device["pci"], device.get("parent_pci")} - {None}
        evidence = {"interface": interface, "device": name, "pci": device["pci"], "wanted_pci": wanted[rail]}
        if not places:
            yield Unknown(f"The PCI address of {name}, which has the GIDs of {interface}, is not known", evidence, rail)
        elif wanted[rail] not in places:
            other = next((rails[pci] for pci in sorted(places) if pci in rails), None)
            where = f"rail {other}" if other is not None else "a NIC that is no rail"
            remedy = (
                "Name the rail's own interface as the network's master: rails_netdev_pattern, or the netdev of rails."
            )
            yield Problem(f"{interface} is a child of {where} ({name})", remedy, {**evidence, "is_rail": other}, rail)


def _waits_for_mode(context: Context, chain: list[str]) -> bool:
    """Whether the network is right and the node is not: NETNS-001 speaks then."""
    return ("rdma" in chain) is (context.layout.get("netns_mode") == "exclusive") and (
        context.layout.get("netns_mode") in ("shared", "exclusive")
    )
