# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the attachments of the rails as they are in the cluster, and what they take devices and addresses from."""

from __future__ import annotations

import json
import re
from ipaddress import ip_address, ip_network

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.foreign import (
    OWNER_ANNOTATION,
    RESOURCE_ANNOTATION,
    attachment_owner,
    identity,
    metadata,
    short,
)
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.owned import appliers
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.cluster_objects import (
    API_ONLY,
    MANAGER,
    node_of,
    part,
    together,
    wanted,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import (
    FLEET,
    Context,
    Problem,
    Unknown,
    rule,
)

ATTACHMENT = "NetworkAttachmentDefinition"
# How IPAM plugins say that they have no address left (nv-ipam, host-local, whereabouts).
NO_ADDRESS = re.compile(r"no (free|available|IP) (IP )?address|no IP addresses available|exhausted", re.IGNORECASE)


def plugins_of(attachment: dict) -> list[dict] | None:
    """The plugins of a NetworkAttachmentDefinition; None when its configuration is no JSON object."""
    try:
        config = json.loads((attachment.get("spec") or {}).get("config") or "{}")
    except ValueError:
        return None
    if not isinstance(config, dict):
        return None
    plugins = config.get("plugins", [config])
    return [p for p in plugins if isinstance(p, dict)] if isinstance(plugins, list) else None


def types_of_plugins(attachments: list[dict]) -> dict[str, list[str] | None]:
    """{``namespace/name``: types of the plugins in their order}; None for a configuration that cannot be read."""
    found = {}
    for attachment in attachments:
        plugins, about = plugins_of(attachment), metadata(attachment)
        types = None if plugins is None else [str(plugin.get("type")) for plugin in plugins]
        found[f"{about['namespace']}/{about['name']}"] = types
    return found


def rail_attachments(context: Context):
    """(rail, attachment) of the layout's rails whose attachment exists."""
    namespace = context.layout["namespaces"]["networks"]
    live = {(metadata(a).get("namespace"), metadata(a).get("name")): a for a in part(context, "attachments")}
    for rail in context.layout["rails"]:
        attachment = live.get((namespace, rail.get("network")))
        if attachment is not None:
            yield rail, attachment


def rewritten(context: Context, attachment: dict) -> bool:
    """Whether the apply brings this attachment's content anew: it belongs to a wanted network, or is a wanted one that
    we applied before. What is wrong in it now is cured then."""
    owner = (metadata(attachment).get("annotations") or {}).get(OWNER_ANNOTATION)
    if owner:
        return owner in {attachment_owner(obj) for obj in wanted(context, "SriovNetwork")}
    keys = {identity(obj) for obj in wanted(context, ATTACHMENT)}
    return identity({"kind": ATTACHMENT, **attachment}) in keys and MANAGER in appliers(attachment)


def prefix_of(resource: str | None) -> str:
    return (resource or "").rpartition("/")[0]


def numbers(rails: list[dict]) -> int | None:
    return rails[0]["rail"] if len(rails) == 1 else None


@rule(
    "CNI-010",
    "error",
    "rdmaQoS of a network stands where nobody reads it",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def qos_under_args(contexts: list[Context]):
    """Symptom: the traffic class of pods stays 0, though the network has rdmaQoS.

    Cause: the rdma plugin reads rdmaQoS at the top level of its configuration only. Its README shows it under args.cni,
    where it is ignored without a word.

    Evidence: the network and its configuration of the plugin.

    Remedy: move rdmaQoS beside "type": "rdma".

    Source: Mellanox/rdma-cni, pkg/types and cmd/rdma.
    """
    wrong: dict[str, list] = {}
    for rail, attachment in rail_attachments(contexts[0]):
        for plugin in plugins_of(attachment) or [] if not rewritten(contexts[0], attachment) else []:
            arguments = (plugin.get("args") or {}).get("cni") or {}
            if plugin.get("type") == "rdma" and "rdmaQoS" in arguments:
                wrong.setdefault(metadata(attachment)["name"], []).append((rail, plugin))
    for name, rows in wrong.items():
        remedy = 'Move rdmaQoS beside "type": "rdma": {"type": "rdma", "rdmaQoS": {"tc": …}}.'
        text = f"{name} has rdmaQoS under args.cni, which the plugin does not read"
        yield Problem(text, remedy, {"plugin": rows[0][1]}, numbers([r for r, _p in rows]), node=contexts[0].node)


@rule(
    "RESOURCE-010",
    "error",
    "An attachment names another resource than the nodes offer",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def resource_name_differs(contexts: list[Context]):
    """Symptom: pods fail with "VF pci addr is required".

    Cause: Multus takes the device of a network from the resource in its annotation k8s.v1.cni.cncf.io/resourceName. It is
    missing, or has another prefix than the device plugin and the pod's request.

    Evidence: the annotation, what the pod asks for, and what nodes offer of that name.

    Remedy: one of the three is the odd one out; rails_resource_prefix and the chart's resourcePrefix must agree. An
    attachment by hand needs the annotation.

    Source: k8snetworkplumbingwg/sriov-network-device-plugin#258, k8snetworkplumbingwg/sriov-network-device-plugin#310.
    """
    layout = contexts[0].layout
    if layout["network"] not in ("sriov", "host_device"):
        return
    nodes = {metadata(node).get("name"): node for node in part(contexts[0], "nodes")}
    offered: dict[str, int] = {}
    for context in contexts:
        allocatable = ((nodes.get(node_of(context)) or {}).get("status") or {}).get("allocatable") or {}
        for name, count in allocatable.items():
            offered[name] = offered.get(name, 0) + (int(count) if str(count).isdigit() else 0)
    odd: dict[tuple, list] = {}
    for rail, attachment in rail_attachments(contexts[0]):
        told = (metadata(attachment).get("annotations") or {}).get(RESOURCE_ANNOTATION)
        # The name is brought anew by the apply, the prefix is the operator's own.
        same = prefix_of(told) == prefix_of(rail["resource"]) and rewritten(contexts[0], attachment)
        if told != rail["resource"] and not same:
            odd.setdefault((metadata(attachment)["name"], told, rail["resource"]), []).append(rail)
    for (name, told, asked), rails in odd.items():
        tail = asked.rpartition("/")[2]
        similar = {key: count for key, count in offered.items() if key.rpartition("/")[2] == tail}
        saying = f"names {told}" if told else "has no resourceName annotation"
        text = f"The attachment {name} {saying}, pods ask for {asked}"
        remedy = "Make the annotation, the pod's request and the device plugin's prefix agree."
        evidence = {"annotation": told, "pod_asks_for": asked, "nodes_offer": similar}
        yield Problem(text, remedy, evidence, numbers(rails), node=contexts[0].node)


@rule("RESOURCE-011", "error", "A PF is in a resource of VFs", needs=("cluster",), scope=FLEET, unrehearsed=API_ONLY)
def pf_in_vf_pool(contexts: list[Context]):
    """Symptom: the attachment fails; the device id that the SR-IOV plugin got is a PF.

    Cause: a device plugin's configuration selects PFs under the name of a VF resource: PCI addresses of the PFs, or a
    selector that matches PFs because the VFs were not there yet. The device plugin of the NicClusterPolicy and the one
    of the SR-IOV operator both offer what they find.

    Evidence: the resource, the PFs in it, and where they were found (the configuration, or a running pod).

    Remedy: select VFs only, by rootDevices; offer PFs under another resource name.

    Source: k8snetworkplumbingwg/sriov-cni#206.
    """
    layout = contexts[0].layout
    if layout["network"] != "sriov":
        return
    pfs = {rail["pci"]: rail for rail in layout["rails"]}
    names = {row["full_name"] for row in layout.get("resources") or []}
    for policy in part(contexts[0], "nic_cluster_policies"):
        for name, addresses in _pf_resources(policy).items():
            caught = sorted(set(addresses) & set(pfs))
            if name in names and caught:
                text = f"The NicClusterPolicy offers the PFs {short(caught)} as {name}, a resource of VFs"
                remedy = "Offer PFs under another resource name, or take the resource out of sriovDevicePlugin."
                rails = [pfs[pci] for pci in caught]
                yield Problem(text, remedy, {"resource": name, "pfs": caught}, numbers(rails), node=contexts[0].node)
    mine, hits = {node_of(context): context for context in contexts}, []
    for pod in part(contexts[0], "pods"):
        context = mine.get(pod.get("node"))
        for row in pod.get("networks") or [] if context else []:
            pci = ((row.get("device-info") or {}).get("pci") or {}).get("pci-address")
            if pci in pfs:
                text = f"Pod {pod['namespace']}/{pod['name']} on {{where}} got the PF {pci} for {row.get('name')}"
                remedy = "Select VFs only in the device plugin's configuration, and start the pod again."
                evidence = {"pod": f"{pod['namespace']}/{pod['name']}", "pci": pci, "network": row.get("name")}
                hits.append((context.node, text, remedy, evidence, pfs[pci]["rail"]))
    yield from together(hits)


def _pf_resources(policy: dict) -> dict[str, list[str]]:
    """{full resource name: PCI addresses} of the device plugin's configuration in a NicClusterPolicy."""
    text = ((policy.get("spec") or {}).get("sriovDevicePlugin") or {}).get("config")
    try:
        rows = json.loads(text or "{}").get("resourceList") or []
    except (ValueError, AttributeError):
        return {}
    found: dict[str, list[str]] = {}
    for row in rows:
        selectors = row.get("selectors") or {}
        for one in selectors if isinstance(selectors, list) else [selectors]:
            name = f"{row.get('resourcePrefix') or 'nvidia.com'}/{row.get('resourceName')}"
            found.setdefault(name, []).extend(one.get("pciAddresses") or [])
    return found


@rule(
    "ADDRESS-010",
    "error",
    "Pods of several nodes can get the same address",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def one_range_for_all_nodes(contexts: list[Context]):
    """Symptom: two pods on two nodes have the same rail address; traffic goes to the wrong one or is lost.

    Cause: host-local keeps its record on each node. One range for all nodes is handed out on every one from its start.

    Evidence: the network and its range, or the pods that have the same address now.

    Remedy: nv-ipam with a block for each node, as rails_pools makes it; then start the pods again.

    Source: k8snetworkplumbingwg/sriov-network-device-plugin#338; containernetworking/plugins, host-local.
    """
    nodes = {node_of(context) for context in contexts} - {None}
    shared: dict[str, list] = {}
    for rail, attachment in rail_attachments(contexts[0]):
        for plugin in plugins_of(attachment) or [] if not rewritten(contexts[0], attachment) else []:
            ipam = plugin.get("ipam") or {}
            if ipam.get("type") == "host-local" and len(nodes) > 1:
                shared.setdefault(metadata(attachment)["name"], []).append((rail, ipam))
    for name, rows in shared.items():
        text = f"{name} hands out one host-local range on {len(nodes)} nodes"
        remedy = "Use nv-ipam, which gives each node a block of its own."
        yield Problem(text, remedy, {"ipam": rows[0][1]}, numbers([r for r, _i in rows]), node=contexts[0].node)
    yield from _duplicates(contexts, nodes)


def _duplicates(contexts: list[Context], nodes: set):
    """Addresses that two running pods have on the networks of the rails."""
    layout = contexts[0].layout
    place = layout["namespaces"]["networks"]
    networks = {f"{place}/{rail['network']}" for rail in layout["rails"] if rail.get("network")}
    seen: dict[str, list] = {}
    for pod in part(contexts[0], "pods"):
        if pod.get("node") not in nodes or pod.get("phase") not in (None, "Running"):
            continue
        for row in pod.get("networks") or []:
            name = row.get("name") or ""
            if name in networks or f"{pod['namespace']}/{name}" in networks:
                for address in row.get("ips") or []:
                    seen.setdefault(address, []).append(f"{pod['node']} {pod['namespace']}/{pod['name']}")
    for address, holders in sorted(seen.items()):
        if len(set(holders)) > 1:
            text = f"{address} belongs to {len(set(holders))} running pods: {short(set(holders))}"
            remedy = "Use one pool with a block for each node, and start the pods again."
            yield Problem(text, remedy, {"address": address, "pods": sorted(set(holders))}, node=contexts[0].node)


@rule(
    "ADDRESS-011",
    "warning",
    "A pool is used up though few pods have its addresses",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def stale_reservations(contexts: list[Context]):
    """Symptom: pods hang in ContainerCreating because the pool has no address left, though few pods run.

    Cause: reservations of pods that are gone were not freed: nv-ipam of older releases cleaned up for pods of its own
    namespace only. The reservations are in a file on the node, the API shows only the node's block.

    Evidence: the size of the node's block, the addresses that running pods have of it, and the event.

    Remedy: upgrade the Network Operator; then restart the nv-ipam-node pod of the node, which looks again.

    Source: Mellanox/nvidia-k8s-ipam#37.
    """
    failing: dict[str, str] = {}
    for event in part(contexts[0], "events"):
        if NO_ADDRESS.search(event.get("message") or "") and event.get("node"):
            failing[event["node"]] = event["message"]
    hits, version = [], contexts[0].cluster.get("operator_version")
    names = {pool["name"] for pool in contexts[0].layout.get("pools") or []}
    pools = [
        p for p in [*part(contexts[0], "ip_pools"), *part(contexts[0], "cidr_pools")] if metadata(p)["name"] in names
    ]
    used = _addresses_by_node(part(contexts[0], "pods"))
    for context in contexts:
        node = node_of(context)
        if node not in failing:
            continue
        for pool in pools:
            rows = (pool.get("status") or {}).get("allocations") or []
            block = next((row for row in rows if row.get("nodeName") == node), None)
            size = block_size(block) if block else None
            name = metadata(pool)["name"]
            if size is None:
                yield Unknown(
                    f"The block of {name} for {node} cannot be read", {"allocation": block}, None, context.node
                )
                continue
            have = sum(in_block(block, address) for address in used.get(node, set()))
            if have < size // 2:
                text = f"{name} has no address left on {{where}}, and running pods have {have} of the block's {size}"
                remedy = "Restart the nv-ipam-node pod of the node; upgrade the Network Operator if it comes back."
                evidence = {"block": block, "addresses_of_running_pods": have, "probably_stale": size - have}
                evidence |= {"event": failing[node], "operator_version": version}
                hits.append((context.node, text, remedy, evidence, None))
    yield from together(hits)


def _addresses_by_node(pods: list[dict]) -> dict[str, set]:
    found: dict[str, set] = {}
    for pod in pods:
        if pod.get("phase") in (None, "Running"):
            rows = pod.get("networks") or []
            found.setdefault(pod.get("node"), set()).update(ip for row in rows for ip in row.get("ips") or [])
    return found


def bounds(block: dict) -> tuple[int, int, int] | None:
    """(IP version, first, last) of an entry of status.allocations: startIP and endIP of an IPPool, prefix of a CIDRPool;
    None when it cannot be read."""
    try:
        if block.get("prefix"):
            net = ip_network(block["prefix"])
            return net.version, int(net.network_address), int(net.broadcast_address)
        first, last = ip_address(block["startIP"]), ip_address(block["endIP"])
        return first.version, int(first), int(last)
    except (KeyError, ValueError):
        return None


def block_size(block: dict) -> int | None:
    """Number of addresses of a block; None when it cannot be read."""
    found = bounds(block)
    return None if found is None else found[2] - found[1] + 1


def in_block(block: dict, address: str) -> bool:
    """Whether an address is in a block that can be read."""
    version, first, last = bounds(block)
    try:
        one = ip_address(address)
    except ValueError:
        return False
    return one.version == version and first <= int(one) <= last
