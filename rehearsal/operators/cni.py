# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CNI plugins as small functions that act on a node through commands; a chain runs them in order, DEL in reverse.

Each plugin is ``add(call, conf, prev) -> result`` and ``delete(call, conf)``. What ADD must remember for DEL goes to
``call.notes`` (the plugins' own cache under /var/lib/cni). Error texts are those of the real plugins.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rehearsal.operators.ipam import Ipam, IpamError
from rehearsal.operators.machines import Machine, MachineError


class CniError(Exception):
    """A plugin refused; the message is what it prints as the CNI error."""


@dataclass
class Call:
    """One attachment: where it goes and what the plugins of its chain share."""

    machine: Machine
    netns: str  # name under /run/netns of the node
    ifname: str
    owner: str  # "<pod uid>/<interface>", the key of address reservations
    device: str | None  # PCI address that the device plugin gave out
    ipam: Ipam
    ips: list[str] = field(default_factory=list)  # static addresses of the pod annotation
    mac: str | None = None
    notes: dict = field(default_factory=dict)

    async def host(self, script: str, *words: str) -> str:
        return await self.machine.shell(script, *words)

    async def pod(self, script: str, *words: str) -> str:
        return await self.machine.shell(script, *words, netns=self.netns)


# --- address management ---------------------------------------------------------------------------------------------


def _allocate(call: Call, conf: dict) -> dict:
    ipam = conf.get("ipam") or {}
    if not ipam.get("type"):
        return {"ips": [], "routes": []}
    try:
        return call.ipam.add(ipam, call.owner, call.ips)
    except IpamError as error:
        raise CniError(str(error)) from error


async def _configure(call: Call, result: dict) -> None:
    """Link up, then addresses, then routes, as the ipam helper of the plugins does."""
    script = 'dev=$1; shift; ip link set dev "$dev" up; for a in "$@"; do case $a in *:*) ip addr add "$a" dev "$dev" nodad;; *) ip addr add "$a" dev "$dev";; esac; done'
    await call.pod(script, call.ifname, *[item["address"] for item in result["ips"]])
    for route in result["routes"]:
        via = route.get("gw")
        await call.pod('ip route add "$1" ${2:+via "$2"} dev "$3"', route["dst"], via or "", call.ifname)


async def _mac(call: Call) -> str:
    return (await call.pod('cat "/sys/class/net/$1/address"', call.ifname)).strip()


# --- main plugins ---------------------------------------------------------------------------------------------------

MOVE_IN = 'ip link set dev "$1" down; ip link set dev "$1" netns "$2"'
# In the pod: rename, set MAC when asked, up. The old name was free in the host, so a clash can only be with a pod interface.
RENAME = 'ip link set dev "$1" name "$2"; if [ -n "$3" ]; then ip link set dev "$2" address "$3"; fi; ip link set dev "$2" up'
MOVE_OUT = 'ip link set dev "$1" down; ip link set dev "$1" name "$2"; ip link set dev "$2" netns 1'


async def _netdev_of(call: Call, pci: str) -> str:
    names = (await call.host('ls "/sys/bus/pci/devices/$1/net" 2>/dev/null || true', pci)).split()
    return names[0] if names else ""


async def _move_in(call: Call, name: str) -> None:
    call.notes["name"] = name
    await call.host(MOVE_IN, name, call.netns)
    call.notes["moved"] = True
    await call.pod(RENAME, name, call.ifname, call.mac or "")


async def _move_out(call: Call) -> None:
    if not call.notes.get("moved"):
        return
    # A failure between move and rename leaves the old name in the pod.
    present = (await call.pod("ls /sys/class/net")).split()
    name = call.ifname if call.ifname in present else call.notes["name"]
    if name == call.notes["name"]:
        await call.pod('ip link set dev "$1" netns 1', name)
    else:
        await call.pod(MOVE_OUT, name, call.notes["name"])
    await call.host('ip link set dev "$1" up', call.notes["name"])
    call.notes.clear()


async def sriov_add(call: Call, conf: dict, prev: dict | None) -> dict:
    pci = conf.get("deviceID") or call.device
    if not pci:
        raise CniError("SRIOV-CNI failed to load netconf: LoadConf(): VF pci addr is required")
    physfn = (await call.host('readlink "/sys/bus/pci/devices/$1/physfn" || true', pci)).strip()
    if not physfn:
        raise CniError(
            f'SRIOV-CNI failed to load netconf: LoadConf(): failed to get VF information: "lstat /sys/bus/pci/devices/{pci}/physfn: no such file or directory"'
        )
    name = await _netdev_of(call, pci)
    if not name:
        raise CniError(f"SRIOV-CNI failed to load netconf: LoadConf(): failed to detect if VF {pci} has dpdk driver")
    await _move_in(call, name)
    result = _allocate(call, conf)
    await _configure(call, result)
    return {**result, "mac": await _mac(call), "interface": call.ifname}


async def sriov_delete(call: Call, conf: dict) -> None:
    await _move_out(call)


async def host_device_add(call: Call, conf: dict, prev: dict | None) -> dict:
    pci = conf.get("pciBusID") or conf.get("deviceID") or call.device
    name = conf.get("device") or (await _netdev_of(call, pci) if pci else "")
    if not name:
        raise CniError(
            f"failed to find host device: no net directory under pci device {pci}"
            if pci
            else 'specify either "device", "hwaddr", "kernelpath" or "pciBusID"'
        )
    await _move_in(call, name)
    result = _allocate(call, conf)
    await _configure(call, result)
    return {**result, "mac": await _mac(call), "interface": call.ifname}


CHILD = 'ip link add link "$1" name "$2" type ipvlan mode "$3" 2>/dev/null || ip link add name "$2" type veth peer name "$4"'


async def ipvlan_add(call: Call, conf: dict, prev: dict | None) -> dict:
    """A child of the master. Without the ipvlan driver a veth stands in: it carries the master's MAC and names it as alias.

    :raises CniError: the master does not exist, or there is no ipam.
    """
    if not (conf.get("ipam") or {}).get("type"):
        raise CniError('"ipam" type is required')
    master = (
        conf.get("master")
        or (await call.host("ip route show default | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p' | head -n1")).strip()
    )
    mac = (await call.host('cat "/sys/class/net/$1/address" 2>/dev/null || true', master)).strip()
    if not mac:
        raise CniError(f"failed to lookup master {json.dumps(master)}: Link not found")
    mtu = int(conf.get("mtu") or (await call.host('cat "/sys/class/net/$1/mtu"', master)).strip())
    temporary, peer = f"c{call.owner[:6]}{call.ifname[3:]}", f"p{call.owner[:6]}{call.ifname[3:]}"
    await call.host(CHILD, master, temporary, conf.get("mode") or "l2", peer)
    call.notes["child"] = temporary
    await call.host(
        'ip link set dev "$1" mtu "$4"; ip link set dev "$1" address "$5" 2>/dev/null || true; ip link set dev "$1" alias "ipvlan:$6"; '
        'if [ -e "/sys/class/net/$3" ] || ip link show dev "$3" >/dev/null 2>&1; then ip link set dev "$3" mtu "$4" up; fi; ip link set dev "$1" netns "$2"',
        temporary, call.netns, peer, str(mtu), mac, master,
    )  # fmt: skip
    await call.pod(RENAME, temporary, call.ifname, "")
    result = _allocate(call, conf)
    await _configure(call, result)
    return {**result, "mac": await _mac(call), "interface": call.ifname}


async def ipvlan_delete(call: Call, conf: dict) -> None:
    if call.notes.pop("child", None):
        await call.pod('ip link del dev "$1" 2>/dev/null || true', call.ifname)


# --- meta plugins ---------------------------------------------------------------------------------------------------


async def tuning_add(call: Call, conf: dict, prev: dict | None) -> dict:
    """Sysctls of the pod's namespace (IFNAME in a key is replaced once), then mac, mtu and flags of the interface."""
    if prev is None:
        raise CniError("Required prevResult missing")
    words: list[str] = []
    for key, value in (conf.get("sysctl") or {}).items():
        key = key.replace("IFNAME", call.ifname, 1)
        # Dots and slashes change places when a key is given with slashes; keys with dots are the common form.
        path = key if "/" in key else key.replace(".", "/")
        if not path.startswith("net/"):
            raise CniError(f"invalid net sysctl key: {json.dumps(key)}")
        if not isinstance(value, str):
            raise CniError(
                "failed to parse config: json: cannot unmarshal into Go struct field TuningConf.sysctl of type string"
            )
        words += [f"/proc/sys/{path}", value]
    if words:
        await call.pod('while [ $# -gt 0 ]; do printf %s "$2" > "$1"; shift 2; done', *words)
    result = dict(prev)
    mac = call.mac or conf.get("mac")
    if mac:
        await call.pod(
            'ip link set dev "$1" down; ip link set dev "$1" address "$2"; ip link set dev "$1" up', call.ifname, mac
        )
        result["mac"] = mac
    if conf.get("mtu"):
        await call.pod('ip link set dev "$1" mtu "$2"', call.ifname, str(conf["mtu"]))
    for key, flag in (("promisc", "promisc"), ("allmulti", "allmulticast")):
        if conf.get(key):
            await call.pod(f'ip link set dev "$1" {flag} on', call.ifname)
    if conf.get("txQLen"):
        await call.pod('ip link set dev "$1" txqueuelen "$2"', call.ifname, str(conf["txQLen"]))
    return result


TC_FILE = "/sys/class/infiniband/$1/tc/1/traffic_class"
TOS_FILE = "/sys/kernel/config/rdma_cm/$1/ports/1/default_roce_tos"


async def rdma_add(call: Call, conf: dict, prev: dict | None) -> dict:
    """Move the RDMA device of the VF into the pod, after its traffic class was written (Mellanox/rdma-cni from 26.4).

    rdmaQoS counts at the top level only; without it class 0 is written all the same.
    """
    from rehearsal.operators.sriov_daemon import rdma_system_mode

    if prev is None:
        raise CniError("RDMA-CNI: required prevResult missing")
    mode = rdma_system_mode(await call.host("rdma system show"))
    if mode != "exclusive":
        raise CniError(f"RDMA subsystem namespace awareness mode is set to {mode}")
    if not call.device:
        raise CniError("deviceID and resourceName are required: no device id was passed")
    names = (await call.host('ls "/sys/bus/pci/devices/$1/infiniband" 2>/dev/null || true', call.device)).split()
    if len(names) != 1:
        raise CniError(
            f"failed to get RDMA devices for PCI device: {call.device}. Expected exactly one RDMA device, got {len(names)}"
        )
    name, qos = names[0], conf.get("rdmaQoS") or {}
    tos = await call.host(f'mkdir -p "/sys/kernel/config/rdma_cm/$1"; cat "{TOS_FILE}"', name)
    has_class = (await call.host(f'if [ -e "{TC_FILE}" ]; then echo yes; fi', name)).strip() == "yes"
    call.notes.update(device=name, tos=tos.strip() or "0")
    if has_class:
        old = await call.host(f'cat "{TC_FILE}"', name)
        call.notes["tc"] = host_class(old)
        await call.host(f'echo "$2" > "{TC_FILE}"', name, str(int(qos.get("tc") or 0)))
    await call.host(f'echo 0 > "{TOS_FILE}"', name)
    await call.host('rdma dev set "$1" netns "$2"', name, call.netns)
    call.notes["moved"] = True
    await call.pod(
        f'mkdir -p "/sys/kernel/config/rdma_cm/$1"; echo "$2" > "{TOS_FILE}"', name, str(int(qos.get("tos") or 0))
    )
    return prev


def host_class(text: str) -> str:
    """The traffic class that the plugin keeps as the host's value: an empty file counts as 0, so 0 is written back later."""
    first = text.strip().splitlines()[0] if text.strip() else ""
    number = first.removeprefix("Global tclass=")
    return number if number.isdigit() else "0"


async def rdma_delete(call: Call, conf: dict) -> None:
    name = call.notes.get("device")
    if not name:
        return
    if call.notes.get("moved"):
        # The tool takes a name under /run/netns; the way up and down reaches the node's own namespace, which has none.
        await call.pod('rdma dev set "$1" netns ../../../proc/1/ns/net', name)
    if "tc" in call.notes:
        await call.host(f'echo "$2" > "{TC_FILE}"', name, call.notes["tc"])
    await call.host(f'mkdir -p "/sys/kernel/config/rdma_cm/$1"; echo "$2" > "{TOS_FILE}"', name, call.notes["tos"])
    call.notes.clear()


async def sbr_add(call: Call, conf: dict, prev: dict | None) -> dict:
    """Source routing: a rule and a table per address, from table 100 up; routes of the interface leave the main table.

    With addSourceHints the subnet route stays in the main table, with the address as source; in one flat subnet the last
    interface attached then owns it.
    """
    if prev is None:
        raise CniError("This plugin must be called as chained plugin")
    rules = await call.pod("ip -4 rule show; ip -6 rule show")
    taken = {
        int(word) for line in rules.splitlines() for word in line.split("lookup")[-1].split()[:1] if word.isdigit()
    }
    table = int(conf.get("table") or 100)
    tables: list[str] = []
    for item in prev.get("ips") or []:
        while table in taken:
            table += 1
        taken.add(table)
        address, _, length = item["address"].partition("/")
        family, host_length = ("-6", "128") if ":" in address else ("-4", "32")
        subnet = _subnet(item["address"])
        script = 'ip $1 rule add from "$2/$3" table "$4"; ip $1 route add "$5" dev "$6" src "$2" table "$4"'
        await call.pod(script, family, address, host_length, str(table), subnet, call.ifname)
        if item.get("gateway"):
            await call.pod(
                'ip $1 route add default via "$2" dev "$3" table "$4"', family, item["gateway"], call.ifname, str(table)
            )
        if conf.get("addSourceHints"):
            await call.pod(
                'ip $1 route replace "$2" dev "$3" src "$4" scope link', family, subnet, call.ifname, address
            )
        else:
            await call.pod('ip $1 route del "$2" dev "$3" 2>/dev/null || true', family, subnet, call.ifname)
        tables.append(f"{family} {address}/{host_length} {table}")
    call.notes["rules"] = tables
    return prev


async def sbr_delete(call: Call, conf: dict) -> None:
    for rule in call.notes.pop("rules", []):
        family, source, table = rule.split()
        await call.pod('ip $1 rule del from "$2" table "$3" 2>/dev/null || true', family, source, table)


def _subnet(address: str) -> str:
    import ipaddress

    return str(ipaddress.ip_interface(address).network)


async def _nothing(call: Call, conf: dict) -> None:
    """tuning has nothing to undo that outlives the namespace."""


Add = Callable[[Call, dict, "dict | None"], Awaitable[dict]]
Delete = Callable[[Call, dict], Awaitable[None]]
PLUGINS: dict[str, tuple[Add, Delete]] = {
    "sriov": (sriov_add, sriov_delete),
    "host-device": (host_device_add, sriov_delete),
    "ipvlan": (ipvlan_add, ipvlan_delete),
    "macvlan": (ipvlan_add, ipvlan_delete),
    "tuning": (tuning_add, _nothing),
    "rdma": (rdma_add, rdma_delete),
    "sbr": (sbr_add, sbr_delete),
}


async def add_chain(call: Call, chain: list[dict], installed: set[str], notes: list[dict]) -> dict:
    """Run a chain of plugins; ``notes`` (one dict a plugin) is filled so that ``delete_chain`` can undo a half-done one.

    :raises CniError: a plugin is missing on the node or failed.
    """
    result: dict | None = None
    for conf in chain:
        kind = conf["type"]
        for needed in (kind, (conf.get("ipam") or {}).get("type")):
            if needed and (needed not in installed or (needed == kind and kind not in PLUGINS)):
                raise CniError(f'failed to find plugin "{needed}" in path [/opt/cni/bin]')
        call.notes = {}
        notes.append(call.notes)
        try:
            result = await PLUGINS[kind][0](call, conf, result)
        except CniError as error:
            raise CniError(f'plugin type="{kind}" failed (add): {error}') from error
        except MachineError as error:
            raise CniError(f'plugin type="{kind}" failed (add): {error}') from error
    return result or {}


async def delete_chain(call: Call, chain: list[dict], notes: list[dict]) -> list[str]:
    """DEL in reverse order; errors are collected, since the rest must still be undone."""
    errors = []
    for conf, kept in reversed(list(zip(chain, notes))):
        call.notes = kept
        try:
            await PLUGINS[conf["type"]][1](call, conf)
        except MachineError as error:
            errors.append(f'plugin type="{conf["type"]}" failed (delete): {error}')
    call.ipam.release(call.owner)
    return errors
