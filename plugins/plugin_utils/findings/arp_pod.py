# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about several rails in one subnet in a pod with interfaces of its own.

Values that were set on the host are lost when an interface moves: it takes those of conf/default of its new namespace.
"""

from __future__ import annotations

import ipaddress

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import Hit, spread
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.one_subnet import (
    in_one_subnet,
    source_rules,
    without_rule,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_places import (
    PodRail,
    global_rows,
    pod_has_own_network,
    pod_rails,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import placeholders
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Unknown, rule

_TUNING = "Let the tuning plugin of the network set {} (rails of this collection do)."


def _sharing(context: Context, family: str | None = None) -> list[PodRail]:
    """Rails of the pod of which another one has an address in the same subnet. Placeholders are routed nowhere and do
    not count."""
    if not pod_has_own_network(context):
        return []
    pools, rails, rows = placeholders(context), pod_rails(context), {}
    for rail in rails:
        own = global_rows(rail, family)
        rows[rail.number] = [row for row in own if not any(ipaddress.ip_address(row["address"]) in p for p in pools)]
    shared = in_one_subnet(rows)
    return [rail for rail in rails if rail.number in shared]


@rule("ARP-004", "warning", "Rails of a pod in one subnet answer ARP for each other", needs=("pod",))
def arp_flux_in_pod(context: Context):
    """Symptom: the peer of rail 3 learns the MAC address of rail 0; bandwidth halves, or queue pairs time out.

    Cause: several interfaces in one subnet with arp_ignore=0 or arp_announce below 2 in the pod's namespace. The kernel
    uses the larger of net.ipv4.conf.all and of the interface. Values of the host do not come along.

    Evidence: the effective values of each rail that shares a subnet.

    Remedy: the tuning plugin of the network sets arp_ignore=1 and arp_announce=2 for IFNAME.

    Source: Mellanox/k8s-rdma-shared-dev-plugin#297; kubernetes-sigs/dranet#277; kernel
    Documentation/networking/ip-sysctl.rst.
    """
    hits, open_ones = [], []
    for rail in _sharing(context, "ipv4"):
        keys = ("arp_ignore", "arp_announce", "arp_filter", "accept_local")
        values = {"interface": rail.name, **{key: rail.interface["sysctls"][key] for key in keys}}
        if None in (values["arp_ignore"], values["arp_announce"]):
            open_ones.append(Hit(rail, values))
        elif values["arp_ignore"] < 1 or values["arp_announce"] < 2:
            hits.append(Hit(rail, values))
    yield from spread(
        context,
        hits,
        lambda where: f"Other rails of the pod answer for the address of {where}",
        _TUNING.format("net.ipv4.conf.IFNAME.arp_ignore=1 and arp_announce=2"),
    )
    yield from spread(
        context,
        open_ones,
        lambda where: f"arp_ignore and arp_announce cannot be read in the pod on {where}",
        unknown=True,
    )


@rule("ARP-005", "warning", "Strict reverse path filtering on rails of a pod in one subnet", needs=("pod",))
def strict_reverse_path_in_pod(context: Context):
    """Symptom: replies disappear without a trace in a pod with several rails.

    Cause: rp_filter is 1 in the pod's namespace: a packet is dropped when the route back leaves by another interface.
    The larger of net.ipv4.conf.all and of the interface counts, so the network has to set both.

    Evidence: the effective value of each rail that shares a subnet.

    Remedy: the tuning plugin of the network sets rp_filter=0 for all and for IFNAME.

    Source: IBM documentation of SMC-R on Linux; kernel Documentation/networking/ip-sysctl.rst.
    """
    values = [(rail, rail.interface["sysctls"]["rp_filter"]) for rail in _sharing(context, "ipv4")]
    yield from spread(
        context,
        [Hit(rail, {"interface": rail.name, "rp_filter": value}) for rail, value in values if value == 1],
        lambda where: f"Reverse path filtering is strict in the pod on {where}",
        _TUNING.format("net.ipv4.conf.all.rp_filter=0 and net.ipv4.conf.IFNAME.rp_filter=0"),
    )
    yield from spread(
        context,
        [Hit(rail, {"interface": rail.name}) for rail, value in values if value is None],
        lambda where: f"rp_filter cannot be read in the pod on {where}",
        unknown=True,
    )


@rule("ARP-006", "warning", "Rails of a pod share a subnet and have no source rule", needs=("pod",))
def no_source_rule_in_pod(context: Context):
    """Symptom: traffic of rail 2 leaves the pod with the MAC address of rail 1.

    Cause: two rails of the pod have addresses of one prefix (IPv4 or IPv6) and one routing table serves both: the first
    interface sends for all. Neighbour discovery has no arp_ignore that would hide it.

    Evidence: the addresses without a rule, and all source rules of the pod.

    Remedy: the plugin sbr at the end of the network's chain.

    Source: NVIDIA/nccl#1405; containernetworking/plugins, sbr.
    """
    sharing = _sharing(context)
    if not sharing:
        return
    routing = context.pod["routing"]
    if routing["rules"] is None:
        yield Unknown(f"The pod's routing rules are not known: {routing['reasons'].get('rules')}", {"routing": routing})
        return
    rules = source_rules(routing["rules"])
    hits = []
    for rail in sharing:
        without = without_rule(global_rows(rail), rules)
        if without:
            hits.append(Hit(rail, {"interface": rail.name, "addresses": without, "rules": rules}))
    yield from spread(
        context,
        hits,
        lambda where: f"What the pod sends on {where} has no routing table of its own",
        "Put the plugin sbr at the end of the network's chain (rails of this collection do).",
    )
