# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rail routers of a fabric with routed IPv6 rails: they answer router solicitations (RFC 4861) with the prefix that
the node has on the rail.

Everything after that is the machine's own kernel: whether it solicits and listens (accept_ra, forwarding, disable_ipv6),
the address that it forms, its detection of duplicates, the default route. The rails themselves have their address from
the cloud's agent and get no answer while they are in the node's namespace.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Callable

ETH_P_IPV6, ICMPV6 = 0x86DD, 58
SOLICITATION, ADVERTISEMENT = 133, 134
ROUTER_LIFETIME, VALID, PREFERRED = 1800, 2592000, 604800
_OUTGOING, _ATTACH_FILTER = 4, 26
_ALL_NODES, _ALL_NODES_MAC = ipaddress.ip_address("ff02::1"), bytes.fromhex("333300000001")
ADDRESS, MAC = ipaddress.ip_address("fe80::1"), bytes.fromhex("02005e000001")
# Router solicitations only, decided in the kernel: next header at 20, ICMPv6 type at 54 (struct sock_filter).
_INSTRUCTIONS = (
    *((0x30, 0, 0, 20), (0x15, 0, 3, ICMPV6), (0x30, 0, 0, 54), (0x15, 0, 1, SOLICITATION)),
    *((6, 0, 0, 0xFFFF), (6, 0, 0, 0)),
)
_FILTER = b"".join(struct.pack("=HBBI", *row) for row in _INSTRUCTIONS)


def checksum(source: bytes, target: bytes, message: bytes) -> int:
    """Of an ICMPv6 message with its pseudo header (RFC 4443, 2.3)."""
    data = source + target + struct.pack("!I3xB", len(message), ICMPV6) + message
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def advertisement(prefix: ipaddress.IPv6Network) -> bytes:
    """The Ethernet frame: a default router, and a prefix that is on the link and good for addresses (flags L and A)."""
    option = struct.pack("!BBBBIII", 3, 4, prefix.prefixlen, 0xC0, VALID, PREFERRED, 0) + prefix.network_address.packed
    head = struct.pack("!BBHBBHII", ADVERTISEMENT, 0, 0, 64, 0, ROUTER_LIFETIME, 0, 0)
    message = head + struct.pack("!BB", 1, 1) + MAC + option
    number = checksum(ADDRESS.packed, _ALL_NODES.packed, message)
    message = message[:2] + struct.pack("!H", number) + message[4:]
    packet = struct.pack("!IHBB", 6 << 28, len(message), ICMPV6, 255) + ADDRESS.packed + _ALL_NODES.packed + message
    return _ALL_NODES_MAC + MAC + struct.pack("!H", ETH_P_IPV6) + packet


class Router:
    """Answers on a packet socket of the wire's namespace."""

    def __init__(self, frames: socket.socket, prefix_of: Callable[[str], ipaddress.IPv6Network | None]) -> None:
        """
        :param frames: a packet socket for IPv6.
        :param prefix_of: far end of an interface -> the prefix to advertise to it, or None.
        """
        self.socket, self.prefix_of = frames, prefix_of
        program = ctypes.create_string_buffer(_FILTER, len(_FILTER))
        address = struct.pack("@HL", len(_FILTER) // 8, ctypes.addressof(program))
        frames.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, address)
        frames.setblocking(False)

    def answer_pending(self) -> None:
        """Answer what has come; an interface that went away meanwhile needs no answer."""
        while True:
            try:
                _frame, (wire, _protocol, kind, *_rest) = self.socket.recvfrom(2048)
            except BlockingIOError:
                return
            prefix = None if kind == _OUTGOING else self.prefix_of(wire)
            if prefix is not None:
                try:
                    self.socket.sendto(advertisement(prefix), (wire, ETH_P_IPV6))
                except OSError as error:
                    print(f"no router advertisement on {wire}: {error.strerror}", flush=True)
