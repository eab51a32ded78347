# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about several rails in one subnet, for pods that use the host's network.

Pods with interfaces of their own have sysctls, routes and rules of their own: values of the host prove nothing there
and are not judged.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import (
    Hit,
    NodeRail,
    global_addresses,
    host_rails_carry_pods,
    node_rails,
    spread,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.one_subnet import (
    in_one_subnet,
    source_rules,
    without_rule,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule


def _sharing(context: Context, family: str | None = None) -> list[NodeRail]:
    """Rails of which another one has an address in the same subnet."""
    if not host_rails_carry_pods(context):
        return []
    rails = node_rails(context)
    shared = in_one_subnet({rail.number: global_addresses(rail.interface, family) or [] for rail in rails})
    return [rail for rail in rails if rail.number in shared]


@rule("ARP-001", "warning", "Rails in one subnet answer ARP for each other", needs=("facts",))
def arp_flux(context: Context):
    """Symptom: a peer learns the MAC address of rail 0 for rail 3; bandwidth halves, or queue pairs time out.

    Cause: several interfaces in one subnet with arp_ignore=0 or arp_announce below 2. The kernel uses the larger of
    net.ipv4.conf.all and of the interface. Judged where pods use the host's network.

    Evidence: the effective values of each rail that shares a subnet.

    Remedy: sysctl net.ipv4.conf.all.arp_ignore=1 and net.ipv4.conf.all.arp_announce=2 in /etc/sysctl.d.

    Source: Mellanox/k8s-rdma-shared-dev-plugin#297; kubernetes-sigs/dranet#277; kernel
    Documentation/networking/ip-sysctl.rst.
    """
    hits, open_ones = [], []
    for rail in _sharing(context, "ipv4"):
        values = {key: rail.interface["sysctls"][key] for key in ("arp_ignore", "arp_announce")}
        if None in values.values():
            open_ones.append(Hit(rail, values))
        elif values["arp_ignore"] < 1 or values["arp_announce"] < 2:
            hits.append(Hit(rail, values))
    yield from spread(
        context,
        hits,
        lambda where: f"Other rails of the subnet answer for the address of {where}",
        "Set and keep in /etc/sysctl.d: net.ipv4.conf.all.arp_ignore=1, net.ipv4.conf.all.arp_announce=2.",
    )
    yield from spread(
        context, open_ones, lambda where: f"arp_ignore and arp_announce cannot be read on {where}", unknown=True
    )


@rule("ARP-002", "warning", "Strict reverse path filtering on rails in one subnet", needs=("facts",))
def strict_reverse_path(context: Context):
    """Symptom: replies disappear without a trace on a node with several rails.

    Cause: rp_filter is 1: a packet is dropped when the route back leaves by another interface, which it does when
    rails share a subnet. The larger of net.ipv4.conf.all and of the interface counts, so setting the interface to 0
    does not help. Judged where pods use the host's network.

    Evidence: the effective value of each rail that shares a subnet.

    Remedy: set rp_filter to 0, or 2 for loose, for all and for the rails.

    Source: IBM documentation of SMC-R on Linux; kernel Documentation/networking/ip-sysctl.rst.
    """
    values = [(rail, rail.interface["sysctls"]["rp_filter"]) for rail in _sharing(context, "ipv4")]
    yield from spread(
        context,
        [Hit(rail, {"rp_filter": value}) for rail, value in values if value == 1],
        lambda where: f"Reverse path filtering is strict on {where}",
        "Set and keep in /etc/sysctl.d: net.ipv4.conf.all.rp_filter=0 and net.ipv4.conf.default.rp_filter=0, and 0 for "
        "each rail (2 for loose filtering).",
    )
    yield from spread(
        context,
        [Hit(rail, {"rp_filter": value}) for rail, value in values if value is None],
        lambda where: f"rp_filter cannot be read on {where}",
        unknown=True,
    )


@rule("ARP-003", "warning", "Rails share a subnet and have no source rule", needs=("facts",))
def no_source_rule(context: Context):
    """Symptom: traffic of rail 2 leaves with the MAC address of rail 1.

    Cause: two rails have addresses of one prefix (IPv4 or IPv6) and the node has one routing table for both: the
    first interface serves all. Neighbour discovery has no arp_ignore that would hide it. Judged where pods use the
    host's network.

    Evidence: the addresses without a rule, and all source rules of the node.

    Remedy: a table for each rail and a rule "from ADDRESS lookup TABLE", as the CNI plugin sbr makes in pods; or a VRF
    for each rail.

    Source: NVIDIA/nccl#1405; containernetworking/plugins, sbr.
    """
    sharing = _sharing(context)
    if not sharing:
        return
    routing = context.facts["routing"]
    if routing["rules"] is None:
        yield Unknown(f"The routing rules are not known: {routing.get('reason')}", {"routing": routing})
        return
    rules = source_rules(routing["rules"])
    lacking = {}
    for rail in sharing:
        if rail.interface.get("vrf_table") is not None:
            continue  # A VRF is a table of its own.
        without = without_rule(global_addresses(rail.interface) or [], rules)
        if without:
            lacking[rail.number] = without
    if lacking:
        rail = min(lacking) if len(lacking) == 1 else None
        yield Problem(
            f"Rails {', '.join(map(str, sorted(r.number for r in sharing)))} share a subnet, and rails "
            f"{', '.join(map(str, lacking))} have no rule of their own for what they send",
            'Give each rail a routing table and a rule "from ADDRESS lookup TABLE".',
            {"rails": sorted(lacking), "addresses": {str(n): a for n, a in lacking.items()}, "rules": rules},
            rail,
        )
