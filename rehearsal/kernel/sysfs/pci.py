# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/sys/bus/pci and the PCI functions below /sys/devices (drivers/pci/pci-sysfs.c, drivers/pci/iov.c)."""

from __future__ import annotations

from ..devices import BRIDGE_CLASS, Devices, Port
from ..pci import Function
from ..tree import File, Tree


def build(tree: Tree, devices: Devices) -> None:
    for path, numa in devices.topology.bridges:
        address = path.rpartition("/")[2]
        _function(tree, Function(None, path, "8086", "352a", BRIDGE_CLASS, numa, "pcieport"), address)
    for gpu in devices.gpus:
        _function(tree, gpu, gpu.pci)
    for pf in devices.pfs:
        add_port(tree, devices, pf)


def add_port(tree: Tree, devices: Devices, port: Port) -> None:
    function, path = port.function, port.function.path
    _function(tree, function, function.pci)
    if function.parent is None:
        if function.total_vfs:
            _sriov(tree, devices, port)
    else:
        tree.link(f"{path}/physfn", function.parent.path)
        tree.link(f"{function.parent.path}/virtfn{function.vf_index}", path, lifetime=0.0)


def remove_port(tree: Tree, port: Port) -> None:
    function = port.function
    tree.drop(function.path)
    tree.drop(f"bus/pci/devices/{function.pci}")
    tree.drop(f"bus/pci/drivers/{function.driver}/{function.pci}")
    tree.drop(f"{function.parent.path}/virtfn{function.vf_index}")


def _function(tree: Tree, function: Function, address: str) -> None:
    path = function.path
    # A VF can be removed again, so its names must not be remembered by anyone.
    lifetime = {"lifetime": 0.0} if function.parent else {}
    if function.parent:
        tree.dir(path).lifetime = 0.0
    uevent = [f"DRIVER={function.driver}"] if function.driver else []
    uevent += [
        f"PCI_CLASS={function.pci_class:X}",
        f"PCI_ID={function.vendor.upper()}:{function.device.upper()}",
        f"PCI_SLOT_NAME={address}",
    ]
    tree.files(
        path,
        {
            "vendor": f"0x{function.vendor}",
            "device": f"0x{function.device}",
            "class": f"0x{function.pci_class:06x}",
            "numa_node": str(function.numa_node),
            "revision": "0x00",
            "enable": "1",
            "uevent": "\n".join(uevent),
        },
    )
    tree.link(f"{path}/subsystem", "bus/pci")
    tree.link(f"bus/pci/devices/{address}", path, **lifetime)
    if function.driver:
        tree.link(f"{path}/driver", f"bus/pci/drivers/{function.driver}")
        tree.link(f"bus/pci/drivers/{function.driver}/{address}", path, **lifetime)


def _sriov(tree: Tree, devices: Devices, pf: Port) -> None:
    path, function = pf.function.path, pf.function
    tree.files(
        path,
        {
            "sriov_totalvfs": str(function.total_vfs),
            "sriov_offset": str(function.first_vf_offset),
            "sriov_stride": "1",
            "sriov_vf_device": function.vf_device,
            "sriov_drivers_autoprobe": "1",
        },
    )
    count = File(lambda _caller: str(len(pf.vfs)), lambda _caller, text: devices.write_num_vfs(pf, text))
    tree.put(f"{path}/sriov_numvfs", count)
