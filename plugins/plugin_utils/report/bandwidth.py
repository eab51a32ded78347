# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rates of a benchmark by node and rail."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import mapping, number, rows, whole, words

# A rate that is low is a warning here; whether it fails is the rules' decision.
_STATES = {"full": "pass", "low": "warning", "failed": "fail", "unknown": "unknown"}
_ORDER = ("failed", "unknown", "low", "full")


def pairs(bandwidth: dict | None) -> list[dict]:
    """What each pair reached on each rail: streams that share a port are added up.

    :param bandwidth: the fact ``rdma_bandwidth_result``.
    :returns: ``[{round, rail, client, server, gbps, port_gbps, of_gbps, ratio, verdict, streams, reason}]`` in the order of
        the results; client and server are inventory names, gbps in 10^9 bit/s and None when a stream does not tell.
        of_gbps is what the ports can carry, twice their rate where both directions are tested at once; ratio its share.
    """
    directions = 2 if mapping(mapping(bandwidth).get("settings")).get("bidirectional") is True else 1
    found: dict[tuple, list[dict]] = {}
    for row in rows(mapping(bandwidth).get("results")):
        client, server = (words(mapping(row.get(end)).get("host")) for end in ("client", "server"))
        rail = whole(row.get("rail"))
        if client and server and rail is not None:
            found.setdefault((whole(row.get("round")), rail, client, server), []).append(row)
    return [_pair(key, streams, directions) for key, streams in found.items()]


def _pair(key: tuple, streams: list[dict], directions: int) -> dict:
    number_of_round, rail, client, server = key
    rates = [number(row.get("gbps")) for row in streams]
    total = None if None in rates else sum(rates)
    ports = [value for row in streams if (value := number(row.get("port_gbps")))]
    most = min(ports) * directions if ports else None
    told = {row.get("verdict") for row in streams}
    verdict = next((word for word in _ORDER if word in told), "unknown")
    return {
        "round": number_of_round,
        "rail": rail,
        "client": client,
        "server": server,
        "gbps": None if total is None else round(total, 2),
        "port_gbps": min(ports) if ports else None,
        "of_gbps": most,
        "ratio": round(total / most, 4) if most and total is not None else None,
        "verdict": verdict,
        "streams": len(streams),
        "reason": next((told for row in streams if (told := words(row.get("reason")))), None),
    }


def measured(bandwidth: dict | None) -> dict[str, dict[int, dict]]:
    """{node: {rail: {gbps, port_gbps, of_gbps, ratio, state, reason, client}}}: the lowest rate that a rail reached, as client
    or server."""
    found: dict[str, dict[int, list[dict]]] = {}
    for pair in pairs(bandwidth):
        for end in ("client", "server"):
            found.setdefault(pair[end], {}).setdefault(pair["rail"], []).append(pair)
    return {node: {rail: _lowest(taken) for rail, taken in by_rail.items()} for node, by_rail in found.items()}


def _lowest(taken: list[dict]) -> dict:
    worst = min(taken, key=lambda pair: (_ORDER.index(pair["verdict"]), -1 if pair["gbps"] is None else pair["gbps"]))
    peer = f"{worst['client']} to {worst['server']}"
    reason = None if worst["verdict"] == "full" else f"{peer}: {worst['reason'] or 'bandwidth ' + worst['verdict']}"
    return {
        "gbps": worst["gbps"],
        "port_gbps": worst["port_gbps"],
        "of_gbps": worst["of_gbps"],
        "ratio": worst["ratio"],
        "state": _STATES[worst["verdict"]],
        "reason": reason,
        "client": worst["client"],
    }
