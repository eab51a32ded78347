# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelets: pod sandboxes on rehearsal nodes, network attachments as Multus makes them, pod status, teardown."""

from __future__ import annotations

import ipaddress
import json
import random

from rehearsal.operators.client import now
from rehearsal.operators.cni import Call, CniError, add_chain, delete_chain
from rehearsal.operators.containers import GPU_RESOURCE, gpus_of, rail_of
from rehearsal.operators.device_plugin import Registry
from rehearsal.operators.install import running_in
from rehearsal.operators.ipam import Ipam
from rehearsal.operators.kinds import (
    CIDR_POOL,
    DAEMON_SET,
    DEPLOYMENT,
    IP_POOL,
    NAD,
    NODE,
    POD,
    Kind,
    annotations_of,
    name_of,
    namespace_of,
)
from rehearsal.operators.machines import Fleet, Machine, MachineError
from rehearsal.operators.networks import (
    NETWORKS_ANNOTATION,
    STATUS_ANNOTATION,
    NetworkError,
    chain_of,
    network_status,
    parse_networks,
    resource_of,
)
from rehearsal.operators.nv_ipam import COMPONENT as IPAM_CONTROLLER
from rehearsal.operators.pools import next_address
from rehearsal.operators.runtime import Controller, Manager
from rehearsal.operators.scheduler import FINISHED
from rehearsal.operators.selection import daemon_runs_on, is_ready, pod_requests
from rehearsal.operators.sriov_operator import DAEMON as SRIOV_DAEMON

RETRY = 2.0  # seconds until a failed sandbox is tried again
# Which DaemonSet brings which plugin binaries to a node.
BINARIES = {
    "cni-plugins-ds": {"tuning", "sbr", "ipvlan", "macvlan", "host-device", "static"},
    "nv-ipam-node": {"nv-ipam"},
    SRIOV_DAEMON: {"sriov", "rdma", "ib-sriov", "ovs"},
}
MULTUS = "kube-multus-ds"
MULTUS_CONFIG = "00-multus.conf"


class AdmissionError(Exception):
    """The kubelet cannot admit the pod: the devices that the scheduler counted on are not there."""


def is_kept(spec: dict, device: str | None) -> bool:
    """Whether CNI DEL fails for a device: a VF of the rail ``kept_vf`` of the node's spec."""
    return device is not None and spec.get("kept_vf") is not None and rail_of(spec, device) == spec["kept_vf"]


def allocate_gpus(amount: int, spec: dict, used: set[str], rdma: list[str], seed: str) -> list[str]:
    """GPUs of a node for a pod.

    The kubelet does not know of the rails that the pod got; which GPUs it takes is shuffled. A node with ``gpus_far`` in
    its spec takes those that are furthest from the pod's rails, one with none of it the nearest: both happen.

    :raises AdmissionError: fewer are free than the pod asks for.
    """
    free = [pci for pci in gpus_of(spec) if pci not in used]
    if len(free) < amount:
        raise AdmissionError(
            f"Allocate failed due to requested number of devices unavailable for {GPU_RESOURCE}. Requested: {amount}, "
            f"Available: {len(free)}, which is unexpected"
        )
    buses = [int(pci.split(":")[1], 16) for pci in rdma]

    def distance(pci: str) -> int:
        own = int(pci.split(":")[1], 16)
        return min((abs(own - bus) for bus in buses), default=0)

    random.Random(f"{seed}/{GPU_RESOURCE}").shuffle(free)
    return sorted(free, key=distance, reverse=bool(spec.get("gpus_far")))[:amount]


def allocate_devices(requests: dict, offers: dict[str, list[str]], used: set[str], seed: str) -> dict[str, list[str]]:
    """Devices for a pod's extended resources.

    The device manager takes free devices in no particular order (it walks a Go set), so the choice is shuffled: with
    one resource for all rails a pod must not rely on net1 being rail 0.

    :raises AdmissionError: fewer devices are free than the pod asks for.
    """
    chosen: dict[str, list[str]] = {}
    for resource, amount in sorted(requests.items()):
        if resource not in offers or not amount:
            continue
        free = [device for device in offers[resource] if device not in used]
        if len(free) < amount:
            text = f"unavailable for {resource}. Requested: {int(amount)}, Available: {len(free)}"
            raise AdmissionError(f"Allocate failed due to requested number of devices {text}, which is unexpected")
        chosen[resource] = random.Random(f"{seed}/{resource}").sample(free, int(amount))
        used = used | set(chosen[resource])
    return chosen


def multus_is_called(names: list[str]) -> bool:
    """Whether the container runtime calls Multus, from the names in /etc/cni/net.d beside Multus' own file.

    The runtime takes the first configuration by name and no other (k8snetworkplumbingwg/multus-cni#298).
    """
    configs = [name for name in names if name.endswith((".conf", ".conflist", ".json"))]
    return min([*configs, MULTUS_CONFIG]) == MULTUS_CONFIG


def attachments(pod: dict, find_nad, devices: dict[str, list[str]]) -> list[dict]:
    """What Multus would attach: one row a network, with its chain and the device id that is next for its resource.

    :param find_nad: (namespace, name) -> NetworkAttachmentDefinition or None.
    :raises NetworkError: the annotation, a network or its configuration is missing or malformed.
    """
    rows = []
    position: dict[str, int] = {}
    for item in parse_networks(annotations_of(pod).get(NETWORKS_ANNOTATION), namespace_of(pod)):
        nad = find_nad(item["namespace"], item["name"])
        if nad is None:
            what = f"cannot find a network-attachment-definition ({item['name']}) in namespace ({item['namespace']})"
            raise NetworkError(f'{what}: network-attachment-definitions.k8s.cni.cncf.io "{item["name"]}" not found')
        resource = resource_of(nad)
        device = None
        if resource:
            index = position.get(resource, 0)
            position[resource] = index + 1
            given = devices.get(resource) or []
            # Multus passes no device id when the pod has none (left) of this resource; the plugin then refuses.
            device = given[index] if index < len(given) else None
        rows.append({**item, "chain": chain_of(nad), "device": device})
    return rows


def sandbox_error(pod: dict, network: str | None, message: str) -> str:
    """The message of event FailedCreatePodSandBox, nested as CRI-O and Multus nest it."""
    name, namespace, uid = name_of(pod), namespace_of(pod), pod["metadata"]["uid"]
    where = f"{namespace}/{name}/{uid}:{network}" if network else f"{namespace}/{name}/{uid}"
    middle = f'error adding container to network "{network}": ' if network else "error loading k8s delegates k8s args: "
    return (
        f"Failed to create pod sandbox: rpc error: code = Unknown desc = failed to create pod network sandbox "
        f'k8s_{name}_{namespace}_{uid}_0: error adding pod {namespace}_{name} to CNI network "multus-cni-network": '
        f'plugin type="multus-shim" name="multus-cni-network" failed (add): [{where}]: {middle}{message}'
    )


def container_statuses(pod: dict, started: str | None) -> list[dict]:
    """Container statuses: running since ``started``, or waiting in ContainerCreating."""
    rows = []
    for container in pod["spec"]["containers"]:
        state = {"running": {"startedAt": started}} if started else {"waiting": {"reason": "ContainerCreating"}}
        row = {"name": container["name"], "image": container.get("image", ""), "imageID": "", "ready": bool(started)}
        rows.append({**row, "started": bool(started), "restartCount": 0, "state": state, "lastState": {}})
    return rows


def pod_status(pod: dict, node_address: str, address: str | None, started: str | None) -> dict:
    """Pod status: Running with its address, or Pending while the sandbox is being made."""
    stamp = started or (pod.get("status") or {}).get("startTime") or now()
    good = "True" if started else "False"
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp},
        {"type": "Initialized", "status": "True", "lastTransitionTime": stamp},
    ]
    for kind in ("PodReadyToStartContainers", "ContainersReady", "Ready"):
        row = {"type": kind, "status": good, "lastTransitionTime": stamp}
        if not started and kind != "PodReadyToStartContainers":
            names = " ".join(container["name"] for container in pod["spec"]["containers"])
            row.update(reason="ContainersNotReady", message=f"containers with unready status: [{names}]")
        conditions.append(row)
    status: dict = {
        "phase": "Running" if started else "Pending",
        "hostIP": node_address,
        "startTime": (pod.get("status") or {}).get("startTime") or stamp,
    }
    status.update(conditions=conditions, containerStatuses=container_statuses(pod, started), qosClass="BestEffort")
    if address:
        status.update(podIP=address, podIPs=[{"ip": address}])
    return status


class Kubelets(Controller):
    """Keys are "<node>/<namespace>/<pod>"; one pod is worked on at a time, pods side by side."""

    watches = (POD, NODE, NAD, DAEMON_SET, IP_POOL, CIDR_POOL, DEPLOYMENT)
    resync = 10.0

    def __init__(self, manager: Manager, fleet: Fleet, registry: Registry):
        super().__init__(manager)
        self.fleet = fleet
        self.registry = registry
        self._states: dict[str, dict] = {}

    def keys(self, kind: Kind, obj: dict) -> list[str]:
        if kind == POD:
            node = obj["spec"].get("nodeName")
            return [f"{node}/{namespace_of(obj)}/{name_of(obj)}"] if node else []
        if kind == NODE:
            return [key for pod in self.cache(POD) for key in self.keys(POD, pod) if key.startswith(f"{name_of(obj)}/")]
        return []  # networks and pools are read when a sandbox is (re)tried

    def known_keys(self) -> set[str]:
        left = {
            f"{name}/{row['namespace']}/{row['name']}"
            for name in self.fleet.machines()
            for row in self.state(name)["sandboxes"].values()
        }
        return super().known_keys() | left

    def state(self, node: str) -> dict:
        """The node's checkpoint: sandboxes by pod uid, and address reservations."""
        if node not in self._states:
            machine = self.fleet.get(node)
            kept = machine.load("kubelet") if machine else {}
            self._states[node] = {"sandboxes": kept.get("sandboxes", {}), "ipam": kept.get("ipam", {})}
            self._note_use(node)
        return self._states[node]

    def _save(self, machine: Machine) -> None:
        machine.save("kubelet", self._states[machine.name])
        self._note_use(machine.name)

    def _note_use(self, node: str) -> None:
        rows = self._states[node]["sandboxes"].values()
        self.registry.in_use[node] = {pci for row in rows for devices in row["devices"].values() for pci in devices}

    def _pool(self, kind: str, name: str) -> dict | None:
        namespace = running_in(self.cache(DEPLOYMENT), IPAM_CONTROLLER)
        return self.cache(IP_POOL if kind == "ippool" else CIDR_POOL).get(name, namespace)

    def _daemon_on(self, name: str, node: dict) -> bool:
        return any(
            name_of(item) == name and daemon_runs_on(item["spec"]["template"]["spec"], node)
            for item in self.cache(DAEMON_SET)
        )

    async def reconcile(self, key: str) -> float | None:
        node_name, namespace, name = key.split("/")
        node, machine = self.cache(NODE).get(node_name), self.fleet.get(node_name)
        pod = self.cache(POD).get(name, namespace)
        if pod and pod["spec"].get("nodeName") != node_name:
            pod = None
        if machine is None:
            return await self._without_machine(pod, node) if pod and node else None
        if node is None or not is_ready(node):
            return None  # a change of the node brings us back
        boot_id = ((node.get("status") or {}).get("nodeInfo") or {}).get("bootID")
        state = self.state(node_name)
        for uid, row in list(state["sandboxes"].items()):
            stale = pod is None or pod["metadata"]["uid"] != uid
            if (row["namespace"], row["name"]) == (namespace, name) and (
                stale or pod["metadata"].get("deletionTimestamp")
            ):
                await self._remove(machine, uid, boot_id)
        if pod is None:
            return None
        if pod["metadata"].get("deletionTimestamp"):
            await self.api.delete(POD, pod, grace_seconds=0)
            return None
        if (pod.get("status") or {}).get("phase") in FINISHED:
            return None
        return await self._run(pod, node, machine, boot_id)

    async def _without_machine(self, pod: dict, node: dict) -> None:
        """Pods on nodes that are not rehearsed have no sandbox; they run in name only."""
        if pod["metadata"].get("deletionTimestamp"):
            await self.api.delete(POD, pod, grace_seconds=0)
        elif (pod.get("status") or {}).get("phase") not in ("Running", *FINISHED):
            address = node["status"]["addresses"][0]["address"]
            await self.api.patch(POD, pod, {"status": pod_status(pod, address, address, now())}, "status")

    async def _run(self, pod: dict, node: dict, machine: Machine, boot_id: str) -> float | None:
        uid = pod["metadata"]["uid"]
        sandboxes = self.state(machine.name)["sandboxes"]
        row = sandboxes.get(uid)
        address = machine.spec["address"]
        if row and row["boot_id"] != boot_id:
            await self._remove(machine, uid, boot_id)
            row = None
            if pod["spec"].get("restartPolicy") == "Never":
                status = {
                    "phase": "Failed",
                    "reason": "NodeRebooted",
                    "message": "the pod's sandbox ended with a reboot of the node",
                }
                await self.api.patch(POD, pod, {"status": status}, "status")
                return None
        if row is None or not row.get("ready"):
            if row:
                await self._remove(machine, uid, boot_id)
            offers = self.registry.offers.get(machine.name)
            if offers is None:
                return 0.5  # the device plugins have not registered yet
            if not (pod.get("status") or {}).get("containerStatuses"):
                await self.api.patch(POD, pod, {"status": pod_status(pod, address, None, None)}, "status")
            try:
                row = await self._create(pod, node, machine, boot_id, offers)
            except AdmissionError as error:
                status = {
                    "phase": "Failed",
                    "reason": "UnexpectedAdmissionError",
                    "message": f"Pod was rejected: {error}",
                }
                await self.api.patch(POD, pod, {"status": status}, "status")
                return None
            except (CniError, NetworkError, MachineError) as error:
                self.log.warning("node %s: %s", machine.name, error)
                await self.api.event(POD, pod, "FailedCreatePodSandBox", str(error), "kubelet")
                return RETRY
        if (pod.get("status") or {}).get("phase") != "Running" or (pod["status"].get("podIP") != row["address"]):
            if row["network_status"] and annotations_of(pod).get(STATUS_ANNOTATION) != row["network_status"]:
                await self.api.patch(
                    POD, pod, {"metadata": {"annotations": {STATUS_ANNOTATION: row["network_status"]}}}
                )
            await self.api.patch(
                POD, pod, {"status": pod_status(pod, address, row["address"], row["started"])}, "status"
            )
        return None

    async def _create(
        self, pod: dict, node: dict, machine: Machine, boot_id: str, offers: dict[str, list[str]]
    ) -> dict:
        uid = pod["metadata"]["uid"]
        state = self.state(machine.name)
        devices = allocate_devices(
            pod_requests(pod["spec"]), offers, self.registry.in_use.get(machine.name, set()), uid
        )
        gpus = int(pod_requests(pod["spec"]).get(GPU_RESOURCE, 0))
        if gpus:
            rdma = [pci for given in devices.values() for pci in given]
            used = self.registry.in_use.get(machine.name, set())
            devices[GPU_RESOURCE] = allocate_gpus(gpus, machine.spec, used, rdma, uid)
        host_network = bool(pod["spec"].get("hostNetwork"))
        row: dict = {
            "namespace": namespace_of(pod),
            "name": name_of(pod),
            "boot_id": boot_id,
            "devices": devices,
            "attachments": [],
        }
        row.update(
            netns=None if host_network else f"pod-{uid}",
            address=machine.spec["address"],
            network_status="",
            ready=False,
        )
        state["sandboxes"][uid] = row
        self._save(machine)
        try:
            if not host_network:
                await self._network(pod, node, machine, row, uid)
        except (CniError, NetworkError, MachineError):
            await self._remove(machine, uid, boot_id)
            raise
        row.update(ready=True, started=now())
        self._save(machine)
        return row

    async def _network(self, pod: dict, node: dict, machine: Machine, row: dict, uid: str) -> None:
        row["address"] = self._pod_address(machine, uid)
        script = 'ip netns add "$1"; ip link add name "$2" type veth peer name eth0 netns "$1"; ip link set dev "$2" up'
        # The pod network is IPv4 only, and such runtimes turn IPv6 off in their pods (kubernetes-sigs/dranet#138).
        await machine.shell(script, row["netns"], f"veth{uid[:8]}")
        inside = "for i in all default; do echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; done; "
        inside += 'ip link set dev lo up; ip addr add "$1/24" dev eth0; ip link set dev eth0 up'
        inside += "; ls /etc/cni/net.d 2>/dev/null || true"
        configs = (await machine.shell(inside, row["address"], netns=row["netns"])).split()
        called = self._daemon_on(MULTUS, node) and multus_is_called(configs)
        if not called or not annotations_of(pod).get(NETWORKS_ANNOTATION):
            return  # without Multus nobody reads the annotation
        try:
            wanted = attachments(pod, lambda space, name: self.cache(NAD).get(name, space), row["devices"])
        except NetworkError as error:
            raise NetworkError(sandbox_error(pod, None, str(error))) from error
        installed = set().union(*(names for daemon, names in BINARIES.items() if self._daemon_on(daemon, node)))
        statuses = [{"name": "default", "interface": "eth0", "ips": [row["address"]], "default": True, "dns": {}}]
        for item in wanted:
            kept = {**item, "notes": []}
            row["attachments"].append(kept)
            try:
                result = await add_chain(self._call(machine, row, uid, kept), item["chain"], installed, kept["notes"])
            except CniError as error:
                raise CniError(sandbox_error(pod, item["name"], str(error))) from error
            finally:
                self._save(machine)
            statuses.append(
                network_status(f"{item['namespace']}/{item['name']}", item["interface"], result, item["device"])
            )
        row["network_status"] = json.dumps(statuses, indent=4)

    def _call(self, machine: Machine, row: dict, uid: str, item: dict) -> Call:
        ipam = Ipam(machine.name, self.state(machine.name)["ipam"], self._pool)
        call = Call(machine, row["netns"], item["interface"], f"{uid}/{item['interface']}", item["device"], ipam)
        call.ips, call.mac = item["ips"], item["mac"]
        return call

    def _pod_address(self, machine: Machine, uid: str) -> str:
        """An address of the node's slice of the pod network, 10.244.N.0/24 with N from the node's own address."""
        octet = int(ipaddress.ip_address(machine.spec["address"])) & 0xFF
        base = ipaddress.ip_address(f"10.244.{octet}.0")
        pool = self.state(machine.name)["ipam"].setdefault("pods", {"used": {}, "last": None})
        address = next_address({"first": base + 2, "last": base + 254, "excluded": []}, set(pool["used"]), pool["last"])
        if address is None:
            raise MachineError(f"node {machine.name} has no free pod address")
        pool["used"][address] = f"{uid}/eth0"
        pool["last"] = address
        return address

    async def _remove(self, machine: Machine, uid: str, boot_id: str | None) -> None:
        """CNI DEL in reverse order, then the namespace. After a reboot the kernel has nothing left to undo."""
        state = self.state(machine.name)
        row = state["sandboxes"][uid]
        kept = [item for item in row["attachments"] if is_kept(machine.spec, item["device"])]
        if row["netns"] and row["boot_id"] == boot_id:
            for item in reversed([item for item in row["attachments"] if item not in kept]):
                for error in await delete_chain(self._call(machine, row, uid, item), item["chain"], item["notes"]):
                    self.log.error("node %s: pod %s/%s: %s", machine.name, row["namespace"], row["name"], error)
            # A plugin that fails leaves its interface in the namespace, and the runtime cannot remove it.
            code, _, err = (
                (1, "", f"plugin failed: {row['netns']} stays")
                if kept
                else await machine.run(["ip", "netns", "delete", row["netns"]])
            )
            if code != 0 and "No such file" not in err:
                self.log.error("node %s: %s", machine.name, err.strip())
        ipam = Ipam(machine.name, state["ipam"], self._pool)
        for interface in ["eth0", *(item["interface"] for item in row["attachments"])]:
            ipam.release(f"{uid}/{interface}")
        state["sandboxes"].pop(uid, None)
        self._save(machine)
