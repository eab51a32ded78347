# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Main CNI plugins, those that bring an interface into the pod: sriov, host-device, ipvlan, macvlan.

Error texts are those of the real plugins.
"""

from __future__ import annotations

import json

from rehearsal.operators.cni_call import Call, CniError
from rehearsal.operators.ipam import IpamError


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
# $1 name in the pod, $2 wanted name, $3 MAC or empty, $4 lower half of IPv6 addresses that the kernel makes, or "-" for
# what it makes itself; then addresses, "--", then pairs of route and gateway.
# Rename, addresses, link up, routes: as the plugins and their ipam helper do (pkg/ipam ConfigureIface). With an IPv6
# address the helper turns IPv6 on. Addresses come first, so their GIDs do, too.
# $4 is for a veth that stands in for an IPvlan child, which has a number where a veth has only the MAC.
CONFIGURE = """
name=$1; dev=$2; mac=$3; half=$4; shift 4
is_tentative() {
  while read -r _ _ _ _ flags of; do
    if [ "$of" = "$dev" ] && [ $((0x$flags & 0x40)) -ne 0 ]; then return 0; fi  # IFA_F_TENTATIVE, linux/if_addr.h
  done < /proc/net/if_inet6
  return 1
}
case " $* " in *:*)
  for i in lo "$name"; do echo 0 > "/proc/sys/net/ipv6/conf/$i/disable_ipv6"; done
esac
read -r off < "/proc/sys/net/ipv6/conf/$name/disable_ipv6" || true  # a shell that reads by letters finds no line's end
if [ "$half" != - ] && [ "$off" = 0 ]; then
  ip link set dev "$name" addrgenmode none
  # Refused where advertisements are not accepted, so where no address is made.
  ip token set "::$half" dev "$name" 2>/dev/null || true
fi
{
  if [ "$name" != "$dev" ]; then echo "link set dev $name name $dev"; fi
  if [ -n "$mac" ]; then echo "link set dev $dev address $mac"; fi
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in *:*) echo "addr add $1 dev $dev nodad";; *) echo "addr add $1 dev $dev";; esac
    shift
  done
  echo "link set dev $dev up"
  shift
  while [ $# -gt 0 ]; do echo "route add $1 ${2:+via $2} dev $dev"; shift 2; done
} | ip -batch -
if [ "$half" != - ] && [ "$off" = 0 ]; then
  # The kernel tells of IPv6 addresses later than it has them, and of two at once in any order.
  looks=0
  while is_tentative && [ "$looks" -lt 500 ]; do looks=$((looks + 1)); sleep 0.01; done
  ip address add "fe80::$half/64" dev "$dev" scope link nodad
fi
read -r address < "/sys/class/net/$dev/address"
echo "$address"
"""


async def _configure(call: Call, name: str, result: dict, mac: str | None, half: str = "-") -> dict:
    """Configure interface ``name`` of the pod as ``call.ifname``; the CNI result with its MAC."""
    words = [name, call.ifname, mac or "", half, *[item["address"] for item in result["ips"]], "--"]
    for route in result["routes"]:
        words += [route["dst"], route.get("gw") or ""]
    address = await call.pod(CONFIGURE, *words)
    return {**result, "mac": address.strip(), "interface": call.ifname}


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


# $1 the configured master; without one the plugin takes the interface of the default route, silently.
FIND_MASTER = """
for dev in $1 $(ip route show default | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p'); do
  if [ -e "/sys/class/net/$dev" ]; then echo "$dev"; fi
  exit 0
done
"""


async def ipvlan_add(call: Call, conf: dict, prev: dict | None) -> dict:
    """A child with its master's MAC.

    :raises CniError: the master does not exist, or there is no ipam.
    """
    return await _child_add(call, conf, "ipvlan", ("l2", "l3", "l3s"))


async def macvlan_add(call: Call, conf: dict, prev: dict | None) -> dict:
    """A child with a MAC of its own.

    :raises CniError: the master does not exist, or there is no ipam.
    """
    return await _child_add(
        call, conf, "macvlan", ("bridge", "private", "vepa", "passthru"), call.mac or conf.get("mac")
    )


async def _child_add(call: Call, conf: dict, kind: str, modes: tuple[str, ...], mac: str | None = None) -> dict:
    if not (conf.get("ipam") or {}).get("type"):
        raise CniError('"ipam" type is required')
    mode = conf.get("mode") or modes[0]
    if mode not in modes:
        raise CniError(f"unknown {kind} mode: {json.dumps(mode)}")
    master = (await call.host(FIND_MASTER, conf.get("master") or "")).strip()
    if not master:
        raise CniError(f"failed to lookup master {json.dumps(conf.get('master') or '')}: Link not found")
    child = f"c{call.owner[:6]}{call.ifname[-3:]}"
    words = [master, child, call.netns, kind, str(conf.get("mtu") or ""), (mac or "").lower()]
    made = await call.host('link-child "$@"', *words)
    call.notes["child"] = child
    return await _configure(call, child, _allocate(call, conf), None, made.split()[2])


async def child_delete(call: Call, conf: dict) -> None:
    if call.notes.pop("child", None):
        await call.pod('ip link del dev "$1" 2>/dev/null || true', call.ifname)
