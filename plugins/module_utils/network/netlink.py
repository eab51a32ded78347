# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Links and addresses of this network namespace, from the kernel by rtnetlink.

sysfs knows no addresses, and ``/sys/class/net`` shows the namespace in which sysfs was mounted, which need not be the
caller's. Netlink always answers for the caller. Only the standard library is used, and no command is run.
Message layouts: linux/netlink.h, linux/rtnetlink.h, linux/if_link.h and linux/if_addr.h.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from typing import Any, Callable

_SOL_NETLINK, _GET_STRICT_CHK = 270, 12
_RTM_GETLINK, _RTM_GETADDR = 18, 22
_NLMSG_ERROR, _NLMSG_DONE, _NLMSG_MIN_TYPE = 2, 3, 16
_NLM_F_REQUEST, _NLM_F_DUMP, _NLM_F_DUMP_INTR = 0x1, 0x300, 0x10
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBI")
_IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO = 3, 4, 10, 18
_IFLA_EXT_MASK, _IFLA_PROP_LIST, _IFLA_ALT_IFNAME = 29, 52, 53
_LINK_ATTRIBUTES = frozenset({_IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_PROP_LIST})
_INFO_KIND, _INFO_DATA, _VRF_TABLE = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS, _IFA_PROTO = 1, 2, 8, 11
_IFA_F_TEMPORARY, _IFA_F_DADFAILED, _IFA_F_DEPRECATED = 0x01, 0x08, 0x20
_IFA_F_TENTATIVE, _IFA_F_PERMANENT, _IFA_F_MANAGETEMPADDR, _IFA_F_NOPREFIXROUTE = 0x40, 0x80, 0x100, 0x200
_SCOPES = {0: "global", 200: "site", 253: "link", 254: "host", 255: "nowhere"}
_ORIGINS = {1: "kernel_lo", 2: "kernel_ra", 3: "kernel_ll"}
_TIMEOUT_SECONDS = 10.0
_ATTEMPTS = 5
_MOST_MESSAGES = 3_000_000


def parse_messages(data: bytes) -> list[tuple[int, int, bytes]]:
    """Split a netlink datagram into ``(type, flags, payload)``; stops at the first malformed header."""
    return select_messages(data)[1]


def select_messages(data: bytes, only: tuple[int, int] | None = None) -> tuple[int, list[tuple[int, int, bytes]]]:
    """Split a netlink datagram into its number of messages and ``[(type, flags, payload)]``.

    :param only: ``(offset, value)``: messages of a table whose payload has another byte there are left out.
    """
    messages = []
    offset = count = 0
    end = len(data)
    while offset + 16 <= end:
        length, kind, flags, _sequence, _port = _HEADER.unpack_from(data, offset)
        if length < 16 or offset + length > end:
            break
        count += 1
        if (
            only is None
            or length <= 16 + only[0]
            or data[offset + 16 + only[0]] == only[1]
            or kind < _NLMSG_MIN_TYPE
            or flags & _NLM_F_DUMP_INTR
        ):
            messages.append((kind, flags, data[offset + 16 : offset + length]))
        offset += (length + 3) & ~3
    return count, messages


def parse_attributes(data: bytes, offset: int = 0, wanted=None) -> list[tuple[int, bytes]]:
    """Split route attributes from ``offset`` on into ``(type, value)`` without the nesting flags; stops at the first
    malformed one. Only types in ``wanted`` when it is given."""
    attributes = []
    end = len(data)
    while offset + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < 4 or offset + length > end:
            break
        kind &= 0x3FFF
        if wanted is None or kind in wanted:
            attributes.append((kind, data[offset + 4 : offset + length]))
        offset += (length + 3) & ~3
    return attributes


def parse_link(payload: bytes) -> dict | None:
    """Parse RTM_NEWLINK: ``{index, name, mtu, up, master, kind, vrf_table, altnames}``; None when it carries no name.

    vrf_table is the routing table of a VRF device, None for other kinds.
    """
    if len(payload) < _IFINFO.size:
        return None
    _family, _type, index, flags, _change = _IFINFO.unpack_from(payload)
    link: dict = {"index": index, "name": None, "mtu": None, "up": bool(flags & 1), "master": None, "kind": None}
    link.update({"vrf_table": None, "altnames": []})
    for kind, value in parse_attributes(payload, _IFINFO.size, _LINK_ATTRIBUTES):
        if kind == _IFLA_IFNAME:
            link["name"] = string(value)
        elif kind == _IFLA_MTU:
            link["mtu"] = number(value)
        elif kind == _IFLA_MASTER:
            link["master"] = number(value)
        elif kind == _IFLA_LINKINFO:
            about = dict(parse_attributes(value))
            link["kind"] = string(about[_INFO_KIND]) if _INFO_KIND in about else None
            if link["kind"] == "vrf":
                link["vrf_table"] = number(dict(parse_attributes(about.get(_INFO_DATA, b""))).get(_VRF_TABLE, b""))
        elif kind == _IFLA_PROP_LIST:
            link["altnames"] = [string(text) for key, text in parse_attributes(value) if key == _IFLA_ALT_IFNAME]
    return link if link["name"] else None


def parse_address(payload: bytes) -> dict | None:
    """Parse RTM_NEWADDR: ``{index, address, prefix, family, scope, dynamic, mngtmpaddr, noprefixroute, tentative,
    dad_failed, temporary, deprecated, origin}``.

    family is ``ipv4`` or ``ipv6``; origin is ``kernel_ra`` for an address from a router advertisement (kernel 5.18 and
    newer say so), None when the kernel does not tell. dynamic: it has a lifetime (DHCP, SLAAC). An address whose
    duplicate detection failed is tentative for ever. None for other families and for malformed messages.
    """
    if len(payload) < _IFADDR.size:
        return None
    family, prefix, short_flags, scope, index = _IFADDR.unpack_from(payload)
    size = {socket.AF_INET: 4, socket.AF_INET6: 16}.get(family)
    if size is None:
        return None
    attributes = dict(parse_attributes(payload, _IFADDR.size))
    # On a point-to-point link IFA_ADDRESS is the other end; IFA_LOCAL, where present, is always ours.
    raw = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS) or b""
    if len(raw) != size:
        return None
    flags = number(attributes.get(_IFA_FLAGS, b""))
    flags = short_flags if flags is None else flags
    origin = attributes.get(_IFA_PROTO) or b""
    return {
        "index": index,
        "address": socket.inet_ntop(family, raw),
        "prefix": prefix,
        "family": "ipv4" if size == 4 else "ipv6",
        "scope": _SCOPES.get(scope, str(scope)),
        "dynamic": not flags & _IFA_F_PERMANENT,
        "mngtmpaddr": bool(flags & _IFA_F_MANAGETEMPADDR),
        "noprefixroute": bool(flags & _IFA_F_NOPREFIXROUTE),
        "tentative": bool(flags & (_IFA_F_TENTATIVE | _IFA_F_DADFAILED)),
        "dad_failed": bool(flags & _IFA_F_DADFAILED),
        "temporary": bool(family == socket.AF_INET6 and flags & _IFA_F_TEMPORARY),
        "deprecated": bool(flags & _IFA_F_DEPRECATED),
        "origin": _ORIGINS.get(origin[0]) if origin else None,
    }


def read_links() -> dict[str, dict]:
    """Return every link of this namespace by name (shape of :func:`parse_link`, master by name).

    Raises OSError when the kernel refuses or does not answer in time.
    """
    mask = _ATTRIBUTE.pack(8, _IFLA_EXT_MASK) + struct.pack("=I", 1 << 3)  # RTEXT_FILTER_SKIP_STATS: less to read
    with Dump() as dump:
        links = dump.run(_RTM_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + mask, parse_link)
    names = {link["index"]: link["name"] for link in links}
    for link in links:
        link["master"] = names.get(link["master"])
    return {link["name"]: link for link in links}


def read_addresses(indexes) -> dict[int, list[dict]]:
    """Return the addresses of the links with these indexes: ``{index: [address]}`` in the shape of
    :func:`parse_address`, without index. A node may have thousands of other links (pods). Raises OSError."""
    found: dict[int, list[dict]] = {index: [] for index in indexes}

    def parse(payload: bytes) -> dict | None:
        if len(payload) < _IFADDR.size or _IFADDR.unpack_from(payload)[4] not in found:
            return None
        return parse_address(payload)

    with Dump() as dump:
        for address in dump.run(_RTM_GETADDR, _IFADDR.pack(0, 0, 0, 0, 0), parse):
            found[address.pop("index")].append(address)
    return found


class Dump:
    """A netlink socket for dump requests. Raises OSError, also when the kernel does not answer in time."""

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._sequence = 0
        try:
            self._socket.settimeout(_TIMEOUT_SECONDS)
            self._socket.bind((0, 0))
            with contextlib.suppress(OSError):  # before Linux 4.20; strict kernels do not guess what a request means
                self._socket.setsockopt(_SOL_NETLINK, _GET_STRICT_CHK, 1)
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Dump:
        return self

    def __exit__(self, *_error) -> None:
        self._socket.close()

    def run(
        self,
        kind: int,
        body: bytes,
        parse: Callable[[bytes], Any],
        most: int = _MOST_MESSAGES,
        only: tuple[int, int] | None = None,
    ) -> list:
        """Dump once and return what ``parse`` makes of each answer's payload, without None; ``only`` (see
        :func:`select_messages`) leaves most of a large table out at little cost.

        Repeats it when the kernel says that the tables changed meanwhile; takes the last answer when they never stand
        still. Raises OSError (EOVERFLOW) beyond ``most`` messages, so that no table can exhaust the machine.
        """
        result: list = []
        for _attempt in range(_ATTEMPTS):
            result, interrupted = self._once(kind, body, parse, most, only)
            if not interrupted:
                break
        return result

    def _once(self, kind: int, body: bytes, parse, most: int, only) -> tuple[list, bool]:
        interrupted = False
        result = []
        count = 0
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        self._sequence += 1
        header = _HEADER.pack(_HEADER.size + len(body), kind, _NLM_F_REQUEST | _NLM_F_DUMP, self._sequence, 0)
        self._socket.send(header + body)
        while True:
            received, messages = select_messages(self._socket.recv(1 << 18), only)
            if not received:
                raise OSError(errno.EBADMSG, "malformed netlink answer")
            for answer, flags, payload in messages:
                interrupted = interrupted or bool(flags & _NLM_F_DUMP_INTR)
                if answer in (_NLMSG_DONE, _NLMSG_ERROR):
                    code = -struct.unpack_from("=i", payload)[0] if len(payload) >= 4 else 0
                    if code > 0 or answer == _NLMSG_ERROR:
                        raise OSError(code, f"netlink dump refused: {os.strerror(code)}")
                    return result, interrupted
                parsed = parse(payload)
                if parsed is not None:
                    result.append(parsed)
            count += received
            if count > most:
                raise OSError(errno.EOVERFLOW, f"more than {most} netlink answers")
            if time.monotonic() > deadline:
                raise OSError(errno.ETIMEDOUT, f"the netlink dump takes more than {_TIMEOUT_SECONDS:g} seconds")


def string(value: bytes) -> str:
    """Return the text of a string attribute; bytes that are no UTF-8 as Python has them in file names."""
    return value.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def number(value: bytes) -> int | None:
    """Return the number in a u32 attribute, None when it is too short."""
    return struct.unpack_from("=I", value)[0] if len(value) >= 4 else None
