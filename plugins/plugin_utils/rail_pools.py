# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One address pool of the intent, parsed: the form of its fields, its capacity, its object in the cluster.

The webhook of nv-ipam that makes these checks is off unless certificates are set up, so a wrong pool would be taken by
the API server and only be noticed when pods fail to start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.railyard.rdma.plugins.plugin_utils import address_pools as arithmetic
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_names as names
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_mistakes import NOT_SET, Mistake, mistake
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_rules_names import labels

IP_POOL_FIELDS = ("subnet", "per_node_block_size", "gateway")
CIDR_POOL_FIELDS = ("cidr", "per_node_network_prefix", "gateway_index", "static_allocations")


@dataclass
class Pool:
    """A pool as far as it could be parsed.

    :ivar path: where it stands in the intent, for messages: C(rails_pools[0]).
    :ivar net: C(netaddr.IPNetwork) of the whole pool, or nothing when it could not be parsed.
    :ivar mistakes: what is wrong with its fields.
    """

    path: str
    given: dict
    net: object = None
    gateway: object = None
    exclusions: list[tuple[int, int]] = field(default_factory=list)
    positions: list[tuple[int, int]] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)

    @property
    def is_cidr_pool(self) -> bool:
        return self.given.get("kind") == "CIDRPool"

    @property
    def name(self) -> str | None:
        return self.given.get("name")

    def say(self, part: str, got, allowed: str) -> None:
        """Note a mistake in one field."""
        self.mistakes.append(mistake(f"{self.path}.{part}" if part else self.path, got, allowed))

    def nodes(self) -> int:
        """Return how many nodes the pool serves. Only for a pool without mistakes."""
        if self.is_cidr_pool:
            return arithmetic.cidr_pool_nodes(self.net, self.given["per_node_network_prefix"])
        return arithmetic.ip_pool_nodes(self.net, self.given["per_node_block_size"])

    def least_free(self, nodes: int) -> int:
        """Return the addresses for pods in the poorest of the first blocks; blocks are given out from the first on.

        :param nodes: how many blocks are in use, at least 1 and at most C(nodes()).
        """
        return min(self._block(index).free() for index in range(nodes))

    def _block(self, index: int) -> arithmetic.Block:
        taken = list(self.exclusions)
        if self.is_cidr_pool:
            block = arithmetic.cidr_pool_block(self.net, self.given["per_node_network_prefix"], index)
            if self.given.get("gateway_index") is not None:
                gateway = block.base + self.given["gateway_index"]
                taken.append((gateway, gateway))
        else:
            block = arithmetic.ip_pool_block(self.net, self.given["per_node_block_size"], index)
            if self.gateway is not None:
                taken.append((int(self.gateway), int(self.gateway)))
        return arithmetic.without(block, taken, self.positions)


def parse(given: dict, path: str) -> Pool:
    """Parse one entry of C(rails_pools) whose types are already checked."""
    pool = Pool(path, given)
    if pool.name is not None and not names.SUBDOMAIN.fullmatch(pool.name):
        pool.say("name", pool.name, names.SUBDOMAIN_FORM)
    if given.get("kind") not in ("IPPool", "CIDRPool"):
        return pool
    foreign, kind = (IP_POOL_FIELDS, "IPPool") if pool.is_cidr_pool else (CIDR_POOL_FIELDS, "CIDRPool")
    for name in foreign:
        if given.get(name) is not None:
            pool.say(name, given[name], f"nothing in a {given['kind']}; the field belongs to {kind}")
    main = "cidr" if pool.is_cidr_pool else "subnet"
    try:
        pool.net = arithmetic.network(given.get(main))
    except arithmetic.AddressError as error:
        pool.say(main, NOT_SET if given.get(main) is None else given[main], str(error))
        return pool
    (_parse_cidr_pool if pool.is_cidr_pool else _parse_ip_pool)(pool)
    _parse_exclusions(pool)
    _parse_routes(pool)
    if given.get("node_selector") is not None:
        pool.mistakes.extend(labels(f"{path}.node_selector", given["node_selector"]))
    return pool


def spec(pool: Pool) -> dict:
    """Return the C(spec) of the pool's object. Only for a pool without mistakes."""
    given = pool.given
    result: dict = {}
    if pool.is_cidr_pool:
        result["cidr"] = given["cidr"]
        result["perNodeNetworkPrefix"] = given["per_node_network_prefix"]
        result["gatewayIndex"] = given.get("gateway_index")
        rows = [
            {"nodeName": r["node_name"], "prefix": r["prefix"], "gateway": r.get("gateway")}
            for r in given.get("static_allocations") or []
        ]
        result["staticAllocations"] = [{k: v for k, v in row.items() if v is not None} for row in rows] or None
    else:
        result["subnet"] = given["subnet"]
        result["perNodeBlockSize"] = given["per_node_block_size"]
        result["gateway"] = given.get("gateway")
    result["exclusions"] = [{"startIP": r["start"], "endIP": r["end"]} for r in given.get("exclusions") or []] or None
    result["perNodeExclusions"] = [
        {"startIndex": r["start_index"], "endIndex": r["end_index"]} for r in given.get("per_node_exclusions") or []
    ] or None
    result["defaultGateway"] = given.get("default_gateway")
    result["routes"] = [{"dst": r["dst"]} for r in given.get("routes") or []] or None
    if given.get("node_selector"):
        result["nodeSelector"] = {
            "nodeSelectorTerms": [{"matchExpressions": match_expressions(given["node_selector"])}]
        }
    return {key: value for key, value in result.items() if value is not None}


def match_expressions(selector: dict) -> list[dict]:
    """Return a map of labels as expressions that all must hold."""
    return [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(selector.items())]


def _parse_ip_pool(pool: Pool) -> None:
    first, last = arithmetic.usable_range(pool.net)
    size, usable = pool.given.get("per_node_block_size"), last - first + 1
    if pool.net.version == 4 and pool.net.prefixlen > 30:
        pool.say("subnet", pool.given["subnet"], "a subnet with a prefix length of 30 or less in an IPPool")
    elif size is None or not 1 <= size <= usable:
        pool.say(
            "per_node_block_size", NOT_SET if size is None else size, f"1 to {usable}, the addresses of the subnet"
        )
    pool.gateway = _inside(pool, "gateway", pool.given.get("gateway"))


def _parse_cidr_pool(pool: Pool) -> None:
    prefix, bits = pool.given.get("per_node_network_prefix"), 32 if pool.net.version == 4 else 128
    if prefix is None or not pool.net.prefixlen <= prefix <= bits:
        got = NOT_SET if prefix is None else prefix
        pool.say("per_node_network_prefix", got, f"{pool.net.prefixlen} to {bits}, inside of {pool.net}")
        return
    index = pool.given.get("gateway_index")
    size = 2 ** (bits - prefix)
    if index is not None:
        low = 0 if size <= 2 else 1
        high = size - 1 if size <= 2 or bits == 128 else size - 2
        if not low <= index <= high:
            pool.say("gateway_index", index, f"{low} to {high} in a subnet of prefix length {prefix}")
    seen: dict[str, set] = {"node_name": set(), "prefix": set()}
    for number, row in enumerate(pool.given.get("static_allocations") or []):
        part = f"static_allocations[{number}]"
        for key, values in seen.items():
            if row.get(key) in values:
                pool.say(f"{part}.{key}", row[key], "every node and every prefix once")
            values.add(row.get(key))
        try:
            net = arithmetic.network(row.get("prefix"))
        except arithmetic.AddressError as error:
            pool.say(f"{part}.prefix", row.get("prefix"), str(error))
            continue
        if net not in pool.net or net.prefixlen != prefix:
            pool.say(f"{part}.prefix", row["prefix"], f"a subnet of {pool.net} with prefix length {prefix}")
        elif row.get("gateway") is not None:
            _inside(pool, f"{part}.gateway", row["gateway"], net)


def _parse_exclusions(pool: Pool) -> None:
    for number, row in enumerate(pool.given.get("exclusions") or []):
        part = f"exclusions[{number}]"
        start, end = (_inside(pool, f"{part}.{key}", row.get(key)) for key in ("start", "end"))
        if start is not None and end is not None:
            if start > end:
                pool.say(part, f"{start} to {end}", "a start that is not above its end")
            pool.exclusions.append((int(start), int(end)))
    for number, row in enumerate(pool.given.get("per_node_exclusions") or []):
        start, end = row.get("start_index"), row.get("end_index")
        if start is None or end is None or not 0 <= start <= end:
            pool.say(f"per_node_exclusions[{number}]", f"{start} to {end}", "positions from 0 on, start not above end")
        else:
            pool.positions.append((start, end))


def _parse_routes(pool: Pool) -> None:
    routes, default = pool.given.get("routes") or [], pool.given.get("default_gateway")
    has_gateway = pool.given.get("gateway") is not None or pool.given.get("gateway_index") is not None
    for part, present in (("default_gateway", default), ("routes", bool(routes))):
        if present and not has_gateway:
            pool.say(part, pool.given[part], "nothing without a gateway")
    for number, row in enumerate(routes):
        part = f"routes[{number}].dst"
        try:
            net = arithmetic.network(row.get("dst"))
        except arithmetic.AddressError as error:
            pool.say(part, row.get("dst"), str(error))
            continue
        if net.version != pool.net.version:
            pool.say(part, row["dst"], f"an IPv{pool.net.version} network, as the pool")
        elif net.prefixlen == 0 and default:
            pool.say(part, row["dst"], "no default route beside default_gateway")


def _inside(pool: Pool, part: str, text, net=None):
    """Parse an address that must lie in the pool or a part of it; note the mistake and return nothing if not."""
    net = pool.net if net is None else net
    if text is None:
        return None
    try:
        parsed = arithmetic.address(text)
    except arithmetic.AddressError as error:
        pool.say(part, text, f"{error} inside of {net}")
        return None
    if parsed not in net:
        pool.say(part, text, f"an address inside of {net}")
        return None
    return parsed
