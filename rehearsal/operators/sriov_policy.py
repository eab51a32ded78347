# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SR-IOV policies to node state, and what a difference costs: pure functions.

Rules restated from the SR-IOV network operator (api/v1/helper.go, pkg/plugins/generic, pkg/helper): policies run from
the highest priority number to the lowest, ties by name; only a PF with no VFs is filled without a drain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rehearsal.operators.kinds import labels_of, name_of
from rehearsal.operators.selection import labels_match

_PF_RANGE = re.compile(r"(?P<name>[^#]+)(?:#(?P<first>\d+)-(?P<last>\d+))?")


def selects(selector: dict, interface: dict) -> bool:
    """A policy's nicSelector against an entry of status.interfaces; all fields count, an empty one matches none."""
    vendor, device = selector.get("vendor"), selector.get("deviceID")
    roots, names = selector.get("rootDevices") or [], selector.get("pfNames") or []
    if not (vendor or device or roots or names or selector.get("netFilter")):
        return False
    if vendor and vendor != interface.get("vendor"):
        return False
    if device and device != interface.get("deviceID"):
        return False
    if roots and interface["pciAddress"] not in roots:
        return False
    known = {interface.get("name"), *(interface.get("altNames") or [])}
    return not names or any(entry.split("#")[0] in known for entry in names)


def vf_range(policy: dict, interface: dict) -> tuple[int, int]:
    """First and last VF of the policy's group on this PF: all of them, or the range after "#" in pfNames."""
    known = {interface.get("name"), *(interface.get("altNames") or [])}
    for entry in policy["spec"].get("nicSelector", {}).get("pfNames") or []:
        match = _PF_RANGE.fullmatch(entry)
        if match and match["name"] in known and match["first"] is not None:
            return int(match["first"]), int(match["last"])
    return 0, int(policy["spec"]["numVfs"]) - 1


def _bounds(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _overlap(one: str, other: str) -> bool:
    (a, b), (c, d) = _bounds(one), _bounds(other)
    return a <= d and c <= b


def _wanted(policy: dict, interface: dict) -> dict:
    spec = policy["spec"]
    first, last = vf_range(policy, interface)
    group = {
        "resourceName": spec["resourceName"],
        "policyName": name_of(policy),
        "vfRange": f"{first}-{last}",
        "deviceType": spec.get("deviceType") or "netdevice",
    }
    if spec.get("mtu"):
        group["mtu"] = spec["mtu"]
    if spec.get("isRdma"):
        group["isRdma"] = True
    row = {
        "pciAddress": interface["pciAddress"],
        "name": interface.get("name"),
        "numVfs": spec["numVfs"],
        "vfGroups": [group],
    }
    for key in ("mtu", "linkType", "eSwitchMode", "externallyManaged"):
        if spec.get(key):
            row[key] = spec[key]
    return {key: value for key, value in row.items() if value is not None}


def _merged(old: dict, new: dict, equal_priority: bool) -> dict:
    """The later policy replaces the PF's config; VF groups of other resources in other ranges stay."""
    lead = new["vfGroups"][0]
    kept = [
        group
        for group in old.get("vfGroups") or []
        if group["resourceName"] != lead["resourceName"] and not _overlap(group["vfRange"], lead["vfRange"])
    ]
    merged = {**new, "vfGroups": new["vfGroups"] + kept}
    if kept or equal_priority:
        for key in ("mtu", "numVfs"):
            if max(old.get(key, 0), new.get(key, 0)):
                merged[key] = max(old.get(key, 0), new.get(key, 0))
    return merged


def node_interfaces(policies: list[dict], node: dict, status_interfaces: list[dict]) -> list[dict]:
    """spec.interfaces of a SriovNetworkNodeState, from the policies that select the node.

    numVfs 0 changes nothing; without status.interfaces there is nothing to select from, so policies wait.
    """
    result: dict[str, dict] = {}
    previous = 100
    for policy in sorted(policies, key=lambda item: (-int(item["spec"].get("priority") or 0), name_of(item))):
        spec = policy["spec"]
        if not labels_match(spec.get("nodeSelector"), labels_of(node)):
            continue
        priority = int(spec.get("priority") or 0)
        for interface in status_interfaces:
            if int(spec.get("numVfs") or 0) < 1 or not selects(spec.get("nicSelector") or {}, interface):
                continue
            new = _wanted(policy, interface)
            old = result.get(interface["pciAddress"])
            result[interface["pciAddress"]] = _merged(old, new, previous == priority) if old else new
        previous = priority
    return [result[pci] for pci in sorted(result)]


@dataclass(frozen=True)
class Change:
    """What the daemon would do to one PF: ``reason`` is None when there is nothing to do; ``error`` when it fails."""

    reason: str | None = None
    drain: bool = False
    error: str | None = None


def pf_change(wanted: dict, actual: dict) -> Change:
    """Compare spec.interfaces[] with status.interfaces[] of one PF (NeedToUpdateSriov, generic plugin)."""
    have, want = int(actual.get("numVfs") or 0), int(wanted["numVfs"])
    total, mtu = int(actual.get("totalvfs") or 0), int(wanted.get("mtu") or 0)
    pci = wanted["pciAddress"]
    if wanted.get("externallyManaged"):
        if want > have:
            return Change(
                error=f"device {pci} is externally managed and has {have} VFs, but the policy requests {want}"
            )
        if mtu > int(actual.get("mtu") or 0):
            return Change(
                error=f"device {pci} is externally managed with MTU {actual.get('mtu')}, but the policy requests {mtu}"
            )
    elif want > total:
        return Change(error=f"cannot config SRIOV device: NumVfs ({want}) is larger than TotalVfs ({total}) of {pci}")
    reason = None
    if not wanted.get("externallyManaged"):
        if have != want:
            reason = f"numVfs is {have}, wanted {want}"
        elif mtu > int(actual.get("mtu") or 0):
            reason = f"PF mtu is {actual.get('mtu')}, wanted {mtu}"
        elif actual.get("linkAdminState") == "down":
            reason = "PF is administratively down"
    reason = reason or _vf_difference(wanted, actual)
    return Change(reason=reason, drain=bool(reason) and have > 0)


def _vf_difference(wanted: dict, actual: dict) -> str | None:
    for vf in actual.get("Vfs") or []:
        for group in wanted.get("vfGroups") or []:
            first, last = _bounds(group["vfRange"])
            if not first <= vf["vfID"] <= last:
                continue
            if not vf.get("driver"):
                return f"VF {vf['pciAddress']} has no driver"
            # A VF inside a pod shows no mtu here, so it is not compared.
            if group.get("mtu") and vf.get("mtu") and vf["mtu"] != group["mtu"]:
                return f"VF {vf['pciAddress']} has mtu {vf['mtu']}, wanted {group['mtu']}"
    return None


def plan(spec_interfaces: list[dict], status_interfaces: list[dict], created_by_us: set[str]) -> dict[str, Change]:
    """Changes by PF address, for PFs that are selected and for those that are no longer.

    :param created_by_us: PFs whose VFs the operator made (kept under /etc/sriov-operator/pci); others are left alone.
    """
    wanted = {item["pciAddress"]: item for item in spec_interfaces}
    changes = {}
    for actual in status_interfaces:
        pci = actual["pciAddress"]
        if pci in wanted:
            changes[pci] = pf_change(wanted[pci], actual)
        elif int(actual.get("numVfs") or 0) and pci in created_by_us:
            changes[pci] = Change(reason="no longer selected by a policy", drain=True)
    return {pci: change for pci, change in changes.items() if change.reason or change.error}


def device_plugin_config(spec_interfaces: list[dict]) -> dict:
    """The node's entry of ConfigMap device-plugin-config: resources, each with its PFs and VF ranges."""
    resources: dict[str, dict] = {}
    for interface in spec_interfaces:
        for group in interface.get("vfGroups") or []:
            row = resources.setdefault(
                group["resourceName"], {"resourceName": group["resourceName"], "selectors": {"rootDevices": []}}
            )
            row["selectors"]["rootDevices"].append(f"{interface['pciAddress']}#{group['vfRange']}")
            if group.get("isRdma"):
                row["selectors"]["isRdma"] = True
    return {"resourceList": [resources[name] for name in sorted(resources)]}


def pool_devices(config: dict, pf_vfs: dict[str, dict[int, str]], rdma_capable: set[str]) -> dict[str, list[str]]:
    """VF PCI addresses by resource name: what the device plugin offers from the VFs that exist.

    :param pf_vfs: VF index -> VF address, by PF address.
    :param rdma_capable: VFs with an RDMA device; a resource with isRdma takes only these.
    """
    result: dict[str, list[str]] = {}
    for resource in config.get("resourceList") or []:
        selectors = resource.get("selectors") or {}
        devices = result.setdefault(resource["resourceName"], [])
        for root in selectors.get("rootDevices") or []:
            pf, _, span = root.partition("#")
            vfs = pf_vfs.get(pf) or {}
            first, last = _bounds(span) if span else (0, len(vfs) - 1)
            devices += [pci for index, pci in sorted(vfs.items()) if first <= index <= last]
        if selectors.get("isRdma"):
            result[resource["resourceName"]] = [pci for pci in devices if pci in rdma_capable]
    return result


def max_unavailable(value: int | str | None, nodes: int) -> int:
    """How many nodes of a pool may drain at once: absent is no limit, a percent rounds down (so it can be 0)."""
    if value is None:
        return nodes
    text = str(value)
    return nodes * int(text[:-1]) // 100 if text.endswith("%") else int(text)
