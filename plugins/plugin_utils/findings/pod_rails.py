# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where each rail is inside a test pod: shared by the rules about pods and by the report."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context


def interfaces(layout: dict, pod: dict) -> dict[int, str | None]:
    """{rail: interface in the pod, or None when the rail has no interface there}.

    A pod of the host's network sees the rails themselves, found by PCI address. Otherwise Multus tells in the pod's
    network-status annotation which
    interface belongs to which network; without the annotation it names them net1, net2 … in the order of the networks.
    """
    netdevs = pod.get("netdevs") or {}
    if (layout.get("pod") or {}).get("host_network"):
        by_pci = {entry.get("pci"): name for name, entry in netdevs.items() if entry.get("pci")}
        return {r["rail"]: by_pci.get(r["pci"]) for r in layout["rails"]}
    reported = {
        str(entry.get("name", "")).rpartition("/")[2]: entry.get("interface")
        for entry in pod.get("networks") or []
        if isinstance(entry, dict)
    }
    found = {}
    for position, rail in enumerate(layout["rails"], 1):
        name = reported.get(rail.get("network")) if pod.get("networks") is not None else f"net{position}"
        found[rail["rail"]] = name if name in netdevs else None
    return found


def device_of(pod: dict, interface: str) -> str | None:
    """RDMA device of an interface: on the same PCI function (VF, moved PF), else the one whose GIDs name it (IPvlan,
    macvlan)."""
    devices = pod.get("devices") or {}
    pci = (pod.get("netdevs") or {}).get(interface, {}).get("pci")
    for name, device in devices.items():
        if pci is not None and device.get("pci") == pci:
            return name
    for name, device in devices.items():
        if device.get("netdev") == interface:
            return name
        for port in device["ports"].values():
            if any(row.get("netdev") == interface for row in port["gids"]):
                return name
    return None


def routable_addresses(pod: dict, interface: str) -> list[str]:
    """Addresses of the interface that traffic between nodes can use: global scope, and not tentative."""
    entries = (pod.get("netdevs") or {}).get(interface, {}).get("addresses") or []
    return [e["address"] for e in entries if e.get("scope") == "global" and not e.get("tentative")]


def address_rows(pod: dict, interface: str, device: str) -> list[dict]:
    """Usable RoCE v2 rows of the device that hold an address of the interface."""
    wanted = {_plain(a) for a in routable_addresses(pod, interface)}
    return [
        row
        for port in pod["devices"][device]["ports"].values()
        for row in port["gids"]
        if row.get("usable") and row.get("type") == "RoCE v2" and _plain(row.get("address")) in wanted
    ]


def usable_rails(context: Context) -> dict[int, int | None]:
    """{rail: GID index of an address of the rail's interface, or None}."""
    found: dict[int, int | None] = {}
    for rail, interface in interfaces(context.layout, context.pod or {}).items():
        device = device_of(context.pod, interface) if interface else None
        rows = address_rows(context.pod, interface, device) if interface and device else []
        found[rail] = min((row["index"] for row in rows), default=None)
    return found


def _plain(address):
    return None if address is None else str(address).lower()
