# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was not measured: what, where, why."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import RULES, Context
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.bandwidth import pairs
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.jobs import jobs, state
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import mapping, rows, words

# What no playbook looks at, whatever was asked.
ALWAYS = (
    (
        "queue pairs that a GPU starts itself (NVSHMEM IBGDA, NCCL GIN)",
        "they do not see the traffic class that is forced on a device: the application must set it",
    ),
    (
        "the switches",
        "only nodes, pods and the cluster are looked at; counters of the nodes show what the fabric does to traffic",
    ),
)


def gap(what: str, where: Iterable[str], why: str) -> dict:
    """One entry; an empty ``where`` is everywhere."""
    return {"what": what, "where": list(where), "why": why}


def gaps(
    known: list[Context],
    judged: dict | None,
    pods: dict | None,
    grid: list[dict],
    bandwidth: dict | None,
    nccl: dict | None,
    lost: dict[str, str],
) -> list[dict]:
    """Entries of ``not_measured``, those of the whole run first; equal ones are told once with their places.

    :param lost: {node: why its PCIe paths are not known, or not all}.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}

    def add(what, where, why):
        places = found.setdefault((what, why), {})
        if where is not None:
            places[where] = None

    if not rows(mapping(judged).get("rows")):
        add("findings", None, "the rules about nodes were not asked: playbooks/verify.yml does")
    if pods is None:
        add("pods", None, "no test pods ran: playbooks/verify.yml starts one on each node")
    if bandwidth is None:
        add("bandwidth", None, "no traffic was sent: playbooks/benchmark.yml does")
    if nccl is None:
        add("NCCL", None, "no NCCL job ran: playbooks/nccl.yml runs one")
    for context in known:
        if context.facts is None:
            add("facts of the node", context.node, "the node was not reached or not asked")
        if pods is not None and not (context.pod and context.pod.get("reachable")):
            add("pod", context.node, words(mapping(context.pod).get("reason")) or "there is no test pod on the node")
        if context.facts and context.node in lost:
            add("PCIe paths", context.node, lost[context.node])
    for item in rows(mapping(judged).get("findings")):
        if item["severity"] == "unknown":
            _unknown(item, add)
    if bandwidth is not None:
        _rates(bandwidth, grid, add)
    for job in jobs(nccl):
        if state(job) == "unknown":
            add("NCCL job", words(job.get("name")), words(job.get("reason")) or "no reason is given")
    for what, why in ALWAYS:
        add(what, None, why)
    return [gap(what, places, why) for (what, why), places in found.items()]


def _unknown(item: dict, add) -> None:
    place = item["node"] if item["rail"] is None else f"{item['node']} rail {item['rail']}"
    evidence = mapping(item.get("evidence"))
    if "not_gathered" in evidence:
        # What nobody gathered makes every rule about it unknown: one entry for all of them.
        add(f"checks that need: {evidence['not_gathered']}", place, words(evidence.get("reason")) or item["summary"])
        return
    rule = RULES.get(item["id"])
    add(f"{item['id']}: {rule.title}" if rule else item["id"], place, item["summary"])


def _rates(bandwidth: dict, grid: list[dict], add) -> None:
    seen = pairs(bandwidth)
    asked = {(pair[end], pair["rail"]) for pair in seen for end in ("client", "server")}
    for cell in grid:
        if (cell["node"], cell["rail"]) not in asked:
            add("bandwidth", f"{cell['node']} rail {cell['rail']}", "the rail was in no pair of the benchmark")
    for pair in seen:
        if pair["verdict"] == "unknown":
            place = f"{pair['client']} to {pair['server']} rail {pair['rail']}"
            add("bandwidth", place, pair["reason"] or "no reason is given")
    for row in rows(bandwidth.get("priorities")):
        if row.get("verdict") == "unknown":
            place = f"{row.get('host')} rail {row.get('rail')}"
            add("priority of the traffic", place, words(row.get("reason")) or "no reason is given")
