# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a planned interface costs: what the config daemon does to one PF, and whether it empties the node first.

Rules: k8snetworkplumbingwg/sriov-network-operator, api/v1/helper.go (NeedToUpdateSriov) and pkg/plugins/generic
(needDrainNode), daemon mode, mellanox plugin off.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.sriov_spec import bounds

FULL_MTU = 1500
# Where the operator's webhook refuses a PF in two policies, and where policies exchange PFs (cluster/layout_steps.py).
GAP = "its old policy goes before its new one comes: the operator may find it without one for a moment, and then removes its VFs"
USERSPACE = ("vfio-pci", "uio_pci_generic", "igb_uio")


@dataclass(frozen=True)
class Change:
    """``text`` says what happens and why. drain: the node is emptied first. error: the daemon refuses, and then does
    nothing at all on the node."""

    pci: str
    text: str
    drain: bool = False
    error: bool = False


def vfs_of(interface):
    return int(interface.get("numVfs") or 0)


def change_of(planned, actual):
    """The Change that brings a PF from ``status.interfaces[]`` to its plan, or None."""
    pci, have, want = planned["pciAddress"], vfs_of(actual), int(planned["numVfs"])
    refusal = _refusal(planned, actual, have, want)
    if refusal:
        return Change(pci, refusal, error=True)
    if planned.get("externallyManaged"):
        text = _vf_text(planned, actual)
        return Change(pci, text, drain=have > 0) if text else None
    if have != want:
        if not have:
            # The only change that needs no drain: there is no VF that a pod could have.
            return Change(pci, f"gets {_count(want)}; it has none now")
        return Change(pci, f"goes from {_count(have)} to {want}: all of them are removed and made anew", drain=True)
    text = _pf_text(planned, actual) or _vf_text(planned, actual)
    return Change(pci, text, drain=have > 0) if text else None


def _count(number):
    return f"{number} VF{'' if number == 1 else 's'}"


def _refusal(planned, actual, have, want):
    mtu, pf_mtu = int(planned.get("mtu") or 0), int(actual.get("mtu") or 0)
    if not planned.get("externallyManaged"):
        total = actual.get("totalvfs")
        if total is not None and want > int(total):
            return f"the policy asks for {_count(want)}, the firmware allows {int(total)}: the daemon refuses"
        return None
    if want > have:
        return f"is externally managed and has {_count(have)}, the policy asks for {want}: the daemon refuses"
    if mtu > pf_mtu:
        return f"is externally managed with MTU {pf_mtu}, the policy asks for {mtu}: the daemon refuses"
    wanted_mode, mode = planned.get("eSwitchMode") or "legacy", actual.get("eSwitchMode")
    if mode and wanted_mode != mode:
        return f"is externally managed in eswitch mode {mode}, the policy asks for {wanted_mode}: the daemon refuses"
    return None


def _pf_text(planned, actual):
    mtu, pf_mtu = int(planned.get("mtu") or 0), int(actual.get("mtu") or 0)
    if mtu > pf_mtu:  # A lower one never lowers the PF.
        return f"MTU goes from {pf_mtu} to {mtu}"
    wanted, mode = planned.get("eSwitchMode") or "legacy", actual.get("eSwitchMode")
    if mode and wanted != mode:
        return f"eswitch mode goes from {mode} to {wanted}: all VFs are removed and made anew"
    if actual.get("linkAdminState") == "down":
        return "is administratively down and is set up"
    return None


def _vf_text(planned, actual):
    for vf in actual.get("Vfs") or []:
        for group in planned.get("vfGroups") or []:
            first, last = bounds(group["vfRange"])
            if first <= int(vf.get("vfID", -1)) <= last:
                text = _one_vf(vf, group)
                if text:
                    return f"VF {vf.get('pciAddress') or vf.get('vfID')} {text}"
                break
    return None


def _one_vf(vf, group):
    kind, driver = group.get("deviceType") or "netdevice", vf.get("driver")
    if not driver:
        return "has no driver"
    if kind == "netdevice" and driver in USERSPACE or kind != "netdevice" and driver != kind:
        return f"has the driver {driver}, wanted is {kind}"
    # A VF inside a pod shows no mtu in the node state; the daemon cannot compare it, either.
    if kind == "netdevice" and group.get("mtu") and vf.get("mtu") and int(vf["mtu"]) != int(group["mtu"]):
        return f"has MTU {vf['mtu']}, the policy asks for {group['mtu']}"
    guid = vf.get("guid")
    if group.get("isRdma") and guid and not str(guid).strip("0:"):
        return "has the node GUID zero"
    if (group.get("vdpaType") or "") != (vf.get("vdpaType") or ""):
        return f"has vDPA type {vf.get('vdpaType') or 'none'}, wanted is {group.get('vdpaType') or 'none'}"
    return None


def removal_of(actual):
    """The Change of a PF that no policy selects any more and whose VFs the operator made."""
    return Change(
        actual["pciAddress"],
        f"is in no policy any more: its {_count(vfs_of(actual))} go, its MTU goes back to what it was before the operator, or to "
        f"{FULL_MTU}",
        drain=True,
    )


def changes_of(planned, live, actual):
    """``[Change]`` of all PFs of a node, in the order of their addresses.

    :param planned: {pci: planned interface} by the policies as they will be.
    :param live: ``spec.interfaces`` of the node state as it is. A PF in it that is not externally managed has VFs of the
        operator, which notes them on the node (/etc/sriov-operator/pci); VFs of others are left alone.
    :param actual: ``status.interfaces`` of the node state.
    """
    earlier = {item["pciAddress"]: item for item in live}
    found = []
    for interface in sorted(actual, key=lambda item: item["pciAddress"]):
        pci = interface["pciAddress"]
        if pci in planned:
            found.append(change_of(planned[pci], interface))
        elif vfs_of(interface) and pci in earlier and not earlier[pci].get("externallyManaged"):
            found.append(removal_of(interface))
    return [change for change in found if change is not None]


def external_renewals(planned, actual, changes):
    """Externally managed PFs with VFs that nothing else changes: the daemon takes a new generation of the node state, and
    its own restart, for an update of them, and asks for a drain."""
    changed = {change.pci for change in changes}
    return [
        Change(
            item["pciAddress"],
            "is externally managed and has VFs: the daemon takes its new plan, or its own restart, for a change",
            drain=True,
        )
        for item in sorted(actual, key=lambda item: item["pciAddress"])
        if vfs_of(item)
        and item["pciAddress"] not in changed
        and (planned.get(item["pciAddress"]) or {}).get("externallyManaged")
    ]
