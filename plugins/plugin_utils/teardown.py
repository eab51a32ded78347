# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What taking the rails away would do: which objects go, what nodes and pods lose, and what speaks against it.

Pure functions over what ``rail_state`` and ``rail_objects`` in check mode returned.
"""

from __future__ import annotations

import json

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.foreign import identity, metadata, short
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.owned import appliers
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.plan_facts import cluster_of
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.node_effects import ToCome, effects

MANAGER = "railyard"
# What can be kept, in the order in which it goes.
PARTS = ("networks", "policies", "pool_configs", "pools", "nic_cluster_policy")
# What a kept part needs.
NEEDS = {"networks": ("policies", "pools", "nic_cluster_policy"), "pools": ("nic_cluster_policy",)}
# A policy that is not selected any more takes the PF's MTU with it; operator's pkg/host and its saved initial state.
MTU_TEXT = "their MTU falls back to what it was before, or to 1500 where the operator does not know"


class KeepError(ValueError):
    """The list of what is to be kept is not usable."""


def check_keep(keep) -> list[str]:
    """The parts that are kept, in order. Raises KeepError for unknown ones and for one that needs another."""
    if not isinstance(keep, list) or not all(isinstance(name, str) for name in keep):
        raise KeepError(f"got {keep!r}, allowed is a list of {', '.join(PARTS)}")
    unknown = sorted(set(keep) - set(PARTS))
    if unknown:
        raise KeepError(f"got {', '.join(unknown)}, allowed are {', '.join(PARTS)}")
    for part in keep:
        lacking = [need for need in NEEDS.get(part, ()) if need not in keep]
        if lacking:
            raise KeepError(f"{part} without {', '.join(lacking)}: what is kept would not work; keep these as well")
    return [part for part in PARTS if part in keep]


def consequences(model: dict, state: dict, drains: dict, going: list[dict], keep: list[str]) -> dict:
    """``{keep, going, users, refusals, lines, nic_cluster_policy, nothing}``.

    :param going: rows of rail_objects in check mode; those with the action deleted are what goes.
    :returns: users are the running pods that use what goes, refusals sentences that only a confirmation overrules,
        lines what a person must know before, nic_cluster_policy whether that one goes, nothing whether there is
        nothing to do.
    """
    keep = check_keep(keep)
    rows = [row for row in going if row["action"] == "deleted"]
    policy = _nic_cluster_policy(state, keep)
    networks, resources = _names(model, rows)
    users = _users(state, networks, resources)
    lines = [f"{row['kind']} {row['namespace']}/{row['name']} goes" for row in rows]
    refusals = []
    if users is None:
        refusals.append(f"which pods use the rails is not known: {_reason(state, 'pods')}")
    elif users:
        refusals.append(f"{len(users)} running pods use what goes: {short(users)}")
        lines += [f"pod {name} runs and uses what goes" for name in users]
    lines += _node_lines(state, drains, rows)
    if policy["goes"]:
        lines.append("NicClusterPolicy nic-cluster-policy goes: Multus, the CNI plugins and nv-ipam end with it")
        lines += [f"{name} goes with it, and is not ours" for name in policy["pools"]]
        if policy["pools"]:
            refusals.append(f"the address pools of others go with the NicClusterPolicy: {short(policy['pools'])}")
    elif policy["reason"]:
        lines.append(f"NicClusterPolicy nic-cluster-policy stays: {policy['reason']}")
    return {
        "keep": keep,
        "going": rows,
        "users": users or [],
        "refusals": refusals,
        "lines": lines,
        "nic_cluster_policy": policy["goes"],
        "nothing": not rows and not policy["goes"],
    }


def _reason(state, part):
    return (state.get("reasons") or {}).get(part) or "it was not read"


def _names(model, rows):
    """({"namespace/name" of attachments that go}, {resource names that go})."""
    networks = {f"{row['namespace']}/{row['name']}" for row in rows if row["kind"] == "NetworkAttachmentDefinition"}
    layouts = model["layouts"]
    gone = {row["name"] for row in rows if row["kind"] == "SriovNetwork"}
    for layout in layouts:
        place = layout["namespaces"]["networks"]
        networks |= {f"{place}/{rail['network']}" for rail in layout["rails"] if rail.get("network") in gone}
    with_policies = any(row["kind"] == "SriovNetworkNodePolicy" for row in rows)
    resources = {row["full_name"] for layout in layouts for row in layout.get("resources") or [] if with_policies}
    return networks, resources


def _asked(pod):
    """Names of the networks in a pod's annotation, with their namespace."""
    text = (pod.get("asks_for") or "").strip()
    if text.startswith("["):
        return {f"{row.get('namespace') or pod['namespace']}/{row.get('name')}" for row in _json_rows(text)}
    names = [item.strip().partition("@")[0] for item in text.split(",") if item.strip()]
    return {name if "/" in name else f"{pod['namespace']}/{name}" for name in names}


def _json_rows(text):
    try:
        rows = json.loads(text)
    except ValueError:
        return []
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _users(state, networks, resources):
    """``namespace/name`` of running pods that have a network or a resource that goes; None when pods are not known."""
    if state.get("pods") is None:
        return None
    found = []
    for pod in state["pods"]:
        if pod.get("phase") in ("Succeeded", "Failed"):
            continue
        if _asked(pod) & networks or set(pod.get("requests") or {}) & resources:
            found.append(f"{pod['namespace']}/{pod['name']}")
    return sorted(found)


def _node_lines(state, drains, rows):
    """What happens on each node, grouped by equal sentences."""
    gone = {row["name"] for row in rows if row["kind"] == "SriovNetworkNodePolicy"}
    if not gone:
        return []
    if state.get("policies") is None:
        return [f"what happens on the nodes is not known: {_reason(state, 'policies')}"]
    cluster = cluster_of(state, drains)
    left = [p for p in state["policies"] if metadata(p).get("name") not in gone]
    to_come = ToCome(
        policies=left,
        pool_configs=state.get("pool_configs") or [],
        prefix=cluster.get("resource_prefix") or "nvidia.com",
        disable_drain=bool(cluster.get("disable_drain")),
    )
    told: dict[str, list] = {}
    for row in effects(cluster, to_come):
        pfs = [reason for reason in row["reasons"] if reason["pci"]]
        text = f"effect {row['effect']}"
        if pfs:
            text += f": {len(pfs)} PFs lose their VFs, {MTU_TEXT}"
        elif row["reasons"]:
            text += f": {row['reasons'][0]['text']}"
        if row["evicted"] is None:
            text += "; which pods are evicted is not known"
        elif row["evicted"]:
            pods = [f"{pod['namespace']}/{pod['name']}" for pod in row["evicted"]]
            lost = sum(bool(pod.get("empty_dir")) for pod in row["evicted"])
            text += f"; evicted are {short(pods)}" + (f", {lost} of them lose an emptyDir" if lost else "")
        for error in row["errors"]:
            text += f"; {error}"
        told.setdefault(text, []).append(row["node"])
    return [f"{short(nodes)}: {text}" for text, nodes in told.items()]


def _nic_cluster_policy(state, keep):
    """``{goes, reason, pools}``: whether the NicClusterPolicy goes, why not, and which pools of others go with it."""
    live = state.get("nic_cluster_policies")
    if "nic_cluster_policy" in keep:
        return {"goes": False, "reason": "it is kept", "pools": []}
    if live is None:
        return {"goes": False, "reason": _reason(state, "nic_cluster_policies"), "pools": []}
    ours = [p for p in live if metadata(p).get("name") == "nic-cluster-policy"]
    if not ours:
        return {"goes": False, "reason": "", "pools": []}
    others = sorted(appliers(ours[0]) - {MANAGER})
    if MANAGER not in appliers(ours[0]) or others:
        who = f"it was applied by {', '.join(others)}, too" if others else "it was not applied by us"
        return {"goes": False, "reason": who, "pools": []}
    pools = [p for part in ("ip_pools", "cidr_pools") for p in state.get(part) or [] if MANAGER not in appliers(p)]
    return {"goes": True, "reason": "", "pools": [f"{identity(p)[0]} {metadata(p).get('name')}" for p in pools]}
