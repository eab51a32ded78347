# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Address reservations on one node: nv-ipam from the node's block, and static addresses. Pure but for ``store``."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from rehearsal.operators.pools import next_address, node_range


class IpamError(Exception):
    """No address; the message is what the IPAM plugin prints."""


class Ipam:
    """The reservations of one node.

    :param node: node name, as in the pools' allocations.
    :param store: kept by the caller over restarts: ``{pool key: {"used": {address: owner}, "last": address}}``.
    :param find_pool: (pool type "ippool" or "cidrpool", name) -> the pool object or None.
    """

    def __init__(self, node: str, store: dict, find_pool: Callable[[str, str], dict | None]):
        self.node = node
        self.store = store
        self._find_pool = find_pool

    def add(self, conf: dict, owner: str, static: list[str]) -> dict:
        """ips and routes for one interface.

        :raises IpamError: unknown plugin or pool, no block for this node, or no free address.
        """
        kind = conf["type"]
        if kind == "static":
            ips = [
                {key: item[key] for key in ("address", "gateway") if item.get(key)}
                for item in conf.get("addresses") or []
            ]
            return {"ips": ips, "routes": conf.get("routes") or []}
        if kind != "nv-ipam":
            raise IpamError(f'failed to find plugin "{kind}" in path [/opt/cni/bin]')
        pool_type = (conf.get("poolType") or "ippool").lower()
        ips: list[dict] = []
        routes: list[dict] = []
        for name in (conf.get("poolName") or "").split(","):
            pool = self._find_pool(pool_type, name.strip())
            free = node_range(pool, self.node) if pool else None
            if free is None:
                text = f'configuration for pool "{name.strip()}", poolType "{pool_type}" not found'
                raise IpamError(f"grpc call failed: rpc error: code = NotFound desc = {text}")
            address = self._reserve(f"{pool_type}/{name.strip()}", free, owner, static)
            row = {"address": f"{address}/{free['prefixlen']}"}
            if free["gateway"]:
                row["gateway"] = free["gateway"]
            ips.append(row)
            routes += [{"dst": item["dst"], "gw": free["gateway"]} for item in pool["spec"].get("routes") or []]
            if pool["spec"].get("defaultGateway"):
                routes.append({"dst": "::/0" if ":" in address else "0.0.0.0/0", "gw": free["gateway"]})
        return {"ips": ips, "routes": routes}

    def _reserve(self, key: str, free: dict, owner: str, static: list[str]) -> str:
        pool = self.store.setdefault(key, {"used": {}, "last": None})
        for address, holder in pool["used"].items():
            if holder == owner:
                return address
        asked = [text.split("/")[0] for text in static]
        asked = [text for text in asked if ipaddress.ip_address(text).version == free["first"].version]
        if asked:
            fits = free["first"] <= ipaddress.ip_address(asked[0]) <= free["last"] and asked[0] not in pool["used"]
            address = asked[0] if fits else None
        else:
            last = pool["last"]
            inside = last is not None and free["first"] <= ipaddress.ip_address(last) <= free["last"]
            address = next_address(free, set(pool["used"]), last if inside else None)
        if address is None:
            raise IpamError(
                "grpc call failed: rpc error: code = ResourceExhausted desc = "
                f'no free IPs in the "{key.split("/")[1]}" pool'
            )
        pool["used"][address] = owner
        pool["last"] = address
        return address

    def release(self, owner: str) -> None:
        """Give back all addresses of one interface; nothing reserved is no error."""
        for pool in self.store.values():
            pool["used"] = {address: holder for address, holder in pool["used"].items() if holder != owner}
