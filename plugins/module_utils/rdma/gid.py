# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RoCE GIDs: what one row of a port's GID table means, and which row an application should use.

Pure functions over text, shared by the node facts and by the pod facts (which get their text from a shell probe).
Text comes from ``/sys/class/infiniband/DEV/ports/P/gids/N`` and ``gid_attrs/{types,ndevs}/N``, documented in the
kernel's ``Documentation/ABI/stable/sysfs-class-infiniband``.

A row is a dict::

    {index: int, gid: str|None, address: str|None, type: "RoCE v1"|"RoCE v2"|"IB"|None, netdev: str|None,
     scope: "zero"|"link_local"|"ipv4"|"global"|"unique_local"|None, usable: bool|None, reason: str|None}

``reason`` says why a row is not usable (or, with usable None, why that is unknown); it is None for a usable row.
No function here raises for odd text: what cannot be read is None with a reason.
"""

from __future__ import annotations

import socket

ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"

_IPV4_MAPPED = b"\0" * 10 + b"\xff\xff"
# The best row for traffic between nodes: an IPv4 rail is routed by its IPv4 address; on an IPv6 rail the advertised
# global prefix is routed, while unique-local addresses are often placeholders of an IPAM plugin that nobody routes.
_PREFERENCE = {"ipv4": 0, "global": 1, "unique_local": 2}


def parse_gid(text: str) -> dict:
    """Classify the text of one GID.

    :param text: as sysfs prints it (eight groups of four hexadecimal digits) or any other way to write an IPv6
        address.
    :returns: ``{gid, address, scope}``: the GID in the long form of sysfs, the IPv4 or short IPv6 address that it
        stands for (None when zero), and its scope. All three are None when the text is not a GID.

    IPv4 link-local addresses (169.254.0.0/16) count as ``link_local``: they are no more routed than fe80::/10.
    """
    try:
        raw = socket.inet_pton(socket.AF_INET6, text.strip())
    except (OSError, ValueError, AttributeError, TypeError):  # ValueError: text with a null character
        return {"gid": None, "address": None, "scope": None}
    digits = raw.hex()
    gid = ":".join(digits[start : start + 4] for start in range(0, 32, 4))
    if gid == ZERO_GID:
        return {"gid": gid, "address": None, "scope": "zero"}
    if raw.startswith(_IPV4_MAPPED):
        address = socket.inet_ntop(socket.AF_INET, raw[12:])
        return {"gid": gid, "address": address, "scope": "link_local" if raw[12:14] == b"\xa9\xfe" else "ipv4"}
    address = socket.inet_ntop(socket.AF_INET6, raw)
    if raw[0] == 0xFE and raw[1] & 0xC0 == 0x80:
        scope = "link_local"
    elif raw[0] & 0xFE == 0xFC:
        scope = "unique_local"
    else:
        scope = "global"
    return {"gid": gid, "address": address, "scope": scope}


def parse_gid_type(text: str | None, link_layer: str | None = "Ethernet") -> str | None:
    """Translate the text of ``gid_attrs/types/N``.

    The kernel has one text, ``IB/RoCE v1``, for InfiniBand and for RoCE v1 (``gid_type_str`` in
    drivers/infiniband/core/cache.c); the port's link layer tells them apart.

    :returns: ``RoCE v1``, ``RoCE v2``, ``IB``, or None for no text and for text that is none of these.
    """
    if text is None:
        return None
    known = text.strip().lower()
    if known == "roce v2":
        return "RoCE v2"
    if known == "ib/roce v1":
        return "IB" if (link_layer or "").strip().lower() == "infiniband" else "RoCE v1"
    return {"roce v1": "RoCE v1", "ib": "IB"}.get(known)


def gid_row(
    index: int,
    gid_text: str,
    type_text: str | None,
    netdev: str | None,
    netdevs_here,
    link_layer: str | None = "Ethernet",
) -> dict:
    """Build one row of a GID table.

    :param type_text: text of ``gid_attrs/types/N``; None when it could not be read. The kernel answers EINVAL for an
        empty row and DOCA-OFED also for a row whose netdev is in another network namespace, so None is a normal
        answer.
    :param netdev: text of ``gid_attrs/ndevs/N``; None when it could not be read.
    :param netdevs_here: names of the netdevs in this network namespace (any container), or None when they are not
        known.
    :returns: a row as described at the top of this file. It is usable when its GID is not zero, its type is readable
        and its netdev is in this namespace; InfiniBand rows have no netdev and need none.
    """
    row = {"index": index, **parse_gid(gid_text)}
    kind = parse_gid_type(type_text, link_layer)
    netdev = (netdev or "").strip() or None
    usable: bool | None = False
    reason: str | None = None
    if row["gid"] is None:
        reason = f"not a GID: {gid_text!r:.60}"
    elif row["scope"] == "zero":
        reason = "zero GID: the row is empty or belongs to another network namespace"
    elif type_text is None:
        reason = "type not readable: the row belongs to another network namespace or was just removed"
    elif kind is None:
        reason = f"unknown GID type {type_text.strip()!r:.60}"
    elif kind == "IB":
        usable = True
    elif netdev is None:
        reason = "netdev not readable: the row belongs to another network namespace"
    elif netdevs_here is None:
        usable, reason = None, "the netdevs of this network namespace are not known"
    elif netdev not in netdevs_here:
        reason = f"netdev {netdev} is not in this network namespace"
    else:
        usable = True
    return {
        "index": index,
        "gid": row["gid"],
        "address": row["address"],
        "type": kind,
        "netdev": netdev,
        "scope": row["scope"],
        "usable": usable,
        "reason": reason,
    }


def best_gid_index(rows, address: str | None = None) -> int | None:
    """Choose the index that an application between nodes should use (NCCL_IB_GID_INDEX, UCX_IB_GID_INDEX).

    :param rows: rows of one port. Their order does not matter, and the index is never assumed: rows are reused
        when addresses come and go (NVIDIA/nccl#1333) and children of one port share its table (multus-cni#1100).
    :param address: only the row of this address will do (``10.0.0.1``, ``2001:db8::1``, with or without a prefix
        length).
    :returns: the index of the usable RoCE v2 row that is not link-local, IPv4 before global before unique-local,
        lowest index first. On an InfiniBand port the lowest usable row. None when there is no such row.
    """
    candidates = [row for row in rows if row.get("usable") is True]
    if address is not None:
        wanted = _same_form(address)
        candidates = [row for row in candidates if wanted is not None and _same_form(row["address"]) == wanted]
        ranked = [row for row in candidates if row["type"] == "RoCE v2"]
        return min((row["index"] for row in ranked), default=None)
    routable = [row for row in candidates if row["type"] == "RoCE v2" and row["scope"] in _PREFERENCE]
    if routable:
        return min(routable, key=lambda row: (_PREFERENCE[row["scope"]], row["index"]))["index"]
    return min((row["index"] for row in candidates if row["type"] == "IB"), default=None)


def _same_form(address: str | None) -> bytes | None:
    """Return the 16 bytes of the GID of an address, so that two spellings compare equal; None if it is none."""
    bare = str(address).split("/", 1)[0].strip()
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            raw = socket.inet_pton(family, bare)
        except (OSError, ValueError):
            continue
        return _IPV4_MAPPED + raw if family == socket.AF_INET else raw
    return None
