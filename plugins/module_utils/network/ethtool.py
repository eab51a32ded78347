# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Statistics of a network driver (what ``ethtool -S`` shows), by the SIOCETHTOOL ioctl.

Layouts: linux/ethtool.h. Only the standard library is used, and no command is run. Counters by priority are the only
proof of the priority that packets really used; they are counted by the port, so they belong to PFs on the host.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import re
import socket
import struct

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_SS_STATS, _STRING_LENGTH = 1, 32
_MAXIMUM = 100_000  # statistics; a card with 256 queues has some 10,000
_ATTEMPTS = 3
# How drivers name a counter of one priority: mlx5 and mlx4 (rx_prio0_bytes, rx_prio_0_packets), bnxt_en
# (rx_bytes_pri0), ice and i40e (port.rx_priority_0_xon, rx_priority_0_xon.nic).
_BY_PRIORITY = (
    re.compile(r"(?:port\.)?(?P<way>rx|tx)_prio(?:rity)?_?(?P<priority>[0-7])_(?P<what>\w+?)(?:\.nic)?"),
    re.compile(r"(?P<way>rx|tx)_(?P<what>\w+?)_pri(?:o_?)?(?P<priority>[0-7])"),
)
# Counters of single queues and channels: thousands, and they say nothing about the wire.
_OF_A_QUEUE = re.compile(
    r"(?:\[[0-9]+\]"  # bnxt_en: [0]: rx_ucast_packets
    r"|(?:rx|tx|ch|q|txq|rxq|vec)-?[0-9]+[-_.:]"  # mlx5, virtio_net: rx0_packets; i40e: tx-0.packets
    r"|(?:ptp|qos)_(?:rx|tx|cq|ch)[0-9]+_"
    r"|(?:[rt]x[-_.])?(?:queue|txq|rxq|q|vec)[-_]?[0-9]+).*"  # igb, ice, veth: rx_queue_0_packets; ena: queue_0_tx_cnt
)


def parse_strings(data: bytes, count: int) -> list[str]:
    """Return the names in a string set: fixed fields of 32 bytes, padded with NUL (a full field has none)."""
    fields = (data[place : place + _STRING_LENGTH] for place in range(0, count * _STRING_LENGTH, _STRING_LENGTH))
    return [field.split(b"\0", 1)[0].decode("utf-8", "replace").strip() for field in fields if field]


def group(statistics: dict[str, int]) -> dict:
    """Sort statistics into ``{priority: {"0": {rx_bytes, tx_pause, …}}, other: {…}}``.

    Names by priority lose the priority (``rx_prio0_bytes`` becomes ``rx_bytes`` of ``"0"``), so drivers are alike as far
    as they count the same; counters of single queues are left out.
    """
    priorities: dict[str, dict[str, int]] = {}
    other: dict[str, int] = {}
    for name, value in statistics.items():
        match = next((match for match in (rule.fullmatch(name) for rule in _BY_PRIORITY) if match), None)
        if match:
            counter = f"{match.group('way')}_{match.group('what')}"
            priorities.setdefault(match.group("priority"), {})[counter] = value
        elif not _OF_A_QUEUE.fullmatch(name):
            other[name] = value
    return {"priority": dict(sorted(priorities.items())), "other": other}


def read_statistics(netdev: str) -> tuple[dict[str, int] | None, str | None]:
    """Return the statistics of a netdev of this network namespace by name, or None with a reason. Never raises.

    Three ioctls: how many there are, their names, their values. Needs no privilege.
    """
    name = netdev.encode("utf-8", "surrogateescape")
    if not 0 < len(name) < 16:
        return None, "no name of a netdev"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for _attempt in range(_ATTEMPTS):
                statistics = _read_once(control.fileno(), name)
                if statistics is not None:
                    return statistics, None
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return None, "the driver has no statistics"
        return None, f"ethtool ioctl: {os.strerror(error.errno or errno.EIO)}"
    except (ValueError, OverflowError) as error:
        return None, f"ethtool ioctl: {error}"
    return None, "the number of statistics changed while they were read (queues were reconfigured)"


def _read_once(descriptor: int, name: bytes) -> dict[str, int] | None:
    """Return the statistics; None when their number changed in between."""
    count = _count(descriptor, name)
    if not count:
        raise OSError(errno.EOPNOTSUPP, "no statistics")
    # The kernel writes as many entries as there are when it looks, whatever length it was told. Room for four times as
    # many, and more, keeps a change of queues from writing behind the buffer.
    room = count * 4 + 4096
    strings = bytearray(12 + room * _STRING_LENGTH)
    struct.pack_into("=III", strings, 0, _GSTRINGS, _SS_STATS, count)
    _call(descriptor, name, strings)
    values = bytearray(8 + room * 8)
    struct.pack_into("=II", values, 0, _GSTATS, count)
    _call(descriptor, name, values)
    if struct.unpack_from("=I", strings, 8)[0] != count or struct.unpack_from("=I", values, 4)[0] != count:
        return None
    names = parse_strings(bytes(strings[12:]), count)
    return dict(zip(names, struct.unpack_from(f"={count}Q", values, 8)))


def _count(descriptor: int, name: bytes) -> int:
    buffer = bytearray(16 + 4)
    struct.pack_into("=IIQ", buffer, 0, _GSSET_INFO, 0, 1 << _SS_STATS)
    _call(descriptor, name, buffer)
    if not struct.unpack_from("=Q", buffer, 8)[0] & 1 << _SS_STATS:
        return 0  # the kernel clears the bit of a set that the driver does not have
    count = struct.unpack_from("=I", buffer, 16)[0]
    if count > _MAXIMUM:
        raise ValueError(f"{count} statistics cannot be")
    return count


def _call(descriptor: int, name: bytes, buffer: bytearray) -> None:
    """Run one ethtool command: struct ifreq holds the name and a pointer to the command's own structure."""
    memory = array.array("B", buffer)
    address, _length = memory.buffer_info()
    fcntl.ioctl(descriptor, _SIOCETHTOOL, struct.pack("=16sQ16x", name, address))
    buffer[:] = memory.tobytes()
