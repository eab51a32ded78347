# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which priority the packets of a benchmark took, by the counters of the PFs before and after it. Pure.

Counters by priority of the port are the only proof of the priority used. They are those of the whole port: other traffic on
the rail is in them too.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.rdma.counters import difference
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.traffic_class import dscp

RIGHT, WRONG, UNKNOWN = "right", "wrong", "unknown"
ENOUGH_SHARE = 0.99
ENOUGH_BYTES = 1_000_000  # less than that is what a quiet port carries anyway
CONGESTION = ("hw_counters/np_cnp_sent", "hw_counters/np_ecn_marked_roce_packets", "hw_counters/rp_cnp_handled")


def row(
    host: str,
    rail: dict,
    before: dict | None,
    after: dict | None,
    wanted_class: int | None,
    forced: list[dict],
    results: list[dict],
) -> dict:
    """The verdict for a rail of a host.

    :param rail: the rail of the layout, with ``rail`` and ``pci``.
    :param before: the fact rdma of the host from before the benchmark, gathered with counters; None when there is none.
    :param wanted_class: the traffic class that the tests asked for, None when they asked for none.
    :param forced: ``[{device, state, value}]``, what the devices of the rail force (states of traffic_class.py).
    :param results: the rows of :func:`judge.rows` in which the host took part on the rail.
    :returns: ``{host, rail, netdev, wanted_priority, bytes: {"0": {tx, rx}, …}, packets: {…}, share_on_wanted, pause, cnp,
        verdict, reason, remedy}``. share_on_wanted is of the bytes in both directions.
    """
    made = {
        "host": host,
        "rail": rail["rail"],
        "netdev": None,
        "wanted_priority": None,
        "share_on_wanted": None,
        "bytes": {},
        "packets": {},
        "pause": {},
        "cnp": _congestion(host, results),
        "verdict": UNKNOWN,
        "reason": None,
        "remedy": None,
    }
    found = [_port(facts, rail["pci"]) for facts in (before, after)]
    netdev = found[1][0] if found[1] else None
    made["netdev"] = netdev
    readings = [port and (port[1].get("counters") or {}).get("priority") for port in found]
    if not all(readings):
        made["reason"] = _why_no_counters(found)
        return made
    for number in sorted(readings[1]):
        grown = difference(readings[0].get(number), readings[1][number])
        made["bytes"][number] = {way: grown.get(f"{way}_bytes", 0) for way in ("tx", "rx")}
        made["packets"][number] = {way: grown.get(f"{way}_packets", 0) for way in ("tx", "rx")}
        made["pause"][number] = {way: grown.get(f"{way}_pause", 0) for way in ("tx", "rx")}
    _judge(made, found[1][1], wanted_class, forced)
    return made


def _port(facts: dict | None, pci: str) -> tuple[str, dict] | None:
    """(name, netdev) of a PF in the facts of a host."""
    return next(
        ((name, one) for name, one in sorted(((facts or {}).get("netdevs") or {}).items()) if one.get("pci") == pci),
        None,
    )


def _why_no_counters(found: list) -> str:
    for port, when in zip(found, ("before", "after")):
        if port is None:
            return f"there are no facts of the PF's interface from {when} the test"
        if not (port[1].get("counters") or {}).get("priority"):
            return f"{port[0]} has no counters by priority ({when} the test): " + str(
                port[1].get("counters_reason")
                or (port[1].get("reasons") or {}).get("counters")
                or "the driver does not have them"
            )
    return "no counters"


def _congestion(host: str, results: list[dict]) -> dict:
    """CNPs and ECN marks that the devices of the host counted in the tests; names without ``hw_counters/``."""
    total: dict[str, int] = {}
    for one in results:
        for side in ("client", "server"):
            if one[side]["host"] == host:
                for name in CONGESTION:
                    if name in one["counters"][side]:
                        short = name.partition("/")[2]
                        total[short] = total.get(short, 0) + one["counters"][side][name]
    return total


def _judge(made: dict, netdev: dict, wanted_class: int | None, forced: list[dict]) -> None:
    qos = netdev.get("qos") or {}
    table = qos.get("dscp_to_priority") or {}
    if wanted_class is None:
        made["reason"] = "no traffic class is wanted (rails_traffic_class), so no priority is"
        return
    wanted = table.get(str(dscp(wanted_class)))
    if qos.get("trust") == "pcp":
        made["reason"] = f"{made['netdev']} trusts the PCP, so the class decides nothing"
        return
    if wanted is None:
        made["reason"] = f"the priority of DSCP {dscp(wanted_class)} on {made['netdev']} is not known"
        return
    made["wanted_priority"] = wanted
    totals = {number: way["tx"] + way["rx"] for number, way in made["bytes"].items()}
    everything = sum(totals.values())
    if everything < ENOUGH_BYTES:
        made["reason"] = f"the port carried {everything} bytes only"
        return
    share = totals.get(str(wanted), 0) / everything
    made["share_on_wanted"] = round(share, 5)
    if share >= ENOUGH_SHARE:
        made.update(verdict=RIGHT, reason=f"right class on priority {wanted}")
        return
    used = max(totals, key=lambda number: totals[number])
    made["verdict"] = WRONG
    culprits = [one for one in forced if one.get("state") == "set" and dscp(one["value"]) != dscp(wanted_class)]
    others = [one for one in culprits if str(table.get(str(dscp(one["value"])))) == used]
    if others:
        value = others[0]["value"]
        made["reason"] = f"priority {used}: forced class {value} on the {others[0].get('function_name') or 'device'}"
        made["remedy"] = (
            f"Give the rdma plugin of the rail's network a top-level rdmaQoS with tc {wanted_class}; in shared mode recreate the "
            "VFs, or write the wanted class to tc/1/traffic_class of the device."
        )
    else:
        made["reason"] = (
            f"priority {used} instead of {wanted}: {1 - share:.1%} of the bytes, and no device forces a class for it"
        )
        made["remedy"] = (
            "Look for other traffic on the rail, for another DSCP map on the peer, and for what overwrites the class on the way."
        )
