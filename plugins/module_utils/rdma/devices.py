# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA devices and their ports, as ``/sys/class/infiniband`` shows them in this network namespace."""

from __future__ import annotations

import errno
import hashlib
import re

from ansible_collections.railyard.rdma.plugins.module_utils.host import pci
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import gid as gids
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import rdma_cm
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.traffic_class import parse_traffic_class
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import ABSENT, Tree, number

_CLASS = "/sys/class/infiniband"
_NET = "/sys/class/net"
_MOST_LOWER = 64
_ZERO = (gids.ZERO_GID + "\n").encode()
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*Gb/sec")
# phys_port_name of a representor (__devlink_port_phys_port_name_get() in net/devlink/port.c): of a VF or SF, or on a DPU
# of the host's PF (pf0hpf in older drivers). An uplink is called p0.
_REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+((vf|sf)[0-9]+|hpf)?")
# What the software drivers of the kernel call their devices (rxe_verbs.c, siw_main.c). The parent of such a device is
# no proof: some kernels make it a child of its netdev's PCI function.
_SOFTWARE = frozenset({"rxe", "Software iWARP stack"})
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
    :returns: ``(rows, table)``; table is ``{length, zero, unreadable, hash, reason}``: how many rows there are, hold no
        GID, and could not be read, with the first error that means more than an absent row. Zero rows are left out of
        rows unless asked for. hash: see :func:`table_hash`; None when a row could not be read for such an error.
    """
    place = tree.folder(port)
    names = tree.rows(port + "/gids")
    unreadable = set()
    reason = None
    texts: dict[str, str] = {}
    for name, data in tree.read_each(place + "/gids", names, ignore=_ZERO):  # nearly all rows of a table are zero
        if isinstance(data, OSError):
            unreadable.add(name)
            if errno.errorcode.get(data.errno or 0) not in ABSENT:
                reason = reason or f"row {name}: {data.strerror}"
            continue
        texts[name] = data.decode("utf-8", "replace").strip()
    types = dict(tree.read_each(place + "/gid_attrs/types", texts))
    netdevs = dict(tree.read_each(place + "/gid_attrs/ndevs", texts))
    held = []
    for name, text in texts.items():
        row = gids.gid_row(int(name), text, _text(types[name]), _text(netdevs[name]), netdevs_here, link_layer)
        if row["scope"] != "zero":  # another way to write it than the kernel's
            held.append(row)
    table = {
        "length": len(names),
        "zero": len(names) - len(unreadable) - len(held),
        "unreadable": len(unreadable),
        "hash": None if reason else table_hash(held),
        "reason": reason,
    }
    if zero_rows:
        known = {row["index"] for row in held}
        empty = [int(name) for name in names if name not in unreadable and int(name) not in known]
        held += [gids.gid_row(index, gids.ZERO_GID, None, None, netdevs_here, link_layer) for index in empty]
        held.sort(key=lambda row: row["index"])
    return held, table


def table_hash(rows: list) -> str:
    """Return 16 hexadecimal digits over index, GID, type and netdev of all rows that hold a GID.

    Rows are reused in another order when addresses come and go, so an index that was right once need not be right
    later (NVIDIA/nccl#1333). Two readings with the same hash have the same indexes.
    """
    lines = [f"{row['index']} {row['gid']} {row['type']} {row['netdev']}" for row in rows if row["scope"] != "zero"]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _text(data: bytes | OSError) -> str | None:
    return None if isinstance(data, OSError) else data.decode("utf-8", "replace")


def read_port(tree: Tree, device: str, home: str, number: str, netdevs_here, zero_rows: bool = False) -> dict:
    """Read one port: link, GID table, traffic class and the class of RDMA CM connections.

    :param home: the device's directory, links resolved.
    """
    port = f"{home}/ports/{number}"
    told, why = tree.attributes(port, ("link_layer", "state", "phys_state", "rate"))
    rows, table = read_gid_table(tree, port, told["link_layer"], netdevs_here, zero_rows)
    connections = rdma_cm.read_rdma_cm(tree, device, number)
    result = {
        "link_layer": told["link_layer"],
        "state": parse_state(told["state"]),
        "phys_state": parse_state(told["phys_state"]),
        "rate_gbps": parse_rate(told["rate"]),
        "netdev": None,
        "active_mtu": None,
        "gids": rows,
        "gid_table": table,
        "traffic_class": read_traffic_class(tree, home, number),
        "rdma_cm_tos": connections["tos"],
        "rdma_cm_mode": connections["mode"],
        "reasons": {},
    }
    for key, file in (("link_layer",) * 2, ("state",) * 2, ("phys_state",) * 2, ("rate_gbps", "rate")):
        if result[key] is None:
            result["reasons"][key] = why.get(file) or f"not understood: {told[file]!r:.60}"
    result["reasons"].update(connections["reasons"])
    return result


def read_traffic_class(tree: Tree, home: str, port: str) -> dict:
    """Read the forced class of a port; a file that is there but may not be read is no ``absent``."""
    reading = tree.read(f"{home}/tc/{port}/traffic_class")
    if reading.value is None and not reading.absent:
        return {"state": None, "value": None, "rules": [], "reason": reading.reason}
    return parse_traffic_class(reading.value)


def is_representor(phys_port_name: str | None) -> bool:
    """Tell whether a netdev stands for a VF, SF or host PF in the switch of its PF; such a netdev is not the PF's."""
    return bool(_REPRESENTOR.fullmatch(phys_port_name or ""))


def choose_netdev(
    tree: Tree, directory: str, port: str, rows: list, links: dict, named: str | None = None
) -> tuple[str | None, str | None]:
    """Find the netdev of a port by sysfs links, never by the order of names.

    :param directory: the resolved directory of the RDMA device's parent (PCI function or sub-function), empty for a
        software device.
    :param links: links of this namespace by name (netlink), for the master of a bonded port; may be empty.
    :param named: the netdev that the driver or the kernel names for this port, None when they do not.
    :returns: ``(netdev, None)`` or ``(None, reason)``.

    A PF in switchdev mode has the netdevs of its representors in the same folder, and a card may carry both ports on
    one function: ``dev_port`` and ``phys_port_name`` tell them apart. A child of another netdev (IPoIB) has an
    ``iflink`` that is not its own ``ifindex``. A bonded device (mlx5_bond_0) has its GIDs on the bond.
    """
    in_rows = sorted({row["netdev"] for row in rows if row["netdev"]})
    candidates = tree.names(directory + "/net") if directory else []
    if len(candidates) > 1:
        candidates = _own_netdevs(tree, directory, candidates, int(port) - 1)
    if len(candidates) > 1:
        candidates = [name for name in candidates if name in in_rows] or candidates
    if len(candidates) == 1:
        if in_rows and candidates[0] not in in_rows:
            master = _master(tree, candidates[0], links)
            return (master if master in in_rows else candidates[0]), None
        return candidates[0], None
    if named:
        return named, None
    if candidates:
        return None, "several netdevs fit: " + ", ".join(candidates)
    if len(in_rows) == 1:
        return in_rows[0], None
    return None, "no netdev of this device is in this network namespace"


def _own_netdevs(tree: Tree, directory: str, names: list[str], port_index: int) -> list[str]:
    own = []
    for name in names:
        told, _why = tree.attributes(f"{directory}/net/{name}", ("phys_port_name", "dev_port", "ifindex", "iflink"))
        child = told["iflink"] is not None and told["iflink"] != told["ifindex"]
        if not child and not is_representor(told["phys_port_name"]) and number(told["dev_port"]) == port_index:
            own.append(name)
    return own


def is_bonded(tree: Tree, netdev: str | None, links: dict) -> bool:
    """Tell whether a netdev is a bond or a member of one."""
    if netdev is None:
        return False
    names = [name for name in (netdev, _master(tree, netdev, links)) if name]
    return any(
        links[name].get("kind") == "bond" if name in links else tree.exists(f"{_NET}/{name}/bonding") for name in names
    )


def _master(tree: Tree, netdev: str, links: dict) -> str | None:
    return links[netdev]["master"] if netdev in links else tree.link_name(f"{_NET}/{netdev}/master")


def netdev_pci(tree: Tree, netdev: str | None) -> str | None:
    """Return the PCI address that a netdev's traffic leaves by; for a VLAN or another child that of the netdev below.

    None for a netdev without one (veth) and for one over several functions (a bond).
    """
    found: set[str] = set()
    todo = {netdev} if netdev else set()
    seen: set[str] = set()
    while todo and len(seen) < _MOST_LOWER:
        name = todo.pop()
        seen.add(name)
        home = f"{_NET}/{name}"
        parts = pci.pci_parts(pci.device_of(tree, home))
        if parts:
            found.add(parts[-1])
        else:
            todo |= {entry[6:] for entry in tree.names(home) if entry.startswith("lower_")} - seen
    return found.pop() if len(found) == 1 and not todo else None


def read_devices(
    tree: Tree, netdevs_here, links: dict, zero_rows: bool = False, port_netdevs: dict | None = None
) -> dict[str, dict]:
    """Read all RDMA devices by name.

    :param netdevs_here: names of the netdevs in this namespace, None when unknown.
    :param port_netdevs: ``{(device, port): netdev}`` from RDMA netlink, for software devices.
    :returns: for each device ``{kind, pci, netdev, netdev_pci, bond, plane, function, parent_pci, vf_index, numa_node,
        pci_path, driver, firmware, node_guid, ports, reasons}``; ports by number as a string, as in sysfs. ``reasons``
        says why a value is None.
    """
    return {
        name: _read_device(tree, name, netdevs_here, links, zero_rows, port_netdevs or {})
        for name in tree.names(_CLASS)
    }


def _read_device(tree: Tree, name: str, netdevs_here, links: dict, zero_rows: bool, port_netdevs: dict) -> dict:
    home = tree.inside(f"{_CLASS}/{name}")
    told, why = tree.attributes(home, ("fw_ver", "node_guid", "node_desc", "parent"))
    directory = pci.device_of(tree, home)
    # rdma_rxe names its netdev in ``parent``, which no other driver has.
    software = not directory or told["parent"] is not None or told["node_desc"] in _SOFTWARE
    directory = "" if software else directory
    ports = tree.rows(home + "/ports")
    device = pci.describe_function(tree, directory)
    reasons: dict = {}
    device.update(
        {
            "kind": "software" if software else "hardware",
            "netdev": None,
            "netdev_pci": None,
            "bond": False,
            "firmware": told["fw_ver"],
            "node_guid": told["node_guid"],
            "ports": {port: read_port(tree, name, home, port, netdevs_here, zero_rows) for port in ports},
            "reasons": reasons,
        }
    )
    reasons.update(
        {key: why[file] for key, file in (("firmware", "fw_ver"), ("node_guid", "node_guid")) if file in why}
    )
    if device["pci"] is None:
        reasons["pci"] = "software device: it has no parent on a bus" if software else "its parent is not on a PCI bus"
    elif device["numa_node"] is None:
        reasons["numa_node"] = "the firmware does not say"
    if not ports:
        reasons["netdev"] = reasons["ports"] = "the device has no port"
    for text in ports:
        port = device["ports"][text]
        named = port_netdevs.get((name, text)) or (told["parent"] if software else None)
        named = named if netdevs_here is None or named in netdevs_here else None
        port["netdev"], reason = choose_netdev(tree, directory, text, port["gids"], links, named)
        if port["netdev"] is None:
            port["reasons"]["netdev"] = reason
        _set_active_mtu(tree, port, links)
    # The device's own netdev is that of its first port; cards with one function per port have no other.
    first = device["ports"][ports[0]] if ports else {}
    device["netdev"] = first.get("netdev")
    if first and device["netdev"] is None and first["link_layer"] != "InfiniBand":
        reasons["netdev"] = first["reasons"]["netdev"]
    device["bond"] = is_bonded(tree, device["netdev"], links)
    # A bond's traffic leaves by several functions; the device is the one of its own.
    device["netdev_pci"] = (netdev_pci(tree, device["netdev"]) or device["pci"]) if device["netdev"] else None
    return device


def _set_active_mtu(tree: Tree, port: dict, links: dict) -> None:
    if port["link_layer"] != "Ethernet":
        port["reasons"]["active_mtu"] = "sysfs does not show it for this link layer"
        return
    netdev = port["netdev"]
    mtu = links.get(netdev, {}).get("mtu") or (tree.integer(f"{_NET}/{netdev}/mtu") if netdev else None)
    port["active_mtu"] = roce_mtu(mtu)
    if port["active_mtu"] is None:
        port["reasons"]["active_mtu"] = "needs the MTU of a netdev that is not in this network namespace"
