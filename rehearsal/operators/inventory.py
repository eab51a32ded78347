# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network functions of a node: one shell command reads its sysfs, a pure parser makes the table."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Functions may vanish while they are read (VFs are being removed): what is left is told, so errors of grep and find
# are not errors here. grep and find print many files in one process each; a cat per file would cost hundreds a look.
SCRIPT = """
cd /sys/bus/pci/devices || exit 1
grep -sH '' */vendor */device */class */sriov_totalvfs */sriov_numvfs || true
grep -sH '' */net/*/mtu */net/*/address */net/*/operstate || true
for d in */infiniband/*; do printf '%s:\\n' "$d"; done
find */ -mindepth 1 -maxdepth 1 \\( -name 'virtfn*' -o -name physfn -o -name driver \\) -printf '%H%P:%l\\n' || true
"""
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass
class Function:
    """One PCI network function. Unreadable values are None (or empty), never a guess."""

    pci: str
    vendor: str = ""
    device: str = ""
    pci_class: str = ""
    driver: str | None = None
    total_vfs: int | None = None
    num_vfs: int | None = None
    physfn: str | None = None
    vfs: dict[int, str] = field(default_factory=dict)  # VF index -> PCI address
    netdev: str | None = None
    mtu: int | None = None
    mac: str | None = None
    operstate: str | None = None
    rdma: str | None = None


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def parse(text: str) -> dict[str, Function]:
    """The output of ``SCRIPT`` as functions by PCI address; devices that are no network controllers are left out."""
    table: dict[str, Function] = {}
    for line in text.splitlines():
        match = _PCI.match(line)
        if not match or line[match.end() : match.end() + 1] != "/":
            continue
        name, _, value = line[match.end() + 1 :].partition(":")
        function = table.setdefault(match.group(), Function(match.group()))
        parts = name.split("/")
        leaf = value.rsplit("/", 1)[-1]
        if name in ("vendor", "device"):
            setattr(function, name, value.removeprefix("0x"))
        elif name == "class":
            function.pci_class = value.removeprefix("0x")
        elif name == "sriov_totalvfs":
            function.total_vfs = _number(value)
        elif name == "sriov_numvfs":
            function.num_vfs = _number(value)
        elif name == "driver":
            function.driver = leaf
        elif name == "physfn":
            function.physfn = leaf
        elif name.startswith("virtfn"):
            function.vfs[int(name[len("virtfn") :])] = leaf
        elif parts[0] == "infiniband" and len(parts) == 2:
            function.rdma = parts[1]
        elif parts[0] == "net" and len(parts) == 3:
            function.netdev = parts[1]
            if parts[2] == "mtu":
                function.mtu = _number(value)
            else:
                setattr(function, {"address": "mac", "operstate": "operstate"}[parts[2]], value)
    return {pci: function for pci, function in sorted(table.items()) if function.pci_class.startswith("02")}


def supported(functions: dict[str, Function], nic_ids: set[tuple[str, str]]) -> list[Function]:
    """The PFs that the SR-IOV operator knows: (vendor, device) must be listed; others never show in the node state."""
    return [f for f in functions.values() if f.physfn is None and (f.vendor, f.device) in nic_ids]


def nic_ids(config_map: dict | None) -> set[tuple[str, str]]:
    """(vendor, PF device) pairs of ConfigMap supported-nic-ids; each value is "vendor pf vf"."""
    pairs = set()
    for value in ((config_map or {}).get("data") or {}).values():
        words = value.split()
        if len(words) >= 2:
            pairs.add((words[0], words[1]))
    return pairs


def interface_status(pf: Function, functions: dict[str, Function]) -> dict:
    """One entry of SriovNetworkNodeState.status.interfaces; VFs that are in a pod have no name there."""
    row: dict = {
        "pciAddress": pf.pci,
        "vendor": pf.vendor,
        "deviceID": pf.device,
        "driver": pf.driver,
        "name": pf.netdev,
        "mtu": pf.mtu,
        "mac": pf.mac,
        "totalvfs": pf.total_vfs,
        "numVfs": pf.num_vfs,
        "linkType": "ETH",
        "linkAdminState": None if pf.operstate is None else "down" if pf.operstate == "down" else "up",
        "eSwitchMode": "legacy",
    }
    vfs = []
    for index, pci in sorted(pf.vfs.items()):
        vf = functions.get(pci, Function(pci))
        entry = {"vfID": index, "pciAddress": pci, "vendor": vf.vendor, "deviceID": vf.device, "driver": vf.driver}
        entry.update({"name": vf.netdev, "mac": vf.mac, "mtu": vf.mtu})
        vfs.append({key: value for key, value in entry.items() if value not in (None, "")})
    row = {key: value for key, value in row.items() if value not in (None, "") and not (key == "numVfs" and value == 0)}
    if vfs:
        row["Vfs"] = vfs
    return row
