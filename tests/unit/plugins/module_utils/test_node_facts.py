# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import struct

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils import node_facts
from ansible_collections.railyard.rdma.plugins.module_utils.netns import netns_mode
from ansible_collections.railyard.rdma.plugins.module_utils.network import netlink
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, four_rows, image
from hypothesis import given
from hypothesis import strategies as st

PF = "0000:0c:00.0"
LIVE = "/sys/module/ib_core/parameters/netns_mode"


@pytest.fixture
def node(tmp_path):
    node = NodeTree(tmp_path).add(
        f"""
        {LIVE} = N
        /sys/module/mlx_compat/version = 24.10-1.1.4
        /sys/module/mlx5_core/version = 24.10-1.1.4
        /proc/cmdline = root=/dev/sda1
        /proc/kallsyms = 0000 t rdma_check_gid_user_access\t[ib_core]
        /proc/sys/kernel/random/boot_id = 28d3acf0-6be4-495e-904c-e4e4110be598
        /etc/modprobe.d/ib_core.conf = options ib_core netns_mode=0
        /usr/sbin/update-initramfs = x
        /lib/modules/6.8.0-1/modules.dep =
        /boot/vmlinuz-6.8.0-1 = x
        """
    )
    (node.root / "boot/initrd.img-6.8.0-1").write_bytes(image("options ib_core netns_mode=0\n"))
    home = node.function(PF, "rdma0")
    node.add(f"{home}/sriov_totalvfs = 8\n{home}/sriov_numvfs = 0")
    node.rdma(home, "mlx5_6", four_rows("rdma0"))
    return node


RAILS = [
    {"rail": 0, "name": "rail0", "pci": PF, "netdev": "other"},
    {"rail": 1, "name": None, "pci": "0000:0c:00.1", "netdev": "rdma0"},
]


def test_the_whole_fact_of_a_healthy_node(node):
    facts = node_facts.gather(node.tree(), RAILS)
    json.dumps(facts)
    assert facts["schema"] == 1
    assert facts["boot_id"] == "28d3acf0-6be4-495e-904c-e4e4110be598"
    mode = facts["netns_mode"]
    assert [mode[key] for key in ("live", "configured", "boot_image", "next_boot")] == ["exclusive"] * 4
    assert mode["configured_by"] == "/etc/modprobe.d/ib_core.conf"
    assert mode["kernel_line"] is None and mode["reboot_required"] is False
    assert facts["boot_images"][0]["stale"] is False
    driver = facts["driver"]
    assert (driver["flavour"], driver["version"], driver["gid_netns_check"]) == ("doca_ofed", "24.10-1.1.4", True)
    assert facts["netdevs"]["rdma0"]["addresses"] is None
    assert "another root" in facts["netdevs"]["rdma0"]["reasons"]["addresses"]


def test_a_rail_is_found_by_its_pci_address_and_never_by_a_foreign_name(node):
    first, second = node_facts.gather(node.tree(), RAILS)["rails"]
    assert (first["device"], first["netdev"], first["gid_index"], first["address"]) == (
        "mlx5_6",
        "rdma0",
        3,
        "10.224.12.143",
    )
    assert (first["mtu"], first["active_mtu"], first["vfs"], first["vfs_possible"], first["reason"]) == (
        4220,
        4096,
        0,
        8,
        None,
    )
    assert second["device"] is None and "0000:0c:00.1" in second["reason"]
    (named,) = node_facts.gather(node.tree(), [{"rail": 0, "pci": None, "netdev": "rdma0"}])["rails"]
    assert named["device"] == "mlx5_6" and named["pci"] == PF


def test_fc39_device_names_do_not_matter(node):
    node.rdma(node.function("0000:16:00.0", "rdma1"), "rdma_rail1", four_rows("rdma1"))
    (rail,) = node_facts.gather(node.tree(), [{"rail": 1, "pci": "0000:16:00.0"}])["rails"]
    assert rail["device"] == "rdma_rail1"


def test_fc26_the_stale_image_decides_what_the_next_boot_brings(node):
    (node.root / "boot/initrd.img-6.8.0-1").write_bytes(image("options ib_core netns_mode=1\n"))
    mode = node_facts.gather(node.tree())["netns_mode"]
    assert (mode["live"], mode["configured"], mode["boot_image"], mode["next_boot"]) == (
        "exclusive",
        "exclusive",
        "shared",
        "shared",
    )
    assert mode["reboot_required"] is True


def test_without_looking_into_images_the_next_boot_is_unknown(node):
    facts = node_facts.gather(node.tree(), read_images=False)
    assert facts["boot_images"] is None
    assert facts["netns_mode"]["next_boot"] is None and facts["netns_mode"]["reboot_required"] is None
    assert "not read" in facts["netns_mode"]["reasons"]["reboot_required"]


def test_an_unreadable_file_makes_the_configuration_unknown(node):
    node.add("/etc/modprobe.d/zz.conf ! EACCES")
    mode = node_facts.gather(node.tree())["netns_mode"]
    assert mode["configured"] is None and "zz.conf" in mode["reasons"]["configured"]
    assert mode["next_boot"] == "exclusive", "ib_core comes from the image, so the file does not decide"


def test_fc28_a_module_that_is_not_loaded_is_no_fault(tmp_path):
    node = NodeTree(tmp_path).add("/proc/cmdline = ib_core.netns_mode=0\n/sys/module/loop/refcnt = 0\n/sys/class/net/")
    facts = node_facts.gather(node.tree())
    mode = facts["netns_mode"]
    assert mode["live"] is None and mode["loaded"] is False and "not loaded" in mode["reasons"]["live"]
    assert mode["kernel_line"] == "exclusive" and mode["next_boot"] == "exclusive"
    assert mode["reboot_required"] is False
    assert facts["driver"]["flavour"] == "none" and facts["devices"] == {}


def test_an_empty_root_gives_facts_and_reasons(tmp_path):
    facts = node_facts.gather(NodeTree(tmp_path).tree(), RAILS)
    mode = facts["netns_mode"]
    assert mode["loaded"] is None and mode["reboot_required"] is None and "/sys/module" in mode["reasons"]["live"]
    assert facts["driver"]["flavour"] == "unknown"
    assert (
        facts["netns_mode"]["kernel_line"] is None and "not readable" in facts["netns_mode"]["reasons"]["kernel_line"]
    )
    assert facts["netns_mode"]["next_boot"] is None
    assert all(rail["reason"] for rail in facts["rails"])


MODE = ["shared", "exclusive", None]


@pytest.mark.parametrize("file", MODE)
@pytest.mark.parametrize("line", MODE)
@pytest.mark.parametrize("inside", [*MODE, "no ib_core", "no image", "unreadable"])
def test_next_boot_follows_the_order_line_image_file_default(file, line, inside):
    image_fact = {
        "holds_ib_core": inside != "no ib_core",
        "mode": inside if inside in MODE else "shared",
        "reason": None,
    }
    if inside == "unreadable":
        image_fact = {"holds_ib_core": None, "mode": None, "reason": "zstd"}
    told = netns_mode.next_boot(
        {"mode": file, "reason": None}, {"mode": line, "reason": None}, None if inside == "no image" else image_fact
    )
    if line:
        expected = line
    elif inside == "unreadable":
        expected = None
    elif inside in ("no image", "no ib_core"):
        expected = file or "shared"
    else:
        expected = inside or "shared"
    assert told["mode"] == expected
    assert (told["reason"] is None) == (expected is not None)


@pytest.mark.parametrize(
    ("after", "live", "loaded", "answer"),
    [
        ("shared", "shared", True, False),
        ("shared", "exclusive", True, True),
        ("exclusive", "shared", True, True),
        (None, "shared", True, None),
        ("shared", None, True, None),
        ("shared", None, False, False),
        ("shared", None, None, None),
    ],
)
def test_reboot_required(after, live, loaded, answer):
    told, reason = netns_mode.reboot_required(
        {"mode": after, "reason": "r"}, {"mode": live, "reason": "l", "loaded": loaded}
    )
    assert told is answer and (reason is not None) == (answer is None)


@pytest.mark.parametrize(
    ("text", "mode"),
    [("Y", "shared"), ("N", "exclusive"), ("1", "shared"), ("0", "exclusive"), ("?", None), ("", None)],
)
def test_the_live_mode(tmp_path, text, mode):
    told = netns_mode.live(NodeTree(tmp_path).add(f"{LIVE} = {text}").tree())
    assert told["mode"] == mode and told["loaded"] is True and (told["reason"] is None) == (mode is not None)


def test_absolute_links_stay_inside_the_root(tmp_path):
    node = NodeTree(tmp_path).add(
        "/etc/real = inside\n/a/link -> /etc/real\n/loop -> loop\n/up -> ../../../../etc/real"
    )
    tree = node.tree()
    assert tree.text("/a/link") == "inside" and tree.text("/up") == "inside"
    assert tree.text("/loop") is None and tree.names("/loop") == []


def test_links_of_the_running_kernel():
    lo = netlink.read_links()["lo"]
    assert lo["index"] == 1
    assert Tree().integer("/sys/class/net/lo/mtu") == lo["mtu"]


def address_message(flags=0x80, family=2, address=b"\x0a\xe0\x0c\x8f", proto=None):
    body = struct.pack("=BBBBI", family, 12, 0, 0, 7)
    attributes = [(1, address), (8, struct.pack("=I", flags))] + ([(11, bytes([proto]))] if proto else [])
    for kind, value in attributes:
        body += struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)
    return body


def test_address_messages():
    told = netlink.parse_address(address_message())
    assert (told["address"], told["prefix"], told["index"], told["dynamic"]) == ("10.224.12.143", 12, 7, False)
    told = netlink.parse_address(address_message(0x40, 10, b"\x20\x01\x0d\xb8" + b"\0" * 11 + b"\1", 2))
    assert (told["address"], told["dynamic"], told["tentative"], told["origin"]) == (
        "2001:db8::1",
        True,
        True,
        "kernel_ra",
    )
    assert netlink.parse_address(address_message(family=17)) is None


@given(st.binary())
def test_no_message_makes_the_netlink_parsers_fail(data):
    netlink.parse_messages(data)
    netlink.select_messages(data, (1, 0))
    netlink.parse_attributes(data)
    netlink.parse_link(data)
    netlink.parse_address(data)
    netlink.parse_address(address_message() + data)
