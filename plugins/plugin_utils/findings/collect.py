# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring together what different plays found out about the nodes: one Context a node for the rules and the report."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import node_of
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.test_pods import LABEL
from ansible_collections.railyard.rdma.plugins.plugin_utils.bandwidth import of_host
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import interfaces
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.result import host_part


def contexts(
    model: dict,
    facts: dict,
    nodes=None,
    attachments=None,
    pods=None,
    pod_hosts=None,
    addresses=None,
    pool_configs=None,
    before=None,
    cluster=None,
    chains=None,
    operator=None,
    returned=None,
    other_pods=None,
    nccl=None,
    bandwidth=None,
) -> list[Context]:
    """Contexts of all hosts of a rail model, in the model's order.

    :param facts: {host: ``ansible_facts.rdma`` or None}.
    :param nodes: Node objects of the cluster, None when it was not asked.
    :param attachments: [``namespace/name``] of the NetworkAttachmentDefinitions, None when not asked.
    :param chains: {``namespace/name``: [types of its plugins] or None} of the attachments, None when not asked.
    :param pods: what pod_rdma_facts returned as ``pods``.
    :param pod_hosts: {host: name of its pod}, or {host: [{name, rails, count}]} with what each of its pods asked for (as
        verify_pods.pods tells).
    :param addresses: {host: ansible_host}, to find nodes of another name.
    :param pool_configs: SriovNetworkPoolConfig objects, None when not asked.
    :param before: {host: ``ansible_facts.rdma`` of an earlier run}.
    :param cluster: what rail_state returned, with ``wanted`` and ``drain_limit``; its nodes serve when ``nodes`` is None.
    :param operator: what operator_ready returned as ``operator``.
    :param nccl: the result of the NCCL test.
    :param bandwidth: the result of a benchmark.
    :param returned: {host: ``ansible_facts.rdma`` after its test pods went}.
    :param other_pods: Pod objects of the nodes on which something that a test pod had is missing, None when not asked.
    """
    made = []
    if cluster is not None:
        nodes = cluster.get("nodes") if nodes is None else nodes
        hosts = {host: node_of(host, (addresses or {}).get(host), nodes or []) for host in model["hosts"]}
        cluster = {**cluster, "hosts": {host: n and n["metadata"]["name"] for host, n in hosts.items()}}
    for layout in model["layouts"]:
        for host in layout["hosts"]:
            address = (addresses or {}).get(host)
            node = node_of(host, address, nodes or [])
            known, reached = None, [address] if address else []
            if node is not None:
                rows = (node.get("status") or {}).get("addresses") or []
                reached += [row["address"] for row in rows if row.get("address")]
                known = {
                    "node": node["metadata"]["name"],
                    "allocatable": (node.get("status") or {}).get("allocatable"),
                    "labels": node["metadata"].get("labels") or {},
                    "attachments": attachments,
                    "chains": chains,
                    "pools": pool_configs,
                    "holders": None if other_pods is None else _holders(layout, node["metadata"]["name"], other_pods),
                }
            parts = _parts(layout, (pod_hosts or {}).get(host), pods or {})
            made.append(
                Context(
                    host,
                    layout,
                    facts.get(host),
                    known,
                    parts[0][1] if parts else None,
                    (before or {}).get(host),
                    tuple(dict.fromkeys(reached)),
                    cluster,
                    operator,
                    (returned or {}).get(host),
                    tuple(parts) if len(parts) > 1 else (),
                    nccl=None if nccl is None else host_part(nccl, host),
                    bandwidth=None if bandwidth is None else of_host(bandwidth, host),
                )
            )
    return made


def _holders(layout: dict, node: str, pods: list[dict]) -> list[str]:
    """``namespace/name`` of the pods of a node, but for test pods, that ask for resources of the layout."""
    names = {row["full_name"] for row in layout.get("resources") or []}
    found = []
    for pod in pods:
        spec, meta = pod["spec"], pod["metadata"]
        over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if spec.get("nodeName") != node or over or LABEL in (meta.get("labels") or {}):
            continue
        rows = [(one.get("resources") or {}).get("requests") or {} for one in spec["containers"]]
        if any(names & set(row) for row in rows):
            found.append(f"{meta['namespace']}/{meta['name']}")
    return sorted(found)


def _parts(layout: dict, told, pods: dict) -> list[tuple[dict, dict | None]]:
    """(layout with the rails that it asked for, facts or None) of each test pod of a host."""
    rows = [{"name": told}] if isinstance(told, str) else told or []
    found = []
    for row in rows:
        pod = pods.get(row["name"])
        pod = None if pod is None else {**pod, "name": row["name"]}
        found.append((_asked(layout, row, pod), pod))
    return found


def _asked(layout: dict, row: dict, pod: dict | None) -> dict:
    """The layout with the rails that a pod asked for.

    A pod that asked for any few of them has asked for those that it got, when these are as many; else nobody knows, and
    all count.
    """
    wanted, count = row.get("rails"), row.get("count")
    if wanted is None and count not in (None, len(layout["rails"])) and pod is not None and pod["reachable"]:
        got = [number for number, name in interfaces(layout, pod).items() if name is not None]
        wanted = got if len(got) == count else None
    if wanted is None:
        return layout
    return {
        **layout,
        "rails": [rail for rail in layout["rails"] if rail["rail"] in wanted],
        "all_rails": layout["rails"],
    }
