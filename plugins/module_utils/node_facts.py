# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of one node, put together in one pass."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import traceback
from typing import Callable

from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_images, boot_loader
from ansible_collections.railyard.rdma.plugins.module_utils.host import reboot_note, topology
from ansible_collections.railyard.rdma.plugins.module_utils.host.memlock import read_memlock
from ansible_collections.railyard.rdma.plugins.module_utils.netns import modprobe, netns_mode, network_namespaces
from ansible_collections.railyard.rdma.plugins.module_utils.network import netdevs, netlink, routing
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import counters, devices, gid, rdma_netlink
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.driver import read_driver
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree, describe

SCHEMA = 1
# What the roles decide by, when nothing of it could be read.
_UNKNOWN_MODE = {
    **dict.fromkeys(("live", "loaded", "configured", "configured_by", "kernel_line", "next_kernel_line", "boot_image")),
    **dict.fromkeys(("next_boot", "reboot_required", "owners", "namespaces")),
    "reasons": {"live": "see reasons.netns_mode", "reboot_required": "see reasons.netns_mode"},
}


def gather(
    tree: Tree,
    rails: list[dict] | None = None,
    zero_rows: bool = False,
    read_images: bool = True,
    with_counters: bool = False,
) -> dict:
    """Read everything about RDMA on a node.

    :param rails: the intended rails, dicts with ``rail`` and ``pci`` and/or ``netdev``; the fact ``rails`` tells what
        they are here.
    :param zero_rows: keep GID rows that hold no GID; they are most of every table and say nothing but that they are
        empty.
    :param read_images: False leaves the boot images unread (the most expensive part), and what depends on them unknown.
    :param with_counters: adds ``counters`` to ports and netdevs.
    :returns: the fact ``rdma``. Values that cannot be read are None, with a reason beside them (``reason``, or
        ``reasons`` by key).
    """
    reasons: dict = {}
    part = Parts(reasons)
    now = datetime.datetime.now(datetime.timezone.utc)
    links, reason = part("links", read_links, tree, otherwise=(None, "links are not known"))
    here = set(links) if links is not None else set(tree.names("/sys/class/net"))
    mode, images = part("netns_mode", read_netns_mode, tree, read_images, otherwise=(dict(_UNKNOWN_MODE), None))
    rdma_devices = part("devices", read_rdma_devices, tree, here, links or {}, zero_rows, mode, reasons)
    wanted = {rail["netdev"] for rail in rails or [] if rail.get("netdev")}
    for port in (port for device in (rdma_devices or {}).values() for port in device["ports"].values()):
        wanted |= {port["netdev"], *(row["netdev"] for row in port["gids"])} - {None}
    interfaces = part("netdevs", read_interfaces, tree, links, reason, wanted, with_counters)
    if with_counters:
        part("counters", counters.attach_port_counters, tree, rdma_devices or {})
    gpus, no_gpus = part("gpus", topology.read_gpus, tree, otherwise=(None, None))
    reasons.update({"gpus": no_gpus} if no_gpus else {})
    described = part("rails", describe_rails, rails or [], rdma_devices or {}, interfaces or {})
    part("rails", topology.attach_gpus, tree, described or [], gpus)
    return printable(
        {
            "schema": SCHEMA,
            "gathered_at": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "kernel": os.uname().release if tree.live else None,
            "boot_id": tree.text("/proc/sys/kernel/random/boot_id"),
            "netns_mode": mode,
            "reboot_note": part("reboot_note", reboot_note.read, tree, otherwise={"reason": "see reasons.reboot_note"}),
            "boot_images": images,
            "driver": part("driver", read_driver, tree),
            "devices": rdma_devices,
            "netdevs": interfaces,
            "routing": part("routing", read_routing, tree),
            "gpus": gpus,
            "rails": described,
            "memlock": part("memlock", read_memlock, tree),
            "reasons": reasons,
        }
    )


class Parts:
    """Calls the reader of one part of the facts; an error in it costs the node that part and no other.

    The readers turn everything that a system can answer into None and a reason, so what is caught here is a mistake in
    them. Its place is named, for whoever reports it.
    """

    def __init__(self, reasons: dict) -> None:
        self._reasons = reasons

    def __call__(self, name: str, read: Callable, *arguments, otherwise=None):
        try:
            return read(*arguments)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(place.filename)}:{place.lineno}"
            self._reasons[name] = f"internal error: {type(error).__name__}: {error!s:.200} ({where})"
            return otherwise


def printable(facts: dict) -> dict:
    """Return the facts with names that are not UTF-8 (the kernel allows them) written with ``\\x`` escapes, so that
    they can be printed and sent."""
    try:
        json.dumps(facts, ensure_ascii=False).encode()  # far quicker than looking at each value here
        return facts
    except UnicodeEncodeError:
        return _escaped(facts)


def _escaped(value):
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_escaped(key): _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_escaped(inner) for inner in value]
    return value


def read_links(tree: Tree) -> tuple[dict | None, str | None]:
    """Return the links of this namespace by netlink, or None with a reason: another tree has no namespace to ask."""
    if not tree.live:
        return None, "asked of the running kernel, and this is another root"
    try:
        return netlink.read_links(), None
    except OSError as error:
        return None, f"netlink: {error.strerror or describe(error)}"


def read_rdma_devices(tree: Tree, here: set, links: dict, zero_rows: bool, mode: dict, reasons: dict) -> dict | None:
    """Return the fact ``devices``; None when sysfs cannot be read. Why there are none, and what exclusive mode hides,
    goes into ``reasons``."""
    if not tree.names("/sys/class"):
        reasons["devices"] = "/sys/class cannot be read: is sysfs mounted?"
        return None
    named = {}
    if tree.live and tree.exists("/sys/class/infiniband"):
        with contextlib.suppress(OSError):  # sysfs tells the netdevs of all but a few software devices
            named = rdma_netlink.read_port_netdevs()
    found = devices.read_devices(tree, here, links, zero_rows, named)
    if not found:
        reasons["devices"] = "no RDMA device" if tree.exists("/sys/module/ib_core") else "ib_core is not loaded"
    if mode.get("live") == "exclusive":
        text = "exclusive mode: devices that were moved to other network namespaces (pods) are not listed"
        reasons["devices"] = f"{reasons['devices']}; {text}" if not found else text
    return found


def read_interfaces(tree: Tree, links: dict | None, reason: str | None, wanted: set, with_counters: bool) -> dict:
    """Return the fact ``netdevs``: addresses and routes are asked for the netdevs that are described, no others."""
    names = netdevs.choose(tree, links, wanted)
    known = {links[name]["index"]: links[name] for name in names if links is not None}
    for key, read in (("addresses", netlink.read_addresses), ("default_routes", routing.read_default_routes)):
        try:
            answers = read(known) if known else {}
        except OSError as error:
            for link in known.values():
                link["reason"] = f"netlink: {error.strerror or describe(error)}"
        else:
            for index, link in known.items():
                link[key] = answers[index]
    return netdevs.read_netdevs(tree, names, links, reason, with_counters)


def read_routing(tree: Tree) -> dict:
    """Return the fact ``routing``."""
    if not tree.live:
        return {"rules": None, "reason": "asked of the running kernel, and this is another root"}
    return routing.read_rules()


def read_netns_mode(tree: Tree, read_images: bool = True) -> tuple[dict, list | None]:
    """Return the facts ``netns_mode`` and ``boot_images``."""
    files, problems = modprobe.read_config(tree)
    loader = boot_loader.read(tree)
    kernel = loader["default_kernel"] or (os.uname().release if tree.live else None)
    builtin = boot_images.builtin(tree, kernel) if kernel else None
    command_line = tree.read("/proc/cmdline").value
    in_files = netns_mode.configured(files)
    if problems and not in_files["reason"]:
        in_files = {**in_files, "mode": None, "reason": "; ".join(problems), "unread": True}
    in_line = netns_mode.kernel_line(command_line, bool(builtin))
    in_next_line = netns_mode.next_kernel_line(loader, bool(builtin))
    line = in_next_line if in_next_line["known"] else in_line
    live = netns_mode.live(tree)
    if read_images:
        images: list | None = boot_images.inspect_all(tree, in_files, loader)
        in_image = boot_images.summary(images or [])
        after = boot_images.next_boot(in_files, line, images or [], boot_images.find_builder(tree))
        if not images and not in_image["reason"]:
            in_image["reason"] = "no boot image in /boot"
    else:
        images = None
        in_image = after = {"mode": None, "reason": "the boot images were not read"}
    if builtin:
        after = netns_mode.next_boot(in_files, line, None, builtin=True)
    required, why_unknown = netns_mode.reboot_required(after, live)
    namespaces, why_no_namespaces = network_namespaces.fact(tree)
    reasons = {
        "live": live["reason"],
        "configured": in_files["reason"] or (None if in_files["mode"] else "no file sets it"),
        "kernel_line": in_line["reason"] or (None if in_line["mode"] else "the kernel line does not set it"),
        "next_kernel_line": in_next_line["reason"]
        or (None if in_next_line["mode"] else "the kernel line of the entry that boots next does not set it"),
        "boot_image": in_image["reason"] or (None if in_image["mode"] else "no image sets it"),
        "next_boot": after["reason"],
        "reboot_required": why_unknown,
        "namespaces": why_no_namespaces,
    }
    mode = {
        "live": live["mode"],
        "loaded": live["loaded"],
        "configured": in_files["mode"],
        "configured_by": in_files["by"],
        "kernel_line": in_line["mode"],
        "next_kernel_line": in_next_line["mode"],
        "next_boot_line": "boot_loader" if in_next_line["known"] else "proc_cmdline",
        "boot_loader": loader["loader"],
        "default_kernel": loader["default_kernel"],
        "boot_image": in_image["mode"],
        "next_boot": after["mode"],
        "reboot_required": required,
        "owners": netns_mode.owners(files, command_line, loader),
        "namespaces": namespaces,
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


def describe_rails(rails: list[dict], rdma_devices: dict, interfaces: dict) -> list[dict]:
    """Return the fact ``rails``."""
    return [describe_rail(rail, rdma_devices, interfaces) for rail in rails]


def _find_device(rdma_devices: dict, pci: str | None, netdev: str | None) -> tuple[str | None, dict | None]:
    """Find the RDMA device of a rail. A software device stands for the function that its netdev is on, when that
    function has no device of its own."""
    # A wrong PCI address must not be cured by a name that another OS gave.
    keys = (("pci", pci), ("netdev_pci", pci)) if pci else (("netdev", netdev),) if netdev else ()
    for key, wanted in keys:
        for name, device in rdma_devices.items():
            fits = device["kind"] == "software" if key == "netdev_pci" else device["function"] != "sf"
            if device[key] == wanted and fits:
                return name, device
    return None, None


def _by_pci(interfaces: dict, pci: str | None) -> dict | None:
    return next((interface for interface in interfaces.values() if pci and interface["pci"] == pci), None)
