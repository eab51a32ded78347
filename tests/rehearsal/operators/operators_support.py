# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster as tests see it: creates what a user creates, and waits with names for what the operators do."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
import yaml
from operators_fakes import PFS

from rehearsal.operators import kinds
from rehearsal.operators.client import Api
from rehearsal.operators.kinds import Kind

CHART = Path(__file__).parents[3] / "rehearsal" / "charts" / "network-operator"
NS = "nvidia-network-operator"
SHAPE = {"node.kubernetes.io/instance-type": "TEST.2"}


class Cluster:
    """The API of a cluster whose operators run, with waits that name what did not come."""

    def __init__(self, api: Api, fleet=None, patience: float = 20.0):
        self.api = api
        self.fleet = fleet
        self.patience = patience

    async def until(self, what: str, look, seconds: float | None = None):
        """The first true answer of ``look`` (a coroutine function)."""
        try:
            async with asyncio.timeout(seconds or self.patience):
                while True:
                    found = await look()
                    if found:
                        return found
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"never seen: {what}")

    async def get(self, kind: Kind, name: str, namespace: str | None = NS) -> dict:
        return await self.api.get(kind, namespace if kind.namespaced else None, name) or {}

    async def create(self, kind: Kind, name: str, spec: dict, namespace: str = NS, **meta) -> None:
        metadata = {"name": name, **meta, **({"namespace": namespace} if kind.namespaced else {})}
        assert await self.api.create(kind, {"metadata": metadata, "spec": spec})

    async def install(self, disable_plugins: tuple[str, ...] = ("mellanox",)) -> None:
        """What the chart brings, without helm: CRDs, the two Deployments, the NIC list and the operator's config."""
        for path in [*CHART.glob("crds/*.yaml"), *CHART.glob("charts/sriov-network-operator/crds/*.yaml")]:
            for document in yaml.safe_load_all(path.read_text()):
                await self.api.create(kinds.CRD, document)
        await self.api.create(kinds.NAMESPACE, {"metadata": {"name": NS}})
        await self.api.create(
            kinds.CONFIG_MAP,
            {"metadata": {"name": "supported-nic-ids", "namespace": NS}, "data": {"x": "15b3 1019 101a"}},
        )
        for name in ("network-operator", "sriov-network-operator"):
            labels = {"app.kubernetes.io/name": name}
            env = [{"name": "RESOURCE_PREFIX", "value": "nvidia.com"}]
            template = {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": name, "image": name, "env": env}]},
            }
            spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
            await self.create(kinds.DEPLOYMENT, name, spec, labels=labels)
        await self.until("SR-IOV kinds", lambda: self._served(kinds.SRIOV_CONFIG))
        selector = {"network.nvidia.com/operator.mofed.wait": "false"}
        await self.create(
            kinds.SRIOV_CONFIG,
            "default",
            {"configDaemonNodeSelector": selector, "disablePlugins": list(disable_plugins)},
        )

    async def _served(self, kind: Kind) -> bool:
        with contextlib.suppress(Exception):
            await self.api.list(kind)
            return True
        return False

    async def ready_policy(self) -> None:
        section = {"image": "i", "repository": "r", "version": "v"}
        spec = {"nvIpam": section, "secondaryNetwork": {"multus": section, "cniPlugins": section}}
        await self.create(kinds.NIC_CLUSTER_POLICY, "nic-cluster-policy", spec)

        async def ready() -> bool:
            return (await self.get(kinds.NIC_CLUSTER_POLICY, "nic-cluster-policy")).get("status", {}).get(
                "state"
            ) == "ready"

        await self.until("NicClusterPolicy ready", ready)

    async def rails(self, vfs: int = 1, **policy) -> None:
        selector = {"vendor": "15b3", "rootDevices": list(PFS)}
        spec = {
            "resourceName": "rdma-vf",
            "numVfs": vfs,
            "mtu": 4220,
            "isRdma": True,
            "priority": 90,
            "nicSelector": selector,
        }
        await self.create(kinds.SRIOV_POLICY, "p", {**spec, "nodeSelector": SHAPE, **policy})

    async def offered(self, amount: str, nodes: tuple[str, ...] = ("a", "b")) -> None:
        async def look() -> bool:
            rows = [await self.get(kinds.NODE, name) for name in nodes]
            return all(row.get("status", {}).get("allocatable", {}).get("nvidia.com/rdma-vf") == amount for row in rows)

        await self.until(f"{amount} VFs on {nodes}", look)

    async def network(self, meta_plugins: str) -> None:
        ipam = '{"type": "nv-ipam", "poolName": "sriov-pool"}'
        await self.create(
            kinds.SRIOV_NETWORK,
            "rdma-vf",
            {"resourceName": "rdma-vf", "networkNamespace": "default", "ipam": ipam, "metaPlugins": meta_plugins},
        )
        await self.until("attachment", lambda: self.get(kinds.NAD, "rdma-vf", "default"))

    async def pod(self, name: str, node: str, amount: int = 1) -> None:
        container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/rdma-vf": str(amount)}}}
        toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        spec = {
            "containers": [container],
            "tolerations": [toleration],
            "nodeSelector": {"kubernetes.io/hostname": node},
        }
        annotations = {"k8s.v1.cni.cncf.io/networks": ",".join(["rdma-vf"] * amount)}
        await self.create(kinds.POD, name, spec, "default", annotations=annotations)

    async def phase(self, name: str, phase: str) -> dict:
        async def look() -> dict | None:
            found = await self.get(kinds.POD, name, "default")
            return found if found.get("status", {}).get("phase") == phase else None

        return await self.until(f"pod {name} {phase}", look)

    async def events(self, reason: str) -> list[str]:
        items, _ = await self.api.list(kinds.EVENT)
        return [item["message"] for item in items if item["reason"] == reason]
