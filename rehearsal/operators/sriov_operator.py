# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SR-IOV network operator: policies to node states, DaemonSets, and the device plugin's configuration."""

from __future__ import annotations

import json

from rehearsal.operators.install import COMPONENT, running_in
from rehearsal.operators.kinds import (
    CONFIG_MAP,
    DAEMON_SET,
    DEPLOYMENT,
    NODE,
    SRIOV_CONFIG,
    SRIOV_POLICY,
    SRIOV_POOL_CONFIG,
    SRIOV_STATE,
    Kind,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
)
from rehearsal.operators.runtime import Cache, Controller
from rehearsal.operators.selection import label_selector_matches, labels_match
from rehearsal.operators.sriov_policy import device_plugin_config, node_interfaces

SRIOV = "sriov-network-operator"
DESIRED = "sriovnetwork.openshift.io/desired-state"
CURRENT = "sriovnetwork.openshift.io/current-state"
PLUGIN_LABEL = "sriovnetwork.openshift.io/device-plugin"
DAEMON, PLUGIN = "sriov-network-config-daemon", "sriov-device-plugin"
PLUGIN_CONFIG = "device-plugin-config"
TOLERATE_ALL = [{"operator": "Exists"}]


def resource_prefix(deployments: Cache) -> str:
    """RESOURCE_PREFIX of the operator's Deployment; the operator's own default is openshift.io."""
    for deployment in deployments:
        if labels_of(deployment).get(COMPONENT) == SRIOV:
            for container in deployment["spec"]["template"]["spec"].get("containers") or []:
                for variable in container.get("env") or []:
                    if variable["name"] == "RESOURCE_PREFIX":
                        return variable.get("value") or "openshift.io"
    return "openshift.io"


def pools_of(node: dict, pools: list[dict]) -> list[dict]:
    """The pool configs that select the node; an absent or empty nodeSelector (a LabelSelector) selects every node.

    Pools for OVS hardware offload are another thing and are skipped.
    """
    return [
        pool
        for pool in pools
        if not (pool["spec"].get("ovsHardwareOffloadConfig") or {}).get("name")
        and label_selector_matches(pool["spec"].get("nodeSelector") or {}, labels_of(node))
    ]


def rdma_mode(node: dict, pools: list[dict]) -> str | None:
    """The rdmaMode that the node's only pool asks for; a node in two pools counts as unset."""
    mine = pools_of(node, pools)
    return mine[0]["spec"].get("rdmaMode") if len(mine) == 1 else None


def daemon_object(name: str, namespace: str, selector: dict[str, str], config: dict) -> dict:
    """One of the operator's DaemonSets; both tolerate every taint."""
    labels = {COMPONENT: name}
    pod = {
        "containers": [{"name": name, "image": f"nvcr.io/nvidia/mellanox/{name}"}],
        "tolerations": TOLERATE_ALL,
        "nodeSelector": selector,
    }
    meta = {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(config, SRIOV_CONFIG)],
    }
    return {
        "metadata": meta,
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


class SriovOperator(Controller):
    """One key: policies, pools and nodes together decide the node states."""

    watches = (SRIOV_CONFIG, SRIOV_POLICY, SRIOV_POOL_CONFIG, SRIOV_STATE, NODE, DEPLOYMENT, DAEMON_SET)

    def keys(self, kind: Kind, obj: dict) -> tuple[str, ...]:
        return ("cluster",)

    async def reconcile(self, key: str) -> float | None:
        namespace = running_in(self.cache(DEPLOYMENT), SRIOV)
        config = self.cache(SRIOV_CONFIG).get("default", namespace) if namespace else None
        if config is None:
            return None
        selector = config["spec"].get("configDaemonNodeSelector") or {}
        await self._daemon(DAEMON, namespace, selector, config)
        await self._daemon(PLUGIN, namespace, {**selector, PLUGIN_LABEL: "Enabled"}, config)
        policies = [item for item in self.cache(SRIOV_POLICY) if namespace_of(item) == namespace]
        pools = [item for item in self.cache(SRIOV_POOL_CONFIG) if namespace_of(item) == namespace]
        plugin_configs: dict[str, str] = {}
        for node in self.cache(NODE):
            if labels_match(selector, labels_of(node)):
                spec = await self._state(node, namespace, config, policies, pools)
                plugin_configs[name_of(node)] = json.dumps(
                    device_plugin_config(spec.get("interfaces") or []), sort_keys=True
                )
        await self._plugin_config(namespace, config, plugin_configs)
        return None

    async def _daemon(self, name: str, namespace: str, selector: dict[str, str], config: dict) -> None:
        have = self.cache(DAEMON_SET).get(name, namespace)
        wanted = daemon_object(name, namespace, selector, config)
        if have is None:
            await self.api.create(DAEMON_SET, wanted)
        elif have["spec"]["template"]["spec"].get("nodeSelector", {}) != selector:
            fresh = {**have, "spec": {**have["spec"], "template": wanted["spec"]["template"]}}
            await self.api.call("PUT", DAEMON_SET.path(namespace, name), fresh)

    async def _state(self, node: dict, namespace: str, config: dict, policies: list[dict], pools: list[dict]) -> dict:
        name = name_of(node)
        state = self.cache(SRIOV_STATE).get(name, namespace)
        seen = ((state or {}).get("status") or {}).get("interfaces") or []
        spec: dict = {"interfaces": node_interfaces(policies, node, seen)}
        mode = rdma_mode(node, pools)
        if mode:
            spec["system"] = {"rdmaMode": mode}
        if state is None:
            meta = {"name": name, "namespace": namespace, "ownerReferences": [owner_reference(config, SRIOV_CONFIG)]}
            await self.api.create(SRIOV_STATE, {"metadata": meta, "spec": spec})
        elif not seen:
            # Before the daemon has reported, nothing can be selected; a spec that is there stays.
            return state.get("spec") or {}
        else:
            have = state.get("spec") or {}
            if (have.get("interfaces") or []) != spec["interfaces"] or (have.get("system") or {}).get(
                "rdmaMode"
            ) != mode:
                await self.api.patch(
                    SRIOV_STATE,
                    state,
                    {"spec": {"interfaces": spec["interfaces"], "system": {"rdmaMode": mode} if mode else None}},
                )
        return spec

    async def _plugin_config(self, namespace: str, config: dict, wanted: dict[str, str]) -> None:
        have = await self.api.get(CONFIG_MAP, namespace, PLUGIN_CONFIG)
        if have is None:
            meta = {
                "name": PLUGIN_CONFIG,
                "namespace": namespace,
                "ownerReferences": [owner_reference(config, SRIOV_CONFIG)],
            }
            await self.api.create(CONFIG_MAP, {"metadata": meta, "data": wanted})
        elif (have.get("data") or {}) != wanted:
            gone = {name: None for name in have.get("data") or {} if name not in wanted}
            await self.api.patch(CONFIG_MAP, have, {"data": {**gone, **wanted}})
