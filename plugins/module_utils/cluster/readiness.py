# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is still missing before pods can use the rails: pure functions over the objects that were applied and the
cluster as it is.

Every function returns a list of ``{node, object, reason}`` (node None: the whole cluster); an empty list means ready.
"""

from __future__ import annotations

import ipaddress

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import label
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import labels_match, node_of, term_match

POOLS = ("IPPool", "CIDRPool")
# Kinds of which the operators make a NetworkAttachmentDefinition of the same name in spec.networkNamespace.
MAKES_ATTACHMENT = ("SriovNetwork", "SriovIBNetwork", "MacvlanNetwork", "HostDeviceNetwork", "IPoIBNetwork")
RESOURCE_ANNOTATION = "k8s.v1.cni.cncf.io/resourceName"
OWNER_ANNOTATION = "sriovnetwork.openshift.io/owner-ref"
STATE_ANNOTATIONS = ("sriovnetwork.openshift.io/desired-state", "sriovnetwork.openshift.io/current-state")


def missing(what, reason, node=None):
    return {"node": node, "object": what, "reason": reason}


def name_of(obj):
    return (obj.get("metadata") or {}).get("name")


def crds_pending(wanted, crds):
    """wanted: names; crds: {name: CustomResourceDefinition or None}."""
    result = []
    for name in wanted:
        crd = crds.get(name)
        if crd is None:
            result.append(missing(f"CustomResourceDefinition {name}", "does not exist"))
        elif not condition_true(crd, "Established"):
            result.append(missing(f"CustomResourceDefinition {name}", "is not established"))
    return result


def condition_true(obj, kind):
    return any(
        c.get("type") == kind and c.get("status") == "True" for c in (obj.get("status") or {}).get("conditions") or []
    )


def cluster_policy_pending(policy, live):
    """NicClusterPolicy: state ready, of this generation where the operator tells it (conditions since 26.7)."""
    what = label(policy)
    if live is None:
        return [missing(what, "does not exist")]
    status = live.get("status") or {}
    state = status.get("state")
    generation = (live.get("metadata") or {}).get("generation")
    for condition in status.get("conditions") or []:
        seen = condition.get("observedGeneration")
        if condition.get("type") == "Ready" and seen is not None and generation is not None and seen < generation:
            return [missing(what, f"the operator has seen generation {seen}, not yet {generation}")]
    if state == "ready":
        return []
    late = [
        f"{s.get('name')} {s.get('state')}" + (f" ({s['message']})" if s.get("message") else "")
        for s in status.get("appliedStates") or []
        if s.get("state") not in ("ready", "ignore")
    ]
    text = f"state is {state or 'not set'}"
    return [missing(what, f"{text}: {', '.join(late)}" if late else text)]


# The SR-IOV operator leaves the DaemonSet of its device plugin when the last policy goes; no node is labelled for it then.
IDLE_WITHOUT_POLICIES = ("sriov-device-plugin",)


def daemon_sets_pending(daemon_sets, idle=()):
    """Every DaemonSet that is there must have rolled out. One that selects no node is named: its pods will never
    come; those of the names in ``idle`` need not."""
    result = []
    for item in daemon_sets:
        status, what = item.get("status") or {}, label({"kind": "DaemonSet", **item})
        desired = status.get("desiredNumberScheduled")
        generation = (item.get("metadata") or {}).get("generation")
        observed = status.get("observedGeneration")
        if desired is None or (generation is not None and (observed or 0) < generation):
            result.append(missing(what, "the controller has not handled its newest generation yet"))
        elif desired == 0 and name_of(item) in idle:
            continue
        elif desired == 0:
            result.append(missing(what, "its node selector matches no node"))
        else:
            updated, available = status.get("updatedNumberScheduled") or 0, status.get("numberAvailable") or 0
            if min(updated, available) < desired:
                result.append(missing(what, f"{min(updated, available)} of {desired} pods are updated and available"))
    return result


def attachments_wanted(objects):
    """[(namespace, name, applied object)] of the NetworkAttachmentDefinitions that must exist."""
    wanted = []
    for obj in objects:
        meta = obj["metadata"]
        if obj["kind"] == "NetworkAttachmentDefinition":
            wanted.append((meta.get("namespace"), meta["name"], obj))
        elif obj["kind"] in MAKES_ATTACHMENT:
            place = (obj.get("spec") or {}).get("networkNamespace") or meta.get("namespace") or "default"
            wanted.append((place, meta["name"], obj))
    return wanted


def attachments_pending(objects, attachments, resources=()):
    """attachments: {(namespace, name): NetworkAttachmentDefinition} that exist; resources: full names that pods ask for.

    Multus takes a network's device from the resource in the attachment's annotation. When it is another one than pods
    ask for, they fail with "VF pci addr is required" (sriov-network-device-plugin#258).
    """
    result = []
    for namespace, name, obj in attachments_wanted(objects):
        if (namespace, name) not in attachments:
            result.append(missing(label(obj), f"has no NetworkAttachmentDefinition {namespace}/{name} yet"))
            continue
        short = (obj.get("spec") or {}).get("resourceName")
        if obj["kind"] != "SriovNetwork" or not short:
            continue
        wanted = sorted(full for full in resources if full.rpartition("/")[2] == short)
        notes = (attachments[(namespace, name)].get("metadata") or {}).get("annotations") or {}
        told = notes.get(RESOURCE_ANNOTATION)
        if told not in wanted if wanted else (told or "").rpartition("/")[2] != short:
            text = f"the attachment {namespace}/{name} names the resource {told or 'nothing'}, not {', '.join(wanted) or short}"
            result.append(missing(label(obj), text))
    return result


def vfs_wanted(policies, node):
    """{pci: (numVfs, resourceName, policy name, mtu)} that the policies ask of this node."""
    wanted = {}
    labels = (node.get("metadata") or {}).get("labels")
    for policy in policies:
        spec = policy.get("spec") or {}
        if not labels_match(spec.get("nodeSelector"), labels):
            continue
        for device in (spec.get("nicSelector") or {}).get("rootDevices") or []:
            count = spec.get("numVfs") or 0
            if device not in wanted or wanted[device][0] < count:
                wanted[device] = (count, spec.get("resourceName"), policy["metadata"]["name"], spec.get("mtu") or 0)
    return wanted


def node_state_pending(policies, node, state):
    """SriovNetworkNodeState against the policies: what the operator plans, what is there, and whether it is done.

    The old ``Succeeded`` stays for a while after a change, so plan and result are compared as well as syncStatus.
    """
    wanted = vfs_wanted(policies, node)
    name = name_of(node)
    if not wanted:
        return []
    if state is None:
        return [missing("SriovNetworkNodeState", "does not exist: the config daemon does not run on this node", name)]
    spec = {i.get("pciAddress"): i for i in (state.get("spec") or {}).get("interfaces") or []}
    status = {i.get("pciAddress"): i for i in (state.get("status") or {}).get("interfaces") or []}
    result = []
    for pci, (count, resource, policy, mtu) in sorted(wanted.items()):
        planned, actual = spec.get(pci), status.get(pci)
        if status and actual is None:
            result.append(missing(f"PF {pci}", "is not among the NICs that the operator found and supports", name))
        elif planned is None or planned.get("numVfs") != count:
            got = "none" if planned is None else planned.get("numVfs")
            result.append(missing(f"PF {pci}", f"policy {policy} asks for {count} VFs, the operator plans {got}", name))
        elif resource not in {g.get("resourceName") for g in planned.get("vfGroups") or [{"resourceName": resource}]}:
            text = f"policy {policy} asks for the resource {resource}, the operator plans another one"
            result.append(missing(f"PF {pci}", text, name))
        elif actual is None or (actual.get("numVfs") or 0) < count or len(actual.get("Vfs") or []) < count:
            got = 0 if actual is None else min(actual.get("numVfs") or 0, len(actual.get("Vfs") or []))
            result.append(missing(f"PF {pci}", f"has {got} of {count} VFs", name))
        elif actual.get("mtu") and actual["mtu"] < mtu:
            result.append(missing(f"PF {pci}", f"has MTU {actual['mtu']}, policy {policy} asks for {mtu}", name))
    return result + sync_pending(state, name)


def sync_pending(state, name):
    status = state.get("status") or {}
    sync, error = status.get("syncStatus"), status.get("lastSyncError")
    annotations = (state.get("metadata") or {}).get("annotations") or {}
    busy = [
        f"{k.rpartition('/')[2]} {annotations[k]}" for k in STATE_ANNOTATIONS if annotations.get(k, "Idle") != "Idle"
    ]
    if sync == "Succeeded" and not busy:
        return []
    reason = f"syncStatus {sync or 'not set'}" + (f", {', '.join(busy)}" if busy else "")
    # In daemon mode an error is retried for ever as InProgress, with the text in the daemon's log only.
    reason += f": {error}" if error else " (details are in the log of sriov-network-config-daemon on this node)"
    return [missing("SriovNetworkNodeState", reason, name)]


def quantity(text):
    """Whole number of a resource count; None for something else."""
    try:
        return int(str(text))
    except ValueError:
        return None


def resources_pending(resources, node):
    """resources: [{full_name, count}] that the node must offer to pods."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    result = []
    for resource in resources or []:
        offered = quantity(allocatable.get(resource["full_name"], 0))
        if offered is None or offered < resource["count"]:
            text = f"the node offers {allocatable.get(resource['full_name'], 0)} of {resource['count']}"
            result.append(missing(f"resource {resource['full_name']}", text, name_of(node)))
    return result


def pools_pending(pools, live, node):
    """pools: applied objects; live: {(kind, name): object}. Each pool that selects the node must have a block for
    it."""
    result = []
    for pool in pools:
        if not term_match((pool.get("spec") or {}).get("nodeSelector"), node):
            continue
        current = live.get((pool["kind"], pool["metadata"]["name"]))
        allocations = ((current or {}).get("status") or {}).get("allocations") or []
        block = next((a for a in allocations if a.get("nodeName") == name_of(node)), None)
        if block is None:
            text = f"has no block for this node ({len(allocations)} blocks are given out)"
            result.append(missing(label(pool), text, name_of(node)))
        elif not block_fits(pool.get("spec") or {}, block):
            shown = block.get("prefix") or f"{block.get('startIP')} to {block.get('endIP')}"
            result.append(
                missing(label(pool), f"its block for this node, {shown}, is of an earlier range", name_of(node))
            )
    return result


def block_fits(spec, block):
    """Whether an allocation is one of the pool as it is wanted now: after a change of the range the old blocks stay in
    the status until nv-ipam has given out new ones. One that cannot be read is not judged."""
    try:
        if spec.get("cidr"):
            prefix = ipaddress.ip_network(block["prefix"])
            return prefix.prefixlen == spec["perNodeNetworkPrefix"] and prefix.subnet_of(
                ipaddress.ip_network(spec["cidr"])
            )
        first, last = ipaddress.ip_address(block["startIP"]), ipaddress.ip_address(block["endIP"])
        size = int(last) - int(first) + 1
        return first in ipaddress.ip_network(spec["subnet"], strict=False) and size == spec["perNodeBlockSize"]
    except (KeyError, TypeError, ValueError):
        return True


def layout_pending(objects, layouts, addresses, snapshot):
    """Everything that the nodes of the layouts still lack.

    addresses: {host: ansible_host}. snapshot: ``{nodes: [Node], states: {name: SriovNetworkNodeState}, attachments:
    {(namespace, name): attachment}, pools: {(kind, name): pool}}``.
    """
    policies = [o for o in objects if o["kind"] == "SriovNetworkNodePolicy"]
    pools = [o for o in objects if o["kind"] in POOLS]
    resources = {row["full_name"] for layout in layouts for row in layout.get("resources") or []}
    result = attachments_pending(objects, snapshot["attachments"], resources)
    for layout in layouts:
        for host in layout["hosts"]:
            node = node_of(host, addresses.get(host), snapshot["nodes"])
            if node is None:
                result.append(
                    missing("Node", "no Kubernetes node has this host's name, hostname label or address", host)
                )
                continue
            result += node_state_pending(policies, node, snapshot["states"].get(name_of(node)))
            result += resources_pending(layout.get("resources"), node)
            result += pools_pending(pools, snapshot["pools"], node)
    return result


def planned_of(state, resources):
    """PFs of a node state's spec whose VFs are to be of one of the resources (short names)."""
    found = []
    for entry in ((state or {}).get("spec") or {}).get("interfaces") or []:
        if resources & {group.get("resourceName") for group in entry.get("vfGroups") or []}:
            found.append(entry.get("pciAddress"))
    return found


def leftovers(layouts, addresses, snapshot):
    """What is still there of layouts that were taken away: attachments, plans, VFs, offered resources.

    VFs that the operator did not make stay for ever; those of an externally managed layout are not waited for.
    """
    result = []
    for layout in layouts:
        resources = {row["name"] for row in layout.get("resources") or []}
        result += _attachments_left(layout, snapshot["attachments"])
        for host in layout["hosts"] if layout["network"] == "sriov" else ():
            node = node_of(host, addresses.get(host), snapshot["nodes"])
            state = snapshot["states"].get(name_of(node)) if node else None
            if node is None or state is None:
                continue  # Without a node or a daemon nothing is left that anybody could wait for.
            name = name_of(node)
            planned = planned_of(state, resources)
            result += [missing(f"PF {pci}", "is still in the operator's plan", name) for pci in planned]
            kept = {i.get("pciAddress") for i in (state.get("spec") or {}).get("interfaces") or []}
            rails = {rail["pci"] for rail in layout["rails"]} - kept
            for entry in (state.get("status") or {}).get("interfaces") or []:
                if entry.get("pciAddress") in rails and entry.get("numVfs") and not layout.get("externally_managed"):
                    text = f"still has {entry['numVfs']} VFs (the operator leaves VFs alone that it did not make)"
                    result.append(missing(f"PF {entry['pciAddress']}", text, name))
            result += sync_pending(state, name)
            allocatable = (node.get("status") or {}).get("allocatable") or {}
            for row in layout.get("resources") or []:
                if quantity(allocatable.get(row["full_name"], 0)):
                    text = f"the node still offers {allocatable[row['full_name']]}"
                    result.append(missing(f"resource {row['full_name']}", text, name))
    return result


def _attachments_left(layout, attachments):
    place, home = layout["namespaces"]["networks"], layout["namespaces"]["operator"]
    result = []
    for name in sorted({rail["network"] for rail in layout["rails"] if rail.get("network")}):
        notes = ((attachments.get((place, name)) or {}).get("metadata") or {}).get("annotations") or {}
        if (notes.get(OWNER_ANNOTATION) or "").endswith(f"/{home}/{name}"):
            result.append(missing(f"NetworkAttachmentDefinition {place}/{name}", "is still there"))
    return result


def in_short(pending, nodes=3):
    """What is missing in one line: on how many nodes, and for some of them the first thing."""
    names = sorted({p["node"] for p in pending if p["node"]})
    parts = []
    for name in [None, *names][: nodes + 1]:
        items = [p for p in pending if p["node"] == name]
        if items:
            more = f" and {len(items) - 1} more" if len(items) > 1 else ""
            parts.append(f"{name or 'cluster'}: {items[0]['object']} {items[0]['reason']}{more}")
    left = f"; and {len(names) - nodes} nodes more" if len(names) > nodes else ""
    return "; ".join(parts) + left


def summary(pending, limit=40):
    """Lines for a message: grouped by node, the whole cluster first."""
    lines = []
    for node in sorted({p["node"] or "" for p in pending}):
        items = [p for p in pending if (p["node"] or "") == node]
        lines.append(f"{node or 'cluster'}:")
        lines += [f"  - {p['object']}: {p['reason']}" for p in items]
    if len(lines) > limit:
        lines = [*lines[:limit], f"  … and {len(lines) - limit} lines more"]
    return lines
