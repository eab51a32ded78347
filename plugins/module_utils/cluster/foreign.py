# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others have put into the cluster that our objects would collide with: pure functions over API objects.

The SR-IOV operator refuses such collisions by its admission webhook only, and the chart leaves that off: without it the
second policy silently wins, a node in two pools is never drained, and an attachment that belongs to somebody else keeps
its content. Nothing here is ever changed or removed; every function returns ``[{kind, namespace, name, reason}]``.
"""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.owned import appliers
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import (
    label_selector_matches,
    labels_match,
)

OWNER_ANNOTATION = "sriovnetwork.openshift.io/owner-ref"
RESOURCE_ANNOTATION = "k8s.v1.cni.cncf.io/resourceName"
PF_RANGE = re.compile(r"(?P<name>[^#]+)(?:#(?P<first>\d+)-(?P<last>\d+))?")


def metadata(obj):
    return (obj or {}).get("metadata") or {}


def identity(obj):
    """(kind, namespace, name)"""
    meta = metadata(obj)
    return obj.get("kind"), meta.get("namespace"), meta.get("name")


def row(obj, reason, kind=None):
    meta = metadata(obj)
    found = {"kind": obj.get("kind") or kind, "namespace": meta.get("namespace"), "name": meta.get("name")}
    return {**found, "reason": reason}


def nodes_of(selector, nodes, matches):
    """Names of the nodes that a selector takes."""
    return {metadata(node).get("name") for node in nodes if matches(selector, metadata(node).get("labels") or {})}


def policy_nodes(policy, nodes):
    """Names of the nodes of a SriovNetworkNodePolicy; its nodeSelector is a plain map of labels."""
    return nodes_of((policy.get("spec") or {}).get("nodeSelector") or {}, nodes, labels_match)


def pool_config_nodes(config, nodes):
    """Names of the nodes of a SriovNetworkPoolConfig. Its nodeSelector is a LabelSelector: absent or empty, it takes
    every node, and a plain label below it was pruned by the API server, which leaves it empty."""
    return nodes_of((config.get("spec") or {}).get("nodeSelector") or {}, nodes, label_selector_matches)


def pf_span(policy, interface):
    """(first, last) VF of a policy's group on a PF, or None where the policy does not select the PF.

    The fields of nicSelector are joined by AND; pfNames also matches alternative names and may carry a range of VFs
    (api/v1/helper.go of the SR-IOV network operator).

    :param interface: ``{pciAddress, vendor, deviceID, name, altNames}``, as in status.interfaces of a node state; keys
        that are not known are absent and then match.
    """
    spec = policy.get("spec") or {}
    selector = spec.get("nicSelector") or {}
    devices, names = selector.get("rootDevices") or [], selector.get("pfNames") or []
    if not any(selector.get(key) for key in ("vendor", "deviceID", "rootDevices", "pfNames", "netFilter")):
        return None
    if devices and interface.get("pciAddress") not in devices:
        return None
    for key in ("vendor", "deviceID"):
        if selector.get(key) and interface.get(key) not in (None, selector[key]):
            return None
    last = max(int(spec.get("numVfs") or 0) - 1, 0)
    if not names:
        return 0, last
    known = {interface.get("name"), *(interface.get("altNames") or [])} - {None}
    for entry in names:
        match = PF_RANGE.fullmatch(str(entry))
        if match and match["name"] in known:
            return (int(match["first"]), int(match["last"])) if match["first"] is not None else (0, last)
    return None


def spans_meet(one, other):
    return one is not None and other is not None and one[0] <= other[1] and other[0] <= one[1]


def shared_pfs(one, other, interfaces):
    """PCI addresses of the PFs that two policies both take VFs of.

    The webhook's rule is stricter for rootDevices: there a PF may be in one policy only, whatever the ranges.
    """
    found = []
    for interface in interfaces:
        spans = pf_span(one, interface), pf_span(other, interface)
        if None in spans:
            continue
        listed = [((p.get("spec") or {}).get("nicSelector") or {}).get("rootDevices") or [] for p in (one, other)]
        if all(interface.get("pciAddress") in devices for devices in listed) or spans_meet(*spans):
            found.append(interface["pciAddress"])
    return found


def interfaces_of(policy, states, nodes):
    """The PFs that the node states show on these nodes, and those that the policy names, each once."""
    seen = {}
    for state in states:
        if metadata(state).get("name") in nodes:
            for interface in (state.get("status") or {}).get("interfaces") or []:
                seen.setdefault(interface.get("pciAddress"), interface)
    spec = policy.get("spec") or {}
    selector = spec.get("nicSelector") or {}
    for pci in selector.get("rootDevices") or []:
        known = {"pciAddress": pci, **({"vendor": selector["vendor"]} if selector.get("vendor") else {})}
        seen.setdefault(pci, known)
    return list(seen.values())


def short(names, limit=4):
    names = sorted(str(name) for name in names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def policies(wanted, others, nodes, states=()):
    """Policies of others that take a PF of ours on a node of ours."""
    found = []
    for other in others:
        theirs = policy_nodes(other, nodes)
        for policy in wanted:
            common = policy_nodes(policy, nodes) & theirs
            pfs = shared_pfs(policy, other, interfaces_of(policy, states, common)) if common else []
            if pfs:
                text = f"takes {short(pfs)} on {short(common)} as our policy {metadata(policy).get('name')} does"
                found.append(row(other, text, "SriovNetworkNodePolicy"))
                break
    return found


def pool_configs(wanted, others, nodes):
    """Pool configurations of others that take a node of ours: a node in two pools is never drained."""
    found = []
    for other in others:
        theirs = pool_config_nodes(other, nodes)
        for config in wanted:
            common = pool_config_nodes(config, nodes) & theirs
            if common:
                text = f"takes {short(common)}, as our pool configuration {metadata(config).get('name')} does"
                if not (other.get("spec") or {}).get("nodeSelector"):
                    text += "; its nodeSelector is empty, so it takes every node"
                found.append(row(other, text, "SriovNetworkPoolConfig"))
                break
    return found


def attachment_owner(obj):
    """What the SR-IOV operator writes on the attachments that it makes of a network, or None for other kinds."""
    meta = metadata(obj)
    if obj.get("kind") not in ("SriovNetwork", "SriovIBNetwork"):
        return None
    return f"{obj['kind']}.sriovnetwork.openshift.io/{meta.get('namespace')}/{meta.get('name')}"


def attachments(wanted, live, manager):
    """Attachments with our names that are not ours.

    :param wanted: [(namespace, name, object of ours)]; see readiness.attachments_wanted.
    :param live: {(namespace, name): NetworkAttachmentDefinition}.
    """
    found = []
    for namespace, name, obj in wanted:
        current = live.get((namespace, name))
        if current is None:
            continue
        owner = attachment_owner(obj)
        actual = (metadata(current).get("annotations") or {}).get(OWNER_ANNOTATION)
        if owner is not None and actual != owner:
            told = f"belongs to {actual}" if actual else "was not made by the SR-IOV operator"
            text = f"{told}, so the operator leaves it alone and our {obj['kind']} {name} has no effect"
            found.append(row(current, text, "NetworkAttachmentDefinition"))
        elif owner is None and obj.get("kind") == "NetworkAttachmentDefinition" and actual:
            text = f"belongs to {actual}, which would write over ours"
            found.append(row(current, text, "NetworkAttachmentDefinition"))
        elif obj.get("kind") == "NetworkAttachmentDefinition" and manager not in appliers(current):
            found.append(row(current, "exists and was not applied by us", "NetworkAttachmentDefinition"))
    return found
