# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CNI plugins as small functions that act on a node through commands; a chain runs them in order, DEL in reverse.

Each plugin is ``add(call, conf, prev) -> result`` and ``delete(call, conf)``. What ADD must remember for DEL goes to
``call.notes`` (the plugins' own cache under /var/lib/cni). Error texts are those of the real plugins.
"""

from __future__ import annotations

import ipaddress
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


# A pod has many attachments, so each step is one shell with as few programs as can be: builtins read files, and one
# "ip -batch" does what belongs together.
#
# $1 name in the pod, $2 wanted name, $3 MAC or empty; then addresses, "--", then pairs of route and gateway.
# Rename, link up, addresses, routes: as the plugins and their ipam helper do.
CONFIGURE = """
name=$1; dev=$2; mac=$3; shift 3
{
  if [ "$name" != "$dev" ]; then echo "link set dev $name name $dev"; fi
  if [ -n "$mac" ]; then echo "link set dev $dev address $mac"; fi
  echo "link set dev $dev up"
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in *:*) echo "addr add $1 dev $dev nodad";; *) echo "addr add $1 dev $dev";; esac
    shift
  done
  shift
  while [ $# -gt 0 ]; do echo "route add $1 ${2:+via $2} dev $dev"; shift 2; done
} | ip -batch -
read -r address < "/sys/class/net/$dev/address"
echo "$address"
"""


async def _configure(call: Call, name: str, result: dict, mac: str | None) -> dict:
    """Configure interface ``name`` of the pod as ``call.ifname``; the CNI result with its MAC."""
    words = [name, call.ifname, mac or "", *[item["address"] for item in result["ips"]], "--"]
    for route in result["routes"]:
        words += [route["dst"], route.get("gw") or ""]
    address = await call.pod(CONFIGURE, *words)
    return {**result, "mac": address.strip(), "interface": call.ifname}


# --- main plugins ---------------------------------------------------------------------------------------------------

# $1 PCI address. Prints what there is: "physfn" for a VF, "net NAME" for its interface.
LOOK_AT_DEVICE = """
cd "/sys/bus/pci/devices/$1" 2>/dev/null || exit 0
if [ -L physfn ]; then echo physfn; fi
for n in net/*; do if [ -d "$n" ]; then echo "net ${n#net/}"; fi; done
"""
# $1 interface, $2 pod namespace
MOVE_IN = 'printf "link set dev %s down\\nlink set dev %s netns %s\\n" "$1" "$1" "$2" | ip -batch -'
# Run in the pod: $1 interface, $2 the name it had; 1 is the node's init, so its network namespace is the node's.
MOVE_OUT = """
name=$2; if [ -e "/sys/class/net/$1" ]; then name=$1; fi
{
  echo "link set dev $name down"
  if [ "$name" != "$2" ]; then echo "link set dev $name name $2"; fi
  echo "link set dev $2 netns 1"
} | ip -batch -
"""


async def _move_in(call: Call, conf: dict, name: str) -> dict:
    call.notes["name"] = name
    await call.host(MOVE_IN, name, call.netns)
    call.notes["moved"] = True
    return await _configure(call, name, _allocate(call, conf), call.mac or conf.get("mac"))


async def sriov_add(call: Call, conf: dict, prev: dict | None) -> dict:
    pci = conf.get("deviceID") or call.device
    if not pci:
        raise CniError("SRIOV-CNI failed to load netconf: LoadConf(): VF pci addr is required")
    seen = {line.split()[0]: line.split()[-1] for line in (await call.host(LOOK_AT_DEVICE, pci)).splitlines()}
    if "physfn" not in seen:
        text = f"lstat /sys/bus/pci/devices/{pci}/physfn: no such file or directory"
        raise CniError(f'SRIOV-CNI failed to load netconf: LoadConf(): failed to get VF information: "{text}"')
    if "net" not in seen:
        text = f"failed to get VF {pci} netdevice name: no net directory"
        raise CniError(f"SRIOV-CNI failed to load netconf: LoadConf(): {text}")
    return await _move_in(call, conf, seen["net"])


async def moved_delete(call: Call, conf: dict) -> None:
    """The interface back to the node, with the name it had, and up again."""
    if call.notes.get("moved"):
        await call.pod(MOVE_OUT, call.ifname, call.notes["name"])
        await call.host('ip link set dev "$1" up', call.notes["name"])
    call.notes.clear()


async def host_device_add(call: Call, conf: dict, prev: dict | None) -> dict:
    pci = conf.get("pciBusID") or conf.get("deviceID") or call.device
    name = conf.get("device")
    if not name and not pci:
        raise CniError('specify either "device", "hwaddr", "kernelpath" or "pciBusID"')
    if not name:
        lines = (await call.host(LOOK_AT_DEVICE, pci)).splitlines()
        name = next((line.split()[1] for line in lines if line.startswith("net ")), None)
    if not name:
        raise CniError(f"failed to find host device: no net directory under pci device {pci}")
    return await _move_in(call, conf, name)


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
    return await _configure(call, temporary, _allocate(call, conf), None)


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


# The node's side of the RDMA plugin. $1 PCI address of the VF, $2 pod namespace, $3 traffic class to write.
# Prints what was found before it changes anything; "moved" comes last, so a failure in between can be undone.
RDMA_HOST = """
read -r mode < /sys/module/ib_core/parameters/netns_mode
echo "mode $mode"
vf=$1; ns=$2; class=$3; count=0
for d in "/sys/bus/pci/devices/$vf/infiniband"/*; do if [ -d "$d" ]; then dev=${d##*/}; count=$((count + 1)); fi; done
echo "devices $count $dev"
if [ "$mode" != N ] || [ $count != 1 ]; then exit 0; fi
cm=/sys/kernel/config/rdma_cm/$dev
mkdir -p "$cm"
read -r tos < "$cm/ports/1/default_roce_tos"
echo "tos $tos"
file=/sys/class/infiniband/$dev/tc/1/traffic_class
if [ -e "$file" ]; then
  old=; read -r old < "$file" || true
  echo "tc $old"
  echo "$class" > "$file"
fi
echo 0 > "$cm/ports/1/default_roce_tos"
rdma dev set "$dev" netns "$ns"
echo moved yes
"""
# The pod's side: $1 device, $2 tos for RDMA CM.
RDMA_POD = (
    'mkdir -p "/sys/kernel/config/rdma_cm/$1"; echo "$2" > "/sys/kernel/config/rdma_cm/$1/ports/1/default_roce_tos"'
)
# $1 device, $2 tos, $3 traffic class or empty
RDMA_RESTORE = """
mkdir -p "/sys/kernel/config/rdma_cm/$1"
echo "$2" > "/sys/kernel/config/rdma_cm/$1/ports/1/default_roce_tos"
if [ -n "$3" ]; then echo "$3" > "/sys/class/infiniband/$1/tc/1/traffic_class"; fi
"""


async def rdma_add(call: Call, conf: dict, prev: dict | None) -> dict:
    """Move the RDMA device of the VF into the pod, after its traffic class was written (Mellanox/rdma-cni from 26.4).

    rdmaQoS counts at the top level only; without it class 0 is written all the same. Inbox drivers have no tc folder:
    there it is skipped.
    """
    if prev is None:
        raise CniError("RDMA-CNI: required prevResult missing")
    qos = conf.get("rdmaQoS") or {}
    out = await call.host(RDMA_HOST, call.device or "none", call.netns, str(int(qos.get("tc") or 0)))
    seen = {line.split(" ")[0]: line.split(" ", 1)[1].strip() for line in out.splitlines() if " " in line}
    if seen.get("mode") != "N":
        mode = {"Y": "shared"}.get(seen.get("mode", ""), "unknown")
        raise CniError(f"RDMA subsystem namespace awareness mode is set to {mode}")
    count, _, name = seen["devices"].partition(" ")
    if count != "1":
        text = f"failed to get RDMA devices for PCI device: {call.device}. Expected exactly one RDMA device"
        raise CniError(f"{text}, got {count}")
    call.notes.update(device=name, tos=seen.get("tos") or "0", moved=seen.get("moved") == "yes")
    if "tc" in seen:
        call.notes["tc"] = host_class(seen["tc"])
    await call.pod(RDMA_POD, name, str(int(qos.get("tos") or 0)))
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
    # The tool takes a name under /run/netns; the way up and down reaches the node's own namespace, which has none.
    await call.pod('rdma dev set "$1" netns ../../../proc/1/ns/net', name)
    await call.host(RDMA_RESTORE, name, call.notes["tos"], call.notes.get("tc", ""))
    call.notes.clear()


# $1 first table, $2 interface, $3 yes to keep the subnet route as a source hint; then address, subnet, gateway (or "-").
# Prints "family address/length table" for each rule that was made.
SBR = """
table=$1; dev=$2; hints=$3; shift 3
rules="$(ip -4 rule show; ip -6 rule show) "
while [ $# -gt 0 ]; do
  case $1 in *:*) f=inet6; n=128;; *) f=inet; n=32;; esac
  while case $rules in *"lookup $table"[!0-9]*) true;; *) false;; esac; do table=$((table + 1)); done
  echo "$f $1/$n $table"
  {
    echo "rule add from $1/$n table $table"
    echo "route add $2 dev $dev src $1 table $table"
    if [ "$3" != - ]; then echo "route add default via $3 dev $dev table $table"; fi
    echo "route del $2 dev $dev"
    if [ "$hints" = yes ]; then echo "route replace $2 dev $dev src $1 scope link"; fi
  } | ip -family $f -batch -
  rules="$rules lookup $table "
  shift 3
done
"""


async def sbr_add(call: Call, conf: dict, prev: dict | None) -> dict:
    """Source routing: a rule and a table per address, from table 100 up; routes of the interface leave the main table.

    With addSourceHints the subnet route stays in the main table, with the address as source; in one flat subnet it is then
    that of the interface attached last. Without it (and in plugin
    images older than commit 025aca14, which do not know the key) the main table has no route to the rail's subnet.
    """
    if prev is None:
        raise CniError("This plugin must be called as chained plugin")
    if not prev.get("ips"):
        raise CniError(f"No IP addresses supplied on interface: {call.ifname}")
    words = [str(int(conf.get("table") or 100)), call.ifname, "yes" if conf.get("addSourceHints") else "no"]
    for item in prev["ips"]:
        words += [item["address"].split("/")[0], str(ipaddress.ip_interface(item["address"]).network)]
        words.append(item.get("gateway") or "-")
    call.notes["rules"] = (await call.pod(SBR, *words)).splitlines()
    return prev


async def sbr_delete(call: Call, conf: dict) -> None:
    for rule in call.notes.pop("rules", []):
        family, source, table = rule.split()
        await call.pod('ip -family $1 rule del from "$2" table "$3" 2>/dev/null || true', family, source, table)


async def _nothing(call: Call, conf: dict) -> None:
    """tuning has nothing to undo that outlives the namespace."""


Add = Callable[[Call, dict, "dict | None"], Awaitable[dict]]
Delete = Callable[[Call, dict], Awaitable[None]]
PLUGINS: dict[str, tuple[Add, Delete]] = {
    "sriov": (sriov_add, moved_delete),
    "host-device": (host_device_add, moved_delete),
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
        except (CniError, MachineError) as error:
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
