# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where each rail is on its node, and how rules speak about one rail or all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import (
    Context,
    Problem,
    Unknown,
    Unreadable,
)

ROCE, MLX5 = "Ethernet", "mlx5_core"


@dataclass(frozen=True)
class NodeRail:
    """One intended rail as the node's facts show it.

    :param intent: the rail of the layout; ``pci`` is what it is known by.
    :param netdev: name of its network device, None when the namespace has none for it; ``interface`` its facts.
    :param name: name of its RDMA device, None when there is none; ``device`` its facts, ``port`` those of its first
        port.
    """

    number: int
    intent: dict
    netdev: str | None = None
    interface: dict = field(default_factory=dict)
    name: str | None = None
    device: dict = field(default_factory=dict)
    port: dict = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.netdev or self.name or self.intent["pci"]

    @property
    def is_mlx5(self) -> bool:
        """Whether trust, DSCP map and PFC mean for it what they mean for mlx5."""
        return self.device.get("driver") == MLX5 and self.port.get("link_layer") == ROCE


@dataclass(frozen=True)
class Hit:
    """What a rule found on one rail."""

    rail: NodeRail
    evidence: dict


def node_rails(context: Context) -> list[NodeRail]:
    """All rails of the layout, found by PCI address and nothing else: names depend on the image.

    :raises Unreadable: the facts have no devices or netdevs, with the reason that they give.
    """
    devices, netdevs = context.facts["devices"], context.facts["netdevs"]
    for name, value in (("devices", devices), ("netdevs", netdevs)):
        if value is None:
            reasons = context.facts.get("reasons") or {}
            raise Unreadable(name, reasons.get(name) or "no reason given")
    found = []
    for intent in context.layout["rails"]:
        pci = intent["pci"]
        name = next((n for n, d in devices.items() if d["pci"] == pci and d["function"] != "sf"), None)
        device = devices[name] if name else {}
        netdev = device.get("netdev")
        if netdev is None:
            own = [n for n, entry in netdevs.items() if entry["pci"] == pci and not entry.get("representor")]
            netdev = own[0] if len(own) == 1 else None
        ports = sorted((device.get("ports") or {}).items(), key=lambda item: int(item[0]))
        port = ports[0][1] if ports else {}
        found.append(NodeRail(intent["rail"], intent, netdev, netdevs.get(netdev, {}), name, device, port))
    return found


def spread(
    context: Context,
    hits: list[Hit],
    summary: Callable[[str], str],
    remedy: str | Callable[[list[str]], str] = "",
    severity: str | None = None,
    unknown: bool = False,
) -> Iterator[Problem | Unknown]:
    """One result a rail, or a single one with ``evidence.rails`` when every rail of the layout (and more than one) is
    hit.

    :param summary: gets the place in words, such as ``rail 3 (rdma3)`` or ``all 16 rails``.
    :param remedy: text, or a function that gets the names of the rails that it is for.
    :param unknown: make Unknowns, whose reason is the summary.
    """
    everywhere = len(hits) == len(context.layout["rails"]) > 1
    groups = [hits] if everywhere else [[hit] for hit in hits]
    for group in groups:
        if everywhere:
            where, rail = f"all {len(group)} rails", None
            evidence = {"rails": [hit.rail.number for hit in group], "each": [hit.evidence for hit in group]}
        else:
            rail = group[0].rail.number
            where, evidence = f"rail {rail} ({group[0].rail.label})", group[0].evidence
        if unknown:
            yield Unknown(summary(where), evidence, rail)
            continue
        names = [hit.rail.label for hit in group]
        yield Problem(summary(where), remedy if isinstance(remedy, str) else remedy(names), evidence, rail, severity)


def host_rails_carry_pods(context: Context) -> bool:
    """Whether pods use the node's own rail interfaces, so that their addresses and sysctls are the pods'."""
    return context.layout.get("network") == "host_network"


def global_addresses(interface: dict, family: str | None = None) -> list[dict] | None:
    """Addresses that other nodes can reach, without deprecated ones; None when addresses are not known."""
    rows = interface.get("addresses")
    if rows is None:
        return None
    return [
        row
        for row in rows
        if row["scope"] == "global" and not row.get("deprecated") and family in (None, row["family"])
    ]
