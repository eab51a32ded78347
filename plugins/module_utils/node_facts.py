# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of one node, put together in one pass."""

from __future__ import annotations

import os

from ansible_collections.railyard.rdma.plugins.module_utils import (
    boot_images,
    devices,
    gid,
    modprobe,
    netdevs,
    netlink,
    netns_mode,
)
from ansible_collections.railyard.rdma.plugins.module_utils.driver import read_driver
from ansible_collections.railyard.rdma.plugins.module_utils.memlock import read_memlock
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

SCHEMA = 1


def gather(tree: Tree, rails: list[dict] | None = None, zero_rows: bool = False, read_images: bool = True) -> dict:
    """Read everything about RDMA on a node.

    :param rails: the intended rails, dicts with ``rail`` and ``pci`` and/or ``netdev``; the fact ``rails`` tells what
        they are here.
    :param zero_rows: keep GID rows that hold no GID; they are most of every table and say nothing but that they are
        empty.
    :param read_images: False leaves the boot images unread (the most expensive part), and what depends on them unknown.
    :returns: the fact ``rdma``. Values that cannot be read are None, with a reason beside them (``reason``, or
        ``reasons`` by key).
    """
    links, reason = read_links(tree)
    here = set(links) if links is not None else set(tree.names("/sys/class/net"))
    rdma_devices = devices.read_devices(tree, here, links or {}, zero_rows)
    used = {device["netdev"] for device in rdma_devices.values() if device["netdev"]}
    used |= {rail["netdev"] for rail in rails or [] if rail.get("netdev")}
    interfaces = netdevs.read_netdevs(tree, links, reason, used)
    mode, images = read_netns_mode(tree, read_images)
    return {
        "schema": SCHEMA,
        "kernel": os.uname().release if tree.live else None,
        "boot_id": tree.text("/proc/sys/kernel/random/boot_id"),
        "netns_mode": mode,
        "boot_images": images,
        "driver": read_driver(tree),
        "devices": rdma_devices,
        "netdevs": interfaces,
        "rails": [describe_rail(rail, rdma_devices, interfaces) for rail in rails or []],
        "memlock": read_memlock(tree),
    }


def read_links(tree: Tree) -> tuple[dict | None, str | None]:
    """Return the links of this namespace by netlink, or None with a reason: another tree has no namespace to ask."""
    if not tree.live:
        return None, "addresses are asked of the running kernel, and this is another root"
    try:
        return netlink.read_links(), None
    except OSError as error:
        return None, f"netlink: {error}"


def read_netns_mode(tree: Tree, read_images: bool = True) -> tuple[dict, list | None]:
    """Return the facts ``netns_mode`` and ``boot_images``."""
    files, problems = modprobe.read_config(tree)
    command_line = tree.read("/proc/cmdline").value
    in_files = netns_mode.configured(files)
    if problems and not in_files["reason"]:
        in_files = {**in_files, "mode": None, "reason": "; ".join(problems)}
    in_line = netns_mode.kernel_line(command_line)
    live = netns_mode.live(tree)
    if read_images:
        images: list | None = boot_images.inspect_all(tree, in_files)
        in_image = boot_images.summary(images or [])
        after = boot_images.next_boot(in_files, in_line, images or [], boot_images.find_builder(tree))
        if not images and not in_image["reason"]:
            in_image["reason"] = "no boot image in /boot"
    else:
        images = None
        in_image = after = {"mode": None, "reason": "the boot images were not read"}
    required, why_unknown = netns_mode.reboot_required(after, live)
    reasons = {
        "live": live["reason"],
        "configured": in_files["reason"] or (None if in_files["mode"] else "no file sets it"),
        "kernel_line": in_line["reason"] or (None if in_line["mode"] else "the kernel line does not set it"),
        "boot_image": in_image["reason"] or (None if in_image["mode"] else "no image sets it"),
        "next_boot": after["reason"],
        "reboot_required": why_unknown,
    }
    mode = {
        "live": live["mode"],
        "loaded": live["loaded"],
        "configured": in_files["mode"],
        "configured_by": in_files["by"],
        "kernel_line": in_line["mode"],
        "boot_image": in_image["mode"],
        "next_boot": after["mode"],
        "reboot_required": required,
        "owners": netns_mode.owners(files, command_line),
        "reasons": {key: text for key, text in reasons.items() if text},
    }
    return mode, images


def describe_rail(rail: dict, rdma_devices: dict, interfaces: dict) -> dict:
    """Find an intended rail on the node: by PCI address, else by the netdev's name.

    :param rail: ``{rail, pci, netdev}``; pci or netdev may be missing.
    :returns: ``{rail, name, pci, netdev, device, port, gid_index, gid, address, state, rate_gbps, mtu, active_mtu,
        numa_node, traffic_class, vfs, vfs_possible, reason}``; netdev is the name that it has here. reason says what
        is not as a rail should be.
    """
    wanted_pci, wanted_netdev = rail.get("pci"), rail.get("netdev")
    name, device = _find_device(rdma_devices, wanted_pci, wanted_netdev)
    result: dict = {
        "rail": rail.get("rail"),
        "name": rail.get("name"),
        "pci": wanted_pci or (device or {}).get("pci"),
        "netdev": (device or {}).get("netdev"),
        "device": name,
    }
    keys = ("port", "gid_index", "gid", "address", "state", "rate_gbps", "mtu", "active_mtu", "numa_node")
    result.update(dict.fromkeys((*keys, "traffic_class", "vfs", "vfs_possible", "reason")))
    interface = interfaces.get(result["netdev"]) or _by_pci(interfaces, wanted_pci) or {}
    sriov = interface.get("sriov") or {}
    result.update({"mtu": interface.get("mtu"), "vfs": sriov.get("num"), "vfs_possible": sriov.get("total")})
    if device is None:
        result["reason"] = (
            f"no RDMA device with PCI address {wanted_pci} (netdev {wanted_netdev}) in this network namespace"
        )
        return result
    result["numa_node"] = device["numa_node"]
    if not device["ports"]:
        result["reason"] = f"{name} has no port"
        return result
    number, port = sorted(device["ports"].items())[0]
    index = gid.best_gid_index(port["gids"])
    row = next((row for row in port["gids"] if row["index"] == index), {})
    result.update({key: port[key] for key in ("state", "rate_gbps", "active_mtu", "traffic_class")})
    result.update({"port": int(number), "gid_index": index, "gid": row.get("gid"), "address": row.get("address")})
    if device["netdev"] is None:
        result["reason"] = device["reasons"].get("netdev")
    elif port["state"] != "ACTIVE":
        result["reason"] = f"port state is {port['state']}"
    elif index is None:
        result["reason"] = "no usable RoCE v2 GID that is routed between nodes"
    return result


def _find_device(rdma_devices: dict, pci: str | None, netdev: str | None) -> tuple[str | None, dict | None]:
    for key, wanted in (("pci", pci), ("netdev", netdev)):
        for name, device in rdma_devices.items():
            if wanted and device[key] == wanted and device["function"] != "sf":
                return name, device
        if wanted:
            break  # a wrong PCI address must not be cured by a name that another OS gave
    return None, None


def _by_pci(interfaces: dict, pci: str | None) -> dict | None:
    return next((interface for interface in interfaces.values() if pci and interface["pci"] == pci), None)
