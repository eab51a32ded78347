# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NCCL says of its network with NCCL_DEBUG=INFO: devices, the NIC of each GPU, GPUDirect RDMA, GID indexes.

The texts are those of releases 2.9 to 2.30 (src/init.cc, src/transport/net.cc, src/transport/net_ib/).
"""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.lines import Line

_VERSION = re.compile(r"NCCL version\s+([0-9]+(?:\.[0-9]+)+)\s*(?:\+?(cuda[0-9.]+|hip[0-9.]+))?")
_USING = re.compile(r"^NET/IB : Using(.*)$")
_USED = re.compile(r"\[([0-9]{1,4})\]\s*=?\{?([^\s:{}\[\]]{1,128}):([0-9]{1,3})/(\w+)")
_MERGED = re.compile(
    r"^NET/IB : Made virtual device \[([0-9]{1,4})\] name=(\S{1,1024}) speed=([0-9]{1,9}) ndevs=([0-9]{1,3})"
)
_NETWORK = re.compile(r"^(?:Using network|Assigned NET plugin) (.+?)(?: to comm)?$")
_CHANNEL = re.compile(
    r"^Channel ([0-9]{1,4})(?:/([0-9]{1,4}))? : ([0-9]{1,7})\[([0-9a-f]{1,12})\] -> ([0-9]{1,7})\[([0-9a-f]{1,12})\] "
    r"\[(send|receive)\] via NET/(.+?)/([0-9]{1,4})(?:\(([0-9]{1,7})\))?((?:/\S+)*)$"
)
_RANK = re.compile(
    r"\brank ([0-9]{1,7}) n[rR]anks ([0-9]{1,7})\b.*\bcudaDev ([0-9]{1,4})\b.*\bbusId ([0-9a-f]{1,12})\b"
)
_GID = re.compile(r"^NET/IB: .*\b(?:Ib)?Dev ([0-9]{1,4}) Port ([0-9]{1,3})\b.*\bGID (-?[0-9]{1,4}) \(")
_SET = re.compile(r"^(NCCL_[A-Z0-9_]{1,64}) set(?: by environment)? to (.+?)\.?$")


def pci_of_bus_id(text: str) -> str:
    """PCI address of NCCL's busId: hexadecimal, domain, bus, device and function without separators (int64ToBusId in
    src/misc/utils.cc)."""
    value = int(text, 16)
    return f"{value >> 20:04x}:{value >> 12 & 0xFF:02x}:{value >> 4 & 0xFF:02x}.{value & 0xF:x}"


def parse_debug(lines: list[Line]) -> dict:
    """What NCCL said.

    :returns: ``{version, networks: [IB, Socket, …], devices: {host: {number: name}}, nics: {host: {number: {name, devices,
        speed_mbps}}}, channels: [{channel, host, gpu, rank, peer, direction, network, nic, proxy, gdrdma}], ranks: {rank:
        {host, gpu, pci}}, gids: {host: {device: [index, …]}}, set: {variable: [values]}, no_device: [hosts]}``. A part
        that NCCL did not speak about is empty.
    """
    found: dict = {"version": None, "networks": [], "devices": {}, "nics": {}, "channels": [], "ranks": {}, "gids": {}}
    found |= {"set": {}, "no_device": []}
    seen: set[tuple] = set()
    for line in lines:
        version = _VERSION.search(line.text) if "NCCL version" in line.text else None
        if version and found["version"] is None:
            found["version"] = "+".join(part for part in version.groups() if part)
        if line.level is None or line.host is None:
            continue
        text = line.text.strip()
        if channel := _CHANNEL.match(text):
            row = _channel(channel, line)
            key = tuple(row.values())
            if key not in seen:
                seen.add(key)
                found["channels"].append(row)
        else:
            _device(text, line.host, found)
            _other(text, line, found)
    return found


def _channel(match: re.Match, line: Line) -> dict:
    sends = match[7] == "send"
    here, there = (match[3], match[5]) if sends else (match[5], match[3])
    return {
        "channel": int(match[1]),
        "host": line.host,
        "gpu": line.gpu,
        "rank": int(here),
        "peer": int(there),
        "direction": match[7],
        "network": match[8],
        "nic": int(match[9]),
        "proxy": None if match[10] is None else int(match[10]),
        "gdrdma": "GDRDMA" in match[11].split("/"),
    }


def _device(text: str, host: str, found: dict) -> None:
    if using := _USING.match(text):
        found["devices"].setdefault(host, {}).update({int(m[1]): m[2] for m in _USED.finditer(using[1])})
    elif merged := _MERGED.match(text):
        entry = {"name": merged[2], "devices": merged[2].split("+"), "speed_mbps": int(merged[3])}
        found["nics"].setdefault(host, {})[int(merged[1])] = entry
    elif "NET/IB : No device found" in text and host not in found["no_device"]:
        found["no_device"].append(host)


def _other(text: str, line: Line, found: dict) -> None:
    if (network := _NETWORK.match(text)) and network[1] not in found["networks"]:
        found["networks"].append(network[1])
    elif rank := _RANK.search(text):
        entry = {"host": line.host, "gpu": int(rank[3]), "pci": pci_of_bus_id(rank[4])}
        found["ranks"].setdefault(int(rank[1]), entry)
    elif gid := _GID.match(text):
        name = found["devices"].get(line.host, {}).get(int(gid[1]), gid[1])
        indexes = found["gids"].setdefault(line.host, {}).setdefault(name, [])
        if int(gid[3]) not in indexes:
            indexes.append(int(gid[3]))
    elif told := _SET.match(text):
        values = found["set"].setdefault(told[1], [])
        if told[2] not in values:
            values.append(told[2])


def nic_of(found: dict, host: str, number: int) -> dict:
    """``{name, devices, speed_mbps}`` of a NIC by its number: a merged one, or a device by itself (speed not told)."""
    merged = found["nics"].get(host, {}).get(number)
    if merged:
        return merged
    name = found["devices"].get(host, {}).get(number)
    return {"name": name, "devices": [name] if name else [], "speed_mbps": None}


def channel_counts(channels: list[dict]) -> dict:
    """``{channels, with_gdrdma}``: a channel counts once, and has GPUDirect RDMA when each of its network connections,
    of every rank and both directions, has it."""
    by_channel: dict[int, bool] = {}
    for row in channels:
        by_channel[row["channel"]] = by_channel.get(row["channel"], True) and row["gdrdma"]
    return {"channels": len(by_channel), "with_gdrdma": sum(by_channel.values())}
