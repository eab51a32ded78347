# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the addresses of rails in pods. Sysctls of the host prove nothing there: a pod has its own."""

from __future__ import annotations

import ipaddress

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import Hit, spread
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_places import (
    PodRail,
    global_rows,
    pod_has_own_network,
    pod_rails,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import placeholders
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule

_MAIN_TABLE, _BY_ADVERTISEMENT = 254, "ra"


def _advertised(context: Context) -> list[PodRail]:
    """Rails of a pod with a network of its own, on which the intent expects router advertisements."""
    wanted = context.layout.get("ip_family") == "ipv6_slaac" and pod_has_own_network(context)
    return pod_rails(context) if wanted else []


def _routed(context: Context, rail: PodRail) -> list[dict]:
    """Its global IPv6 addresses that are not placeholders of the pool."""
    pools = placeholders(context)
    rows = global_rows(rail, "ipv6")
    return [row for row in rows if not any(ipaddress.ip_address(row["address"]) in pool for pool in pools)]


@rule(
    "ADDRESS-005", "error", "IPv6 is disabled on a rail in the pod", needs=("pod",),
    unrehearsed="networks with advertisements are ours, and an attachment of somebody else stops their apply",
)  # fmt: skip
def ipv6_disabled_in_pod(context: Context):
    """Symptom: the pod has no GID above the link-local one on an IPv6 fabric, or none at all.

    Cause: container runtimes of IPv4 clusters set net.ipv6.conf.all.disable_ipv6=1 in the pod's namespace, and the
    network does not set it back for the rail.

    Evidence: the value of each rail's interface in the pod.

    Remedy: the tuning plugin of the network sets net.ipv6.conf.IFNAME.disable_ipv6=0 (rails_ipv6_tuning).

    Source: kubernetes-sigs/dranet#138; kernel Documentation/networking/ip-sysctl.rst.
    """
    values = [(rail, rail.interface["sysctls"]["disable_ipv6"]) for rail in _advertised(context)]
    yield from spread(
        context,
        [Hit(rail, {"interface": rail.name, "disable_ipv6": value}) for rail, value in values if value],
        lambda where: f"IPv6 is disabled in the pod on {where}",
        "Let the tuning plugin of the network set net.ipv6.conf.IFNAME.disable_ipv6=0 (rails_ipv6_tuning).",
    )
    yield from spread(
        context,
        [Hit(rail, {"interface": rail.name}) for rail, value in values if value is None],
        lambda where: f"disable_ipv6 cannot be read in the pod on {where}",
        unknown=True,
    )


@rule(
    "ADDRESS-006", "error", "A rail in the pod ignores router advertisements", needs=("pod",),
    unrehearsed="networks with advertisements are ours, and an attachment of somebody else stops their apply",
)  # fmt: skip
def advertisements_ignored_in_pod(context: Context):
    """Symptom: the pod keeps the placeholder address of the pool alone, and connections end with a timeout.

    Cause: accept_ra is 0 in the pod's namespace, or forwarding is on there and accept_ra is not 2, or autoconf is 0, so
    that the prefix makes no address. A rail that has a routed address all the same is fine.

    Evidence: accept_ra, autoconf and forwarding of the interface in the pod, and its global addresses.

    Remedy: the tuning plugin of the network sets net.ipv6.conf.IFNAME.accept_ra=2 and autoconf=1 (rails_ipv6_tuning).

    Source: containernetworking/plugins#160; siderolabs/talos#3841; kernel Documentation/networking/ip-sysctl.rst.
    """
    hits, open_ones = [], []
    for rail in _advertised(context):
        sysctls = rail.interface["sysctls"]
        told = {key: sysctls[key] for key in ("accept_ra", "autoconf", "forwarding")}
        now = [row["address"] for row in global_rows(rail, "ipv6")]
        if sysctls["disable_ipv6"] or _routed(context, rail):
            continue  # ADDRESS-005 speaks about disabled ones.
        evidence = {"interface": rail.name, **told, "addresses": now}
        if sysctls["accepts_ra"] is None or told["autoconf"] is None:
            open_ones.append(Hit(rail, evidence))
        elif not sysctls["accepts_ra"] or not told["autoconf"]:
            hits.append(Hit(rail, evidence))
    yield from spread(
        context,
        hits,
        lambda where: f"Router advertisements make no address in the pod on {where}",
        "Let the tuning plugin of the network set net.ipv6.conf.IFNAME.accept_ra=2 and autoconf=1 (rails_ipv6_tuning).",
    )
    yield from spread(
        context, open_ones, lambda where: f"accept_ra and autoconf cannot be read in the pod on {where}", unknown=True
    )


@rule(
    "ADDRESS-007", "warning", "An address of a rail in the pod cannot be used yet", needs=("pod",),
    unrehearsed="it takes the same address on two nodes, and a fault is on one",
)  # fmt: skip
def address_tentative_in_pod(context: Context):
    """Symptom: the first job in a pod fails and the second one works; or an address never becomes usable.

    Cause: duplicate address detection has not finished in the time that was waited (a warning), or another interface
    has the same address (dadfailed, an error: it stays so).

    Evidence: the addresses that are tentative and those that failed.

    Remedy: raise rdma_verify_address_timeout; where the detection failed, find the other owner by its MAC address.

    Source: containernetworking/plugins#1016; RFC 4862, 5.4.
    """
    for failed in (True, False):
        hits = []
        for rail in pod_rails(context):
            rows = [row for row in rail.interface.get("addresses") or [] if row["tentative"]]
            mine = [row["address"] for row in rows if bool(row.get("dadfailed")) == failed]
            if mine:
                hits.append(Hit(rail, {"interface": rail.name, "dadfailed" if failed else "tentative": mine}))
        yield from spread(
            context,
            hits,
            (lambda where: f"Another interface has the pod's address on {where}")
            if failed
            else (lambda where: f"An address of the pod cannot be used yet on {where}"),
            "Find the other owner of the address."
            if failed
            else "Verify again; raise rdma_verify_address_timeout when it stays.",
            "error" if failed else None,
        )


@rule(
    "ADDRESS-008", "warning", "A rail in the pod has several routed IPv6 addresses", needs=("pod",),
    unrehearsed="no simulated network gives a pod two routed addresses",
)  # fmt: skip
def several_addresses_in_pod(context: Context):
    """Symptom: two programs in the pod choose different GIDs of one rail, and one of the addresses is not routed.

    Cause: the pool gives an address and the kernel forms another one from a router advertisement. Wanted is that only
    where the pool is a placeholder (rails_ip_family ipv6_slaac), whose address is not counted.

    Evidence: the addresses; dynamic ones come from advertisements.

    Remedy: autoconf=0 in the tuning plugin of the network, or rails_ip_family ipv6_slaac.

    Source: containernetworking/plugins#160.
    """
    hits = []
    for rail in pod_rails(context) if pod_has_own_network(context) else []:
        rows = _routed(context, rail)
        if len(rows) > 1:
            told = [{key: row.get(key) for key in ("address", "prefix", "dynamic")} for row in rows]
            hits.append(Hit(rail, {"interface": rail.name, "addresses": told}))
    yield from spread(
        context,
        hits,
        lambda where: f"Programs in the pod may choose between several routed IPv6 addresses on {where}",
        "Keep one of them: autoconf=0 in the network, or a pool of placeholders with rails_ip_family ipv6_slaac.",
    )


@rule(
    "ADDRESS-009", "warning", "A rail's default route stands beside that of the pod's own network", needs=("pod",),
    unrehearsed="the simulated network of pods is IPv4 only",
)  # fmt: skip
def default_route_of_a_rail(context: Context):
    """Symptom: after an IPv6 rail was attached the pod loses its connections to the cluster, now and then or wholly.

    Cause: the router advertisement of the rail puts a default route into the main table beside that of eth0. An error
    where its metric is not larger; with a larger one the route of eth0 is preferred, which is right.

    Evidence: both default routes with their metrics.

    Remedy: on a routed fabric the rail needs its route: raise its metric (net.ipv6.conf.IFNAME.ra_defrtr_metric, kernel
    5.12 or newer) or keep it in a table or VRF of its own. On a flat fabric accept_ra_defrtr=0 in the network does.

    Source: k8snetworkplumbingwg/multus-cni#749; kernel Documentation/networking/ip-sysctl.rst.
    """
    if not pod_has_own_network(context):
        return
    rails = {rail.name: rail for rail in pod_rails(context)}
    routing = context.pod.get("routing") if rails else None
    if not rails:
        return
    if routing is None or routing["routes"] is None:
        advertised = [row for rail in rails.values() for row in global_rows(rail, "ipv6") if row.get("dynamic")]
        if advertised:
            reasons = (routing or {}).get("reasons") or {}
            yield Unknown(f"The pod's routes are not known: {reasons.get('routes') or 'no reason given'}")
        return
    defaults = [
        row
        for row in routing["routes"]
        if row["to"] == "default" and row["family"] == "ipv6" and row["table"] == _MAIN_TABLE
    ]
    own = [row for row in defaults if row["netdev"] not in rails]
    for row in defaults:
        rail = rails.get(row["netdev"])
        if rail is None or row["origin"] != _BY_ADVERTISEMENT or not own:
            continue
        best = min(own, key=lambda other: other["metric"])
        if row["metric"] <= best["metric"]:
            yield Problem(
                f"The default route of {rail.name} has metric {row['metric']}, that of {best['netdev']} {best['metric']}",
                "Raise the rail's metric (ra_defrtr_metric), or keep its routes in a table of their own; accept_ra_defrtr=0 "
                "only on a flat fabric.",
                {"rail": row, "pod_network": best},
                rail.number,
            )
