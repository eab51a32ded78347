# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about GIDs: whether a process in the pod can use a rail's address."""

from __future__ import annotations

import ipaddress
from collections import Counter

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import (
    address_rows,
    device_of,
    interfaces,
    placeholders,
    routable_addresses,
    usable_rails,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import (
    FLEET,
    Context,
    Problem,
    Unknown,
    rule,
)


@rule("GID-001", "error", "The pod has RDMA devices and no rail interface: all its GIDs are zero", needs=("pod",))
def no_rail_interface(context: Context):
    """Symptom: devices and active ports are there, every GID reads zero in the pod, the application fails with
    "Address not valid" or ENODEV.

    Cause: DOCA-OFED and MLNX_OFED show a RoCE GID only to the network namespace that owns its netdev. The rails'
    netdevs stayed on the
    host, since the pod is on the pod network only. ibv_devinfo still prints GIDs: the query is not filtered, the use
    is.

    Evidence: the pod's interfaces and devices, and how many GID rows are zero.

    Remedy: attach the pod to the rail networks (SR-IOV, IPvlan or macvlan), or use the host's network.

    Source: Mellanox/k8s-rdma-shared-dev-plugin#72.
    """
    pod = context.pod
    if not pod["reachable"] or not pod["devices"]:
        return
    found = interfaces(context.layout, pod)
    if not found or any(found.values()):
        return
    ports = [port for device in pod["devices"].values() for port in device["ports"].values()]
    usable = sum(1 for port in ports for row in port["gids"] if row.get("usable"))
    tables = [port.get("gid_table") or {} for port in ports]
    yield Problem(
        f"None of the rails {', '.join(map(str, sorted(found)))} has an interface in the pod; {usable} GIDs are usable",
        "Attach the pod to the rail networks: annotation k8s.v1.cni.cncf.io/networks and the resources of the layout.",
        {
            "interfaces": sorted(pod["netdevs"]),
            "devices": sorted(pod["devices"]),
            "gid_rows": sum(t.get("length") or 0 for t in tables),
            "zero_rows": sum(t.get("zero") or 0 for t in tables),
        },
    )


@rule("GID-002", "error", "A rail has no usable RoCE v2 GID of its interface's address", needs=("pod",))
def no_gid_of_address(context: Context):
    """Symptom: the rail's interface and device are in the pod, and connections over it fail or time out.

    Cause: the interface has no address (IPAM, or SLAAC not finished, or IPv6 disabled), or the row of its address
    belongs to another
    namespace, or only link-local and RoCE v1 rows are there.

    Evidence: the interface's addresses and all rows of the device that are not zero, with the reason for each
    unusable one.

    Remedy: no address: look at the pool's allocation and at the IPAM plugin; IPv6: disable_ipv6 and accept_ra in the
    pod. An address
    without a row: the netdev of the row must be in the pod's namespace.

    Source: Documentation/ABI/stable/sysfs-class-infiniband; NVIDIA/nccl#769; kubernetes-sigs/dranet#138.
    """
    pod = context.pod
    if not pod["reachable"]:
        return
    for rail, interface in interfaces(context.layout, pod).items():
        name = device_of(pod, interface) if interface else None
        if name is None:
            continue  # RESOURCE-002, GID-001 and CNI-001 speak about missing interfaces and devices.
        if address_rows(pod, interface, name):
            continue
        addresses = routable_addresses(pod, interface)
        rows = [row for port in pod["devices"][name]["ports"].values() for row in port["gids"]]
        evidence = {"interface": interface, "device": name, "addresses": addresses, "gids": rows}
        if not addresses and pod.get("addresses_unknown"):
            reason = f"The image has no 'ip': the IPv4 address of {interface} is not known"
            yield Unknown(reason, {**evidence, "addresses_unknown": pod["addresses_unknown"]}, rail)
        elif not addresses:
            yield Problem(
                f"{interface} has no address that is routed between nodes, so {name} has no GID for it",
                "Check that the pool has a block for this node and that the network's ipam names the pool; on "
                "IPv6 rails check disable_ipv6 and accept_ra in the pod.",
                evidence,
                rail,
            )
        else:
            yield Problem(
                f"{name} has no usable RoCE v2 GID of {', '.join(addresses)} ({interface})",
                "See the reasons of the rows: their netdev must be in the pod's network namespace.",
                evidence,
                rail,
            )


@rule(
    "GID-007", "info", "Pods of one layout have their GIDs at different indexes", needs=("pod",), scope=FLEET,
    unrehearsed="a fault is on one node, and this takes two of one layout",
)  # fmt: skip
def indexes_differ(contexts: list[Context]):
    """Symptom: a fixed NCCL_IB_GID_INDEX works in some pods of a job and breaks the others.

    Cause: a port has one table for all network namespaces of its node, and every child interface takes the next free
    rows. VFs have tables of their own, where the index follows from the order of their addresses.

    Evidence: for each index, the nodes and rails that have it; the usual one, and by pod what differs from it.

    Remedy: leave the variable unset (a recent NCCL chooses itself), or set it for each pod from its table.

    Source: k8snetworkplumbingwg/multus-cni#1100; kubernetes-sigs/dranet, GB300 example.
    """
    seen: dict[str, dict[int, int]] = {}
    nodes: dict[str, str] = {}
    for context in contexts:
        if context.pod["reachable"]:
            found = {rail: index for rail, index in usable_rails(context).items() if index is not None}
            label = f"{context.node}/{context.pod['name']}"
            seen[label], nodes[label] = found, context.node
    counts = Counter(index for rails in seen.values() for index in rails.values())
    if len(counts) < 2:
        return
    places = {
        str(index): [
            f"{nodes[name]} rail {rail}" for name, rails in seen.items() for rail in rails if rails[rail] == index
        ]
        for index in sorted(counts)
    }
    most = max(counts.values())
    usual = min(index for index, count in counts.items() if count == most)
    others = {
        name: {str(rail): index for rail, index in rails.items() if index != usual} for name, rails in seen.items()
    }
    others = {name: rails for name, rails in others.items() if rails}
    named = ", ".join(list(others)[:8]) + (f" and {len(others) - 8} more" if len(others) > 8 else "")
    yield Problem(
        f"The pods' addresses are at the GID indexes {', '.join(places)}; no fixed index fits all: {named} differ from the "
        f"usual {usual}",
        "Leave NCCL_IB_GID_INDEX and UCX_IB_GID_INDEX unset, or set them in each pod from its own table.",
        {"indexes": places, "usual": usual, "others": others},
        node=nodes[list(others)[0]],
    )


@rule("GID-008", "error", "A pod has only a placeholder address on a rail", needs=("pod",))
def only_placeholder(context: Context):
    """Symptom: the rail's interface has a GID that looks global, and every connection ends with an endpoint timeout.

    Cause: on rails with router advertisements the pool gives placeholder addresses, which let the CNI plugin start
    and are routed nowhere. The routed address comes from the router, and none arrived. Where both are there, libraries
    may choose the placeholder's row; that is a hint which names the row to use.

    Evidence: the interface's addresses, the pool, and the rows of the device.

    Remedy: accept_ra and disable_ipv6 in the pod, the rail's router. With both rows set NCCL_IB_GID_INDEX and
    UCX_IB_GID_INDEX to the row of the advertised address.

    Source: UCX documentation (UCX_IB_GID_INDEX); containernetworking/plugins#160, containernetworking/plugins#1016.
    """
    pod, pools = context.pod, placeholders(context)
    if not pod["reachable"] or not pools:
        return
    for rail, interface in interfaces(context.layout, pod).items():
        name = device_of(pod, interface) if interface else None
        addresses = routable_addresses(pod, interface) if name else []
        held = [text for text in addresses if any(ipaddress.ip_address(text) in pool for pool in pools)]
        if not held:
            continue
        rows = address_rows(pod, interface, name)
        routed = sorted(row["index"] for row in rows if row["address"].lower() not in [text.lower() for text in held])
        evidence = {"interface": interface, "addresses": addresses, "placeholders": held, "gid_indexes": routed}
        if not routed:
            yield Problem(
                f"{interface} has the placeholder {', '.join(held)} and no address that is routed",
                "Check accept_ra and disable_ipv6 of the interface in the pod, and the rail's router.",
                evidence,
                rail,
            )
        else:
            yield Problem(
                f"{interface} has a placeholder beside its routed address: use GID index {routed[0]}",
                f"Set NCCL_IB_GID_INDEX={routed[0]} and UCX_IB_GID_INDEX={routed[0]} in this pod.",
                evidence,
                rail,
                severity="info",
            )
