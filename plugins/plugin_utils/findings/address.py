# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the addresses of a node's rails, above all those from router advertisements."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.foreign import short
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.node_rails import (
    Hit,
    NodeRail,
    global_addresses,
    host_rails_carry_pods,
    node_rails,
    spread,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import (
    FLEET,
    Context,
    Problem,
    Unknown,
    Unreadable,
    rule,
)


def _advertised(context: Context) -> list[NodeRail]:
    """Rails with an interface, on which the intent expects router advertisements."""
    rails = [rail for rail in node_rails(context) if rail.interface]
    return rails if context.layout.get("ip_family") == "ipv6_slaac" else []


@rule("ADDRESS-001", "error", "IPv6 is disabled on a rail that needs it", needs=("facts",))
def ipv6_disabled(context: Context):
    """Symptom: the rail has no address and no GID at all, though the fabric advertises a prefix on it.

    Cause: disable_ipv6 is set for the interface, often by a hardening profile that sets net.ipv6.conf.all and default.
    An error where pods use the host's network; a warning elsewhere, since pods have a namespace with values of its
    own, and the network template must set disable_ipv6=0 there.

    Evidence: the value of each rail.

    Remedy: sysctl net.ipv6.conf.INTERFACE.disable_ipv6=0, and take the setting out of /etc/sysctl.d.

    Source: kubernetes-sigs/dranet#138; kernel Documentation/networking/ip-sysctl.rst.
    """
    rails = _advertised(context)
    values = [(rail, rail.interface["sysctls"]["disable_ipv6"]) for rail in rails]
    yield from spread(
        context,
        [Hit(rail, {"netdev": rail.netdev, "disable_ipv6": value}) for rail, value in values if value],
        lambda where: f"IPv6 is disabled on {where}",
        lambda names: _sysctls(names, "disable_ipv6=0"),
        "error" if host_rails_carry_pods(context) else "warning",
    )
    yield from spread(
        context,
        [Hit(rail, {"netdev": rail.netdev}) for rail, value in values if value is None],
        lambda where: f"disable_ipv6 cannot be read on {where}; the kernel may have no IPv6",
        unknown=True,
    )


@rule("ADDRESS-002", "error", "A rail ignores router advertisements", needs=("facts",))
def advertisements_ignored(context: Context):
    """Symptom: rails lose their IPv6 address and route some time after the CNI started, or never get one.

    Cause: with forwarding=1, which CNIs turn on, the kernel takes router advertisements only when accept_ra is 2. An
    agent that set accept_ra at boot saw forwarding still off. With accept_ra=0 a program (systemd-networkd,
    NetworkManager) may handle advertisements itself; where it does, the rail has an address and nothing is reported.

    Evidence: forwarding and accept_ra of the rail and its global addresses now.

    Remedy: sysctl net.ipv6.conf.INTERFACE.accept_ra=2 for each rail, in a file of /etc/sysctl.d that is applied before
    the agent that brings the rails up.

    Source: siderolabs/talos#3841; kernel Documentation/networking/ip-sysctl.rst (accept_ra).
    """
    hits, open_ones = [], []
    for rail in _advertised(context):
        sysctls = rail.interface["sysctls"]
        forwarding, accept = sysctls["forwarding"], sysctls["accept_ra"]
        now = [row["address"] for row in global_addresses(rail.interface, "ipv6") or []]
        evidence = {"netdev": rail.netdev, "forwarding": forwarding, "accept_ra": accept, "addresses": now}
        if sysctls["disable_ipv6"] is None or forwarding is None or accept is None:
            open_ones.append(Hit(rail, evidence))
        elif not sysctls["disable_ipv6"] and forwarding and accept != 2 and not (accept == 0 and now):
            hits.append(Hit(rail, evidence))
    yield from spread(
        context,
        hits,
        lambda where: f"Router advertisements are ignored on {where}",
        lambda names: _sysctls(names, "accept_ra=2"),
    )
    yield from spread(
        context, open_ones, lambda where: f"accept_ra and forwarding cannot be read on {where}", unknown=True
    )


@rule("ADDRESS-003", "warning", "A rail has several global IPv6 addresses", needs=("facts",))
def several_addresses(context: Context):
    """Symptom: two programs choose different GIDs of one rail, and one of the addresses is not routed.

    Cause: an agent set an address and the kernel formed another one from a router advertisement (autoconf is on), or
    temporary addresses are on.

    Evidence: the addresses with their origin; kernel_ra are those of router advertisements.

    Remedy: keep one way: autoconf=0 on the rails, or no static address; use_tempaddr=0.

    Source: containernetworking/plugins#160.
    """
    hits = []
    for rail in node_rails(context):
        rows = global_addresses(rail.interface, "ipv6") if rail.interface else []
        if rows and len(rows) > 1:
            keys = ("address", "prefix", "origin", "dynamic", "temporary")
            hits.append(
                Hit(rail, {"netdev": rail.netdev, "addresses": [{k: row.get(k) for k in keys} for row in rows]})
            )
    yield from spread(
        context,
        hits,
        lambda where: f"Programs may choose between several global IPv6 addresses on {where}",
        "Keep the advertised or the static address, and set use_tempaddr=0 on the rails.",
    )


@rule("ADDRESS-004", "warning", "An address of a rail is tentative", needs=("facts",))
def address_tentative(context: Context):
    """Symptom: the first job after the boot fails and the second one works; or an address never becomes usable.

    Cause: duplicate address detection has not finished, or found the same address on another node. SLAAC takes a few
    seconds after the link is up.

    Evidence: the tentative addresses.

    Remedy: look again after some seconds. When it stays, another node has the address: compare the MAC addresses.

    Source: containernetworking/plugins#1016; RFC 4862, 5.4.
    """
    hits = []
    for rail in node_rails(context):
        rows = [row["address"] for row in rail.interface.get("addresses") or [] if row["tentative"]]
        if rows:
            hits.append(Hit(rail, {"netdev": rail.netdev, "tentative": rows}))
    yield from spread(
        context,
        hits,
        lambda where: f"An address cannot be used yet on {where}",
        "Look again in some seconds; when it stays, find the other owner of the address.",
    )


@rule(
    "ADDRESS-012",
    "error",
    "Functions of several nodes have the same MAC address",
    needs=("facts",),
    scope=FLEET,
    unrehearsed="it takes the same machine-id on two nodes, and a fault is on one",
)
def same_mac(contexts: list[Context]):
    """Symptom: pods on two nodes lose packets or connections at times, each is well alone; IPv6 addresses stay tentative or are
    dadfailed.

    Cause: the nodes were cloned together with /etc/machine-id. udev makes the MAC addresses of VFs, which have none of their own,
    from it and the name of the interface, so the VFs of the same name have the same one on every node.

    Evidence: the MAC addresses, and which interfaces of which nodes have them.

    Remedy: empty /etc/machine-id on the clones (and /var/lib/dbus/machine-id where it is a file of its own), reboot them one
    after the other, and prepare the image without it.

    Source: manual pages systemd.link(5), MACAddressPolicy=persistent, and machine-id(5).
    """
    if len(contexts) == 1:
        return
    holders: dict[tuple[int, str], dict[str, str]] = {}
    for context in contexts:
        try:
            rows = [(rail.number, *row) for rail in node_rails(context) for row in _macs(context, rail)]
        except Unreadable as error:
            evidence = {"not_gathered": error.part, "reason": str(error)}
            yield Unknown(f"MAC addresses were not compared: {error}", evidence, node=context.node)
            continue
        for number, name, mac in rows:
            if mac is None:
                text = f"the MAC address of {name} is not known, so it was not compared with those of other nodes"
                yield Unknown(text, {"netdev": name}, number, context.node)
            else:
                holders.setdefault((number, mac), {})[context.node] = name
    groups: dict[tuple[str, ...], list[dict]] = {}
    for (number, mac), names in sorted(holders.items()):
        if len(names) > 1:
            groups.setdefault(tuple(sorted(names)), []).append({"rail": number, "mac": mac, "netdevs": names})
    for nodes, found in sorted(groups.items()):
        text = f"{len(nodes)} nodes ({short(nodes)}) have the same MAC addresses, {len(found)} of them, such as {found[0]['mac']}"
        remedy = (
            "Give all but one of them a machine-id of its own: empty /etc/machine-id there, reboot one after the other."
        )
        yield Problem(text, remedy, {"same": found}, node=nodes[0])


def _macs(context: Context, rail: NodeRail) -> list[tuple[str, str | None]]:
    """(name, MAC address or None) of a rail's PF and of its VFs that are on the node, not in a pod."""
    rows = [(rail.netdev, rail.interface)] if rail.netdev else []
    pci = rail.intent["pci"]
    for name, entry in context.facts["netdevs"].items():
        if entry.get("vf_of") == pci and not entry.get("representor"):
            rows.append((name, entry))
    return [(name, entry.get("mac")) for name, entry in rows]


def _sysctls(names: list[str], setting: str) -> str:
    return "Set and keep in /etc/sysctl.d: " + ", ".join(f"net.ipv6.conf.{name}.{setting}" for name in names)
