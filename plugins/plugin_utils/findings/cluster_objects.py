# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How rules look at the objects of the cluster: what is there, what will be there, and how they speak of many nodes."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.foreign import identity, metadata, short
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.owned import appliers
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import (
    Context,
    Problem,
    Unreadable,
)

MANAGER = "railyard"
API_ONLY = "it is about objects of the API alone; tests/rehearsal/cluster shows it without nodes"


def part(context: Context, name: str) -> list | dict:
    """A part of what rail_state read. Raises Unreadable with the reason when it could not be read."""
    value = context.cluster.get(name)
    if value is None:
        reasons = context.cluster.get("reasons") or {}
        raise Unreadable(name.replace("_", " "), reasons.get(name) or "it was not asked for")
    return value


def wanted(context: Context, *kinds: str) -> list[dict]:
    """The objects of these kinds that are to be applied."""
    return [obj for obj in part(context, "wanted") if obj.get("kind") in kinds]


def others(context: Context, name: str, kind: str) -> list[dict]:
    """Live objects that are there besides the wanted ones: what we alone applied earlier goes with the next apply."""
    keys = {identity(obj) for obj in wanted(context, kind)}
    found = [{"kind": kind, **obj} for obj in part(context, name)]
    return [obj for obj in found if identity(obj) not in keys and appliers(obj) != {MANAGER}]


def node_of(context: Context) -> str | None:
    """Name of the Node of a context's host."""
    return (context.cluster.get("hosts") or {}).get(context.node)


def state_of(context: Context) -> dict | None:
    """The SriovNetworkNodeState of a context's node."""
    return next((s for s in part(context, "node_states") if metadata(s).get("name") == node_of(context)), None)


def interfaces_by_pci(state: dict | None) -> dict[str, dict]:
    """{PCI address: entry of status.interfaces}"""
    rows = ((state or {}).get("status") or {}).get("interfaces") or []
    return {entry.get("pciAddress"): entry for entry in rows}


def together(hits: list[tuple], severity: str | None = None) -> Iterator[Problem]:
    """Problems of many nodes: one for each text, on the first node, with the others in ``evidence.nodes``.

    :param hits: [(node, summary, remedy, evidence, rail)]; the summary holds ``{where}`` for the nodes.
    """
    groups: dict[tuple, list] = {}
    for node, summary, remedy, evidence, rail in hits:
        groups.setdefault((summary, remedy, rail), []).append((node, evidence))
    for (summary, remedy, rail), rows in groups.items():
        nodes = [node for node, _evidence in rows]
        evidence = {**rows[0][1], "nodes": nodes} if len(nodes) > 1 else rows[0][1]
        yield Problem(summary.replace("{where}", short(nodes)), remedy, evidence, rail, severity, nodes[0])
