# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SR-IOV device plugin: offers the VFs (or PFs) that exist on a node as extended resources of its Node object."""

from __future__ import annotations

import json

from rehearsal.operators.inventory import Function
from rehearsal.operators.kinds import CONFIG_MAP, DAEMON_SET, DEPLOYMENT, NODE, Kind, labels_of, name_of, namespace_of
from rehearsal.operators.machines import Fleet, MachineError
from rehearsal.operators.network_operator import DEVICE_PLUGIN_CONFIG
from rehearsal.operators.runtime import Controller, Manager
from rehearsal.operators.selection import daemon_runs_on, is_ready, place_of_daemons
from rehearsal.operators.sriov_operator import PLUGIN, PLUGIN_CONFIG, PLUGIN_LABEL, resource_prefix
from rehearsal.operators.sriov_policy import pool_devices

PLAIN_PLUGIN = "network-operator-sriov-device-plugin"


class Registry:
    """What the device plugins of each node offer to its kubelet: resource name -> PCI addresses."""

    def __init__(self) -> None:
        self.offers: dict[str, dict[str, list[str]]] = {}
        # VFs in pods keep their resource although their RDMA device is not visible on the host.
        self.in_use: dict[str, set[str]] = {}


def selected_functions(selectors: dict | list, functions: dict[str, Function], in_use: set[str]) -> list[str]:
    """Functions that a plain device plugin configuration takes (sriovDevicePlugin.config of a NicClusterPolicy).

    A PF that has VFs is never offered; all given selector fields must match (pkg/netdevice of the device plugin).
    """
    taken: list[str] = []
    for rule in selectors if isinstance(selectors, list) else [selectors]:
        for pci, function in functions.items():
            parent = functions.get(function.physfn or "")
            tests = {
                "vendors": function.vendor,
                "devices": function.device,
                "drivers": function.driver,
                "pciAddresses": pci,
                "rootDevices": function.physfn or pci,
                "pfNames": (parent.netdev if parent else None) if function.physfn else function.netdev,
            }
            fits = all(value in rule[key] for key, value in tests.items() if rule.get(key))
            rdma = not rule.get("isRdma") or function.rdma is not None or pci in in_use
            if fits and rdma and not function.vfs and pci not in taken:
                taken.append(pci)
    return taken


def offers_of_plain_config(text: str, functions: dict[str, Function], in_use: set[str]) -> dict[str, list[str]]:
    """Resources of a plain device plugin configuration (JSON text).

    :raises ValueError: the text is not JSON.
    """
    result = {}
    for item in json.loads(text or "{}").get("resourceList") or []:
        name = f"{item.get('resourcePrefix') or 'nvidia.com'}/{item['resourceName']}"
        result[name] = selected_functions(item.get("selectors") or {}, functions, in_use)
    return result


class DevicePlugins(Controller):
    """Keys are node names. The config daemon asks for a new look by ``enqueue`` after it changed VFs."""

    watches = (NODE, DAEMON_SET, CONFIG_MAP)

    def __init__(self, manager: Manager, fleet: Fleet, registry: Registry):
        super().__init__(manager)
        self.fleet = fleet
        self.registry = registry

    def keys(self, kind: Kind, obj: dict) -> list[str]:
        if kind == NODE:
            return [name_of(obj)]
        looked_at = (PLUGIN_CONFIG, DEVICE_PLUGIN_CONFIG) if kind == CONFIG_MAP else (PLUGIN, PLAIN_PLUGIN)
        return [name_of(node) for node in self.cache(NODE)] if name_of(obj) in looked_at else []

    def read_of(self, kind: Kind, obj: dict, key: str) -> object:
        if kind == NODE:
            return place_of_daemons(obj)
        if kind == DAEMON_SET:
            return obj["metadata"].get("uid"), obj["spec"].get("template")
        data = obj.get("data") or {}
        return obj["metadata"].get("uid"), data.get(key) if name_of(obj) == PLUGIN_CONFIG else data

    async def reconcile(self, key: str) -> float | None:
        node, machine = self.cache(NODE).get(key), self.fleet.get(key)
        if node is None or machine is None or not is_ready(node):
            return None
        configs = {
            name_of(item): item
            for item in self.cache(CONFIG_MAP)
            if name_of(item) in (PLUGIN_CONFIG, DEVICE_PLUGIN_CONFIG)
        }
        await self._label(node, configs.get(PLUGIN_CONFIG))
        wanted: dict[str, list[str]] = {}
        runs = self._runs(PLUGIN, node, configs.get(PLUGIN_CONFIG))
        plain = self._runs(PLAIN_PLUGIN, node, configs.get(DEVICE_PLUGIN_CONFIG))
        try:
            functions = await machine.functions() if runs or plain else {}
        except MachineError as error:
            self.log.info("node %s: %s", key, error)
            return 2.0
        in_use = self.registry.in_use.get(key, set())
        if runs:
            config = json.loads((configs[PLUGIN_CONFIG].get("data") or {}).get(key) or "{}")
            pf_vfs = {pci: function.vfs for pci, function in functions.items() if function.vfs}
            capable = {pci for pci, function in functions.items() if function.rdma} | in_use
            prefix = resource_prefix(self.cache(DEPLOYMENT))
            wanted = {f"{prefix}/{name}": devices for name, devices in pool_devices(config, pf_vfs, capable).items()}
        if plain:
            try:
                wanted.update(
                    offers_of_plain_config(configs[DEVICE_PLUGIN_CONFIG]["data"]["config.json"], functions, in_use)
                )
            except ValueError as error:
                self.log.error("node %s: device plugin configuration: %s", key, error)
        await self._publish(node, wanted)
        return None

    def _runs(self, name: str, node: dict, config: dict | None) -> bool:
        if config is None:
            return False
        daemon = self.cache(DAEMON_SET).get(name, namespace_of(config))
        return daemon is not None and daemon_runs_on(daemon["spec"]["template"]["spec"], node)

    async def _label(self, node: dict, config: dict | None) -> None:
        """The operator's label that lets its device plugin run: Enabled while the node has something to offer."""
        entry = ((config or {}).get("data") or {}).get(name_of(node))
        if entry is None:
            return
        wanted = "Enabled" if json.loads(entry).get("resourceList") else "Disabled"
        if labels_of(node).get(PLUGIN_LABEL) != wanted:
            await self.api.patch(NODE, node, {"metadata": {"labels": {PLUGIN_LABEL: wanted}}})

    async def _publish(self, node: dict, wanted: dict[str, list[str]]) -> None:
        name = name_of(node)
        # A resource that is offered no more stays in the Node with 0, as the kubelet leaves it.
        counts = dict.fromkeys(self.registry.offers.get(name, {}), "0")
        counts.update({resource: str(len(devices)) for resource, devices in wanted.items()})
        self.registry.offers[name] = {**{resource: [] for resource in counts}, **wanted}
        status = node.get("status") or {}
        change = {
            field: {key: value for key, value in counts.items() if (status.get(field) or {}).get(key) != value}
            for field in ("capacity", "allocatable")
        }
        change = {field: values for field, values in change.items() if values}
        if change:
            await self.api.patch(NODE, node, {"status": change}, "status")
