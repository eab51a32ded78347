# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a test of a rail means: full, low, failed or unknown, and where its packets were lost. Pure.

96.86 Gb/s of a port of 100 Gb/s is healthy (RoCE headers at an MTU of 4096 take the rest); with the wrong traffic class the
same rail gave 43 to 59. So the limit below which a rail counts as low is a share of the port's rate, 0.9 unless told.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth import commands, perftest
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.counters import difference

FULL, LOW, FAILED, UNKNOWN = "full", "low", "failed", "unknown"
LOW_RATIO = 0.9
# Packets of a device, by the names that drivers have for them: mlx5, then rdma_rxe.
_SENT = ("counters/unicast_xmit_packets", "counters/port_xmit_packets", "hw_counters/sent_pkts")
_RECEIVED = ("counters/unicast_rcv_packets", "counters/port_rcv_packets", "hw_counters/rcvd_pkts")
# Fewer packets than this on their way say nothing: a queue pair that gives up sends a window and repeats it.
ENOUGH_PACKETS = 8
TOO_MUCH = 1.05  # of a port's rate: tests that share it did not overlap
_LOST = 0.5  # of what left, less than this arrived: no congestion does that, a filter does
LOST_REMEDY = {
    "vf": "Let the fabric accept frames from the MAC addresses of VFs, or use a network whose frames carry the rail's own "
    "MAC address (rails_network: ipvlan).",
    "other": "Look at the ports of the switches between the two nodes, and at what they filter.",
}


def rows(outcome: dict, settings: dict, number: int, low: float = LOW_RATIO) -> list[dict]:
    """The results of one pair of endpoints, a row for each rail.

    :param outcome: what :func:`session.run_legs` returned for the pair.
    :param settings: as :func:`commands.check` gives them.
    :param number: of the round.
    :param low: share of the port's rate below which a rail counts as low.
    :returns: ``[{round, rail, stream, client: {host, node, pod, device, gid_index, address}, server: {…}, gbps, peak_gbps,
        mpps, port_gbps, ratio, verdict, reason, remedy, kind, said, counters: {client, server}}]``. gbps in 10^9 bit/s, both
        directions together when the test has two; ratio is of what the port can carry. kind is None, one of
        :mod:`perftest`, ``lost`` (frames left and did not arrive), ``not_sent`` (nothing left the device), ``slow``,
        ``stream`` (the pod could not be used) or ``missing`` (the pod lacks the rail).
    """
    leg, left_out = outcome["leg"], outcome["left_out"]
    client, server = outcome["client"], outcome["server"]
    known = {int(rail) for side in (leg["client"], leg["server"]) for rail in side.get("rails") or {}} | set(left_out)
    made = []
    for rail in sorted(known):
        near, far = commands.of_rail(leg["client"], rail), commands.of_rail(leg["server"], rail)
        row = {
            "round": number,
            "rail": rail,
            "stream": leg.get("stream", 0),
            "client": _end(leg["client"], near),
            "server": _end(leg["server"], far),
            **dict.fromkeys(("gbps", "peak_gbps", "mpps", "port_gbps", "ratio", "reason", "remedy", "kind", "said")),
            "verdict": UNKNOWN,
            "counters": {"client": {}, "server": {}},
        }
        rates = [side["port_gbps"] for side in (near, far) if side and side.get("port_gbps")]
        row["port_gbps"] = min(rates) if len(rates) == 2 else None
        if rail in left_out:
            row.update(kind="missing", reason=left_out[rail], remedy="Run playbooks/verify.yml: it says why.")
        else:
            _judge(row, client, server, settings, low, (near or {}).get("function"))
        made.append(row)
    return made


def _end(endpoint: dict, rail: dict | None) -> dict:
    told = {key: endpoint.get(key) for key in ("host", "node", "pod")}
    return {**told, **{key: (rail or {}).get(key) for key in ("device", "gid_index", "address")}}


def _judge(row: dict, client, server, settings: dict, low: float, function: str | None) -> None:
    mine, theirs = client.said.rails.get(row["rail"]) or {}, server.said.rails.get(row["rail"]) or {}
    row["counters"] = {
        "client": difference(mine.get("before"), mine.get("after")),
        "server": difference(theirs.get("before"), theirs.get("after")),
    }
    answered = perftest.parse(theirs.get("text") or "", theirs.get("code")) if theirs.get("ended") else None
    if not mine.get("ended"):
        _not_run(row, client, server, theirs, answered)
        return
    got = perftest.parse(mine["text"], mine["code"])
    row.update({key: got[key] for key in ("gbps", "peak_gbps", "mpps")})
    failure = got["failure"]
    if failure is not None:
        # The side that ended first knows why.
        own = answered and answered["failure"]
        if failure["kind"] in ("peer_ended", "no_result") and own and own["kind"] not in ("peer_ended", "no_result"):
            _fail(row, own, row["server"]["host"])
        else:
            _fail(row, failure, row["client"]["host"])
        _where_lost(row, function)
        return
    if row["port_gbps"] is None:
        row["reason"] = "the rate of the port is not known, so the bandwidth has nothing to be compared with"
        return
    row["ratio"] = round(row["gbps"] / (row["port_gbps"] * (2 if settings["bidirectional"] else 1)), 4)
    by_ratio(row, row["ratio"], low)


def by_ratio(row: dict, ratio: float, low: float) -> None:
    """Set the verdict of a row by the share of the port's rate."""
    row["verdict"] = FULL if ratio >= low else LOW
    if row["verdict"] == LOW:
        lost = row["counters"]["server"].get("hw_counters/out_of_sequence")
        more = f"; {lost} packets came out of sequence" if lost else ""
        row.update(
            kind="slow",
            reason=f"{row['gbps']:.2f} Gb/s, {ratio:.0%} of the port's {row['port_gbps']:g} Gb/s{more}",
            remedy="Look at the priority that the packets took, and at the rail's other tests: a node that is slow in both of "
            "its pairs is at fault itself.",
        )


def _fail(row: dict, failure: dict, host: str) -> None:
    said = f": {failure['said']}" if failure["said"] else ""
    row.update(
        verdict=FAILED,
        gbps=None,
        peak_gbps=None,
        mpps=None,
        kind=failure["kind"],
        said=failure["said"] or None,
        reason=f"{failure['meaning']} (ib_write_bw on {host}{said})",
        remedy=failure["remedy"],
    )


def _not_run(row: dict, client, server, theirs: dict, answered: dict | None) -> None:
    """There is no result of the client: the server did not start, or a pod could not be used."""
    if theirs.get("taken") is not None:
        text = f"TCP port {theirs['taken']} is in use in the pod on {row['server']['host']}"
        row.update(kind="port", reason=text, remedy="Choose another rdma_bandwidth_port.")
    elif not theirs.get("ready") and answered and answered["failure"]:
        _fail(row, answered["failure"], row["server"]["host"])
    elif server.failure or client.failure:
        side = server if server.failure else client
        text = f"the pod on {side.endpoint['host']} could not be used: {side.failure}"
        row.update(
            kind="stream", reason=text, remedy="Look at the pod and at the connection to the cluster, and run it again."
        )
    elif not theirs.get("ready"):
        text = f"the server on {row['server']['host']} did not listen in time"
        row.update(kind="stream", reason=text, remedy="Look at the load of the node, and run it again.")
    else:
        text = f"the test was not made: {client.said.trouble or client.said.stopped or 'no reason given'}"
        row.update(kind="stream", reason=text, remedy="Run it again.")


def packets(counters: dict, names: tuple[str, ...]) -> int | None:
    """Packets of a device between two readings, None when the driver does not count them."""
    return next((counters[name] for name in names if name in counters), None)


def _where_lost(row: dict, function: str | None) -> None:
    """Tell frames that were lost on the way from a host that sent none, by the counters of both ends."""
    if row["kind"] not in ("retry", "no_result"):
        return
    sent = packets(row["counters"]["client"], _SENT)
    arrived = packets(row["counters"]["server"], _RECEIVED)
    if sent is None or arrived is None:
        return
    device, host, peer = row["client"]["device"], row["client"]["host"], row["server"]["host"]
    if sent >= ENOUGH_PACKETS and arrived < sent * _LOST:
        what = "a VF" if function == "vf" else "the device"
        row.update(
            kind="lost",
            reason=f"{sent} packets left {device} on {host} and {arrived} arrived on {peer}: the fabric drops frames of {what}",
            remedy=LOST_REMEDY.get(function or "", LOST_REMEDY["other"]),
        )
    elif sent < ENOUGH_PACKETS:
        row.update(
            kind="not_sent",
            reason=f"{sent} packets left {device} on {host}: {row['reason']}",
            remedy=f"The fault is on {host}: look at the rail's link, its neighbours and its routes.",
        )


def share_ports(results: list[dict], low: float = LOW_RATIO) -> None:
    """Judge tests that ran on the same ports at the same time by their sum: two pods that share a port get half each.

    Rows of one round, rail and pair of hosts belong together; their verdicts and reasons are set anew, and ``shared_gbps`` is
    the sum.
    """
    groups: dict[tuple, list[dict]] = {}
    for row in results:
        groups.setdefault((row["round"], row["rail"], row["client"]["host"], row["server"]["host"]), []).append(row)
    for group in groups.values():
        rated = [row for row in group if row["ratio"] is not None]
        if len(group) < 2 or len(rated) < len(group):
            continue
        total = round(sum(row["gbps"] for row in group), 3)
        ratio = sum(row["ratio"] for row in group)
        parts = " and ".join(f"{row['gbps']:.2f}" for row in group)
        if ratio > TOO_MUCH:
            text = f"{parts} Gb/s are more than the port has: the tests did not run at the same time"
            for row in group:
                row.update(
                    shared_gbps=None, verdict=UNKNOWN, kind="stream", reason=text, remedy="Run longer tests (seconds)."
                )
            continue
        for row in group:
            row.update(shared_gbps=total, kind=None, remedy=None)
            by_ratio(row, ratio, low)
            row["reason"] = f"{parts} Gb/s on one port, {ratio:.0%} of its {row['port_gbps']:g} Gb/s"


def slow_hosts(results: list[dict]) -> list[dict]:
    """``[{rail, hosts}]``: hosts that were slow both as client and as server are at fault themselves, not the way to them."""
    seen: dict[tuple[int, str], dict[str, set[str]]] = {}
    for row in results:
        for side in ("client", "server"):
            sides = seen.setdefault((row["rail"], row[side]["host"]), {"client": set(), "server": set()})
            sides[side].add(row["verdict"])
    found: dict[int, list[str]] = {}
    for (rail, host), sides in sorted(seen.items()):
        if sides["client"] == {LOW} and sides["server"] == {LOW}:
            found.setdefault(rail, []).append(host)
    return [{"rail": rail, "hosts": hosts} for rail, hosts in sorted(found.items())]


def in_short(results: list[dict]) -> str:
    """One line about results: how many of each verdict, the range of rates, and the first that is not full."""
    counts = [f"{sum(1 for row in results if row['verdict'] == word)} {word}" for word in (FULL, LOW, FAILED, UNKNOWN)]
    rates = [row["gbps"] for row in results if row["gbps"] is not None]
    parts = [", ".join(text for text in counts if not text.startswith("0 ")) or "no tests"]
    if rates:
        parts.append(f"{min(rates):.2f} to {max(rates):.2f} Gb/s")
    bad = next((row for row in results if row["verdict"] != FULL), None)
    if bad:
        parts.append(f"rail {bad['rail']} from {bad['client']['host']} to {bad['server']['host']}: {bad['reason']}")
    return "; ".join(parts)


def add_host_counters(
    results: list[dict], before: dict[str, dict], after: dict[str, dict], functions: dict | None = None
) -> None:
    """Fill in what pods could not count: in shared mode they see no counters of a device, but their node does.

    A node is read before and after the whole benchmark, so these are the sums of all tests of the device.

    :param before: ``{host: ansible_facts.rdma}`` gathered with counters; after: the same from afterwards.
    :param functions: ``{(host, rail): "vf" | "pf" | "child"}``, for the words of a reason.
    """
    for row in results:
        for side in ("client", "server"):
            if not row["counters"][side]:
                host, device = row[side]["host"], row[side]["device"]
                row["counters"][side] = difference(
                    _of_device(before.get(host), device), _of_device(after.get(host), device)
                )
        if row["verdict"] == FAILED and row["kind"] in ("retry", "no_result"):
            _where_lost(row, (functions or {}).get((row["client"]["host"], row["rail"])))


def _of_device(facts: dict | None, device: str | None) -> dict[str, int]:
    """Counters of the first port of a device by the names that the script uses."""
    ports = (((facts or {}).get("devices") or {}).get(device) or {}).get("ports") or {}
    told = next(iter(ports.values()), {}).get("counters") or {}
    return {
        f"{kind}/{name}": value
        for kind in ("counters", "hw_counters")
        for name, value in (told.get(kind) or {}).items()
        if isinstance(value, int)
    }
