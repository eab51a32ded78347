# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node objects: each rehearsal node's kubelet registers it, reports its boot and renews its lease; a node that went
silent is found out only after a grace period, as in a real cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone

from rehearsal.operators.client import ApiError, now
from rehearsal.operators.install import permissive_crd
from rehearsal.operators.kinds import CRD, LEASE, NAMESPACE, NODE, Kind, name_of
from rehearsal.operators.machines import Fleet, Machine
from rehearsal.operators.runtime import Controller, Manager
from rehearsal.operators.selection import is_ready

POLL = 1.0  # seconds between looks at whether the nodes are up
# A tenth and less of what a cluster takes: leases are renewed each 10 s, a silent node stays Ready for 40 to 50 s
# (kube-controller-manager --node-monitor-grace-period), and a kubelet that starts is not ready before its runtime is.
LEASE_RENEWAL, GRACE, KUBELET_START = 2.0, 4.0, 0.5
LEASE_NAMESPACE = "kube-node-lease"
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


STARTING = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
# Ready by what the kubelet does: status, reason and message, in the words of kubelet and node life cycle controller.
READY = {
    "up": ("True", "KubeletReady", "kubelet is posting ready status"),
    "starting": ("False", "KubeletNotReady", STARTING),
    "silent": ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."),
}


def micro_time() -> str:
    """The present time as metav1.MicroTime writes it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ready_condition(kubelet: str, old: dict | None) -> dict:
    """The Ready condition for a kubelet that is up, starting or silent."""
    status, reason, message = READY[kubelet]
    since = (
        old["lastTransitionTime"] if old and old.get("status") == status and old.get("lastTransitionTime") else now()
    )
    return {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def status_patch(
    node: dict, address: str, port: int | None, boot_id: str | None, kernel: str, gpus: int, starting: bool = False
) -> dict | None:
    """The change that the Node's status needs, or None. A silent node keeps what it reported last, but is not Ready."""
    status = node.get("status") or {}
    old = next((c for c in status.get("conditions") or [] if c["type"] == "Ready"), None)
    condition = ready_condition("silent" if boot_id is None else "starting" if starting else "up", old)
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
        self._since: dict[str, float] = {}  # when _up became what it is
        self._renewed: dict[str, float] = {}

    def keys(self, kind: Kind, obj: dict) -> tuple[str, ...]:
        return (name_of(obj),)

    async def _feature_discovery(self) -> None:
        """The cluster runs node feature discovery already (its labels are on the nodes), so its kind is served."""
        if await self.api.get(CRD, None, f"{NODE_FEATURE_RULE.plural}.{NODE_FEATURE_RULE.group}") is None:
            await self.api.create(CRD, permissive_crd(NODE_FEATURE_RULE, "nodefeaturerule", ("nfr",), status=False))

    async def _renew_lease(self, name: str) -> None:
        """The kubelet's sign of life."""
        if time.monotonic() - self._renewed.get(name, -LEASE_RENEWAL) < LEASE_RENEWAL:
            return
        self._renewed[name] = time.monotonic()
        lease = {"metadata": {"name": name, "namespace": LEASE_NAMESPACE}}
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time()}
        try:
            if not await self.api.create(LEASE, {**lease, "spec": spec}):
                await self.api.patch(LEASE, lease, {"spec": spec})
        except ApiError as error:
            self.log.warning("lease of node %s: %s", name, error)

    async def run(self) -> None:
        """Besides the resync: look each second whether nodes appeared, went away or came back."""
        await self._feature_discovery()
        await self.api.create(NAMESPACE, {"metadata": {"name": LEASE_NAMESPACE}})
        while True:
            for name in self.system:
                if name not in self.ports:
                    self.ports[name] = await self._serve(name)
                if name not in self._up:
                    self._up[name] = f"system-{name}"
                    self.enqueue(name)
            machines = self.fleet.machines()
            for name in machines:
                if name not in self.ports:
                    self.ports[name] = await self._serve(name)
            for name, machine in machines.items():
                boot_id = machine.boot_id()
                if name not in self._up or self._up[name] != boot_id:
                    self.log.info("node %s: boot id %s", name, boot_id or "none, it is down")
                    self._up[name], self._since[name] = boot_id, time.monotonic()
                    self.enqueue(name)
            await asyncio.gather(*(self._renew_lease(name) for name, up in self._up.items() if up))
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
            change = status_patch(node, self.system[key], self.ports.get(key), f"boot-of-{key}", "6.14.0", 0)
        else:
            left = self._time_left(node)
            if self._up[key] is None and left > 0:
                return left  # nobody knows yet: the last report stands
            change = self._machine_status(node, machine, starting=left > 0)
            if change:
                await self._report(node, change)
            return left or None
        if change:
            await self._report(node, change)
        return None

    async def _report(self, node: dict, change: dict) -> None:
        if is_ready(node) and self._up.get(name_of(node)) is None:
            self.log.info("node %s does not answer", name_of(node))
        await self.api.patch(NODE, node, change, "status")

    def _time_left(self, node: dict) -> float:
        """Seconds until a silent node is found out, or until a kubelet that starts again is ready; 0 when that is
        over."""
        boot_id, reported = self._up[name_of(node)], (node.get("status") or {}).get("nodeInfo", {}).get("bootID")
        age = time.monotonic() - self._since.get(name_of(node), 0.0)
        if boot_id is None:
            return max(0.0, GRACE - age) if is_ready(node) else 0.0
        restarted = reported not in (None, "", boot_id) or not is_ready(node) and bool(reported)
        return max(0.0, KUBELET_START - age) if restarted else 0.0

    def _machine_status(self, node: dict, machine: Machine, starting: bool) -> dict | None:
        spec, boot = machine.spec, machine.boot() or {}
        gpus = len({rail["gpu_pci"] for rail in spec.get("rails") or [] if rail.get("gpu_pci")})
        port = self.ports.get(machine.name)
        return status_patch(
            node, spec["address"], port, self._up.get(machine.name), boot.get("kernel", "unknown"), gpus, starting
        )
