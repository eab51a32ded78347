# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about what a node has again after its test pods went."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import Hit, node_rails, spread
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_places import (
    PodRail,
    pod_has_own_network,
    pod_rails,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule

_NO_OWN_TABLE = (None, 253, 254, 255)  # default, main, local


def lent(context: Context) -> list[PodRail]:
    """The rails whose VF (or PF) went into the pod and must come back. Children of an interface end with the pod."""
    return [rail for rail in pod_rails(context) if rail.interface.get("pci")] if pod_has_own_network(context) else []


def missing(facts: dict, pci: str) -> list[str]:
    """What a node lacks of a PCI function that was in a pod: its interface, its RDMA device.

    :param facts: of the node, gathered after the pod went.
    """
    lacks = []
    for part, what in (("netdevs", "interface"), ("devices", "RDMA device")):
        if not any(entry["pci"] == pci for entry in facts[part].values()):
            lacks.append(what)
    return lacks


@rule("RESOURCE-015", "error", "A VF or its RDMA device did not come back from the test pod", needs=("pod", "returned"))
def not_back(context: Context):
    """Symptom: the next pod does not start: the VF is offered and has no interface, or the RDMA CNI finds no device.

    Cause: a CNI plugin failed when the pod was removed; what was in the pod's namespace stays behind, or comes back
    under the name that it had there. Unknown where another pod of the node asks for the same resources: it may have taken
    the VF in the meantime.

    Evidence: the VF, what the node lacks of it, its name before and after, and the other pods.

    Remedy: look at the kubelet's log for the CNI plugin's failure; recreate the VFs when no pod uses them (a reboot
    does).

    Source: k8snetworkplumbingwg/sriov-cni#250; Mellanox/rdma-cni.
    """
    holders = (context.kubernetes or {}).get("holders")
    before = {entry["pci"]: name for name, entry in ((context.facts or {}).get("netdevs") or {}).items()}
    unread = [part for part in ("netdevs", "devices") if context.returned[part] is None]
    if unread:
        reasons = context.returned.get("reasons") or {}
        yield Unknown(f"The node's {unread[0]} could not be read after the test pod: {reasons.get(unread[0])}")
        return
    after = {entry["pci"]: name for name, entry in context.returned["netdevs"].items()}
    gone, renamed = [], []
    for rail in lent(context):
        pci = rail.interface["pci"]
        lacks = missing(context.returned, pci)
        evidence = {"vf": pci, "in_pod": rail.name, "missing": lacks, "other_pods": holders}
        if lacks:
            gone.append(Hit(rail, evidence))
            continue
        name = after[pci]
        if before.get(pci) not in (None, name):
            renamed.append(Hit(rail, {**evidence, "before": before[pci], "after": name}))
    if gone and holders:
        yield Unknown(
            f"{', '.join(holders)} may have taken the VFs that the test pod had: {len(gone)} are not on the node",
            {"other_pods": holders, "each": [hit.evidence for hit in gone]},
        )
        gone = []
    yield from spread(
        context,
        gone,
        lambda where: (
            f"What the test pod had is not back on the node: {' and '.join(gone[0].evidence['missing'])} of {where}"
        ),
        "Look in the kubelet's log for a CNI plugin that failed when the pod went; recreate the VFs when no pod uses them.",
    )
    yield from spread(
        context,
        renamed,
        lambda where: f"What the test pod had came back under another name: {renamed[0].evidence['after']} on {where}",
        "Give it its name back (ip link set dev NAME name OTHER) when no pod uses it.",
        "warning",
    )


@rule(
    "RESOURCE-016", "warning", "Addresses or policy rules of a rail are gone after the test pod",
    needs=("facts", "pod", "returned"), unrehearsed="simulated rails have no policy rules, and a VF takes no address away",
)  # fmt: skip
def settings_are_gone(context: Context):
    """Symptom: after a pod that owned the rail's PF the host has no traffic on the rail, though the link is up.

    Cause: an interface that moves to a pod and back loses its addresses, routes and what names them; what the site set
    at boot is not set again. A supplicant of 802.1X that ran on it has ended, too, which is not seen here.

    Evidence: the addresses and policy rules that the node had before the test pod and has no more.

    Remedy: let the site's agent configure the rail again (or reboot); do not give PFs to pods where they carry settings.

    Source: k8snetworkplumbingwg/sriov-cni, README (VF only); kernel net/core/dev.c (a move to another namespace flushes
    addresses).
    """
    rows = (context.facts["routing"]["rules"], context.returned["routing"]["rules"])
    if None in rows:
        yield Unknown("The policy rules of the node are not known before or after the test pod")
        return
    here = {_rule_key(row) for row in rows[1]}
    lost = [row for row in rows[0] if row["table"] not in _NO_OWN_TABLE and _rule_key(row) not in here]
    addresses = {}
    for rail in node_rails(context):
        now = context.returned["netdevs"].get(rail.netdev, {}).get("addresses")
        old = rail.interface.get("addresses")
        if old is None or now is None:
            continue
        held = {row["address"] for row in now}
        gone = [row["address"] for row in old if not row.get("dynamic") and row["address"] not in held]
        if gone:
            addresses[str(rail.number)] = gone
    if lost or addresses:
        what = [f"{len(lost)} policy rules"] * bool(lost) + [f"addresses of {len(addresses)} rails"] * bool(addresses)
        yield Problem(
            f"After the test pod the node lacks {' and '.join(what)}",
            "Let the site's agent configure the rails again, or reboot the node.",
            {"rules": lost, "addresses": addresses},
        )


def _rule_key(row: dict) -> tuple:
    return tuple(row.get(key) for key in ("family", "from", "to", "table", "fwmark", "iif", "oif"))
