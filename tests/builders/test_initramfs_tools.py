# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images by the real initramfs-tools, with what was seen in the field: the file is new, the image is old (FC-26)."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_images
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

PROGRAMS = {"gzip": "gzip", "xz": "xz", "zstd": "zstd", "lz4": "lz4", "lzop": "lzo", "bzip2": "bzip2"}
EARLY_HOOK = """#!/bin/sh
case $1 in prereqs) exit 0 ;; esac
. /usr/share/initramfs-tools/hook-functions
mkdir -p /tmp/early/kernel/x86/microcode
head -c 7000 /dev/zero > /tmp/early/kernel/x86/microcode/AuthenticAMD.bin
(cd /tmp/early && find . | cpio --quiet -o -H newc) > /tmp/early.cpio
prepend_earlyinitramfs /tmp/early.cpio
"""


@pytest.fixture
def tools(root):
    root.only_builder("initramfs-tools")
    root.write("etc/initramfs-tools/modules", "ib_core\next4\nvirtio_blk\nnvme\n")
    root.write("etc/initramfs-tools/hooks/early", EARLY_HOOK)
    (root.path / "etc/initramfs-tools/hooks/early").chmod(0o755)

    def build(compress: str = "gzip", mode: str | None = "shared"):
        root.write("etc/initramfs-tools/conf.d/test", f"MODULES=list\nCOMPRESS={compress}\nCOMPRESSLEVEL=1\n")
        root.set_mode(mode)
        root.run("mkinitramfs", "-o", f"/boot/{root.image.name}", root.kernel)
        return root

    return build


def inspect(root, mode):
    (told,) = boot_images.inspect_all(Tree(str(root.path)), {"mode": mode, "reason": None})
    return told


@pytest.mark.parametrize("compress", sorted(PROGRAMS))
def test_an_image_of_every_packing_tells_what_it_holds(tools, compress):
    root = tools(compress)
    told = inspect(root, "exclusive")
    if told["reason"] and "is installed" in told["reason"]:
        pytest.skip(told["reason"])
    assert told["formats"] == ["cpio", PROGRAMS[compress]] and told["whole"] is True
    assert told["mode"] == "shared" and told["holds_option"] is True and told["holds_ib_core"] is True
    assert told["stale"] is True and inspect(root, "shared")["stale"] is False
    assert told["force_loaded"] == ["ib_core"] and told["builder"] == "initramfs-tools"
    assert told["modules"] == len(root.run("lsinitramfs", f"/boot/{root.image.name}").stdout.split(".ko\n")) - 1
    data = root.image.read_bytes()
    root.image.write_bytes(data[: len(data) * 2 // 3])
    assert inspect(root, "shared")["whole"] is False


def test_fc26_a_stale_image_is_rebuilt_once_and_holds_the_option(tools):
    root = tools("zstd", mode=None)
    root.set_mode("exclusive")
    assert inspect(root, "exclusive")["stale"] is True
    planned = root.module(_ansible_check_mode=True)
    assert planned["rebuilt"] == [f"/boot/{root.image.name}"]
    told = root.module()
    assert told.get("failed") is not True, told
    assert told["rebuilt"] == planned["rebuilt"] and told["images"][0]["stale"] is False
    assert inspect(root, "exclusive")["mode"] == "exclusive"
    assert root.module()["changed"] is False
    assert root.boot_files() == [root.image.name]


def test_a_full_boot_leaves_the_old_image(tools):
    root = tools("gzip")
    root.set_mode("exclusive")
    old = root.image.read_bytes()
    told = root.module(
        {"BOOT_SIZE": str(sum(path.stat().st_size for path in (root.path / "boot").iterdir()) + (5 << 20))}
    )
    assert told["failed"] is True and "/boot has" in told["msg"] and "Remove old kernels" in told["msg"]
    told = root.module({"BOOT_READ_ONLY": "1"})
    assert told["failed"] is True and "read-only" in told["msg"]
    assert root.image.read_bytes() == old and root.boot_files() == [root.image.name]


def test_an_image_that_lost_modules_is_put_back(tools):
    root = tools("gzip")
    old = root.image.read_bytes()
    root.set_mode("exclusive")
    root.write("etc/initramfs-tools/modules", "ib_core\n")
    told = root.module()
    assert told["failed"] is True and told["restored"] == [f"/boot/{root.image.name}"]
    assert "lost are" in told["msg"] and "nvme" in told["msg"] and "ext4" in told["msg"]
    assert root.image.read_bytes() == old and root.boot_files() == [root.image.name]
