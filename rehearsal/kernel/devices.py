# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's RDMA-capable functions: PFs, VFs, their interfaces and RDMA devices, and the rules that change them.

No I/O: interfaces are made and removed through a driver object (``attach(netdev)``, ``detach(netdev)``), and whoever
shows the devices is told through ``on_add`` and ``on_remove``.
"""

from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .dcb import Dcb
from .errors import failure, kernel_integer
from .gids import PF_ROWS, ROCE_V2, VF_ROWS, GidTable
from .pci import Function, Topology, vf_offset
from .spec import NodeSpec, PortSpec, node_guid, vf_mac

NETWORK_CLASS, GPU_CLASS, BRIDGE_CLASS = 0x020000, 0x030200, 0x060400
SHARED, EXCLUSIVE = "shared", "exclusive"


@dataclass
class Netdev:
    """An interface of a function, or a child of one. ``wire`` names its far end, which never moves and so identifies it
    for ever. One that ``passes`` has no hardware: it ends with its network namespace instead of coming home.
    """

    name: str
    mac: str
    mtu: int
    wire: str
    up: bool = False
    addresses: tuple[str, ...] = ()
    passes: bool = False


@dataclass
class RdmaDevice:
    """``netns`` is the id of the network namespace that owns the device (all can use it in shared mode)."""

    name: str
    index: int
    netns: int
    guid: str
    gids: GidTable
    traffic_class: int | None = None
    counters: dict[str, int] = field(default_factory=dict)  # by the kernel's names; what is not here is 0
    cm_tos: int = 0
    cm_mode: str = ROCE_V2


@dataclass
class Port:
    """A network function with everything on it; dcb is that of the physical port, so a VF has its PF's."""

    function: Function
    netdev: Netdev
    rdma: RdmaDevice
    spec: PortSpec
    dcb: Dcb
    vfs: list[Port] = field(default_factory=list)

    @property
    def is_vf(self) -> bool:
        return self.function.parent is not None


class Devices:
    """All functions of a node. Device names and indexes take the lowest free number, as ib_register_device does."""

    def __init__(self, spec: NodeSpec, mode: str, driver, home: int) -> None:
        if mode not in (SHARED, EXCLUSIVE):
            raise ValueError(f"netns mode: got {mode!r}, want {SHARED} or {EXCLUSIVE}")
        self.spec, self.mode, self.driver, self.home = spec, mode, driver, home
        self.on_add: Callable[[Port], None] = lambda port: None
        self.on_mode: Callable[[], None] = lambda: None
        self.on_remove: Callable[[Port], None] = lambda port: None
        self.topology = Topology([port.address for port in spec.ports], list(spec.pairs))
        self._wires = itertools.count()
        self.pfs: list[Port] = []
        cards = [port.address for port in spec.ports]
        for index, port in enumerate(spec.ports):
            rdma = RdmaDevice(port.rdma, index, home, node_guid(port.mac), GidTable(PF_ROWS))
            netdev = Netdev(port.netdev, port.mac, port.mtu, self._wire(), port.up, port.addresses)
            function = Function(
                port.address,
                self.topology.path(port.address),
                spec.nic["vendor"],
                spec.nic["pf_device"],
                NETWORK_CLASS,
                self.topology.numa_node(port.address),
                "mlx5_core",
                total_vfs=spec.total_vfs,
                first_vf_offset=vf_offset(port.address, cards, spec.total_vfs),
                vf_device=spec.nic["vf_device"],
            )
            self.pfs.append(Port(function, netdev, rdma, port, Dcb.of_shape(spec.qos)))
        # The index is the number that rdma(8) prints; it follows the device number where there is one.
        for index, port in enumerate(sorted(self.pfs, key=lambda p: _natural(p.rdma.name))):
            port.rdma.index = index
        self.gpus = [self._gpu(address) for address in spec.gpus]

    def _gpu(self, address) -> Function:
        vendor, _, device = (self.spec.gpu.get("device") or "10de:20b0").partition(":")
        driver = "nvidia" if vendor == "10de" else "amdgpu"
        numa = self.topology.numa_node(address)
        return Function(address, self.topology.path(address), vendor, device, GPU_CLASS, numa, driver)

    def _wire(self) -> str:
        return f"w{next(self._wires)}"

    def ports(self) -> list[Port]:
        return [port for pf in self.pfs for port in (pf, *pf.vfs)]

    def image_guid(self, port: Port) -> str:
        """All functions of a card carry the node GUID of its first one."""
        return next(pf.rdma.guid for pf in self.pfs if pf.spec.address.slot == port.spec.address.slot)

    def by_rdma_name(self, name: str) -> Port | None:
        return next((port for port in self.ports() if port.rdma.name == name), None)

    def shows(self, rdma: RdmaDevice, netns: int) -> bool:
        """Whether a namespace may see a device (rdma_dev_access_netns)."""
        return self.mode == SHARED or rdma.netns == netns

    # -- SR-IOV ------------------------------------------------------------------------------------------------------

    def write_num_vfs(self, pf: Port, text: str) -> None:
        """sriov_numvfs_store, drivers/pci/iov.c: EINVAL, ERANGE above the total, EBUSY from non-zero to non-zero."""
        try:
            wanted = kernel_integer(text, 0xFFFF)
        except OSError:
            raise failure(errno.EINVAL) from None
        if wanted > pf.function.total_vfs:
            raise failure(errno.ERANGE)
        if wanted == len(pf.vfs):
            return
        if wanted == 0:
            self._remove_vfs(pf)
            return
        if pf.vfs:
            raise failure(errno.EBUSY)
        try:
            for index in range(wanted):
                self._add_vf(pf, index)
        except OSError:
            self._remove_vfs(pf)  # sriov_enable() takes back what it made
            raise

    def _add_vf(self, pf: Port, index: int) -> None:
        parent = pf.function
        address = parent.address.at(parent.first_vf_offset + index)
        taken = {port.function.address for port in self.ports()} | {gpu.address for gpu in self.gpus}
        if address.bus > 0xFF or address in taken:
            raise failure(errno.ENOMEM, f"bus number of VF {address} is not available")
        function = Function(
            address,
            self.topology.beside(parent.path, address),
            parent.vendor,
            parent.vf_device,
            NETWORK_CLASS,
            parent.numa_node,
            "mlx5_core",
            parent=parent,
            vf_index=index,
        )
        mac = vf_mac(self.spec.name, str(address))
        names = {port.rdma.name for port in self.ports()}
        indexes = {port.rdma.index for port in self.ports()}
        name = next(f"mlx5_{n}" for n in itertools.count() if f"mlx5_{n}" not in names)
        number = next(n for n in itertools.count() if n not in indexes)
        rdma = RdmaDevice(name, number, self.home, node_guid(mac), GidTable(VF_ROWS))
        netdev = Netdev(vf_netdev_name(pf.spec.netdev, index), mac, 1500, self._wire())
        port = Port(function, netdev, rdma, pf.spec, pf.dcb)
        self.driver.attach(netdev)
        pf.vfs.append(port)
        parent.vfs.append(function)
        self.on_add(port)

    def _remove_vfs(self, pf: Port) -> None:
        while pf.vfs:
            port = pf.vfs.pop()
            pf.function.vfs.remove(port.function)
            self.on_remove(port)
            self.driver.detach(port.netdev)

    # -- namespaces --------------------------------------------------------------------------------------------------

    def move(self, port: Port, netns: int, caller_netns: int) -> None:
        """RDMA_NLDEV_CMD_SET with a namespace (ib_device_set_netns_put, drivers/infiniband/core/device.c).

        The device is reset by the move, so the RDMA CM defaults of its ports start anew; the driver's own traffic class
        stays. Errors: EINVAL for a device that the caller cannot see, EOPNOTSUPP in shared mode.
        """
        if not self.shows(port.rdma, caller_netns):
            raise failure(errno.EINVAL)
        if self.mode == SHARED:
            raise failure(errno.EOPNOTSUPP)
        if port.rdma.netns != netns:
            port.rdma.netns = netns
            port.rdma.cm_tos, port.rdma.cm_mode = 0, ROCE_V2

    def set_mode(self, mode: str) -> None:
        """RDMA_NLDEV_CMD_SYS_SET when no other namespace exists (rdma_compatdev_set): the devices are all home, so
        that from now on other namespaces have all of them (shared) or none (exclusive) is the whole change.
        """
        self.mode = mode
        self.on_mode()

    def namespace_gone(self, netns: int) -> None:
        """Devices of a namespace that ended go back to the node's (rdma_dev_exit_net)."""
        for port in self.ports():
            if port.rdma.netns == netns:
                port.rdma.netns = self.home
                port.rdma.cm_tos, port.rdma.cm_mode = 0, ROCE_V2


def vf_netdev_name(pf: str, index: int) -> str:
    """The PF's name without its port suffix, and the VF's index: enp12s0f0np0 gives enp12s0f0v0. 15 letters at most."""
    suffix = f"v{index}"
    return re.sub(r"np[0-9]+$", "", pf)[: 15 - len(suffix)] + suffix


def _natural(name: str) -> list:
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name)]
