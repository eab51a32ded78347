# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Block arithmetic of nv-ipam: which addresses of an IPPool or CIDRPool belong to which node.

Rules restated from Mellanox/nvidia-k8s-ipam (pkg/ipam-controller/allocator): IPPool blocks start one above the network
address; IPv4 keeps the broadcast address out; CIDRPool cuts the range into prefixes of equal length.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable


class PoolError(ValueError):
    """The pool's spec makes no sense; the message says which field and why."""


def _network(text: str, field: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise PoolError(f"{field}: {error}") from error


def ippool_block_count(spec: dict) -> int:
    """How many nodes an IPPool can serve: floor(usable addresses / perNodeBlockSize).

    :raises PoolError: the subnet is no CIDR, or a block does not fit into it.
    """
    network, block = _network(spec["subnet"], "spec.subnet"), int(spec["perNodeBlockSize"])
    usable = network.num_addresses - (2 if network.version == 4 else 1)
    if block < 1 or block > usable:
        raise PoolError(f"spec.perNodeBlockSize: {block} is not within 1..{usable} of {network}")
    return usable // block


def ippool_block(spec: dict, index: int) -> tuple[str, str]:
    """First and last address of block ``index`` (0-based)."""
    network, block = _network(spec["subnet"], "spec.subnet"), int(spec["perNodeBlockSize"])
    start = network.network_address + 1 + index * block
    return str(start), str(start + block - 1)


def allocate_ippool(spec: dict, nodes: Iterable[str], current: list[dict]) -> list[dict]:
    """status.allocations of an IPPool: nodes keep a block that still fits, others get the lowest free one.

    A node for which no block is left has no entry (that is how nv-ipam shows an exhausted pool).

    :param nodes: names of the nodes that the pool's nodeSelector takes.
    :param current: status.allocations as they are, ``{nodeName, startIP, endIP}``.
    :raises PoolError: the spec makes no sense.
    """
    wanted = set(nodes)
    count = ippool_block_count(spec)
    kept: dict[str, int] = {}
    network, size = _network(spec["subnet"], "spec.subnet"), int(spec["perNodeBlockSize"])
    for entry in current:
        try:
            offset = int(ipaddress.ip_address(entry["startIP"])) - int(network.network_address) - 1
        except ValueError:
            continue
        index = offset // size
        fits = offset >= 0 and offset % size == 0 and index < count and ippool_block(spec, index)[1] == entry["endIP"]
        if fits and entry["nodeName"] in wanted and index not in kept.values():
            kept[entry["nodeName"]] = index
    taken = set(kept.values())
    free = (index for index in range(count) if index not in taken)
    for name in sorted(wanted - set(kept)):
        index = next(free, None)
        if index is None:
            break
        kept[name] = index
    rows = []
    for name, index in sorted(kept.items(), key=lambda item: item[1]):
        start, end = ippool_block(spec, index)
        rows.append({"nodeName": name, "startIP": start, "endIP": end})
    return rows


def allocate_cidrpool(spec: dict, nodes: Iterable[str], current: list[dict]) -> list[dict]:
    """status.allocations of a CIDRPool: static allocations first, then kept ones, then the lowest free prefix.

    :raises PoolError: the spec makes no sense.
    """
    wanted = set(nodes)
    network, length = _network(spec["cidr"], "spec.cidr"), int(spec["perNodeNetworkPrefix"])
    if not network.prefixlen <= length <= network.max_prefixlen:
        raise PoolError(f"spec.perNodeNetworkPrefix: /{length} does not fit into {network}")
    static = spec.get("staticAllocations") or []
    prefixes: dict[str, ipaddress.IPv4Network | ipaddress.IPv6Network] = {}
    gateways: dict[str, str] = {}
    reserved = {_network(item["prefix"], "spec.staticAllocations") for item in static}
    for item in static:
        if item.get("nodeName") in wanted:
            prefixes[item["nodeName"]] = _network(item["prefix"], "spec.staticAllocations")
            if item.get("gateway"):
                gateways[item["nodeName"]] = item["gateway"]
    for entry in current:
        prefix = _network(entry["prefix"], "status.allocations")
        fits = prefix.version == network.version and prefix.subnet_of(network) and prefix.prefixlen == length
        free = prefix not in reserved and prefix not in prefixes.values()
        if fits and free and entry["nodeName"] in wanted and entry["nodeName"] not in prefixes:
            prefixes[entry["nodeName"]] = prefix
    taken = set(prefixes.values()) | reserved
    free_prefixes = (prefix for prefix in network.subnets(new_prefix=length) if prefix not in taken)
    for name in sorted(wanted - set(prefixes)):
        prefix = next(free_prefixes, None)
        if prefix is None:
            break
        prefixes[name] = prefix
    rows = []
    for name, prefix in sorted(prefixes.items(), key=lambda item: int(item[1].network_address)):
        row = {"nodeName": name, "prefix": str(prefix)}
        gateway = gateways.get(name) or _index_address(prefix, spec.get("gatewayIndex"))
        rows.append({**row, "gateway": gateway} if gateway else row)
    return rows


def _index_address(prefix: ipaddress.IPv4Network | ipaddress.IPv6Network, index: int | None) -> str | None:
    return None if index is None else str(prefix.network_address + int(index))


def node_range(pool: dict, node: str) -> dict | None:
    """What the IPAM plugin on a node may hand out: ``{first, last, prefixlen, gateway, excluded}``, or None.

    ``excluded`` is a list of (first, last) pairs of addresses; the gateway is among them.
    """
    spec = pool["spec"]
    entry = next(
        (item for item in (pool.get("status") or {}).get("allocations") or [] if item["nodeName"] == node), None
    )
    if entry is None:
        return None
    if "prefix" in entry:
        prefix = _network(entry["prefix"], "status.allocations")
        whole = prefix.prefixlen >= prefix.max_prefixlen - 1
        first = prefix.network_address if whole else prefix.network_address + 1
        last = prefix.broadcast_address if whole or prefix.version == 6 else prefix.broadcast_address - 1
        gateway, length, base = entry.get("gateway"), prefix.prefixlen, prefix.network_address
    else:
        first, last = ipaddress.ip_address(entry["startIP"]), ipaddress.ip_address(entry["endIP"])
        gateway, length, base = spec.get("gateway"), _network(spec["subnet"], "spec.subnet").prefixlen, first
    excluded = [
        (ipaddress.ip_address(item["startIP"]), ipaddress.ip_address(item["endIP"]))
        for item in spec.get("exclusions") or []
    ]
    excluded += [(base + item["startIndex"], base + item["endIndex"]) for item in spec.get("perNodeExclusions") or []]
    if gateway:
        excluded.append((ipaddress.ip_address(gateway), ipaddress.ip_address(gateway)))
    return {"first": first, "last": last, "prefixlen": length, "gateway": gateway, "excluded": excluded}


def next_address(free: dict, used: set[str], last: str | None) -> str | None:
    """The next address of a node's range, round robin from the last one given out; None when all are used.

    nv-ipam continues after the last reservation, so a new pod does not get the address of the one that just left.
    """
    size = int(free["last"]) - int(free["first"]) + 1
    start = 0 if last is None else int(ipaddress.ip_address(last)) - int(free["first"]) + 1
    for step in range(size):
        address = free["first"] + (start + step) % size
        if str(address) in used or any(
            low <= address <= high for low, high in free["excluded"] if low.version == address.version
        ):
            continue
        return str(address)
    return None
