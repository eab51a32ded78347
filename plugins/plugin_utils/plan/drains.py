# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes the SR-IOV operator empties at once, and which pods it evicts.

Rules: k8snetworkplumbingwg/sriov-network-operator, controllers/drain_controller*.go and pkg/drain.
"""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import maintenance
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import label_selector_matches

PERCENT = re.compile(r"(\d+)%\Z")
# Nodes that no pool configuration selects share a pool of the operator's own.
# A pod that may take longer than this to end, in seconds, is told; shorter ones are in the estimate.
USUAL_GRACE = 30
BUILT_IN = {"pool": None, "value": 1}


def pools_of(labels, pools):
    """The SriovNetworkPoolConfigs of a node. The selector is a LabelSelector; an absent or empty one has every node."""
    return [
        pool
        for pool in pools
        if not ((pool.get("spec") or {}).get("ovsHardwareOffloadConfig") or {}).get("name")
        and label_selector_matches((pool.get("spec") or {}).get("nodeSelector") or {}, labels or {})
    ]


def limit_of(value, members):
    """How many of ``members`` nodes may be empty at once; None when the value is none the operator knows.

    Absent is no limit; a percentage rounds down, so a small pool may never drain.
    """
    if value is None:
        return members
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = PERCENT.match(str(value))
    if match:
        return members * int(match.group(1)) // 100
    return int(value) if re.fullmatch(r"\d+", str(value)) else None


def pools_table(nodes, pools):
    """{node: {pool, value, members, at_once, never}} for Nodes ``[{name, labels}]``.

    ``never`` says why the operator would never drain the node, else None.
    """
    rows, members = {}, {}
    for node in nodes:
        mine = pools_of(node.get("labels"), pools)
        names = sorted(maintenance.metadata(pool).get("name") or "" for pool in mine)
        if len(mine) > 1:
            text = (
                f"it is in {len(mine)} pool configurations ({', '.join(names)}): the operator never starts a drain then"
            )
            rows[node["name"]] = {"pool": None, "value": None, "at_once": 0, "never": text}
            continue
        own = {"pool": names[0], "value": (mine[0].get("spec") or {}).get("maxUnavailable")} if mine else dict(BUILT_IN)
        rows[node["name"]] = {**own, "never": None}
        members.setdefault(own["pool"], []).append(node["name"])
    for pool, names in members.items():
        for name in names:
            row = rows[name]
            row["members"], row["at_once"] = len(names), limit_of(row["value"], len(names))
            if row["at_once"] is None:
                row["never"] = (
                    f"maxUnavailable of pool configuration {pool} is {row['value']!r}, neither a number nor a percentage"
                )
            elif row["at_once"] < 1:
                row["never"] = (
                    f"maxUnavailable {row['value']} of pool configuration {pool} allows none of its {len(names)} nodes to drain"
                )
    return rows


def evicted(rows, whole, prefix):
    """``[{namespace, name, why, empty_dir}]`` of the pods of a node that a drain takes; empty_dir names the volumes whose
    content is lost.

    :param rows: the pods, as ``module_utils.cluster.plan_facts.pod_row`` tells them.
    :param whole: the node is emptied for a reboot; else only pods go that request a resource whose name begins with
        ``prefix``. With nvidia.com that is every pod with a GPU.
    """
    found = []
    for row in sorted(rows, key=lambda item: (item["namespace"] or "", item["name"] or "")):
        asked = [name for name in row["resources"] if name.startswith(prefix)]
        if whole or asked:
            why = "the node is rebooted" if whole else f"requests {', '.join(asked)}"
            found.append(
                {"namespace": row["namespace"], "name": row["name"], "why": why, "empty_dir": list(row["empty_dirs"])}
            )
    return found


def holdups_of(pods, evicted):
    """What may make a drain take longer than usual: one sentence a pod."""
    going = {(row["namespace"], row["name"]) for row in evicted}
    found = []
    for row in pods:
        if (row["namespace"], row["name"]) not in going:
            continue
        if row["blocked"]:
            found.append(f"not evicted as things are: {row['blocked']}")
        elif (row["grace"] or 0) > USUAL_GRACE:
            found.append(f"pod {row['namespace']}/{row['name']} has {row['grace']} s to end")
    return found
