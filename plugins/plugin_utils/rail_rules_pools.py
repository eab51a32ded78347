# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about address pools: their form, which rail uses which, whether they are large enough, what they overlap."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils import address_pools as arithmetic
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_pools
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_intent import Intent
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_mistakes import NOT_SET, Mistake, mistake

# Variable with ranges, and what they are.
RANGES = (
    ("rails_rail_cidrs", "of the rail interfaces of the hosts"),
    ("rails_node_cidrs", "of the nodes"),
    ("rails_pod_cidrs", "of the pod network"),
    ("rails_service_cidrs", "of the Kubernetes services"),
    ("rails_reserved_cidrs", "reserved by the site"),
)


def pools_of(intent: Intent) -> list[rail_pools.Pool]:
    """Return the pools of an intent, parsed."""
    return [rail_pools.parse(given, f"rails_pools[{n}]") for n, given in enumerate(intent.pools)]


def pools_of_rail(intent: Intent, rail: int) -> list[str]:
    """Return the names of the pools that a rail uses; a pool that names no rails serves all of them."""
    return [given["name"] for given in intent.pools if rail in (given.get("rails") or [rail])]


def form(intent: Intent) -> list[Mistake]:
    """Well-formed pools of the family of the rails, every name once."""
    found: list[Mistake] = []
    seen: set = set()
    for pool in pools_of(intent):
        found.extend(pool.mistakes)
        if pool.name in seen:
            found.append(mistake(f"{pool.path}.name", pool.name, "every pool name once"))
        seen.add(pool.name)
        wanted = {"ipv4": 4, "ipv6_slaac": 6}.get(intent.ip_family)
        if pool.net is not None and wanted is not None and pool.net.version != wanted:
            part = "cidr" if pool.is_cidr_pool else "subnet"
            reason = "; an IPv6 placeholder turns IPv6 on for the pod's interface" if wanted == 6 else ""
            allowed = f"an IPv{wanted} network with rails_ip_family {intent.ip_family}{reason}"
            found.append(mistake(f"{pool.path}.{part}", str(pool.net), allowed))
    return found


def rails(intent: Intent) -> list[Mistake]:
    """Every rail served by exactly one pool."""
    found: list[Mistake] = []
    if not intent.rails or not intent.usable("rails_pools") or intent.network_name is None:
        return found
    numbers = range(len(intent.rails))
    for index, given in enumerate(intent.pools):
        outside = [rail for rail in given.get("rails") or [] if rail not in numbers]
        if outside:
            found.append(mistake(f"rails_pools[{index}].rails", outside, f"rails 0 to {len(intent.rails) - 1}"))
    for count, allowed in ((0, "a pool for every rail"), (2, "one pool for every rail")):
        wrong = [rail for rail in numbers if min(len(pools_of_rail(intent, rail)), 2) == count]
        if wrong:
            names = sorted({name for rail in wrong for name in pools_of_rail(intent, rail)})
            served = f"{' and '.join(names)} for" if names else "none for"
            found.append(Mistake("rails_pools", f"{served} rails {', '.join(map(str, wrong))}", allowed))
    return found


def scope(intent: Intent) -> list[Mistake]:
    """One network for all rails has one pool."""
    pools = {name for rail in intent.rails for name in pools_of_rail(intent, rail["rail"])}
    if intent.network == "sriov" and intent.resource_scope == "node" and len(pools) > 1 and not rails(intent):
        got = "node" if "rails_resource_scope" in intent.explicit else NOT_SET
        allowed = "rail: with node, one network serves all rails, and it can have one pool only"
        return [mistake("rails_resource_scope", got, allowed)]
    return []


def ranges_form(intent: Intent) -> list[Mistake]:
    """Well-formed ranges."""
    found = []
    for variable, _what in RANGES:
        for index, text in enumerate(_range_texts(intent, variable)):
            try:
                arithmetic.network(text)
            except arithmetic.AddressError as error:
                found.append(mistake(f"{variable}[{index}]", text, str(error)))
    return found


def overlaps(intents: list[Intent]) -> list[Mistake]:
    """No pool overlaps another one or a range that is in use."""
    found: dict[Mistake, None] = {}
    pools = _unique_pools(intents)
    for index, pool in enumerate(pools):
        part = f"{pool.path}.{'cidr' if pool.is_cidr_pool else 'subnet'}"
        for other in pools[:index]:
            if arithmetic.overlap(pool.net, other.net):
                found[mistake(part, str(pool.net), f"a range apart from {other.net} of the pool {other.name}")] = None
        for intent in intents:
            for variable, what in RANGES:
                for text in _range_texts(intent, variable):
                    net = _network_or_none(text)
                    if net is not None and arithmetic.overlap(pool.net, net):
                        where = (
                            ""
                            if variable in intent.explicit
                            else f", the default of {(intent.shape or {}).get('name')}"
                        )
                        allowed = f"a range apart from {net} {what} ({variable}{where})"
                        found[mistake(part, str(pool.net), allowed)] = None
    return list(found)


def capacity(intents: list[Intent]) -> list[Mistake]:
    """Enough blocks for the nodes, and enough addresses in each block for the rails of a node."""
    found = []
    every_node = sum(len(intent.hosts) for intent in intents)
    for pool in _unique_pools(intents):
        users = [intent for intent in intents if pool.given in intent.pools]
        if pool.mistakes or any(not intent.usable("rails_vfs_per_pf", "rails") for intent in users):
            continue
        # Without a selector every node takes a block, whatever its network.
        nodes = sum(len(intent.hosts) for intent in users) if pool.given.get("node_selector") else every_node
        blocks = pool.nodes()
        size = "per_node_network_prefix" if pool.is_cidr_pool else "per_node_block_size"
        if blocks < nodes:
            allowed = f"blocks for {nodes} nodes; {pool.net} has {blocks} of this size"
            found.append(mistake(f"{pool.path}.{size}", pool.given[size], allowed))
        if not blocks:
            continue
        free = pool.least_free(max(min(nodes, blocks), 1))
        for intent in users:
            vfs = intent.vfs_per_pf if intent.network == "sriov" else 1
            using = sum(pool.name in pools_of_rail(intent, rail["rail"]) for rail in intent.rails)
            if using * (vfs or 1) > free:
                each = f"{using} rails x {vfs} {'VFs' if intent.network == 'sriov' else 'child'}"
                allowed = (
                    f"{using * vfs} or more addresses for pods on every node ({each}); "
                    f"a block has {free} less gateway and exclusions"
                )
                found.append(mistake(f"{pool.path}.{size}", pool.given[size], allowed))
    return found


def _unique_pools(intents: list[Intent]) -> list[rail_pools.Pool]:
    """Return the pools of all intents that could be parsed; equal ones are one object, so listed once."""
    unique: list[rail_pools.Pool] = []
    for intent in intents:
        for pool in pools_of(intent):
            if pool.net is not None and all(pool.given != other.given for other in unique):
                unique.append(pool)
    return unique


def _range_texts(intent: Intent, variable: str) -> list:
    if not intent.usable(variable):
        return []
    return intent.rail_cidrs if variable == "rails_rail_cidrs" else intent.given[variable]


def _network_or_none(text):
    try:
        return arithmetic.network(text)
    except arithmetic.AddressError:
        return None


RULES = (form, rails, scope, ranges_form)
CLUSTER_RULES = (overlaps, capacity)
