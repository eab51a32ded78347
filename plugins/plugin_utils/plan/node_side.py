# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What prepare_nodes does to a node: the option file, the boot images, one reboot, and whose pods its drain evicts.

The role rdma_netns looks at the node in check mode (tasks/plan.yml); here its answer is put into words.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.plan import drains
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.estimate import Minutes


def prepared(host, look, reached, node, pods, minutes: Minutes):
    """``{host, file, images, configured, taken_over, runtime, reboot, reasons, evicted, minutes, stops, holdups}``.

    file, reboot and minutes are None when they are not known, evicted when the pods are not.

    :param look: the fact ``rdma_netns_plan`` of the host; None when the role has nothing to do (mode keep) or failed.
    :param reached: whether the facts of the host could be read.
    :param node: name of its node in the cluster, None when it is in none.
    :param pods: rows of the node's pods, None when they could not be read.
    """
    row = {"host": host, "file": False, "images": [], "configured": [], "taken_over": [], "runtime": False}
    row |= {"reboot": False, "reasons": [], "evicted": [], "minutes": 0, "stops": [], "holdups": []}
    if not reached:
        row |= {"file": None, "reboot": None, "minutes": None, "evicted": None}
        return {**row, "stops": ["the node cannot be reached, or its facts cannot be read"]}
    if look is None:
        return row
    if look.get("failure"):
        row |= {"file": None, "reboot": None, "minutes": None, "evicted": None}
        return {**row, "stops": [look["failure"]]}
    row |= {key: look[key] for key in ("file", "images", "configured", "taken_over")}
    if look["pending"] and look["switches"]:
        row |= {"runtime": True, "reboot": None}
        row["reasons"].append(
            f"the running kernel is switched to {look['mode']} without a reboot, when nothing stands in the way"
        )
    elif look["pending"]:
        row["reboot"] = True
        row["reasons"].append(f"the netns mode goes from {look['live']} to {look['mode']}, by one reboot")
    row["minutes"] = minutes.boot_image if row["images"] else 0
    if row["reboot"]:
        _rebooted(row, look, node, pods, minutes)
    return row


def _rebooted(row, look, node, pods, minutes):
    row["minutes"] += minutes.reboot
    if not look["reboot_allowed"]:
        row["stops"].append(
            "it needs a reboot, and rdma_netns_reboot_allowed is false: site.yml prepares the nodes and ends there"
        )
    if look["drain"] == "never" or node is None:
        why = "rdma_netns_drain is never" if look["drain"] == "never" else look["node_reason"] or "it is in no cluster"
        row["reasons"].append(f"it is not drained before: {why}")
        return
    row["minutes"] += minutes.drain
    if pods is None:
        row["evicted"] = None
        row["reasons"].append("which pods its drain would evict is not known")
        return
    going, staying = [], []
    for pod in pods:
        if pod["unmanaged"] and not pod["own"] and look["unmanaged_pods"] != "evict":
            staying.append(f"pod {pod['namespace']}/{pod['name']}: no controller would make it anew elsewhere")
        elif pod["empty_dirs"] and look["emptydir"] != "evict":
            staying.append(
                f"pod {pod['namespace']}/{pod['name']}: what is in its emptyDir {', '.join(pod['empty_dirs'])} would be lost"
            )
        else:
            going.append(pod)
    if staying:
        row["stops"].append(f"it cannot be drained: {'; '.join(sorted(staying))}")
    row["evicted"] = drains.evicted(going, True, "")
    row["holdups"] = drains.holdups_of(pods, row["evicted"])
