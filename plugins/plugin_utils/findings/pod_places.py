# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rails of a test pod as rows, for rules that look at each rail's interface and device there."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import device_of, interfaces
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context


@dataclass(frozen=True)
class PodRail:
    """One rail that the pod has an interface of.

    :param name: the interface in the pod, with its facts in ``interface``.
    :param device: name of the RDMA device of the interface, None when there is none; its facts are in ``rdma``.
    """

    number: int
    intent: dict
    name: str
    interface: dict
    device: str | None
    rdma: dict = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What to call it: the interface in the pod."""
        return self.name


def pod_rails(context: Context) -> list[PodRail]:
    """The rails that have an interface in the pod; none when the pod could not be read, of which RESOURCE-003 speaks."""
    pod = context.pod
    if not pod["reachable"]:
        return []
    by_number = {rail["rail"]: rail for rail in context.layout["rails"]}
    found = []
    for number, name in interfaces(context.layout, pod).items():
        if name is None:
            continue
        device = device_of(pod, name)
        facts = pod["devices"][device] if device else {}
        found.append(PodRail(number, by_number[number], name, pod["netdevs"][name], device, facts))
    return found


def pod_has_own_network(context: Context) -> bool:
    """Whether the pod's interfaces, sysctls, routes and rules are its own and not the node's."""
    return not (context.layout.get("pod") or {}).get("host_network")


def global_rows(rail: PodRail, family: str | None = None) -> list[dict]:
    """Addresses of the rail that other nodes can reach."""
    rows = rail.interface.get("addresses") or []
    return [row for row in rows if row["scope"] == "global" and family in (None, row["family"])]
