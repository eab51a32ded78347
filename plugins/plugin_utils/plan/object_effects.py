# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a change of an object does besides what node_effects says of policies: one sentence, or None.

Rules: Mellanox/network-operator (the states of a NicClusterPolicy), Mellanox/nvidia-k8s-ipam (pkg/ipam-controller), and
the specification of network attachments: a pod's interfaces are made once.
"""

from __future__ import annotations

POLICY = "NicClusterPolicy"
POOL_FIELDS = (
    "spec.subnet",
    "spec.perNodeBlockSize",
    "spec.cidr",
    "spec.perNodeNetworkPrefix",
    "spec.staticAllocations",
)
NETWORKS = (
    "SriovNetwork",
    "SriovIBNetwork",
    "MacvlanNetwork",
    "HostDeviceNetwork",
    "IPoIBNetwork",
    "NetworkAttachmentDefinition",
)
# Parts of a NicClusterPolicy whose DaemonSet rolls with them.
DAEMONS = {
    "spec.secondaryNetwork.multus": "Multus restarts on each node: pods that start meanwhile wait",
    "spec.secondaryNetwork.cniPlugins": "the CNI plugins are copied to the nodes anew; running pods notice nothing",
    "spec.nvIpam": "nv-ipam restarts: pods that start meanwhile wait for an address",
    "spec.sriovDevicePlugin": "the device plugin of the PFs restarts: nodes offer none of its resources for some seconds",
    "spec.tolerations": "all its DaemonSets restart, one node after the other",
    "spec.nodeAffinity": "its DaemonSets leave nodes that no longer fit: pods there get no further interfaces",
}


def effect_of(row):
    """The effect of a row of rail_objects ``{kind, action, fields}``."""
    kind, action, fields = row["kind"], row["action"], row.get("fields") or []
    if kind == POLICY and action == "changed":
        return _policy(fields)
    if kind in ("IPPool", "CIDRPool"):
        if action == "deleted":
            return "its addresses are no longer given out; running pods keep theirs"
        if action == "changed" and any(field["path"].startswith(POOL_FIELDS) for field in fields):
            return "nodes get other blocks; running pods keep their addresses, and a new pod may get one that is in use"
    if kind in NETWORKS and action == "changed":
        return "new pods get it; running ones keep what they have"
    if kind in NETWORKS and action == "deleted":
        return "running pods keep what they have; a new one that asks for it does not start"
    return None


def _policy(fields):
    gone = [field for field in fields if field["path"] == "spec.nvIpam" and field["after"] is None]
    if gone:
        return "nv-ipam goes, and its kinds with it: all address pools of the cluster are deleted"
    told = [text for part, text in DAEMONS.items() if any(field["path"].startswith(part) for field in fields)]
    return "; ".join(told) or None
