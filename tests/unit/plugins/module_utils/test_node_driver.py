# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import stat

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import driver
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.driver import read_driver
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import LiveTree, NodeTree
from hypothesis import given
from hypothesis import strategies as st

RELEASE = os.uname().release


@pytest.fixture
def node(tmp_path):
    return NodeTree(tmp_path)


@pytest.mark.parametrize(
    ("modules", "symbols", "flavour", "check"),
    [
        (["mlx_compat", "ib_core"], "0 t rdma_check_gid_user_access\t[ib_core]", "doca_ofed", True),
        (["mlx_compat", "ib_core"], "0 t ib_query_port\t[ib_core]", "doca_ofed", False),
        (["mlx_compat", "ib_core"], "0 t printk", "doca_ofed", None),
        (["mlx5_core", "ib_core"], "", "inbox", False),
        (["loop"], "", "none", None),
    ],
)
def test_the_driver_stack(node, modules, symbols, flavour, check):
    node.add(f"/proc/kallsyms = {symbols}")
    for module in modules:
        node.add(f"/sys/module/{module}/refcnt = 1")
    told = read_driver(node.tree())
    assert (told["flavour"], told["gid_netns_check"]) == (flavour, check)
    assert (check is None) == ("gid_netns_check" in told["reasons"])
    assert (None in told["out_of_tree"].values()) == ("out_of_tree" in told["reasons"])


def test_modules_from_outside_the_kernel_without_the_vendor_s_are_unknown(node):
    node.add(
        "/sys/module/ib_core/taint = OE\n/sys/module/mlx5_core/taint =\n/sys/module/mlx5_core/srcversion = 533BB7E5866E"
    )
    told = read_driver(node.tree())
    assert told["out_of_tree"] == {"mlx5_core": False, "ib_core": True} and told["srcversion"] == "533BB7E5866E"
    assert told["flavour"] == "unknown" and "outside the kernel" in told["reasons"]["flavour"]
    assert "out_of_tree" not in told["reasons"]
    node.add("/sys/module/mlx_compat/version = 24.10")
    assert read_driver(node.tree())["flavour"] == "doca_ofed"
    node.add("/sys/module/ib_core/taint =")
    assert read_driver(node.tree())["out_of_tree"]["ib_core"] is False


def test_without_sysfs_nothing_is_known_of_the_stack(node):
    told = read_driver(node.tree())
    assert told["flavour"] == "unknown" and told["reasons"]["flavour"] == "no /sys/module"
    assert told["out_of_tree"] is None and told["lockdown"] is None and told["character_devices"] is None


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("none [integrity] confidentiality", "integrity"),
        ("[none] integrity confidentiality", "none"),
        ("none integrity [confidentiality]", "confidentiality"),
        ("none integrity", None),
        ("[other]", None),
    ],
)
def test_fc32_lockdown(node, text, level):
    node.add(f"/sys/kernel/security/lockdown = {text}\n/sys/module/x/")
    told = read_driver(node.tree())
    assert told["lockdown"] == level
    assert ("lockdown" in told["reasons"]) == (level is None)


def test_fc32_a_kernel_without_lockdown_or_without_permission(node):
    assert "no lockdown" in read_driver(node.tree())["reasons"]["lockdown"]
    node.add("/sys/kernel/security/lockdown ! EACCES")
    assert "EACCES" in read_driver(node.tree())["reasons"]["lockdown"]


def lists(node, release: str = "6.8.0-1") -> None:
    core = "kernel/drivers/infiniband/core"
    depending = f"{core}/rdma_ucm.ko.zst: kernel/drivers/siw.ko\\nupdates/dkms/mlx5-ib.ko:"
    home = f"/lib/modules/{release}"
    node.add(f"{home}/modules.builtin = {core}/ib_core.ko\\nkernel/net/rds.ko\n{home}/modules.dep = {depending}")


def test_fc41_modules_are_loaded_builtin_available_or_absent(node):
    lists(node)
    node.add("/sys/module/rdma_cm/initstate = live\n/sys/module/ib_core/parameters/netns_mode = Y")
    told = read_driver(node.tree())
    states = told["modules"]
    assert states["rdma_cm"] == "loaded" and states["ib_core"] == "builtin"
    assert states["rdma_ucm"] == "available" and states["mlx5_ib"] == "available"
    assert states["ib_uverbs"] == "absent" and states["siw"] == "absent"  # a dependency of another line is no module
    assert "modules" not in told["reasons"]


def test_fc41_a_healthy_node_has_them_loaded(node):
    for name in driver.MODULES:
        node.add(f"/sys/module/{name}/initstate = live")
    told = read_driver(node.tree())
    assert set(told["modules"].values()) == {"loaded"} and "modules" not in told["reasons"]


def test_modules_are_unknown_without_the_kernel_s_lists(node):
    node.add("/sys/module/ib_core/initstate = live")
    told = read_driver(node.tree())
    assert told["modules"]["ib_core"] == "loaded" and told["modules"]["rdma_cm"] is None
    assert "0 kernels" in told["reasons"]["modules"]
    lists(node)
    lists(node, "6.8.0-2")
    assert "2 kernels" in read_driver(node.tree())["reasons"]["modules"]
    states, reason = driver.module_states(LiveTree(node.root))
    assert states["rdma_cm"] is None and RELEASE in reason


def test_the_running_kernel_s_lists_are_used(node):
    lists(node, "6.8.0-1")
    lists(node, RELEASE)
    states, reason = driver.module_states(LiveTree(node.root))
    assert reason is None and states["rdma_ucm"] == "available"


@given(st.text())
def test_no_text_makes_the_parsers_fail(text):
    driver.parse_lockdown(text)
    assert all("-" not in name for name in driver.parse_module_list(text))


def fake_devices(monkeypatch, *names: str) -> None:
    """os.stat says of these names that they are character devices; making one needs a privilege."""
    real = os.stat

    def told(path, *arguments, **options):
        result = real(path, *arguments, **options)
        if os.path.basename(str(path)) in names:
            return os.stat_result((stat.S_IFCHR | 0o666, *result[1:]))
        return result

    monkeypatch.setattr(driver.os, "stat", told)


def test_fc41_character_devices(node, monkeypatch):
    node.add("/dev/infiniband/rdma_cm =\n/dev/infiniband/uverbs0 =\n/dev/infiniband/by-path/")
    fake_devices(monkeypatch, "rdma_cm", "uverbs0")
    assert driver.read_character_devices(LiveTree(node.root)) == (["rdma_cm", "uverbs0"], None)


def test_fc41_a_missing_device_and_a_file_in_its_place(node, monkeypatch):
    assert driver.read_character_devices(LiveTree(node.root)) == ([], None)
    node.add("/dev/infiniband/uverbs0 =\n/dev/infiniband/rdma_cm/")
    fake_devices(monkeypatch, "uverbs0")
    devices, reason = driver.read_character_devices(LiveTree(node.root))
    assert devices == ["uverbs0"] and reason.endswith("rdma_cm")
    assert driver.read_character_devices(node.tree())[0] is None


CDI = '{"deviceNodes": [{"path": "/dev/infiniband/uverbs10"}, {"path": "/dev/infiniband/rdma_cm"}]}'


def test_fc74_a_cdi_file_from_before_the_reboot(node):
    node.add(f"/run/cdi/nvidia.com_net-rdma.json = {CDI}\n/run/cdi/notes.txt = {CDI}")
    node.add("/dev/infiniband/rdma_cm =\n/dev/infiniband/uverbs9 =")
    tree = LiveTree(node.root)
    assert driver.stale_cdi(tree) == [{"path": "/run/cdi/nvidia.com_net-rdma.json", "missing": ["uverbs10"]}]
    node.add("/dev/infiniband/uverbs10 =")
    assert driver.stale_cdi(tree) == []
    assert driver.stale_cdi(node.tree()) is None
