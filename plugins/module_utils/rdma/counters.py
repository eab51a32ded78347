# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Counters of RDMA ports and of network devices, read on demand: two readings tell what happened in between."""

from __future__ import annotations

import os

from ansible_collections.railyard.rdma.plugins.module_utils.network import ethtool
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

_CLASS = "/sys/class/infiniband"
_LIFESPAN = "lifespan"


def parse_counter(data: bytes) -> int | None:
    """Return the number in a counter file, None for other text (``N/A (no PMA)`` of a port without the counter)."""
    text = data.strip()
    return int(text) if text.isdigit() and len(text) <= 20 else None


def read_port_counters(tree: Tree, device: str, port: str) -> dict:
    """Read the verbs counters and the driver's counters of one port of an RDMA device.

    :returns: ``{counters, hw_counters, lifespan_ms, reasons}``. counters and hw_counters are ``{name: value}`` under the
        kernel's names, None with a reason when the driver has none (rdma_rxe has no ``counters``). A counter without a
        number is None and stands in reasons as well. Units: port_xmit_data and port_rcv_data count 4 bytes each
        (Documentation/ABI/stable/sysfs-class-infiniband). lifespan_ms: values are refreshed no more often than this, so
        two readings must be further apart.
    """
    result: dict = {"lifespan_ms": None, "reasons": {}}
    home = f"{_CLASS}/{device}"
    for name, places in (
        ("counters", (f"{home}/ports/{port}/counters",)),
        # Some drivers count for the device instead of the port.
        ("hw_counters", (f"{home}/ports/{port}/hw_counters", f"{home}/hw_counters")),
    ):
        result[name] = None
        for place in places:
            names = tree.names(place)
            if names:
                values = _read(tree, place, names, name, result["reasons"])
                lifespan = values.pop(_LIFESPAN, None)
                result["lifespan_ms"] = result["lifespan_ms"] if lifespan is None else lifespan
                result[name] = values
                break
        else:
            result["reasons"][name] = "the driver has no such counters"
    return result


def _read(tree: Tree, place: str, names: list[str], kind: str, reasons: dict) -> dict[str, int | None]:
    values: dict[str, int | None] = {}
    for name, data in tree.read_each(tree.path(place), names):
        values[name] = None if isinstance(data, OSError) else parse_counter(data)
        if isinstance(data, OSError):
            reasons[f"{kind}.{name}"] = os.strerror(data.errno) if data.errno else "unreadable"
        elif values[name] is None:
            reasons[f"{kind}.{name}"] = f"not a number: {data[:40].decode('utf-8', 'replace').strip()!r}"
    return values


def attach_port_counters(tree: Tree, devices: dict[str, dict]) -> None:
    """Set ``counters`` of every port of the fact ``devices``, see :func:`read_port_counters`."""
    for name, device in devices.items():
        for number, port in device["ports"].items():
            port["counters"] = read_port_counters(tree, name, number)


def read_netdev_counters(tree: Tree, netdev: str) -> tuple[dict | None, str | None]:
    """Return the statistics of a netdev by priority (shape of :func:`ethtool.group`), or None with a reason."""
    if not tree.live:
        return None, "counters are asked of the running kernel, and this is another root"
    statistics, reason = ethtool.read_statistics(netdev)
    return (None if statistics is None else ethtool.group(statistics)), reason


def difference(before: dict | None, after: dict | None) -> dict:
    """Return what was counted between two readings, by name, for counters that both have.

    Counters are unsigned 64-bit numbers; a smaller second value means that the counter started anew (a driver reload),
    not that it ran over, and is left out.
    """
    both = [name for name in before or {} if name in (after or {})]
    pairs = {name: ((before or {})[name], (after or {})[name]) for name in both}
    return {
        name: last - first
        for name, (first, last) in pairs.items()
        if isinstance(first, int) and isinstance(last, int) and last >= first
    }
