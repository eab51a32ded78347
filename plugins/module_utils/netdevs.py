# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Network devices of this namespace that have to do with RDMA: addresses, VFs, QoS, and the sysctls that rails depend
on."""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils import pci
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

_CLASS = "/sys/class/net"
# For these the kernel uses the larger of "all" and the interface (IN_DEV_MAXCONF in linux/inetdevice.h), so the
# interface's value alone proves nothing.
_MAXIMUM_OF_ALL = ("arp_ignore", "arp_announce", "rp_filter")
_IPV6 = ("disable_ipv6", "accept_ra", "forwarding")
_DSCP_PAIR = re.compile(r"([0-9]{1,2})\s*[:=]\s*([0-7])")


def read_netdevs(tree: Tree, links: dict | None, reason: str | None, wanted) -> dict[str, dict]:
    """Describe netdevs by name.

    :param links: links of this namespace with addresses (netlink.read_links), None when they could not be asked for.
    :param reason: why links is None.
    :param wanted: names to describe besides those with a device on a bus (bonds, for example); virtual netdevs of pods
        are left out.
    :returns: for each ``{pci, mac, mtu, state, master, addresses, sysctls, sriov, qos, reasons}``; addresses is None
        when unknown.
    """
    result = {}
    for name in tree.names(_CLASS):
        if links is not None and name not in links:
            continue  # sysfs shows the namespace that it was mounted in, netlink ours
        directory = f"{_CLASS}/{name}"
        on_bus = tree.exists(directory + "/device")
        if on_bus or name in wanted:
            result[name] = _read_netdev(tree, name, directory, on_bus, (links or {}).get(name), reason)
    return result


def _read_netdev(tree: Tree, name: str, directory: str, on_bus: bool, link: dict | None, reason: str | None) -> dict:
    function = pci.describe_function(tree, tree.inside(directory + "/device")) if on_bus else {"pci": None}
    netdev: dict = {
        "pci": function["pci"],
        "mac": tree.text(directory + "/address"),
        "mtu": link["mtu"] if link else tree.integer(directory + "/mtu"),
        "state": tree.text(directory + "/operstate"),
        "master": link["master"] if link else tree.link_name(directory + "/master"),
        "addresses": link["addresses"] if link else None,
        "sysctls": read_sysctls(tree, name),
        "sriov": read_sriov(tree, directory + "/device") if on_bus else None,
        "qos": read_qos(tree, directory),
        "reasons": {},
    }
    if link is None:
        netdev["reasons"]["addresses"] = reason or "the kernel lists no such link in this namespace"
    if netdev["pci"] is None:
        netdev["reasons"]["pci"] = "virtual device"
    return netdev


def read_sysctls(tree: Tree, name: str) -> dict:
    """Return the effective values of a netdev's sysctls; None for one that cannot be read (IPv6 may be off
    altogether)."""
    values = {}
    for key in _MAXIMUM_OF_ALL:
        both = [tree.integer(f"/proc/sys/net/ipv4/conf/{scope}/{key}") for scope in ("all", name)]
        known = [value for value in both if value is not None]
        values[key] = max(known) if len(known) == 2 else None
    for key in _IPV6:
        values[key] = tree.integer(f"/proc/sys/net/ipv6/conf/{name}/{key}")
    return values


def read_sriov(tree: Tree, device: str) -> dict | None:
    """Return ``{total, num, vfs: [{index, pci, netdev, device}]}`` of a PF, None for a function that cannot have VFs.

    netdev and device (RDMA) of a VF are None while they are in another network namespace.
    """
    total = tree.integer(device + "/sriov_totalvfs")
    if total is None:
        return None
    vfs = []
    directory = tree.inside(device)
    for index, address in pci.virtual_functions(tree, directory):
        home = f"{directory}/virtfn{index}"
        netdevs, rdma = tree.names(home + "/net"), tree.names(home + "/infiniband")
        vfs.append(
            {
                "index": index,
                "pci": address,
                "netdev": netdevs[0] if len(netdevs) == 1 else None,
                "device": rdma[0] if len(rdma) == 1 else None,
            }
        )
    return {"total": total, "num": tree.integer(device + "/sriov_numvfs"), "vfs": vfs}


def read_qos(tree: Tree, directory: str) -> dict:
    """Return ``{trust, dscp_to_priority, pfc, reasons}`` of a netdev, as far as files answer.

    The files come with DOCA-OFED and for PFs only. PFC has no file at all: the kernel tells it by DCB netlink.
    """
    qos: dict = {"trust": None, "dscp_to_priority": None, "pfc": None, "reasons": {}}
    trust = tree.read(directory + "/qos/trust")
    qos["trust"] = (trust.value or "").strip() or None
    if qos["trust"] is None:
        qos["reasons"]["trust"] = "the driver has no such file" if trust.absent else trust.reason or "empty file"
    table = tree.read(directory + "/qos/dscp2prio")
    if table.value is None:
        qos["reasons"]["dscp_to_priority"] = "the driver has no such file" if table.absent else table.reason
    else:
        qos["dscp_to_priority"] = parse_dscp_map(table.value)
        if qos["dscp_to_priority"] is None:
            qos["reasons"]["dscp_to_priority"] = f"format not understood: {table.value!r:.60}"
    qos["reasons"]["pfc"] = "no file tells it"
    return qos


def parse_dscp_map(text: str) -> dict[str, int] | None:
    """Read ``10:0 26:5`` or one such pair a line into ``{"10": 0}``; keys are strings, as JSON has it. None for any
    other text."""
    pairs = _DSCP_PAIR.findall(text)
    if not pairs or _DSCP_PAIR.sub("", text).strip(" \t\n,") or any(int(code) > 63 for code, _priority in pairs):
        return None
    return {str(int(code)): int(priority) for code, priority in pairs}
