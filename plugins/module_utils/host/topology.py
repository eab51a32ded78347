# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs a rail is near to, by PCIe path and NUMA node.

The same NUMA node is not the same PCIe switch (k8snetworkplumbingwg/sriov-network-operator#736): GPUDirect is fast only
below one switch. Distances carry the words that ``nvidia-smi topo -m`` explains in its legend.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.railyard.rdma.plugins.module_utils.host import pci
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

PIX, PXB, PHB, NODE, SYS = WORDS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_DEVICES = "/sys/bus/pci/devices"
_NODES = "/sys/devices/system/node"
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_NVIDIA, _AMD = "10de", "1002"
# PCI classes (pci.ids): 0302 is a 3D controller, always a GPU. VGA (0300) is the console of the management controller
# too, so only GPU makers' count; AMD Instinct come as display (0380) or processing accelerator (1200).
_GPU_CLASS = "0302"
_CLASSES_BY_VENDOR = {_NVIDIA: ("0300", "0302"), _AMD: ("0300", "0302", "0380", "1200")}


class Place(NamedTuple):
    """Where a PCI function sits: its host bridge, the addresses from the root port down to itself, its NUMA node."""

    bridge: str | None
    path: tuple[str, ...]
    numa_node: int | None


def place(tree: Tree, address: str) -> Place | None:
    """Find a PCI function; a VF has its PF's place, since it sits in the same card. None when there is no such one."""
    directory = tree.inside(f"{_DEVICES}/{address}")
    if not tree.exists(directory):
        return None
    parent = tree.link_name(directory + "/physfn")
    if parent:
        directory = tree.inside(f"{_DEVICES}/{parent}")
    bridge = next((part for part in directory.split("/") if _HOST_BRIDGE.fullmatch(part)), None)
    node = tree.integer(directory + "/numa_node")
    return Place(bridge, tuple(pci.pci_parts(directory)), node if node is not None and node >= 0 else None)


def distance(one: Place, other: Place, nodes: int) -> tuple[str | None, str | None]:
    """Return the distance of two functions as a word, or None with a reason.

    PIX: below one PCIe switch (or one port). PXB: several switches, no host bridge. PHB: through the host bridge that
    both hang on. NODE: two host bridges of one NUMA node. SYS: two NUMA nodes.

    :param nodes: NUMA nodes of the machine; with one, an unknown node (-1) does not matter.
    """
    if not one.path or not other.path:
        return None, "not on a PCI bus"
    if one.bridge == other.bridge:
        common = 0
        for left, right in zip(one.path, other.path):
            if left != right:
                break
            common += 1
        if not common:
            return PHB, None
        # Below the upstream port of a switch there are its downstream port and the function.
        return (PIX if max(len(one.path), len(other.path)) - common <= 2 else PXB), None
    if nodes == 1:
        return NODE, None
    if one.numa_node is None or other.numa_node is None:
        return None, "they hang on different host bridges and the firmware does not say on which NUMA node"
    return (NODE if one.numa_node == other.numa_node else SYS), None


def read_gpus(tree: Tree) -> tuple[list[dict] | None, str | None]:
    """Return the GPUs as ``{pci, vendor, device, driver, numa_node, pci_path}``, ordered by address, or None with a
    reason. vendor and device are PCI ids in hexadecimal (``10de``); numa_node is None when the firmware gives -1."""
    if not tree.exists(_DEVICES):
        return None, f"no {_DEVICES}"
    gpus = []
    for address in tree.names(_DEVICES):
        home = f"{_DEVICES}/{address}"
        kind = (tree.text(home + "/class") or "").lower()[2:6]
        if kind not in ("0300", "0302", "0380", "1200"):
            continue
        vendor = _hexadecimal(tree.text(home + "/vendor"))
        if kind != _GPU_CLASS and kind not in _CLASSES_BY_VENDOR.get(vendor or "", ()):
            continue
        if tree.link_name(home + "/physfn"):
            continue  # a GPU's VFs are for virtual machines
        function = pci.describe_function(tree, tree.inside(home))
        gpus.append(
            {
                "pci": address,
                "vendor": vendor,
                "device": _hexadecimal(tree.text(home + "/device")),
                "driver": function["driver"],
                "numa_node": function["numa_node"],
                "pci_path": function["pci_path"],
            }
        )
    return gpus, None


def numa_distances(tree: Tree) -> dict[int, dict[int, int]]:
    """Return the firmware's distances between NUMA nodes, 10 is the node itself; empty when sysfs has none.

    A node's ``distance`` file has one number for each node that is online, in order of their numbers
    (drivers/base/node.c), and nodes may be missing in between.
    """
    nodes = sorted(int(name[4:]) for name in tree.names(_NODES) if re.fullmatch(r"node[0-9]{1,6}", name))
    result = {}
    for node in nodes:
        words = (tree.text(f"{_NODES}/node{node}/distance") or "").split()
        if len(words) == len(nodes) and all(word.isdecimal() and len(word) < 6 for word in words):
            result[node] = {other: int(word) for other, word in zip(nodes, words)}
    return result


def near_gpus(here: Place, gpus: dict[str, Place], distances: dict[int, dict[int, int]]) -> list[dict]:
    """Return the GPUs as ``[{pci, distance, numa_distance, reason}]``, nearest first.

    :param here: the place of the rail's device.
    :param gpus: the places of the GPUs by PCI address.
    :param distances: of :func:`numa_distances`; numa_distance is None where it does not tell.
    """
    near = []
    for address, there in gpus.items():
        word, reason = distance(here, there, len(distances))
        numa = None
        if here.numa_node is not None and there.numa_node is not None:
            numa = distances.get(here.numa_node, {}).get(there.numa_node)
        near.append({"pci": address, "distance": word, "numa_distance": numa, "reason": reason})
    near.sort(
        key=lambda gpu: (
            WORDS.index(gpu["distance"]) if gpu["distance"] else len(WORDS),
            1 << 20 if gpu["numa_distance"] is None else gpu["numa_distance"],
            gpu["pci"],
        )
    )
    return near


def attach_gpus(tree: Tree, rails: list[dict], gpus: list[dict] | None) -> None:
    """Set ``gpus`` of described rails (see :func:`near_gpus`), None with ``reason_gpus`` where they are unknown.

    :param rails: dicts with ``pci``, the address of the rail's device, PF or VF.
    :param gpus: of :func:`read_gpus`, None when unknown.
    """
    distances = numa_distances(tree)
    places = {gpu["pci"]: found for gpu in gpus or [] if (found := place(tree, gpu["pci"]))}
    for rail in rails:
        here = place(tree, rail["pci"]) if rail["pci"] else None
        if gpus is None or here is None:
            reason = "no PCI devices to see" if gpus is None else "the rail has no PCI device here"
            rail.update({"gpus": None, "reason_gpus": reason})
        else:
            rail.update({"gpus": near_gpus(here, places, distances), "reason_gpus": None})


def _hexadecimal(text: str | None) -> str | None:
    return text.lower()[2:] if text and re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}", text) else None
