# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which netdev an RDMA port belongs to, from the kernel by RDMA netlink (nldev).

Soft-iWARP (siw) has no file that names its netdev; the kernel says it for every port whose netdev is in the caller's
namespace. Layouts: rdma/rdma_netlink.h, fill_port_info() in drivers/infiniband/core/nldev.c (Linux 4.17 and newer).
"""

from __future__ import annotations

import struct

from ansible_collections.railyard.rdma.plugins.module_utils.network.netlink import (
    Dump,
    number,
    parse_attributes,
    string,
)

_NETLINK_RDMA = 20
_NLDEV = 5 << 10
_GET, _PORT_GET = _NLDEV + 1, _NLDEV + 5
_DEVICE_INDEX, _DEVICE_NAME, _PORT_INDEX, _NDEV_NAME = 1, 2, 3, 51


def parse_port(payload: bytes) -> tuple[str, str, str] | None:
    """Return ``(device, port, netdev)`` of one answer; None when it names no netdev (another namespace's)."""
    attributes = dict(parse_attributes(payload))
    name, port, netdev = (attributes.get(key, b"") for key in (_DEVICE_NAME, _PORT_INDEX, _NDEV_NAME))
    if not name or not netdev or len(port) < 4:
        return None
    return string(name), str(number(port)), string(netdev)


def read_port_netdevs() -> dict[tuple[str, str], str]:
    """Return ``{(device, port): netdev}`` for the ports whose netdev is in this namespace.

    Raises OSError; EPROTONOSUPPORT when ib_core is not loaded. Ask only when it is: the kernel may load the module for
    whoever asks.
    """
    with Dump(_NETLINK_RDMA) as dump:
        indexes = dump.run(_GET, b"", lambda payload: dict(parse_attributes(payload)).get(_DEVICE_INDEX))
        ports: list[tuple[str, str, str]] = []
        for index in indexes:
            if len(index) >= 4:
                ports += dump.run(_PORT_GET, struct.pack("=HH", 8, _DEVICE_INDEX) + index[:4], parse_port)
    return {(device, port): netdev for device, port, netdev in ports}
