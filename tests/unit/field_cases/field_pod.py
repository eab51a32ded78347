# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a healthy test pod says of itself beside its devices and interfaces, in the shapes of pod_facts."""

from __future__ import annotations

# What the tuning plugin of this collection's networks sets.
SYSCTLS = {
    "arp_ignore": 1, "arp_announce": 2, "rp_filter": 0, "arp_filter": 1, "accept_local": 1, "disable_ipv6": 0,
    "accept_ra": 2, "accept_ra_defrtr": 1, "forwarding": 0, "autoconf": 1, "accepts_ra": True,
}  # fmt: skip


def source_rules(*addresses: str) -> list[dict]:
    """Rules as the plugin sbr makes them, from table 100 up."""
    return [
        {"family": "ipv4", "priority": 32765, "from": f"{text}/32", "to": "all", "table": 100 + n, "action": "lookup"}
        for n, text in enumerate(addresses)
    ]


def default_route(netdev: str, metric: int, origin: str | None = "ra", table: int = 254) -> dict:
    return {
        "family": "ipv6", "to": "default", "gateway": "fe80::1", "netdev": netdev, "table": table, "metric": metric,
        "origin": origin, "source": None,
    }  # fmt: skip


def process(*devices: str, rules: list[dict] | None = None, **changes) -> dict:
    """The keys of a pod's facts that are about its process; a device file opens for each RDMA device."""
    names = [("rdma_cm", None), *((f"uverbs{n}", name) for n, name in enumerate(devices))]
    return {
        "routing": {"rules": rules or [], "routes": [], "reasons": {}},
        "device_files": {name: {"device": device, "opens": True, "reason": None} for name, device in names},
        "memlock": {"soft_kib": "unlimited", "hard_kib": "unlimited", "ipc_lock": False},
        "gpus": [],
        "environment": {},
        "reasons": {},
        **changes,
    }
