# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the SR-IOV operator makes of the policies for one node: ``spec.interfaces`` of its SriovNetworkNodeState.

Rules: k8snetworkplumbingwg/sriov-network-operator, api/v1/helper.go (SriovNetworkNodePolicy.Apply, Selected).
"""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import labels_match

PF_NAME = re.compile(r"([^#]+)#(\d+)-(\d+)\Z")
# What tells one planned interface from another. The operator writes more, which follows from these.
COMPARED = ("numVfs", "mtu", "linkType", "eSwitchMode", "externallyManaged")
GROUP_COMPARED = ("resourceName", "policyName", "vfRange", "deviceType", "mtu", "isRdma", "vdpaType")


class NotTold(ValueError):
    """What a policy selects cannot be told; the text says why."""


def spec_of(policy):
    return policy.get("spec") or {}


def name_of(obj):
    return (obj.get("metadata") or {}).get("name") or ""


def selects_node(policy, labels):
    """A policy's nodeSelector is a plain map of labels.

    :raises NotTold: it is none.
    """
    selector = spec_of(policy).get("nodeSelector")
    if selector is not None and not isinstance(selector, dict):
        raise NotTold(f"policy {name_of(policy)}: spec.nodeSelector: got {selector!r}, must be a map of labels")
    return labels_match(selector, labels)


def names_of(interface):
    return {interface.get("name"), *(interface.get("altNames") or [])} - {None, ""}


def selects_interface(policy, interface):
    """Whether a policy's nicSelector takes a PF of the node state. All given fields must fit; an empty selector takes
    none.

    :raises NotTold: the decision needs a field that is not known about the PF (``None``).
    """
    selector = spec_of(policy).get("nicSelector") or {}
    devices, pf_names = selector.get("rootDevices") or [], selector.get("pfNames") or []
    plain = [
        (field, selector[field], interface.get(field))
        for field in ("vendor", "deviceID", "netFilter")
        if selector.get(field)
    ]
    if not (devices or pf_names or plain):
        return False
    if devices and interface["pciAddress"] not in devices:
        return False
    if pf_names and not names_of(interface) & {entry.split("#")[0] for entry in pf_names}:
        return False
    for field, wanted, have in plain:
        if have is None and field in interface.get("unknown", ()):
            raise NotTold(
                f"policy {name_of(policy)} selects by {field}, which is not known of {interface['pciAddress']}"
            )
        if have != wanted:
            return False
    return True


def vf_range(policy, interface):
    """``first-last`` of the VFs that a policy takes: all, or those after ``#`` of the entry of pfNames that fits."""
    for entry in (spec_of(policy).get("nicSelector") or {}).get("pfNames") or []:
        if "#" not in entry or entry.split("#")[0] not in names_of(interface):
            continue
        match = PF_NAME.match(entry)
        if not match or int(match[2]) > int(match[3]):
            raise NotTold(f"policy {name_of(policy)}: pfNames: {entry!r} holds no range such as eth0#0-3")
        return f"{int(match[2])}-{int(match[3])}"
    return f"0-{number(policy, 'numVfs') - 1}"


def number(policy, field):
    value = spec_of(policy).get(field) or 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotTold(f"policy {name_of(policy)}: spec.{field}: got {value!r}, must be a whole number")
    return value


def bounds(text):
    """(first, last) of a VF range such as ``0-3`` or ``2``."""
    first, _dash, last = str(text).partition("-")
    return int(first), int(last or first)


def _overlap(one, other):
    (a, b), (c, d) = bounds(one), bounds(other)
    return max(a, c) <= min(b, d)


def _planned(policy, interface):
    spec = spec_of(policy)
    group = {
        "resourceName": spec.get("resourceName"),
        "policyName": name_of(policy),
        "vfRange": vf_range(policy, interface),
        "deviceType": spec.get("deviceType") or "netdevice",
    }
    group.update({key: spec[key] for key in ("mtu", "isRdma", "vdpaType") if spec.get(key)})
    row = {"pciAddress": interface["pciAddress"], "numVfs": number(policy, "numVfs")}
    row.update({key: spec[key] for key in COMPARED[1:] if spec.get(key)})
    return {**row, "vfGroups": [group]}


def _joined(old, new, same_priority):
    """The later policy replaces the PF's plan. Groups of other resources in other VFs stay, and then, or when both have
    the same priority, the larger mtu and numVfs hold."""
    lead = new["vfGroups"][0]
    kept = [
        group
        for group in old["vfGroups"]
        if group["resourceName"] != lead["resourceName"] and not _overlap(group["vfRange"], lead["vfRange"])
    ]
    joined = {**new, "vfGroups": [*new["vfGroups"], *kept]}
    if kept or same_priority:
        for field in ("mtu", "numVfs"):
            largest = max(old.get(field) or 0, new.get(field) or 0)
            if largest:
                joined[field] = largest
    return joined


def planned_interfaces(policies, labels, interfaces):
    """``{pci: planned interface}`` of a node.

    :param policies: SriovNetworkNodePolicies of the operator's namespace.
    :param labels: labels of the node.
    :param interfaces: ``status.interfaces`` of the node state; the operator plans nothing while there are none. What is
        not known about a PF is named in its ``unknown``.
    :raises NotTold: what a policy selects cannot be told.
    """
    planned, earlier = {}, None
    # From the highest number to the lowest; ties go by name, so the last of the alphabet wins.
    for policy in sorted(policies, key=lambda p: (-number(p, "priority"), name_of(p))):
        if not selects_node(policy, labels):
            continue
        priority = number(policy, "priority")
        for interface in interfaces:
            if number(policy, "numVfs") < 1 or not selects_interface(policy, interface):
                continue
            new, old = _planned(policy, interface), planned.get(interface["pciAddress"])
            planned[interface["pciAddress"]] = _joined(old, new, priority == earlier) if old else new
        earlier = priority
    return planned


def differs(live, planned):
    """Whether the node state's spec changes: ``live`` is its ``spec.interfaces``, ``planned`` as above. Each change
    makes the operator restart the device plugin of the node."""
    return {i["pciAddress"]: _essence(i) for i in live} != {pci: _essence(i) for pci, i in planned.items()}


def _essence(interface):
    groups = [
        tuple((key, str(group[key])) for key in GROUP_COMPARED if group.get(key))
        for group in interface.get("vfGroups") or []
    ]
    return tuple((key, interface[key]) for key in COMPARED if interface.get(key)), tuple(sorted(groups))
