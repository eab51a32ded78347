# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The proof document: all that a run found out about the rails, as one piece of data."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.collect import contexts
from ansible_collections.railyard.rdma.plugins.plugin_utils.report import gaps
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.bandwidth import measured
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.cells import (
    FAIL,
    PASS,
    UNKNOWN,
    about_rate,
    cells,
    concerns,
    worst,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.jobs import jobs, state
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.paths import paths
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import mapping, plain, rows, words

SCHEMA = 1


def proof(
    model: dict,
    facts: dict | None = None,
    pods: dict | None = None,
    result: dict | None = None,
    bandwidth: dict | None = None,
    nccl: dict | None = None,
    test_pods: Iterable[dict] = (),
    made_at: str | None = None,
    version: str | None = None,
) -> dict:
    """The proof document of a run. Only the model must be there; what is missing is told in ``not_measured``.

    :param model: the rail model.
    :param facts: {host: ``ansible_facts.rdma`` or None}.
    :param pods: what pod_rdma_facts returned as ``pods``, None when no pod was asked.
    :param result: what the filter findings returned.
    :param bandwidth: the fact ``rdma_bandwidth_result``.
    :param nccl: the fact ``rdma_nccl_result``.
    :param test_pods: [{host, pod}] of the filter verify_pods: which pod stands for which host. Without it the pods' own
        ``node`` says so.
    :param made_at: time of the report, UTC, ISO 8601.
    :param version: version of the collection.
    :returns: as ``roles/report/files/proof.schema.json`` describes.
    """
    result, damaged = _taken(result=result, bandwidth=bandwidth, nccl=nccl)
    judged, bandwidth, nccl = result["result"], result["bandwidth"], result["nccl"]
    findings, table = (rows(mapping(judged).get(key)) for key in ("findings", "rows"))
    judged_nodes = {row.get("node") for row in table}
    by_node: dict[str, list[dict]] = {}
    for item in findings:
        by_node.setdefault(item["node"], []).append(item)
    rates = measured(bandwidth)
    for node, by_rail in rates.items():
        for rail, rate in by_rail.items():
            judged_at = [item for item in by_node.get(rate["client"], []) if about_rate(item) and concerns(item, rail)]
            rate["told"] = rate["client"] != node and bool(judged_at)
    names = _pod_names(model, pods, test_pods)
    known = contexts(model, facts or {}, pods=pods, pod_hosts=names)
    grid, topology, lost = [], [], {}
    for context in known:
        made = cells(context, by_node.get(context.node, []), rates.get(context.node, {}), pods is not None)
        if context.node not in judged_nodes:
            # Nobody judged the node: whatever was seen proves nothing.
            made = [{**cell, "state": worst([cell["state"], UNKNOWN])} for cell in made]
        grid.extend(made)
        found, reason = paths(context)
        topology.extend([found] if found else [])
        if reason:
            lost[context.node] = reason
    return {
        "schema": SCHEMA,
        "made_at": made_at,
        "version": version,
        "verdict": _verdict(table, grid, nccl),
        "rows": plain(table),
        "findings": plain(findings),
        "cells": plain(grid),
        "topology": plain(topology),
        "bandwidth": plain(bandwidth),
        "nccl": plain(nccl),
        "not_measured": plain(
            [
                *damaged,
                *gaps.gaps(known, judged, pods, grid, bandwidth, nccl, lost),
            ]
        ),
        "moved": None,
    }


def _taken(**inputs) -> tuple[dict, list[dict]]:
    """Inputs that are mappings or None; others are taken as missing and told."""
    taken, damaged = {}, []
    for name, value in inputs.items():
        taken[name] = value if isinstance(value, dict) else None
        if value is not None and not isinstance(value, dict):
            damaged.append(gaps.gap(name, [], f"must be a mapping, got {type(value).__name__}"))
    return taken, damaged


def _pod_names(model: dict, pods: dict | None, test_pods: Iterable[dict]) -> dict[str, str]:
    """{host: name of its pod}."""
    told = {entry["host"]: entry["pod"]["metadata"]["name"] for entry in reversed(list(test_pods))}
    if told:
        return told
    by_node = {words(mapping(entry).get("node")): name for name, entry in (pods or {}).items()}
    return {host: by_node[host] for host in model["hosts"] if host in by_node}


def _verdict(table: list[dict], grid: list[dict], nccl: dict | None) -> str:
    """fail, unknown or pass of the whole. Nothing looked at is unknown."""
    states = [row.get("verdict") if row.get("verdict") in (PASS, FAIL) else UNKNOWN for row in table]
    states += [cell["state"] for cell in grid if cell["state"] in (FAIL, UNKNOWN)]
    states += [state(job) for job in jobs(nccl)]
    return worst(states if table else [*states, UNKNOWN])
