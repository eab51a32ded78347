# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the GIDs of a node's rails."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.rdma.gid import best_gid_index
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import (
    ROCE,
    Hit,
    NodeRail,
    host_rails_carry_pods,
    node_rails,
    spread,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, rule


def _severity(context: Context) -> str:
    """Error where pods use the node's own rows. Children of a rail with router advertisements get none either when the
    rail gets none; VFs have tables of their own."""
    if host_rails_carry_pods(context):
        return "error"
    children = context.layout.get("network") in ("ipvlan", "macvlan")
    return "warning" if children and context.layout.get("ip_family") == "ipv6_slaac" else "info"


def _roce_rails(context: Context) -> list[NodeRail]:
    return [rail for rail in node_rails(context) if rail.port.get("link_layer") == ROCE]


def _rows(rail: NodeRail) -> list[dict]:
    return [row for row in rail.port["gids"] if row["scope"] != "zero"]


@rule("GID-003", "error", "A rail has link-local GIDs only", needs=("facts",))
def only_link_local(context: Context):
    """Symptom: connections between nodes time out with GID index 0 or 1, which are the only ones there are.

    Cause: the rail's interface has no address but fe80::/10 (or 169.254.0.0/16), and those are not routed between
    nodes. On a rail with router advertisements none arrived, or the kernel does not accept them. An error where pods
    use the host's network; a hint with VFs, which have addresses and GID tables of their own.

    Evidence: the rows of the table with their scope.

    Remedy: give the interface its address. IPv6: see ADDRESS-001 and ADDRESS-002.

    Source: NVIDIA/nccl#769.
    """
    hits = []
    for rail in _roce_rails(context):
        usable = [row for row in _rows(rail) if row["usable"]]
        if usable and all(row["scope"] == "link_local" for row in usable):
            hits.append(Hit(rail, {"device": rail.name, "netdev": rail.netdev, "gids": _rows(rail)}))
    yield from spread(
        context,
        hits,
        lambda where: f"There are link-local GIDs only on {where}",
        "Give the rails' interfaces addresses that are routed between nodes.",
        _severity(context),
    )


@rule("GID-004", "error", "A rail has no usable GID", needs=("facts",))
def no_usable_gid(context: Context):
    """Symptom: the port is ACTIVE and LinkUp, ibv_devinfo prints GIDs, and every connection fails.

    Cause: no row of the table belongs to this network namespace: the rail's interface is in another one, is down, or
    has no address at all. The state of the port belongs to the device and says nothing about addresses; ibv_devinfo
    shows rows that cannot be used.

    Evidence: the state of the port, the size of the table, and why each row that holds a GID cannot be used.

    Remedy: see the reasons of the rows. Bring the interface up in this namespace and give it an address.

    Source: Mellanox/k8s-rdma-shared-dev-plugin#101, Mellanox/k8s-rdma-shared-dev-plugin#72;
    kernel Documentation/ABI/stable/sysfs-class-infiniband.
    """
    hits, open_ones = [], []
    for rail in _roce_rails(context):
        evidence = {
            "device": rail.name,
            "netdev": rail.netdev,
            "state": rail.port["state"],
            "gid_table": rail.port["gid_table"],
            "gids": _rows(rail),
        }
        if any(row["usable"] for row in _rows(rail)):
            continue
        unreadable = rail.port["gid_table"]["reason"] or any(row["usable"] is None for row in _rows(rail))
        (open_ones if unreadable else hits).append(Hit(rail, evidence))
    yield from spread(
        context,
        hits,
        lambda where: f"No GID is usable in the node's network namespace on {where}",
        "See the reasons of the rows; the interface must be up in this namespace and have an address.",
        _severity(context),
    )
    yield from spread(
        context, open_ones, lambda where: f"The GID table cannot be read completely on {where}", unknown=True
    )


@rule(
    "GID-005", "info", "The first rows of a rail's GID table are not usable", needs=("facts",),
    unrehearsed="the rows of a rehearsal node come before those of its pods, and no fault takes its addresses away",
)  # fmt: skip
def foreign_rows_first(context: Context):
    """Symptom: a program that stops at the first unusable row of the table finds no GID; a fixed small index fails.

    Cause: one table serves all namespaces of a port. Rows are handed out in the order in which addresses appear: those
    of pods may come first, and rows whose address was removed stay empty until another one comes.

    Evidence: the index to use and the rows before it.

    Remedy: leave NCCL_IB_GID_INDEX unset where the library chooses itself, else set it for each rail to this index.

    Source: NVIDIA/nccl#551, NVIDIA/nccl#1573.
    """
    hits = []
    for rail in _roce_rails(context):
        best = best_gid_index(rail.port["gids"])
        usable = [row["index"] for row in _rows(rail) if row["usable"]]
        if best is None or min(usable) == 0:
            continue
        before = [row for row in _rows(rail) if row["index"] < min(usable)]
        hits.append(Hit(rail, {"device": rail.name, "gid_index": best, "first_usable": min(usable), "before": before}))
    yield from spread(
        context,
        hits,
        lambda where: f"The table begins with rows that are not usable here on {where}",
        "Take the index from the table, never a fixed one.",
    )


@rule(
    "GID-006", "warning", "The GID of an address has moved to another index", needs=("facts",),
    unrehearsed="it takes facts of an earlier run, which the fleet's one look at its nodes does not have",
)  # fmt: skip
def gid_index_moved(context: Context):
    """Symptom: jobs with a fixed GID index worked, and fail hours later on the same node.

    Cause: addresses were removed and added again. Rows are reused in another order, and what is at the old index now
    is another address.

    Evidence: the address with its index in the earlier run and now, what the old index holds now, and the times of
    both. Without facts of an earlier run (a fact cache) this is not judged.

    Remedy: do not fix the index in settings; find what takes the addresses of the rails away and puts them back.

    Source: NVIDIA/nccl#1333.
    """
    if context.before is None:
        _roce_rails(context)
        return
    hits = []
    for rail in _roce_rails(context):
        old_ports = (((context.before.get("devices") or {}).get(rail.name) or {}).get("ports") or {}).values()
        old = {_key(row): row["index"] for port in old_ports for row in port["gids"] if _is_counted(row)}
        new = {_key(row): row["index"] for row in _rows(rail) if _is_counted(row)}
        held = {row["index"]: row["address"] for row in _rows(rail)}
        moved = [
            {"address": key[0], "before": index, "now": new[key], "at_the_old_index": held.get(index)}
            for key, index in old.items()
            if new.get(key, index) != index
        ]
        if moved:
            times = {"gathered_before": context.before.get("gathered_at"), "gathered": context.facts.get("gathered_at")}
            hits.append(Hit(rail, {"device": rail.name, "moved": moved, **times}))
    for hit in hits:
        first = hit.evidence["moved"][0]
        yield Problem(
            f"The index of {first['address']} moved {first['before']} -> {first['now']} on rail {hit.rail.number} "
            f"({hit.rail.label})",
            "Do not fix GID indexes in settings, and find what removes and adds the rails' addresses.",
            hit.evidence,
            hit.rail.number,
        )


def _key(row: dict) -> tuple:
    return row["address"], row["type"], row["netdev"]


def _is_counted(row: dict) -> bool:
    return row["usable"] is True and row["type"] == "RoCE v2" and row["scope"] not in ("zero", "link_local")
