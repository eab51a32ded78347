# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where each rail is inside a test pod: shared by the rules about pods and by the report."""

from __future__ import annotations

import ipaddress

from ansible_collections.railyard.rdma.plugins.module_utils.rdma.gid import best_gid_index
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context


def interfaces(layout: dict, pod: dict) -> dict[int, str | None]:
    """{rail: interface in the pod, or None when the rail has no interface there}.

    A VF, a moved PF and the rail itself (host network) are known by PCI address: with one resource for all rails the
    order of the interfaces says nothing. A child interface (IPvlan, macvlan) is on no bus; Multus tells in the pod's
    network-status annotation which network it belongs to, and without that names it net1, net2 … in the order of the
    networks.
    """
    netdevs = pod.get("netdevs") or {}
    by_pci = {}
    for name, entry in sorted(netdevs.items()):
        for pci in (entry.get("parent_pci"), entry.get("pci")):
            if pci:
                by_pci.setdefault(pci, name)
    found: dict[int, str | None] = {rail["rail"]: by_pci.get(rail["pci"]) for rail in layout["rails"]}
    networks = [rail.get("network") for rail in layout["rails"]]
    reported = {
        str(entry.get("name", "")).rpartition("/")[2]: entry.get("interface")
        for entry in pod.get("networks") or []
        if isinstance(entry, dict)
    }
    for position, rail in enumerate(layout["rails"], 1):
        network = rail.get("network")
        if found[rail["rail"]] is not None or network is None:
            continue
        if reported and networks.count(network) == 1:
            name = reported.get(network)
        else:
            name = None if reported else f"net{position}"
        if name in netdevs and netdevs[name].get("pci") is None:
            found[rail["rail"]] = name
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


def forced_class(context: Context, device: str, port: str) -> dict:
    """The traffic class that a port of the pod's device forces: as the pod sees it, else as its node does.

    In shared mode the kernel shows a pod a stand-in of the device that lacks the driver's own folders (compat device,
    add_one_compat_dev in drivers/infiniband/core/device.c): tc is absent there, whatever the device forces.

    :returns: ``{state, value, …}`` as parse_traffic_class does; state None with a reason when it is not known.
    """
    seen = context.pod["devices"][device]
    own = seen["ports"][port]["traffic_class"]
    if own["state"] != "absent" or context.pod.get("netns_mode") != "shared":
        return own
    for other in ((context.facts or {}).get("devices") or {}).values():
        if seen.get("pci") is not None and other.get("pci") == seen["pci"]:
            told = {str(number): entry for number, entry in other["ports"].items()}.get(str(port))
            if told is not None:
                return told["traffic_class"]
    reason = f"pods do not see it in shared mode, and there are no facts of the node about {seen.get('pci') or device}"
    return {"state": None, "value": None, "rules": [], "reason": reason}


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


def placeholders(context: Context) -> list:
    """Subnets of the pools of a layout whose routed addresses come from router advertisements."""
    if context.layout.get("ip_family") != "ipv6_slaac":
        return []
    texts = [pool.get("subnet") or pool.get("cidr") for pool in context.layout.get("pools") or []]
    return [ipaddress.ip_network(text) for text in texts if text]


def usable_rails(context: Context) -> dict[int, int | None]:
    """{rail: GID index of a routed address of the rail's interface, or None}. A placeholder's row is none."""
    pools = placeholders(context)
    found: dict[int, int | None] = {}
    for rail, interface in interfaces(context.layout, context.pod or {}).items():
        device = device_of(context.pod, interface) if interface else None
        rows = address_rows(context.pod, interface, device) if interface and device else []
        rows = [row for row in rows if not any(ipaddress.ip_address(row["address"]) in pool for pool in pools)]
        found[rail] = best_gid_index(rows)
    return found


def _plain(address):
    return None if address is None else str(address).lower()
