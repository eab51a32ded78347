# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SR-IOV config daemon of each node: reports the NICs, and makes VFs and MTU what the node state asks for."""

from __future__ import annotations

from rehearsal.operators.device_plugin import DevicePlugins
from rehearsal.operators.install import running_in
from rehearsal.operators.inventory import Function, interface_status, nic_ids, supported
from rehearsal.operators.kinds import (
    CONFIG_MAP,
    DAEMON_SET,
    DEPLOYMENT,
    NODE,
    SRIOV_CONFIG,
    SRIOV_STATE,
    Kind,
    annotations_of,
    name_of,
    namespace_of,
)
from rehearsal.operators.machines import Fleet, Machine, MachineError
from rehearsal.operators.runtime import Controller, Manager
from rehearsal.operators.selection import daemon_runs_on, is_ready, place_of_daemons
from rehearsal.operators.sriov_drain import DRAIN, DRAINED, IDLE, REBOOT, reached
from rehearsal.operators.sriov_operator import DAEMON, DESIRED, SRIOV
from rehearsal.operators.sriov_policy import Change, plan

OWN_MODPROBE_FILE = "/etc/modprobe.d/sriov_network_operator_modules_config.conf"
# The daemon asks over netlink. The stand-in for rdma(8) starts an interpreter, and each look at a node would do so.
READ_MODE = "cat /sys/module/ib_core/parameters/netns_mode 2>/dev/null || true"
RESYNC = 30.0  # seconds; the daemon looks for drift that often

# $1 PF, $2 number. The kernel refuses to go from one non-zero count to another (EBUSY), so VFs are removed first.
SET_VFS = """
file=/sys/bus/pci/devices/$1/sriov_numvfs
read -r have < "$file"
if [ "$have" != 0 ]; then echo 0 > "$file"; fi
if [ "$2" != 0 ]; then echo "$2" > "$file"; fi
"""
SET_LINK = 'ip link set dev "$1" mtu "$2"; ip link set dev "$1" up'


def card_of(pci: str) -> str:
    """The card that a function belongs to: ports of one card share its firmware settings."""
    return pci.rsplit(".", 1)[0]


def firmware_differs(spec_interfaces: list[dict], status_interfaces: list[dict]) -> list[str]:
    """PFs whose firmware VF count the mellanox plugin would change: the largest numVfs of the card, also downwards."""
    wanted: dict[str, int] = {}
    for interface in spec_interfaces:
        if not interface.get("externallyManaged"):
            card = card_of(interface["pciAddress"])
            wanted[card] = max(wanted.get(card, 0), int(interface["numVfs"]))
    return [
        item["pciAddress"]
        for item in status_interfaces
        if card_of(item["pciAddress"]) in wanted
        and int(item.get("totalvfs") or 0) != wanted[card_of(item["pciAddress"])]
    ]


def netns_mode(text: str) -> str | None:
    """The mode that the parameter of ib_core shows, a bool of the kernel: it is the variable that ``rdma system set`` changes."""
    return {"Y": "shared", "N": "exclusive"}.get(text.strip())


class ConfigDaemons(Controller):
    """Keys are node names: one daemon a node, and nodes are worked on side by side."""

    watches = (SRIOV_STATE, SRIOV_CONFIG, NODE, DAEMON_SET, DEPLOYMENT, CONFIG_MAP)
    resync = RESYNC

    def __init__(self, manager: Manager, fleet: Fleet, plugins: DevicePlugins):
        super().__init__(manager)
        self.fleet = fleet
        self.plugins = plugins

    def keys(self, kind: Kind, obj: dict) -> list[str]:
        if kind in (SRIOV_STATE, NODE):
            return [name_of(obj)]
        if kind == DAEMON_SET and name_of(obj) != DAEMON or kind == CONFIG_MAP and name_of(obj) != "supported-nic-ids":
            return []
        return [name_of(node) for node in self.cache(NODE)]

    def read_of(self, kind: Kind, obj: dict, key: str) -> object:
        if kind == SRIOV_STATE:
            return super().read_of(kind, obj, key)
        if kind == NODE:
            return place_of_daemons(obj)
        if kind == DEPLOYMENT:
            return running_in(self.cache(DEPLOYMENT), SRIOV)
        spec = obj.get("spec") or {}
        return obj["metadata"].get("uid"), spec.get("template", spec), obj.get("data")

    async def reconcile(self, key: str) -> float | None:
        namespace = running_in(self.cache(DEPLOYMENT), SRIOV)
        node, machine = self.cache(NODE).get(key), self.fleet.get(key)
        daemon = self.cache(DAEMON_SET).get(DAEMON, namespace) if namespace else None
        state = self.cache(SRIOV_STATE).get(key, namespace) if namespace else None
        config = self.cache(SRIOV_CONFIG).get("default", namespace) if namespace else None
        if not (node and machine and daemon and state and config) or not is_ready(node):
            return None
        if not daemon_runs_on(daemon["spec"]["template"]["spec"], node):
            return None
        try:
            return await self._sync(state, machine, config["spec"])
        except MachineError as error:
            # An apply error is retried and shows only in the log: syncStatus stays InProgress, lastSyncError empty.
            self.log.error("node %s: %s", key, error)
            return 3.0

    async def _sync(self, state: dict, machine: Machine, config: dict) -> float | None:
        functions = await machine.functions()
        interfaces = self._observe(state, functions)
        mode = netns_mode(await machine.shell(READ_MODE))
        status = state.get("status") or {}
        if (status.get("interfaces") or []) != interfaces or (status.get("system") or {}).get("rdmaMode") != mode:
            await self._report(state, {"interfaces": interfaces, "system": {"rdmaMode": mode}})
        if not status.get("interfaces"):
            return None  # the operator fills the spec once it sees the interfaces
        spec = (state.get("spec") or {}).get("interfaces") or []
        notes = machine.load("sriov-daemon")
        changes = plan(spec, interfaces, set(notes.get("created") or {}))
        reboot = await self._reboot_reasons(state, machine, config, interfaces)
        generation = state["metadata"].get("generation", 1)
        if notes.get("generation") not in (None, generation):
            self._renewed_external(changes, spec, interfaces)
        for change in changes.values():
            if change.error:
                self.log.error("node %s: %s", machine.name, change.error)
        errors = [change for change in changes.values() if change.error]
        todo = {pci: change for pci, change in changes.items() if not change.error}
        if not changes and not reboot:
            machine.save("sriov-daemon", {**notes, "generation": generation})
            await self._settle(state)
            self.plugins.enqueue(machine.name)
            return None
        if status.get("syncStatus") != "InProgress":
            await self._report(state, {"syncStatus": "InProgress", "lastSyncError": ""})
        if not await self._free_to_act(state, config, todo, reboot):
            return 5.0
        if errors or reboot:
            # Errors stop the whole node, as the daemon's apply does; a reboot that cures nothing leaves it waiting.
            for reason in reboot:
                self.log.error("node %s: reboot required: %s", machine.name, reason)
            return 5.0
        await self._apply(machine, todo, spec, functions, notes)
        machine.save("sriov-daemon", {**notes, "generation": generation})
        self.plugins.enqueue(machine.name)
        return 0.05  # look again: what was written must now be seen

    def _observe(self, state: dict, functions: dict[str, Function]) -> list[dict]:
        ids = nic_ids(self.cache(CONFIG_MAP).get("supported-nic-ids", namespace_of(state)))
        return [interface_status(pf, functions) for pf in supported(functions, ids)]

    async def _report(self, state: dict, change: dict) -> None:
        await self.api.patch(SRIOV_STATE, state, {"status": change}, "status")

    async def _settle(self, state: dict) -> None:
        if (state.get("status") or {}).get("syncStatus") != "Succeeded":
            await self._report(state, {"syncStatus": "Succeeded", "lastSyncError": ""})
        if annotations_of(state).get(DESIRED) != IDLE:
            await self.api.patch(SRIOV_STATE, state, {"metadata": {"annotations": {DESIRED: IDLE}}})

    async def _free_to_act(self, state: dict, config: dict, todo: dict[str, Change], reboot: list[str]) -> bool:
        """Whether the node may be changed now; asks for a drain or a reboot when it must be emptied first."""
        need = REBOOT if reboot else DRAIN if any(change.drain for change in todo.values()) else None
        if need is None or (config.get("disableDrain") and need == DRAIN):
            return True
        if annotations_of(state).get(DESIRED) != need:
            await self.api.patch(SRIOV_STATE, state, {"metadata": {"annotations": {DESIRED: need}}})
            return False
        return reached(state) == DRAINED

    def _renewed_external(self, changes: dict[str, Change], spec: list[dict], interfaces: list[dict]) -> None:
        """A new generation counts as an update of externally managed PFs that have VFs, so it asks for a drain."""
        have = {item["pciAddress"]: int(item.get("numVfs") or 0) for item in interfaces}
        for wanted in spec:
            pci = wanted["pciAddress"]
            if wanted.get("externallyManaged") and have.get(pci) and pci not in changes:
                changes[pci] = Change(reason="new generation of an externally managed PF", drain=True)

    async def _reboot_reasons(self, state: dict, machine: Machine, config: dict, interfaces: list[dict]) -> list[str]:
        reasons = []
        spec = (state.get("spec") or {}).get("interfaces") or []
        if "mellanox" not in (config.get("disablePlugins") or []) and spec:
            lockdown = await machine.shell("cat /sys/kernel/security/lockdown 2>/dev/null || true")
            if "[integrity]" in lockdown or "[confidentiality]" in lockdown:
                raise MachineError("mellanox plugin: mstconfig cannot read the firmware: the kernel is locked down")
            reasons += [
                f"firmware VF count of {pci} is to be changed by the mellanox plugin"
                for pci in firmware_differs(spec, interfaces)
            ]
        mode = ((state.get("spec") or {}).get("system") or {}).get("rdmaMode")
        if mode:
            # The daemon looks at the kernel command line only, never at the live mode
            # (k8snetworkplumbingwg/sriov-network-operator#959).
            value = {"shared": "1", "exclusive": "0"}[mode]
            await machine.shell('echo "options ib_core netns_mode=$1" > "$2"', value, OWN_MODPROBE_FILE)
            line = await machine.shell("cat /proc/cmdline")
            if f"ib_core.netns_mode={value}" not in line.split():
                reasons.append(f"kernel argument ib_core.netns_mode={value} is not on the running command line")
        else:
            await machine.shell('rm -f "$1"', OWN_MODPROBE_FILE)
        return reasons

    async def _apply(
        self, machine: Machine, todo: dict[str, Change], spec: list[dict], functions: dict[str, Function], notes: dict
    ) -> None:
        wanted = {item["pciAddress"]: item for item in spec}
        created: dict[str, int] = notes.setdefault("created", {})
        for pci, change in sorted(todo.items()):
            self.log.info("node %s: %s: %s%s", machine.name, pci, change.reason, " (drained)" if change.drain else "")
            pf = functions[pci]
            if pci not in wanted:
                await machine.shell(SET_VFS, pci, "0")
                if pf.netdev:
                    await machine.shell(SET_LINK, pf.netdev, str(created.get(pci) or 1500))
                created.pop(pci, None)
                continue
            item = wanted[pci]
            if item.get("externallyManaged"):
                continue
            if pci not in created:
                # Noted before the change, so that a daemon that dies in between still knows the VFs as its own.
                created[pci] = pf.mtu or 1500
                machine.save("sriov-daemon", notes)
            if pf.netdev:
                await machine.shell(SET_LINK, pf.netdev, str(max(int(item.get("mtu") or 0), pf.mtu or 1500)))
            if int(item["numVfs"]) != int(pf.num_vfs or 0):
                await machine.shell(SET_VFS, pci, str(item["numVfs"]))
        await self._set_vf_links(machine, [wanted[pci] for pci in sorted(todo) if pci in wanted])

    async def _set_vf_links(self, machine: Machine, wanted: list[dict]) -> None:
        """MTU of the new VFs, in one command for the whole node: 16 rails would else be 16 and more."""
        functions = await machine.functions()
        words: list[str] = []
        for item in wanted:
            for index, pci in functions[item["pciAddress"]].vfs.items():
                group = next((g for g in item.get("vfGroups") or [] if _within(index, g["vfRange"])), None)
                vf = functions.get(pci)
                if group and group.get("mtu") and vf and vf.netdev and vf.mtu != group["mtu"]:
                    words += [vf.netdev, str(group["mtu"])]
        if words:
            await machine.shell('while [ $# -gt 0 ]; do ip link set dev "$1" mtu "$2"; shift 2; done', *words)


def _within(index: int, span: str) -> bool:
    first, _, last = span.partition("-")
    return int(first) <= index <= int(last or first)
