# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node objects: registers each rehearsal node and keeps its Ready condition and boot id true, as its kubelet would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rehearsal.operators.client import now
from rehearsal.operators.install import permissive_crd
from rehearsal.operators.kinds import CRD, NODE, Kind, name_of
from rehearsal.operators.machines import Fleet, Machine
from rehearsal.operators.runtime import Controller, Manager
from rehearsal.operators.selection import is_ready

POLL = 1.0  # seconds between looks at whether the nodes are up
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
NODE_FEATURE_RULE = Kind("nfd.k8s-sigs.io", "v1alpha1", "NodeFeatureRule", "nodefeaturerules", namespaced=False)
KUBELET_VERSION = "v1.36.4"


def node_object(spec: dict) -> dict:
    """The Node that a GPU machine registers, with labels as node feature discovery and the cloud set them."""
    labels = {
        "kubernetes.io/hostname": spec["name"],
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": spec["shape"],
    }
    if (spec.get("nic") or {}).get("vendor") == "15b3":
        labels["feature.node.kubernetes.io/pci-15b3.present"] = "true"
    return {
        "metadata": {"name": spec["name"], "labels": {**labels, **(spec.get("labels") or {})}},
        "spec": {"taints": [GPU_TAINT]},
    }


def system_node_object(name: str) -> dict:
    """A node without GPUs and rails, as every cluster has: operators run there, and pools without selector serve it."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "VM.Standard.E5.Flex",
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


def ready_condition(up: bool, old: dict | None) -> dict:
    """The Ready condition; while the kubelet is silent it is Unknown, as the node life cycle controller sets it."""
    status, reason = ("True", "KubeletReady") if up else ("Unknown", "NodeStatusUnknown")
    message = "kubelet is posting ready status" if up else "Kubelet stopped posting node status."
    since = (
        old["lastTransitionTime"] if old and old.get("status") == status and old.get("lastTransitionTime") else now()
    )
    return {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def status_patch(
    node: dict, address: str, port: int | None, boot_id: str | None, kernel: str, gpus: int
) -> dict | None:
    """The change that the Node's status needs, or None. A silent node keeps what it reported last, but is not Ready."""
    status = node.get("status") or {}
    old = next((c for c in status.get("conditions") or [] if c["type"] == "Ready"), None)
    condition = ready_condition(boot_id is not None, old)
    change: dict = {}
    if condition != old:
        change["conditions"] = [condition]
    if boot_id is not None:
        info = {
            "bootID": boot_id,
            "kernelVersion": kernel,
            "kubeletVersion": KUBELET_VERSION,
            "operatingSystem": "linux",
        }
        info.update(
            architecture="amd64",
            containerRuntimeVersion="cri-o://1.36.3",
            osImage="rehearsal",
            machineID="",
            systemUUID="",
        )
        info["kubeProxyVersion"] = ""
        if any((status.get("nodeInfo") or {}).get(key) != value for key, value in info.items() if value):
            change["nodeInfo"] = info
        addresses = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name_of(node)}]
        if port is not None:
            addresses.insert(1, {"type": "ExternalDNS", "address": "127.0.0.1"})
            if ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") != port:
                change["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
        if status.get("addresses") != addresses:
            change["addresses"] = addresses
        fixed = {"cpu": "128", "memory": "2097152Mi", "pods": "110"}
        if gpus:
            fixed["nvidia.com/gpu"] = str(gpus)
        for field in ("capacity", "allocatable"):
            have = status.get(field) or {}
            if any(have.get(key) != value for key, value in fixed.items()):
                change[field] = fixed
    return {"status": change} if change else None


class Nodes(Controller):
    """Keys are node names."""

    watches = (NODE,)

    def __init__(
        self,
        manager: Manager,
        fleet: Fleet,
        ports: dict[str, int],
        system_nodes: int,
        serve: Callable[[str], Awaitable[int]],
    ):
        """
        :param ports: kubelet port by node name; filled here.
        :param serve: starts the kubelet endpoint of a node and returns its port.
        """
        super().__init__(manager)
        self.fleet = fleet
        self.ports = ports
        self._serve = serve
        self.system = {f"system-{number}": f"10.140.255.{number}" for number in range(1, system_nodes + 1)}
        self._up: dict[str, str | None] = {}

    def keys(self, kind: Kind, obj: dict) -> tuple[str, ...]:
        return (name_of(obj),)

    async def _feature_discovery(self) -> None:
        """The cluster runs node feature discovery already (its labels are on the nodes), so its kind is served."""
        if await self.api.get(CRD, None, f"{NODE_FEATURE_RULE.plural}.{NODE_FEATURE_RULE.group}") is None:
            await self.api.create(CRD, permissive_crd(NODE_FEATURE_RULE, "nodefeaturerule", ("nfr",), status=False))

    async def run(self) -> None:
        """Besides the resync: look each second whether nodes appeared, went away or came back."""
        await self._feature_discovery()
        while True:
            for name in self.system:
                if name not in self._up:
                    self._up[name] = f"system-{name}"
                    self.enqueue(name)
            machines = self.fleet.machines()
            for name in machines:
                if name not in self.ports:
                    self.ports[name] = await self._serve(name)
            boot_ids = await asyncio.gather(*(machine.boot_id() for machine in machines.values()))
            for name, boot_id in zip(machines, boot_ids):
                if name not in self._up or self._up[name] != boot_id:
                    self.log.info("node %s: boot id %s", name, boot_id or "none, it is down")
                    self._up[name] = boot_id
                    self.enqueue(name)
            await asyncio.sleep(POLL)

    async def reconcile(self, key: str) -> float | None:
        machine = self.fleet.get(key)
        if key not in self._up or (machine is None and key not in self.system):
            return None  # not looked at yet, or somebody else's node
        node = self.cache(NODE).get(key)
        if node is None:
            await self.api.create(NODE, node_object(machine.spec) if machine else system_node_object(key))
            return 0.2
        if key in self.system:
            change = status_patch(node, self.system[key], None, f"boot-of-{key}", "6.14.0", 0)
        else:
            change = self._machine_status(node, machine)
        if change:
            if is_ready(node) and self._up.get(key) is None:
                self.log.info("node %s does not answer", key)
            await self.api.patch(NODE, node, change, "status")
        return None

    def _machine_status(self, node: dict, machine: Machine) -> dict | None:
        spec, boot = machine.spec, machine.boot() or {}
        gpus = len({rail["gpu_pci"] for rail in spec.get("rails") or [] if rail.get("gpu_pci")})
        port = self.ports.get(machine.name)
        return status_patch(
            node, spec["address"], port, self._up.get(machine.name), boot.get("kernel", "unknown"), gpus
        )
