# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the pods of a job said of their rails, from the lines ``railyard-rail`` of the launcher's log."""

from __future__ import annotations

import ipaddress
import re

from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.lines import Line

_RAIL = re.compile(r"railyard-rail ((?:[a-z_]+=\S*\s*)+)")
_PAIR = re.compile(r"([a-z_]+)=(\S*)")
_KEYS = {"host", "interface", "device", "pci", "pf", "gid_index", "gid", "class"}
PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")


def address_of(gid: str) -> str | None:
    """The address of a GID in the kernel's full form: an IPv4 one when it is mapped. None for what is no GID."""
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return None
    return str(address.ipv4_mapped or address)


def parse_rails(lines: list[Line]) -> dict[str, list[dict]]:
    """``{host name of the pod: [{interface, device, pci, pf, gid_index, gid, address, class: {state, value}}]}``."""
    found: dict[str, list[dict]] = {}
    for line in lines:
        match = _RAIL.search(line.text)
        told = dict(_PAIR.findall(match[1])) if match else {}
        if not set(told) >= _KEYS or not re.fullmatch(r"[0-9]{1,4}", told["gid_index"]):
            continue
        forced = told["class"]
        number = int(forced) if re.fullmatch(r"[0-9]{1,3}", forced) else None
        entry = {key: told[key] or None for key in ("interface", "device", "gid")}
        entry |= {key: told[key] if PCI.fullmatch(told[key]) else None for key in ("pci", "pf")}
        entry |= {"gid_index": int(told["gid_index"]), "address": address_of(told["gid"])}
        entry["class"] = {"state": "set" if number is not None else forced or None, "value": number}
        rows = found.setdefault(told["host"], [])
        if all(row["interface"] != entry["interface"] for row in rows):
            rows.append(entry)
    return found
