# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network operator: NicClusterPolicy to DaemonSets, nv-ipam's CRDs, node labels, and the policy's status."""

from __future__ import annotations

from rehearsal.operators.client import now
from rehearsal.operators.install import COMPONENT, established, permissive_crd, running_in
from rehearsal.operators.kinds import (
    CIDR_POOL,
    CONFIG_MAP,
    CRD,
    DAEMON_SET,
    DEPLOYMENT,
    IP_POOL,
    NIC_CLUSTER_POLICY,
    NODE,
    Kind,
    labels_of,
    name_of,
    owner_reference,
)
from rehearsal.operators.runtime import Controller

POLICY_NAME = "nic-cluster-policy"
MOFED_WAIT = "network.nvidia.com/operator.mofed.wait"
PCI_PRESENT = "feature.node.kubernetes.io/pci-15b3.present"
STATE_LABEL = "nvidia.network-operator.state"
DEVICE_PLUGIN_CONFIG = "network-operator-sriovdp-config"
CONTROL_PLANE_TOLERATIONS = [
    {"key": f"node-role.kubernetes.io/{name}", "operator": "Exists", "effect": "NoSchedule"}
    for name in ("master", "control-plane")
]
GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

# Part of the spec -> (state name, condition type, DaemonSet, container, default resources), as 26.7 names them.
PARTS: dict[tuple[str, ...], tuple[str, str, str, str, dict]] = {
    ("secondaryNetwork", "multus"): (
        "state-multus-cni",
        "MultusCNIReady",
        "kube-multus-ds",
        "kube-multus",
        {"requests": {"cpu": "100m", "memory": "50Mi"}, "limits": {"cpu": "100m", "memory": "50Mi"}},
    ),
    ("secondaryNetwork", "cniPlugins"): (
        "state-container-networking-plugins",
        "CNIPluginsReady",
        "cni-plugins-ds",
        "cni-plugins",
        {"requests": {"cpu": "100m", "memory": "50Mi"}, "limits": {"cpu": "100m", "memory": "50Mi"}},
    ),
    ("nvIpam",): (
        "state-nv-ipam-cni",
        "NVIPAMReady",
        "nv-ipam-node",
        "nv-ipam-node",
        {"requests": {"cpu": "150m", "memory": "50Mi"}, "limits": {"memory": "300Mi"}},
    ),
    ("sriovDevicePlugin",): (
        "state-SRIOV-device-plugin",
        "SRIOVDevicePluginReady",
        "network-operator-sriov-device-plugin",
        "kube-sriovdp",
        {"requests": {"cpu": "100m", "memory": "40Mi"}, "limits": {"cpu": "300m", "memory": "200Mi"}},
    ),
}
# Init containers, which the container's entry of containerResources does not reach.
INIT_CONTAINERS = {
    ("secondaryNetwork", "multus"): (
        "install-multus-binary",
        {"requests": {"cpu": "10m", "memory": "15Mi"}},
    ),
}
# States that the rehearsal does not run; they are listed as ignore, as an unused part is.
IDLE_STATES = (
    "state-OFED",
    "state-RDMA-device-plugin",
    "state-ib-kubernetes",
    "state-ipoib-cni",
    "state-nic-feature-discovery",
)
IDLE_STATES += ("state-doca-telemetry-service", "state-nic-configuration-operator", "state-spectrum-x-operator")
HARDWARE_PARTS = {("sriovDevicePlugin",)}


def part_of(spec: dict, path: tuple[str, ...]) -> dict | None:
    """The section of the policy's spec at ``path``, or None when it is not asked for."""
    node: dict | None = spec
    for key in path:
        node = (node or {}).get(key)
    return node


def container_resources(section: dict, container: str, default: dict) -> dict:
    """The container's resources: containerResources replaces the default as a whole.

    An entry whose name matches no container takes the default away and sets nothing, so no resources block is left.
    """
    entries = section.get("containerResources")
    if not entries:
        return default
    entry = next((item for item in entries if item.get("name") == container), None)
    return {key: entry[key] for key in ("requests", "limits") if entry.get(key)} if entry else {}


def daemon_set(policy: dict, path: tuple[str, ...], namespace: str) -> dict:
    """The DaemonSet of one part of the policy."""
    state, _, name, container, default = PARTS[path]
    spec = policy["spec"]
    section = part_of(spec, path) or {}
    common = spec.get("global") or {}
    image = "/".join([section.get("repository") or common.get("repository") or "", section.get("image") or ""])
    pod: dict = {
        "containers": [
            {"name": container, "image": f"{image}:{section.get('version') or common.get('version') or ''}"}
        ],
        "tolerations": [GPU_TOLERATION, *(spec.get("tolerations") or [])],
    }
    resources = container_resources(section, container, default)
    if resources:
        pod["containers"][0]["resources"] = resources
    if path in INIT_CONTAINERS:
        init, limits = INIT_CONTAINERS[path]
        pod["initContainers"] = [{"name": init, "image": pod["containers"][0]["image"], "resources": limits}]
    if spec.get("nodeAffinity"):
        pod["affinity"] = {"nodeAffinity": spec["nodeAffinity"]}
    if path in HARDWARE_PARTS:
        pod["nodeSelector"] = {PCI_PRESENT: "true", MOFED_WAIT: "false"}
    labels = {COMPONENT: name}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**labels, STATE_LABEL: state},
            "ownerReferences": [owner_reference(policy, NIC_CLUSTER_POLICY)],
        },
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def ipam_controller(policy: dict, namespace: str) -> dict:
    """The Deployment of nv-ipam's controller, which allocates the blocks."""
    labels = {COMPONENT: "nv-ipam-controller"}
    section = policy["spec"]["nvIpam"]
    image = f"{section.get('repository', '')}/{section.get('image', '')}:{section.get('version', '')}"
    # It tolerates the GPU taint like the DaemonSets do, so it also runs in a cluster of GPU nodes only.
    tolerations = [*CONTROL_PLANE_TOLERATIONS, GPU_TOLERATION]
    pod = {"containers": [{"name": "nv-ipam-controller", "image": image}], "tolerations": tolerations}
    return {
        "metadata": {
            "name": "nv-ipam-controller",
            "namespace": namespace,
            "labels": {**labels, STATE_LABEL: "state-nv-ipam-cni"},
            "ownerReferences": [owner_reference(policy, NIC_CLUSTER_POLICY)],
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def rolled_out(daemon: dict | None) -> bool:
    """Ready means: seen by its controller, at least one node, and all updated and available.

    A selector that matches no node therefore never becomes ready (pkg/state/state_skel.go, isDaemonSetReady).
    """
    status = (daemon or {}).get("status") or {}
    wanted = status.get("desiredNumberScheduled") or 0
    current = status.get("observedGeneration") == ((daemon or {}).get("metadata") or {}).get("generation", 1)
    return bool(wanted) and current and status.get("updatedNumberScheduled") == wanted == status.get("numberAvailable")


def policy_status(policy: dict, ready: dict[tuple[str, ...], bool]) -> dict:
    """The status of the served policy.

    :param ready: the parts that are asked for, and whether each has rolled out.
    """
    generation = policy["metadata"].get("generation", 1)
    old = {item["type"]: item for item in (policy.get("status") or {}).get("conditions") or []}
    states, conditions = [], []

    def add(kind: str, good: bool, reason: str, message: str) -> None:
        status = "True" if good else "False"
        before = old.get(kind, {})
        stamp = before["lastTransitionTime"] if before.get("status") == status else now()
        row = {"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": generation}
        conditions.append({**row, "lastTransitionTime": stamp})

    for path, (state, kind, _, _, _) in PARTS.items():
        if path not in ready:
            states.append({"name": state, "state": "ignore"})
            continue
        states.append({"name": state, "state": "ready" if ready[path] else "notReady"})
        add(kind, ready[path], "Ready" if ready[path] else "NotReady", "")
    states += [{"name": state, "state": "ignore"} for state in IDLE_STATES]
    waiting = sorted(PARTS[path][0] for path, good in ready.items() if not good)
    add("Ready", not waiting, "AllStatesReady" if not waiting else "StatesNotReady", ", ".join(waiting))
    return {"state": "notReady" if waiting else "ready", "appliedStates": states, "conditions": conditions}


def wait_label(node: dict) -> str | None:
    """The mofed.wait label that the node should have: "false" without a driver pod, none without the NIC label."""
    return "false" if labels_of(node).get(PCI_PRESENT) == "true" else None


class NetworkOperator(Controller):
    """One key: the operator has one policy to serve."""

    watches = (NIC_CLUSTER_POLICY, DAEMON_SET, DEPLOYMENT, NODE, CRD)

    def keys(self, kind: Kind, obj: dict) -> tuple[str, ...]:
        return ("cluster",)

    async def reconcile(self, key: str) -> float | None:
        namespace = running_in(self.cache(DEPLOYMENT), "network-operator")
        if namespace is None:
            return None
        await self._label_nodes()
        for policy in self.cache(NIC_CLUSTER_POLICY):
            if name_of(policy) != POLICY_NAME and (policy.get("status") or {}).get("state") != "ignore":
                reason = f"NicClusterPolicy with name {name_of(policy)} is ignored, only {POLICY_NAME} is served"
                await self.api.patch(
                    NIC_CLUSTER_POLICY, policy, {"status": {"state": "ignore", "reason": reason}}, "status"
                )
        policy = self.cache(NIC_CLUSTER_POLICY).get(POLICY_NAME)
        await self._parts(policy, namespace)
        await self._ipam_kinds(policy, namespace)
        if policy:
            await self._report(policy, namespace)
        return None

    async def _label_nodes(self) -> None:
        for node in self.cache(NODE):
            wanted = wait_label(node)
            if labels_of(node).get(MOFED_WAIT) != wanted:
                await self.api.patch(NODE, node, {"metadata": {"labels": {MOFED_WAIT: wanted}}})

    async def _parts(self, policy: dict | None, namespace: str) -> None:
        for path, (_, _, name, _, _) in PARTS.items():
            have = self.cache(DAEMON_SET).get(name, namespace)
            wanted = (
                daemon_set(policy, path, namespace) if policy and part_of(policy["spec"], path) is not None else None
            )
            if wanted is None and have:
                await self.api.delete(DAEMON_SET, have)
            elif wanted and have is None:
                await self.api.create(DAEMON_SET, wanted)
            elif wanted and differs(have["spec"]["template"]["spec"], wanted["spec"]["template"]["spec"]):
                # A JSON merge patch keeps keys it does not name, so the whole object is put in place.
                fresh = {**have, "spec": {**have["spec"], "template": wanted["spec"]["template"]}}
                await self.api.call("PUT", DAEMON_SET.path(namespace, name), fresh)
        await self._device_plugin_config(policy, namespace)

    async def _device_plugin_config(self, policy: dict | None, namespace: str) -> None:
        section = part_of(policy["spec"], ("sriovDevicePlugin",)) if policy else None
        if section is None:
            return
        wanted = {"config.json": section.get("config") or "{}"}
        have = await self.api.get(CONFIG_MAP, namespace, DEVICE_PLUGIN_CONFIG)
        if have is None:
            meta = {
                "name": DEVICE_PLUGIN_CONFIG,
                "namespace": namespace,
                "ownerReferences": [owner_reference(policy, NIC_CLUSTER_POLICY)],
            }
            await self.api.create(CONFIG_MAP, {"metadata": meta, "data": wanted})
        elif have.get("data") != wanted:
            await self.api.patch(CONFIG_MAP, have, {"data": wanted})

    async def _ipam_kinds(self, policy: dict | None, namespace: str) -> None:
        """nv-ipam's CRDs live and die with spec.nvIpam; deleting them deletes every pool."""
        wanted = bool(policy and policy["spec"].get("nvIpam") is not None)
        labels = {STATE_LABEL: "state-nv-ipam-cni"}
        for kind, singular in ((IP_POOL, "ippool"), (CIDR_POOL, "cidrpool")):
            have = self.cache(CRD).get(f"{kind.plural}.{kind.group}")
            if wanted and have is None:
                await self.api.create(CRD, permissive_crd(kind, singular, labels=labels))
            elif not wanted and have is not None and labels_of(have).get(STATE_LABEL) == labels[STATE_LABEL]:
                await self.api.delete(CRD, have)
        controller = self.cache(DEPLOYMENT).get("nv-ipam-controller", namespace)
        if wanted and controller is None:
            await self.api.create(DEPLOYMENT, ipam_controller(policy, namespace))
        elif not wanted and controller is not None:
            await self.api.delete(DEPLOYMENT, controller)

    async def _report(self, policy: dict, namespace: str) -> None:
        ready = {}
        for path, (_, _, name, _, _) in PARTS.items():
            if part_of(policy["spec"], path) is not None:
                have = self.cache(DAEMON_SET).get(name, namespace)
                current = have is not None and not differs(
                    have["spec"]["template"]["spec"], daemon_set(policy, path, namespace)["spec"]["template"]["spec"]
                )
                ready[path] = current and rolled_out(have)
        if ("nvIpam",) in ready:
            kinds = [self.cache(CRD).get(f"{kind.plural}.{kind.group}") for kind in (IP_POOL, CIDR_POOL)]
            controller = self.cache(DEPLOYMENT).get("nv-ipam-controller", namespace) or {}
            up = bool((controller.get("status") or {}).get("availableReplicas"))
            ready[("nvIpam",)] = ready[("nvIpam",)] and up and all(established(crd) for crd in kinds)
        status = policy_status(policy, ready)
        old = policy.get("status") or {}
        if any(old.get(field) != value for field, value in status.items()):
            await self.api.patch(NIC_CLUSTER_POLICY, policy, {"status": status}, "status")


def differs(have: object, wanted: object) -> bool:
    """Whether ``have`` lacks something of ``wanted``; extra keys (defaults that the API server set) do not count.

    Containers without resources must not keep resources that an earlier policy set.
    """
    if isinstance(wanted, dict):
        if not isinstance(have, dict) or (
            "image" in wanted and bool(have.get("resources")) != bool(wanted.get("resources"))
        ):
            return True
        if "containers" in wanted and any(
            bool(have.get(key)) != bool(wanted.get(key)) for key in ("affinity", "nodeSelector")
        ):
            return True
        return any(differs(have.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return not isinstance(have, list) or len(have) != len(wanted) or any(map(differs, have, wanted))
    return have != wanted
