# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PCI functions as sysfs shows them: address, path, PF or VF or SF, driver, VFs."""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

_SUB_FUNCTION = re.compile(r"[a-z0-9_]+\.sf\.[0-9]+")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
# One physical function a plane. Cards of one plane have one or two ports, so one or two physical functions.
_MOST_PORTS = 2
_MULTI_PLANE_DRIVERS = frozenset({"mlx5_core"})


def pci_parts(path: str) -> list[str]:
    """Return the PCI addresses in a ``/sys/devices`` path, from the root port down to the function."""
    return [part for part in path.split("/") if _PCI.fullmatch(part)]


def device_of(tree: Tree, directory: str) -> str:
    """Return the resolved directory of the device behind ``/sys/class/*/X``; empty for a virtual one."""
    key = ("device", directory)
    if key not in tree.known:
        link = directory + "/device"
        tree.known[key] = tree.inside(link) if tree.exists(link) else ""
    return tree.known[key]


def describe_function(tree: Tree, directory: str) -> dict:
    """Describe the device behind ``/sys/class/*/X/device``.

    :param directory: its resolved directory below ``/sys/devices``.
    :returns: ``{pci, function, parent_pci, vf_index, plane, numa_node, pci_path, driver}``. function is ``pf``, ``vf``
        or ``sf`` (a sub-function is an auxiliary device below its PCI function), None for a device that is not on a PCI
        bus. A physical function is called ``pf`` whether or not it can have VFs. plane: see :func:`plane`.
    """
    key = ("function", directory)
    if key not in tree.known:
        tree.known[key] = _describe(tree, directory)
    return dict(tree.known[key])


def _describe(tree: Tree, directory: str) -> dict:
    parts = pci_parts(directory)
    result: dict = {
        "pci": parts[-1] if parts else None,
        "function": None,
        "parent_pci": None,
        "vf_index": None,
        "plane": None,
        "numa_node": None,
        "pci_path": "/".join(parts) or None,
        "driver": None,
    }
    if not parts:
        return result
    last = directory.rstrip("/").rsplit("/", 1)[-1]
    pci_directory = directory[: directory.rindex(parts[-1]) + len(parts[-1])]
    numa_node = tree.integer(pci_directory + "/numa_node")
    result["numa_node"] = numa_node if numa_node is not None and numa_node >= 0 else None  # -1: firmware does not say
    result["driver"] = tree.link_name(pci_directory + "/driver")
    parent = tree.link_name(pci_directory + "/physfn")
    if _SUB_FUNCTION.fullmatch(last):
        result["function"] = "sf"
        result["parent_pci"] = parts[-1]
    elif parent:
        result["function"] = "vf"
        result["parent_pci"] = parent
        result["vf_index"] = _vf_index(tree, pci_directory, parts[-1])
    else:
        result["function"] = "pf"
        result["plane"] = plane(tree, pci_directory)
    return result


def plane(tree: Tree, pci_directory: str) -> int | None:
    """Return the plane that a physical function of a multi-plane card is; None on other cards.

    Such a card (ConnectX-8 in GB300 nodes) shows each plane as a physical function of one PCI device, .0 to .3, and has
    its VFs behind them. No attribute says so: what tells it are more than two physical functions of the mlx5 driver in
    one slot. The plane is then the function's number.
    """
    bridge, _slash, address = pci_directory.rstrip("/").rpartition("/")
    slot = address[:-1]
    if not _PCI.fullmatch(address):
        return None
    functions = [
        name
        for name in tree.names(bridge)
        if name.startswith(slot)
        and _PCI.fullmatch(name)
        and not tree.exists(f"{bridge}/{name}/physfn")
        and tree.link_name(f"{bridge}/{name}/driver") in _MULTI_PLANE_DRIVERS
    ]
    return int(address[-1]) if address in functions and len(functions) > _MOST_PORTS else None


def virtual_functions(tree: Tree, pci_directory: str) -> list[tuple[int, str]]:
    """Return ``(index, PCI address)`` of the VFs of a PF, from its ``virtfnN`` links, by index."""
    found = []
    for name in tree.names(pci_directory):
        if name.startswith("virtfn") and name[6:].isascii() and name[6:].isdigit():
            pci = tree.link_name(f"{pci_directory}/{name}")
            if pci:
                found.append((int(name[6:]), pci))
    return sorted(found)


def _vf_index(tree: Tree, directory: str, pci: str) -> int | None:
    parent = tree.inside(directory + "/physfn")
    return next((index for index, address in virtual_functions(tree, parent) if address == pci), None)
