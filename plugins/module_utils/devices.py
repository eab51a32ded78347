# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA devices and their ports, as ``/sys/class/infiniband`` shows them in this network namespace."""

from __future__ import annotations

import errno
import re

from ansible_collections.railyard.rdma.plugins.module_utils import gid as gids
from ansible_collections.railyard.rdma.plugins.module_utils import pci
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import ABSENT, Tree
from ansible_collections.railyard.rdma.plugins.module_utils.traffic_class import parse_traffic_class

_CLASS = "/sys/class/infiniband"
_ZERO = (gids.ZERO_GID + "\n").encode()
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*Gb/sec")
_REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+(vf|sf)[0-9]+")
# What iboe_get_mtu() (include/rdma/ib_addr.h) takes off a netdev's MTU before it rounds down to an RDMA MTU: GRH 40,
# UDP 8, BTH 12, extended XRC 4, extended AtomicETH 28, ICRC 4.
_ROCE_HEADERS = 96


def roce_mtu(netdev_mtu: int | None) -> int | None:
    """Return the active RDMA MTU that the kernel derives from a netdev's MTU: 1500 gives 1024, 4220 and 9000 give 4096.

    None below the smallest RDMA MTU, and when the netdev's MTU is not known.
    """
    if netdev_mtu is None:
        return None
    return next((mtu for mtu in (4096, 2048, 1024, 512, 256) if netdev_mtu - _ROCE_HEADERS >= mtu), None)


def parse_state(text: str | None) -> str | None:
    """Return ``ACTIVE`` of ``4: ACTIVE`` and ``LinkUp`` of ``5: LinkUp``."""
    return (text or "").rpartition(":")[2].strip() or None


def parse_rate(text: str | None) -> float | None:
    """Return the Gb/s of ``200 Gb/sec (4X HDR)`` or ``2.5 Gb/sec``, None for anything else."""
    match = _RATE.match((text or "").strip())
    return float(match.group(1)) if match else None


def read_gid_table(tree: Tree, port: str, link_layer: str | None, netdevs_here, zero_rows: bool = False):
    """Read the whole GID table of one port.

    Every row is looked at: rows of other namespaces come before ours (NVIDIA/nccl#551), and EINVAL on a row means no
    more than "not ours" (NVIDIA/nccl#1573). Types and netdevs are read for rows that hold a GID only.

    :param port: the port's directory inside the tree, links resolved.
    :returns: ``(rows, table)``; table is ``{length, zero, unreadable, reason}``: how many rows there are, hold no GID,
        and could not be read, with the first error that means more than an absent row. Zero rows are left out of rows
        unless asked for.
    """
    place = tree.path(port)
    type_place, ndev_place = place + "/gid_attrs/types/", place + "/gid_attrs/ndevs/"
    names = sorted((name for name in tree.names(port + "/gids") if name.isascii() and name.isdigit()), key=int)
    table = {"length": len(names), "zero": 0, "unreadable": 0, "reason": None}
    rows = []
    for name, data in tree.read_each(place + "/gids", names):
        if data == _ZERO and not zero_rows:
            table["zero"] += 1
            continue
        number = int(name)
        if isinstance(data, OSError):
            table["unreadable"] += 1
            if errno.errorcode.get(data.errno or 0) not in ABSENT:
                table["reason"] = table["reason"] or f"row {number}: {data.strerror}"
            continue
        empty = data == _ZERO
        row = gids.gid_row(
            number,
            data.decode("utf-8", "replace").strip(),
            None if empty else tree.read_at(type_place + name).value,
            None if empty else tree.read_at(ndev_place + name).value,
            netdevs_here,
            link_layer,
        )
        if row["scope"] == "zero":  # another way to write it than the kernel's
            table["zero"] += 1
            if not zero_rows:
                continue
        rows.append(row)
    return rows, table


def read_port(tree: Tree, device: str, number: str, netdevs_here, zero_rows: bool = False) -> dict:
    """Read one port: link, GID table, traffic class and the class of RDMA CM connections."""
    port = tree.inside(f"{_CLASS}/{device}/ports/{number}")
    link_layer = tree.text(port + "/link_layer")
    rows, table = read_gid_table(tree, port, link_layer, netdevs_here, zero_rows)
    tos_file = f"/sys/kernel/config/rdma_cm/{device}/ports/{number}/default_roce_tos"
    result = {
        "link_layer": link_layer,
        "state": parse_state(tree.text(port + "/state")),
        "phys_state": parse_state(tree.text(port + "/phys_state")),
        "rate_gbps": parse_rate(tree.text(port + "/rate")),
        "active_mtu": None,
        "gids": rows,
        "gid_table": table,
        "traffic_class": read_traffic_class(tree, device, number),
        "rdma_cm_tos": tree.integer(tos_file),
        "reasons": {},
    }
    if result["rdma_cm_tos"] is None:
        # The folder appears when somebody makes it (mkdir); a reader of facts must not.
        tos = tree.read(tos_file)
        result["reasons"]["rdma_cm_tos"] = "not set up in configfs" if tos.absent else tos.reason or "not a number"
    return result


def read_traffic_class(tree: Tree, device: str, port: str) -> dict:
    """Read the forced class of a port; a file that is there but may not be read is no ``absent``."""
    reading = tree.read(f"{_CLASS}/{device}/tc/{port}/traffic_class")
    if reading.value is None and not reading.absent:
        return {"state": None, "value": None, "rules": [], "reason": reading.reason}
    return parse_traffic_class(reading.value)


def choose_netdev(tree: Tree, directory: str, port: str, rows: list, links: dict) -> tuple[str | None, str | None]:
    """Find the netdev of a port by sysfs links, never by the order of names.

    :param directory: the resolved directory of the RDMA device's parent (PCI function or sub-function).
    :param links: links of this namespace by name (netlink), for the master of a bonded port; may be empty.
    :returns: ``(netdev, None)`` or ``(None, reason)``.

    A PF in switchdev mode has the netdevs of its representors in the same folder, and a card may carry both ports on
    one function: ``dev_port`` and ``phys_port_name`` tell them apart. A bonded device (mlx5_bond_0) has its GIDs on
    the bond.
    """
    in_rows = sorted({row["netdev"] for row in rows if row["netdev"]})
    candidates = tree.names(directory + "/net")
    if len(candidates) > 1:
        named = {name: tree.text(f"{directory}/net/{name}/phys_port_name") or "" for name in candidates}
        candidates = [name for name in candidates if not _REPRESENTOR.fullmatch(named[name])]
    if len(candidates) > 1:
        wanted = int(port) - 1
        candidates = [name for name in candidates if tree.integer(f"{directory}/net/{name}/dev_port") == wanted]
    if len(candidates) > 1:
        candidates = [name for name in candidates if name in in_rows] or candidates
    if len(candidates) == 1:
        master = links.get(candidates[0], {}).get("master")
        return (master if master in in_rows and candidates[0] not in in_rows else candidates[0]), None
    if candidates:
        return None, "several netdevs fit: " + ", ".join(candidates)
    if len(in_rows) == 1:
        return in_rows[0], None
    return None, "no netdev of this device is in this network namespace"


def read_devices(tree: Tree, netdevs_here, links: dict, zero_rows: bool = False) -> dict[str, dict]:
    """Read all RDMA devices by name.

    :param netdevs_here: names of the netdevs in this namespace, None when unknown.
    :returns: for each device ``{pci, netdev, function, parent_pci, vf_index, numa_node, pci_path, driver, firmware,
        node_guid, ports, reasons}``; ports by number as a string, as in sysfs. ``reasons`` says why a value is None.
    """
    return {name: _read_device(tree, name, netdevs_here, links, zero_rows) for name in tree.names(_CLASS)}


def _read_device(tree: Tree, name: str, netdevs_here, links: dict, zero_rows: bool) -> dict:
    home = f"{_CLASS}/{name}"
    directory = tree.inside(home + "/device") if tree.exists(home + "/device") else ""
    ports = sorted(number for number in tree.names(home + "/ports") if number.isascii() and number.isdigit())
    device = pci.describe_function(tree, directory)
    device.update(
        {
            "netdev": None,
            "firmware": tree.text(home + "/fw_ver"),
            "node_guid": tree.text(home + "/node_guid"),
            "ports": {number: read_port(tree, name, number, netdevs_here, zero_rows) for number in ports},
            "reasons": {},
        }
    )
    if not directory:
        device["reasons"]["pci"] = "software device: it has no parent on a bus"
    for number in reversed(ports):
        port = device["ports"][number]
        netdev, reason = choose_netdev(tree, directory or home, number, port["gids"], links)
        if netdev is None and not directory:
            netdev = tree.text(home + "/parent")  # rdma_rxe names its netdev here
            netdev = netdev if netdevs_here is None or netdev in netdevs_here else None
        # The device's own netdev is that of its first port; cards with one function per port have no other.
        device["netdev"] = netdev
        device["reasons"].pop("netdev", None)
        if netdev is None and port["link_layer"] != "InfiniBand":
            device["reasons"]["netdev"] = reason
        if port["link_layer"] == "Ethernet":
            mtu = links.get(netdev, {}).get("mtu") if netdev else None
            mtu = mtu or (tree.integer(f"/sys/class/net/{netdev}/mtu") if netdev else None)
            port["active_mtu"] = roce_mtu(mtu)
            if port["active_mtu"] is None:
                port["reasons"]["active_mtu"] = "needs the MTU of a netdev that is not in this network namespace"
        else:
            port["reasons"]["active_mtu"] = "sysfs does not show it for this link layer"
    return device
