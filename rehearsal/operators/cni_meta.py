# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Meta CNI plugins, those that work on an interface that another brought: tuning, rdma, sbr.

Error texts are those of the real plugins.
"""

from __future__ import annotations

import ipaddress
import json

from rehearsal.operators.cni_call import Call, CniError


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
    """The traffic class that the plugin keeps as the host's value: an empty file counts as 0, and 0 is written back."""
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


# $1 first table, $2 interface, $3 yes to keep the subnet route as a source hint; then address, subnet, gateway or "-".
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

    With addSourceHints the subnet route stays in the main table, with the address as source; in one flat subnet it is
    then that of the interface attached last. Without it (and in plugin
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
