# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kind B: boot images and what the next boot brings."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import (
    KERNEL,
    LIVE,
    OURS,
    FieldNode,
    context,
    findings,
    found,
    layout,
)

EXCLUSIVE = {"netns_mode": "exclusive"}


@pytest.fixture
def node(tmp_path):
    return FieldNode(tmp_path, "exclusive")


def test_fc26_an_image_older_than_the_file_is_told_and_the_reboot_did_not_help(node):
    node.boot_image("shared")
    node.write(LIVE, "Y")
    items = {item["id"]: item for item in findings(context(node, layout(**EXCLUSIVE)))}
    assert set(items) == {"NETNS-001", "BOOT-001"}
    evidence = items["BOOT-001"]["evidence"]
    assert (evidence["configured"], evidence["image"]["mode"]) == ("exclusive", "shared")
    assert "Run prepare_nodes" in items["NETNS-001"]["remedy"], "a reboot alone would not do"


def test_fc26_an_image_with_no_copy_of_the_file_is_stale_too(node):
    node.boot_image(None)
    node.write(LIVE, "Y")
    assert ("BOOT-001", "error", None) in found(context(node, layout(**EXCLUSIVE)))


def test_fc26_a_mode_that_only_lives_until_the_next_boot(node):
    """Switched at run time: all is well until something reboots the node."""
    node.boot_image("shared")
    items = {item["id"]: item for item in findings(context(node, layout(**EXCLUSIVE)))}
    assert set(items) == {"BOOT-001", "BOOT-002"}
    assert items["BOOT-002"]["evidence"]["next_boot"] == "shared"


def test_fc26_an_image_that_cannot_be_read_is_unknown_and_told_once(node):
    (node.root / f"boot/initrd.img-{KERNEL}").write_bytes(b"\x28\xb5\x2f\xfd and no more")
    severities = {(name, severity) for name, severity, _rail in found(context(node, layout(**EXCLUSIVE)))}
    assert ("BOOT-001", "unknown") in severities and not any(name == "BOOT-002" for name, _severity in severities)


def test_fc26_a_damaged_image_stops_reboots(node):
    place = node.root / f"boot/initrd.img-{KERNEL}"
    place.write_bytes(place.read_bytes()[:-40])
    assert ("BOOT-004", "error", None) in found(context(node, layout(**EXCLUSIVE)))


@pytest.mark.parametrize("program", ["dracut", "update-initramfs", "mkinitcpio"])
def test_fc27_the_builder_is_what_is_installed_and_not_the_distribution(node, program):
    """Ubuntu with dracut and no update-initramfs."""
    node.write("/etc/os-release", 'ID=ubuntu\nVERSION_ID="26.04"')
    (node.root / "usr/sbin/update-initramfs").unlink()
    node.write(f"/usr/bin/{program}", "x")
    (node.root / "usr/bin" / program).chmod(0o755)
    node.boot_image("shared")
    node.write(LIVE, "Y")
    ids = {item["id"] for item in findings(context(node, layout(**EXCLUSIVE)))}
    assert ids == {"NETNS-001", "BOOT-001"}


def test_fc27_without_a_builder_a_stale_image_cannot_be_cured_here(node):
    (node.root / "usr/sbin/update-initramfs").unlink()
    node.boot_image("shared")
    node.write(LIVE, "Y")
    items = {item["id"]: item for item in findings(context(node, layout(**EXCLUSIVE)))}
    assert set(items) == {"NETNS-001", "BOOT-001", "BOOT-003"}
    assert "ib_core.netns_mode=0" in items["BOOT-003"]["remedy"]


def test_fc27_without_a_builder_an_image_that_is_right_is_right(node):
    (node.root / "usr/sbin/update-initramfs").unlink()
    assert found(context(node, layout(**EXCLUSIVE))) == []


def unload(node):
    (node.root / LIVE.lstrip("/")).unlink()
    (node.root / "sys/module/ib_core/initstate").unlink()
    for folder in ("sys/module/ib_core/parameters", "sys/module/ib_core"):
        (node.root / folder).rmdir()


def test_fc28_a_module_that_is_not_loaded_is_unknown_and_what_will_apply_is_told(node):
    unload(node)
    node.write("/proc/cmdline", "root=/dev/sda1 ib_core.netns_mode=0")
    items = {item["id"]: item for item in findings(context(node, layout(**EXCLUSIVE)))}
    assert items["NETNS-001"]["severity"] == "unknown"
    assert items["NETNS-001"]["evidence"]["next_boot"] == "exclusive"
    assert items["NETNS-003"]["severity"] == "warning", "it asks for what is wanted"
    assert set(items) == {"NETNS-001", "NETNS-003"}


def test_fc28_the_kernel_line_beats_file_and_image(node):
    node.write("/proc/cmdline", "root=/dev/sda1 ib_core.netns_mode=1")
    node.write(LIVE, "Y")
    items = {item["id"]: item for item in findings(context(node, layout(**EXCLUSIVE)))}
    assert set(items) == {"NETNS-001", "NETNS-003"}
    assert items["NETNS-003"]["severity"] == "error" and "wanted is exclusive" in items["NETNS-003"]["summary"]


def test_fc28_a_file_of_our_own_is_enough(node):
    assert found(context(node, layout(**EXCLUSIVE))) == []
    node.write(OURS, "options ib_core netns_mode=1")
    item = next(item for item in findings(context(node, layout(**EXCLUSIVE))) if item["id"] == "BOOT-001")
    assert item["evidence"]["configured"] == "shared"
