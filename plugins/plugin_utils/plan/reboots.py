# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why the SR-IOV operator would reboot a node: kernel arguments, and the firmware when its mellanox plugin is on.

Rules: k8snetworkplumbingwg/sriov-network-operator, pkg/plugins/generic (kernel arguments) and pkg/plugins/mellanox.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.drains import pools_of

ARGUMENT = {"exclusive": "ib_core.netns_mode=0", "shared": "ib_core.netns_mode=1"}


def reasons(look, planned, actual, live):
    """(why the node is rebooted, what may reboot it and cannot be told), one sentence each.

    :param look: node_effects.Look of the node.
    """
    sure, doubts = [], []
    for told, found in (_kernel_arguments(look), _userspace(planned, live), _firmware(look, planned, actual)):
        sure += told
        doubts += found
    return sure, doubts


def _kernel_arguments(look):
    """The operator compares the kernel line with its pool's rdmaMode, never the live mode
    (k8snetworkplumbingwg/sriov-network-operator#959), and removes the argument where no mode is set."""
    mine = pools_of(look.node["labels"], look.to_come.pool_configs)
    mode = (mine[0].get("spec") or {}).get("rdmaMode") if len(mine) == 1 else None
    line = None if look.facts is None else (look.facts.get("netns_mode") or {})
    asked = ((look.state or {}).get("spec") or {}).get("system") or {}
    if line is None:
        if mode and mode != asked.get("rdmaMode"):
            return [], [
                f"the pool configuration sets rdmaMode {mode}: a reboot, unless the kernel line has {ARGUMENT.get(mode)}"
            ]
        return [], []
    have = line.get("next_kernel_line" if look.node["name"] in look.to_come.rebooted else "kernel_line")
    if mode and have != mode:
        text = (
            f"the pool configuration sets rdmaMode {mode}, and the kernel line lacks {ARGUMENT.get(mode)}: the operator reboots "
            "the node until it is there, on Ubuntu without end"
        )
        return [text], []
    if not mode and have:
        return [
            f"the kernel line has {ARGUMENT.get(have)}, and the operator removes it where no pool sets rdmaMode"
        ], []
    return [], []


def _userspace(planned, live):
    """vfio needs the IOMMU on the kernel line. The node's facts do not hold the whole line; a node that had vfio before has
    what it needs."""

    def groups(rows):
        return any(
            (group.get("deviceType") or "netdevice") != "netdevice"
            for row in rows
            for group in row.get("vfGroups") or []
        )

    if groups(planned.values()) and not groups(live):
        return [], ["a policy asks for vfio-pci: a reboot, unless the kernel line has the IOMMU on already"]
    return [], []


def _firmware(look, planned, actual):
    """The mellanox plugin makes the firmware's number of VFs that of the policies, and reboots for it."""
    if "mellanox" in look.to_come.disable_plugins:
        return [], []
    wanted = {}
    for pci, row in planned.items():
        if not row.get("externallyManaged"):
            card = pci.rpartition(".")[0]
            wanted[card] = max(wanted.get(card, 0), int(row["numVfs"]))
    changed = [
        f"{row['pciAddress']} (firmware has {row.get('totalvfs') or 0}, wanted is {wanted[card]})"
        for row in actual
        for card in [row["pciAddress"].rpartition(".")[0]]
        if card in wanted and int(row.get("totalvfs") or 0) != wanted[card]
    ]
    if changed:
        return [
            f"the operator's mellanox plugin is on and changes the firmware's number of VFs of {', '.join(changed)}"
        ], []
    return [], []
