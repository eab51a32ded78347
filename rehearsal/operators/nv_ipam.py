# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nv-ipam's controller: writes status.allocations of the pools in its own namespace; pools elsewhere are not seen."""

from __future__ import annotations

from rehearsal.operators.install import running_in
from rehearsal.operators.kinds import CIDR_POOL, DEPLOYMENT, IP_POOL, NODE, Kind, name_of, namespace_of
from rehearsal.operators.pools import PoolError, allocate_cidrpool, allocate_ippool
from rehearsal.operators.runtime import Controller
from rehearsal.operators.selection import node_selector_matches

COMPONENT = "nv-ipam-controller"


class PoolAllocations(Controller):
    """Keys are "<plural>/<namespace>/<name>"; nodes and the controller's own Deployment touch all pools."""

    watches = (IP_POOL, CIDR_POOL, NODE, DEPLOYMENT)

    def keys(self, kind: Kind, obj: dict) -> list[str]:
        if kind in (IP_POOL, CIDR_POOL):
            return [f"{kind.plural}/{namespace_of(obj)}/{name_of(obj)}"]
        return [
            f"{k.plural}/{namespace_of(pool)}/{name_of(pool)}" for k in (IP_POOL, CIDR_POOL) for pool in self.cache(k)
        ]

    async def reconcile(self, key: str) -> float | None:
        plural, namespace, name = key.split("/")
        kind = IP_POOL if plural == IP_POOL.plural else CIDR_POOL
        pool = self.cache(kind).get(name, namespace)
        if pool is None or running_in(self.cache(DEPLOYMENT), COMPONENT) != namespace:
            return None
        nodes = [
            name_of(node) for node in self.cache(NODE) if node_selector_matches(pool["spec"].get("nodeSelector"), node)
        ]
        current = (pool.get("status") or {}).get("allocations")
        allocate = allocate_ippool if kind == IP_POOL else allocate_cidrpool
        try:
            wanted = allocate(pool["spec"], nodes, current or [])
        except (PoolError, KeyError) as error:
            await self.api.event(kind, pool, "InvalidConfig", f"pool {name}: {error}", COMPONENT)
            wanted = []
        served = {row["nodeName"] for row in wanted}
        for node in sorted(set(nodes) - served):
            await self.api.event(
                kind, pool, "NoFreeRanges", f"can't allocate range for node {node}: no free range", COMPONENT
            )
        if wanted != current:
            await self.api.patch(kind, pool, {"status": {"allocations": wanted}}, "status")
        return None
