# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GID table of one RoCE port. Pure.

Rules from drivers/infiniband/core/roce_gid_mgmt.c and cache.c: rows 0 and 1 are reserved for the default GID, which is
made from the MAC when the interface appears; each address takes the lowest free row for RoCE v1 and the next free one
for RoCE v2; a row is freed when its address or its interface goes away, also when the interface changes its namespace,
and is then used again. Addresses of IPvlan and macvlan children are in the table of the port below them, and such a
child has no default GID: its link-local address is one like any other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

ROCE_V1, ROCE_V2 = "IB/RoCE v1", "RoCE v2"
TYPES = (ROCE_V1, ROCE_V2)
ZERO = ":".join(["0000"] * 8)
PF_ROWS, VF_ROWS = 256, 128


@dataclass(frozen=True)
class Row:
    gid: str
    type: str
    owner: Hashable


def gid_text(packed: bytes) -> str:
    return ":".join(packed[at : at + 2].hex() for at in range(0, 16, 2))


def gid_of_address(address: str) -> str:
    """IPv4 addresses become IPv4-mapped IPv6 ones (rdma_ip2gid); a prefix length is ignored."""
    ip = ipaddress.ip_interface(address).ip
    return gid_text(b"\0" * 10 + b"\xff\xff" + ip.packed if ip.version == 4 else ip.packed)


def default_gid(mac: str) -> str:
    """fe80::/64 with the modified EUI-64 of the MAC (make_default_gid, addrconf_ifid_eui48)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    eui64 = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return gid_text(b"\xfe\x80" + b"\0" * 6 + eui64)


class GidTable:
    def __init__(self, size: int) -> None:
        self.rows: list[Row | None] = [None] * size

    def update(
        self,
        owner: Hashable | None,
        mac: str = "",
        addresses: Sequence[str] = (),
        children: Sequence[tuple[Hashable, Sequence[str]]] = (),
    ) -> None:
        """Bring the rows in line with the interface's present state, and with that of its children.

        :param owner: identity of the interface in its namespace, or None when it is away. Rows of another owner are
            freed first: a moved interface is a new one to the table.
        :param addresses: with or without prefix length, in the order of their appearance.
        :param children: owner and addresses of each, in the order in which they were made.
        """
        wanted: list[Row] = []
        if owner is not None:
            gids = dict.fromkeys(gid_of_address(address) for address in addresses)
            gids.pop(default_gid(mac), None)  # the link-local address made from the MAC has its rows already
            wanted = [Row(gid, kind, owner) for gid in gids for kind in TYPES]
        for child, its in children:
            wanted += [Row(gid, kind, child) for gid in dict.fromkeys(map(gid_of_address, its)) for kind in TYPES]
        keep = set(wanted)
        for index in range(len(TYPES), len(self.rows)):
            if self.rows[index] is not None and self.rows[index] not in keep:
                self.rows[index] = None
        for index, kind in enumerate(TYPES):
            self.rows[index] = None if owner is None else Row(default_gid(mac), kind, owner)
        present = set(self.rows)
        for row in wanted:
            if row not in present:
                self._add(row)

    def _add(self, row: Row) -> None:
        for index in range(len(TYPES), len(self.rows)):
            if self.rows[index] is None:
                self.rows[index] = row
                return
        # A full table drops the row: the kernel logs ENOSPC and goes on.
