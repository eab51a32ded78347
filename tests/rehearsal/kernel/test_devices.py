# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno

import pytest

from rehearsal.kernel.devices import Devices, kernel_integer, vf_netdev_name
from rehearsal.kernel.spec import parse
from rehearsal.kernel.sysfs.system import RdmaCm, lockdown_text
from rehearsal.kernel.tree import Caller

HOME, POD = 0, 5


class Interfaces:
    """Stands for the real ones: keeps names, and can refuse."""

    def __init__(self):
        self.present, self.limit = {}, 1000

    def attach(self, netdev):
        if len(self.present) >= self.limit:
            raise OSError(errno.ENOSPC, "no more")
        self.present[netdev.wire] = netdev.name

    def detach(self, netdev):
        del self.present[netdev.wire]


@pytest.fixture
def interfaces():
    return Interfaces()


@pytest.fixture
def devices(make_spec, interfaces):
    return lambda mode="shared", **changes: Devices(parse(make_spec(**changes)), mode, interfaces, HOME)


def refused(call, *arguments):
    with pytest.raises(OSError) as caught:
        call(*arguments)
    return caught.value.errno


def test_num_vfs_errors_are_those_of_the_kernel(devices):
    model = devices(num_vfs_max=8)
    pf = model.pfs[0]
    for garbage in ("", "x", "1 2", "-1", "1.0", "99999999", "0x"):
        assert refused(model.write_num_vfs, pf, garbage) == errno.EINVAL, garbage
    assert refused(model.write_num_vfs, pf, "9") == errno.ERANGE
    model.write_num_vfs(pf, "2\n")
    assert refused(model.write_num_vfs, pf, "3") == errno.EBUSY
    model.write_num_vfs(pf, "2")
    assert len(pf.vfs) == 2
    model.write_num_vfs(pf, "0")
    model.write_num_vfs(pf, "0x3")
    assert len(pf.vfs) == 3


def test_vfs_take_the_next_free_numbers_and_leave_nothing_behind(devices, interfaces):
    model = devices()
    for pf in model.pfs[:16]:
        model.write_num_vfs(pf, "1")
    names = [pf.vfs[0].rdma.name for pf in model.pfs[:16]]
    assert names == [f"mlx5_{n}" for n in range(18, 34)]
    assert len(model.ports()) == 34
    macs = {port.netdev.mac for port in model.ports()}
    assert len(macs) == 34
    again = devices()
    again.write_num_vfs(again.pfs[0], "1")
    assert again.pfs[0].vfs[0].netdev.mac == model.pfs[0].vfs[0].netdev.mac, "stable over a reboot"
    for pf in model.pfs[:16]:
        model.write_num_vfs(pf, "0")
    assert len(model.ports()) == 18
    assert model.pfs[0].function.vfs == []


def test_a_failure_half_way_takes_back_what_was_made(devices, interfaces):
    interfaces.limit = 3
    model = devices()
    pf = model.pfs[0]
    assert refused(model.write_num_vfs, pf, "5") == errno.ENOSPC
    assert pf.vfs == []
    assert interfaces.present == {}


def test_device_moves_in_exclusive_mode_only_and_resets_the_cm_defaults(devices):
    model = devices("exclusive")
    port = model.pfs[0]
    port.rdma.cm_tos, port.rdma.traffic_class = 41, 41
    assert model.shows(port.rdma, HOME)
    assert not model.shows(port.rdma, POD)
    assert refused(model.move, port, POD, POD) == errno.EINVAL
    model.move(port, POD, HOME)
    assert model.shows(port.rdma, POD)
    assert not model.shows(port.rdma, HOME)
    assert (port.rdma.cm_tos, port.rdma.traffic_class) == (0, 41)
    model.namespace_gone(POD)
    assert model.shows(port.rdma, HOME)

    shared = devices("shared")
    assert shared.shows(shared.pfs[0].rdma, POD)
    assert refused(shared.move, shared.pfs[0], POD, HOME) == errno.EOPNOTSUPP


def test_kernel_integers():
    assert [kernel_integer(text, 255) for text in ("41\n", "0x29", "051", "+7", "0")] == [41, 41, 41, 7, 0]
    assert refused(kernel_integer, "256", 255) == errno.ERANGE
    for wrong in ("", "\n", "4\n1", "09", " 4", "-1"):
        assert refused(kernel_integer, wrong, 255) == errno.EINVAL


def test_vf_interface_names_fit_and_differ():
    assert vf_netdev_name("rdma0", 0) == "rdma0v0"
    assert vf_netdev_name("enp138s0f1np1", 12) == "enp138s0f1v12"
    assert len(vf_netdev_name("a" * 15, 126)) == 15


def test_configfs_of_the_rdma_cm(devices):
    model = devices()
    caller = Caller(0, 0, lambda pid: HOME)
    folder = RdmaCm(model)
    assert refused(folder.make_dir, "mlx5_99", caller) == errno.ENODEV
    port = folder.make_dir("mlx5_5", caller).children["ports"].children["1"]
    assert refused(folder.make_dir, "mlx5_5", caller) == errno.EEXIST
    tos, mode = port.children["default_roce_tos"], port.children["default_roce_mode"]
    assert tos.read(caller) == b"0\n"
    tos.write(caller, b"41\n")
    assert tos.read(caller) == b"41\n"
    assert refused(tos.write, caller, b"300") == errno.ERANGE
    assert mode.read(caller) == b"RoCE v2\n"
    mode.write(caller, b"IB/RoCE v1\n")
    assert mode.read(caller) == b"IB/RoCE v1\n"
    assert refused(mode.write, caller, b"RoCE v3") == errno.EINVAL
    folder.remove_dir("mlx5_5", caller)
    assert refused(folder.remove_dir, "mlx5_5", caller) == errno.ENOENT


def test_lockdown_comes_from_the_kernel_line():
    assert lockdown_text("none", "ro quiet") == "[none] integrity confidentiality"
    assert lockdown_text("none", "ro lockdown=integrity") == "none [integrity] confidentiality"
    assert lockdown_text("integrity", "lockdown=nonsense") == "none [integrity] confidentiality"
