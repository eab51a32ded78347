# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about how many nodes may be disturbed at once, and about namespaces and pools that an apply would hit."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import foreign
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.foreign import metadata, short
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.cluster_objects import (
    API_ONLY,
    node_of,
    others,
    part,
    together,
    wanted,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import FLEET, Context, Problem, rule

CONFIG = "SriovNetworkPoolConfig"
DEFAULT_LIMIT = "50%"


def at_once(value: int | str | None, nodes: int) -> int:
    """How many of ``nodes`` a maxUnavailable lets go at once: absent is no limit, a percent rounds down (intstr of
    k8s.io/apimachinery, as the operator calls it)."""
    if value is None:
        return nodes
    text = str(value)
    return min(nodes, nodes * int(text[:-1]) // 100 if text.endswith("%") else int(text))


def allowed_at_once(limit: int | str, nodes: int) -> int:
    """How many of ``nodes`` may go at once without being confirmed: at least one, and a percent rounds up."""
    text = str(limit)
    return max(1, -(-nodes * int(text[:-1]) // 100) if text.endswith("%") else int(text))


def configs_of(context: Context) -> list[dict]:
    """All pool configurations that will be there after the apply. Those of OVS hardware offload are no pools."""
    mine = wanted(context, CONFIG)
    theirs = others(context, "pool_configs", CONFIG)
    return [
        c for c in [*mine, *theirs] if not ((c.get("spec") or {}).get("ovsHardwareOffloadConfig") or {}).get("name")
    ]


def drain_lines(contexts: list[Context]) -> list[str]:
    """How many nodes each pool lets go at once, one sentence a pool; one about what is missing where it is not known."""
    if not contexts:
        return []
    cluster = contexts[0].cluster
    if cluster.get("nodes") is None or cluster.get("pool_configs") is None:
        return ["How many nodes may be drained at once is not known: nodes or pool configurations could not be read."]
    lines = []
    for config in configs_of(contexts[0]):
        taken = foreign.pool_config_nodes(config, cluster["nodes"])
        value = (config.get("spec") or {}).get("maxUnavailable")
        told = "no limit" if value is None else f"maxUnavailable {value}"
        name = metadata(config).get("name")
        lines.append(
            f"Pool {name} ({told}): at most {at_once(value, len(taken))} of {len(taken)} nodes are drained at once."
        )
    return lines


@rule("POL-010", "error", "A node is in two pool configurations", needs=("cluster",), scope=FLEET, unrehearsed=API_ONLY)
def two_pool_configs(contexts: list[Context]):
    """Symptom: the node waits with Drain_Required and is never drained.

    Cause: two SriovNetworkPoolConfigs select the node; the operator calls that an error and starts no drain. An empty
    nodeSelector takes every node. It is a LabelSelector: a plain label below it is unknown to the CRD, the API server
    drops it with a warning only, and what stays is empty.

    Evidence: the pool configurations and their selectors.

    Remedy: delete one of them, or give it matchLabels that only its own nodes have.

    Source: k8snetworkplumbingwg/sriov-network-operator, controllers/drain_controller.go.
    """
    nodes = {metadata(node).get("name"): node for node in part(contexts[0], "nodes")}
    configs, hits = configs_of(contexts[0]), []
    for context in contexts:
        node = nodes.get(node_of(context))
        taken = [c for c in configs if node is not None and foreign.pool_config_nodes(c, [node])]
        if len(taken) < 2:
            continue
        names = [metadata(c).get("name") for c in taken]
        empty = [metadata(c).get("name") for c in taken if not (c.get("spec") or {}).get("nodeSelector")]
        text = f"{{where}} is in the pool configurations {short(names)}, so it is never drained"
        remedy = "Delete one of them, or give it a nodeSelector of its own nodes."
        if empty:
            remedy = f"Give {short(empty)} a nodeSelector with matchLabels: it is empty, so it takes every node."
        selectors = {metadata(c).get("name"): (c.get("spec") or {}).get("nodeSelector") for c in taken}
        hits.append((context.node, text, remedy, {"pool_configs": selectors}, None))
    yield from together(hits)


@rule(
    "POL-011",
    "error",
    "maxUnavailable is 0 for the number of nodes",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def never_drains(contexts: list[Context]):
    """Symptom: no node of the pool is ever drained, and every policy change waits for ever.

    Cause: a percentage rounds down, and a small share of few nodes is 0.

    Evidence: maxUnavailable and the number of nodes that the selector takes.

    Remedy: a number, 1 for instance, in rails_max_unavailable.

    Source: the operator's pool handling; k8s.io/apimachinery/pkg/util/intstr.
    """
    nodes, names = part(contexts[0], "nodes"), {node_of(context) for context in contexts}
    for config in configs_of(contexts[0]):
        taken = foreign.pool_config_nodes(config, nodes)
        value = (config.get("spec") or {}).get("maxUnavailable")
        if taken & names and at_once(value, len(taken)) == 0:
            text = f"maxUnavailable {value} of {len(taken)} nodes is 0: the pool {metadata(config).get('name')} never drains"
            evidence = {"maxUnavailable": value, "matching_nodes": len(taken)}
            yield Problem(text, "Set rails_max_unavailable to a number.", evidence, node=contexts[0].node)


@rule(
    "POL-012",
    "error",
    "More nodes may go down at once than was confirmed",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def too_many_at_once(contexts: list[Context]):
    """Symptom: all GPU nodes are drained at the same time, and every job ends.

    Cause: maxUnavailable of the pool configuration is large, "100%" for instance, or absent, which means no limit.

    Evidence: maxUnavailable, the number of nodes that the selector takes, how many that is, and the limit.

    Remedy: a smaller rails_max_unavailable; or confirm it by rail_networks_drain_limit.

    Source: k8snetworkplumbingwg/sriov-network-operator#230; published pool defaults of "100%".
    """
    nodes, names = part(contexts[0], "nodes"), {node_of(context) for context in contexts}
    limit = contexts[0].cluster.get("drain_limit") or DEFAULT_LIMIT
    for config in configs_of(contexts[0]):
        taken = foreign.pool_config_nodes(config, nodes)
        value = (config.get("spec") or {}).get("maxUnavailable")
        count, allowed = at_once(value, len(taken)), allowed_at_once(limit, len(taken))
        if taken & names and count > allowed:
            told = "no limit" if value is None else f"maxUnavailable {value}"
            text = (
                f"The pool {metadata(config).get('name')} ({told}) lets {count} of {len(taken)} nodes go down at once; "
                f"{allowed} are allowed without a confirmation"
            )
            evidence = {"maxUnavailable": value, "matching_nodes": len(taken), "at_once": count, "limit": limit}
            remedy = "Lower rails_max_unavailable, or confirm it: raise rail_networks_drain_limit."
            yield Problem(text, remedy, evidence, node=contexts[0].node)


@rule(
    "POL-013",
    "error",
    "The namespace of the networks does not exist",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def namespace_missing(contexts: list[Context]):
    """Symptom: the SriovNetworks are there and no attachment comes; only the operator's log says why.

    Cause: the namespace in rails_networks_namespace does not exist.

    Evidence: the namespace, and those that exist.

    Remedy: make the namespace, or correct rails_networks_namespace.

    Source: k8snetworkplumbingwg/sriov-network-operator, controllers.
    """
    known = set(part(contexts[0], "namespaces"))
    layout = contexts[0].layout
    name = layout["namespaces"]["networks"]
    if any(rail.get("network") for rail in layout["rails"]) and name not in known:
        evidence = {"namespace": name, "namespaces": sorted(known)}
        remedy = "Make the namespace, or correct rails_networks_namespace."
        yield Problem(f"The namespace {name} does not exist", remedy, evidence, node=contexts[0].node)


@rule(
    "POL-014",
    "error",
    "The apply would delete the address pools of others",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def pools_would_go(contexts: list[Context]):
    """Symptom: all IPPools and CIDRPools of the cluster are gone after an apply.

    Cause: the kinds of nv-ipam belong to the NicClusterPolicy. Once it has no spec.nvIpam, the operator deletes the
    CustomResourceDefinitions, and with them every pool.

    Evidence: the pools that are not ours.

    Remedy: keep a rail network that uses nv-ipam, or let the owners move their pools before.

    Source: Mellanox/network-operator, the clean-up list of the state of nv-ipam.
    """
    policies = wanted(contexts[0], "NicClusterPolicy")
    live = part(contexts[0], "nic_cluster_policies")
    had = any((p.get("spec") or {}).get("nvIpam") for p in live)
    keeps = any((p.get("spec") or {}).get("nvIpam") for p in policies)
    theirs = [p for kind in ("IPPool", "CIDRPool") for p in others(contexts[0], _PARTS[kind], kind)]
    if policies and had and not keeps and theirs:
        names = sorted(f"{p['kind']} {metadata(p).get('name')}" for p in theirs)
        remedy = "Keep a network that uses nv-ipam, or let the owners move their pools before."
        yield Problem(
            f"The NicClusterPolicy loses nvIpam, and {short(names)} would go with it",
            remedy,
            {"pools": names},
            node=contexts[0].node,
        )


@rule(
    "POL-015",
    "error",
    "A static allocation does not fit the nodes of the cluster",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def static_allocations(contexts: list[Context]):
    """Symptom: pods of one node have rail addresses that nobody routes to it.

    Cause: a CIDRPool gives a node that has no entry in staticAllocations the next free prefix, which need not be the one
    that the rail router routes there. The entry names the inventory's host and not the Node, or the node was forgotten.

    Evidence: the pool, the names of its entries, and the layout's nodes.

    Remedy: name the Nodes of the cluster in static_allocations of rails_pools, all nodes of the layout.

    Source: Mellanox/nvidia-k8s-ipam, CIDRPool.
    """
    known = {metadata(node).get("name") for node in part(contexts[0], "nodes")}
    names = {context.node: node_of(context) for context in contexts}
    for pool in contexts[0].layout.get("pools") or []:
        listed = [row.get("node_name") for row in pool.get("static_allocations") or []]
        if not listed:
            continue
        strangers = sorted(set(listed) - known)
        if strangers:
            text = f"static_allocations of {pool['name']} name {short(strangers)}, which the cluster does not have"
            remedy = "Use the names of the Node objects."
            yield Problem(text, remedy, {"pool": pool["name"], "names": listed}, node=contexts[0].node)
        for host, name in names.items():
            if name is not None and name not in listed:
                text = f"{pool['name']} has static allocations and none for {name}: it gets any free prefix"
                remedy = "Add what the rail router routes to the node to static_allocations."
                yield Problem(text, remedy, {"pool": pool["name"], "names": listed}, node=host)


_PARTS = {"IPPool": "ip_pools", "CIDRPool": "cidr_pools"}
