# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images by the real dracut, which leaves modprobe.d out, whether hostonly or not (FC-26, FC-27)."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_images, image_builders
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

SMALL = """\
dracutmodules+=" base kernel-modules rootfs-block fs-lib udev-rules "
drivers+=" ib_core ext4 nvme virtio_blk "
filesystems+=" ext4 "
early_microcode="yes"
hostonly="{hostonly}"
compress="{compress}"
"""
CURE = "etc/dracut.conf.d/90-railyard-ib_core.conf"


@pytest.fixture
def dracut(root):
    root.only_builder("dracut")

    def build(hostonly: str = "no", compress: str = "gzip", mode: str = "exclusive"):
        root.write("etc/dracut.conf.d/10-small.conf", SMALL.format(hostonly=hostonly, compress=compress))
        root.set_mode(mode)
        root.run("dracut", "--force", f"/boot/{root.image.name}", root.kernel)
        return root

    return build


def inspect(root, mode):
    (told,) = boot_images.inspect_all(Tree(str(root.path)), {"mode": mode, "reason": None})
    return told


@pytest.mark.parametrize(("hostonly", "compress"), [("no", "cat"), ("yes", "zstd")])
def test_a_rebuild_alone_proves_nothing_and_install_items_cures_it(dracut, hostonly, compress):
    root = dracut(hostonly, compress)
    told = inspect(root, "exclusive")
    assert told["builder"] == "dracut" and told["holds_ib_core"] is True and told["whole"] is True
    assert told["formats"][-1] == {"cat": "cpio"}.get(compress, compress)
    assert told["holds_option"] is False and told["stale"] is True
    cure = image_builders.dracut_cure(Tree(str(root.path)), {"by": "/etc/modprobe.d/ib_core.conf"})
    root.write(cure["path"][1:], cure["after"])
    root.run("dracut", "--force", f"/boot/{root.image.name}", root.kernel)
    assert inspect(root, "exclusive")["mode"] == "exclusive"


def test_fc27_the_module_cures_a_dracut_system_in_one_run(dracut):
    root = dracut()
    told = root.module()
    assert told.get("failed") is not True, told
    assert told["configured"] == ["/" + CURE] and told["rebuilt"] == [f"/boot/{root.image.name}"]
    assert inspect(root, "exclusive")["mode"] == "exclusive"
    assert root.module()["changed"] is False and root.boot_files() == [root.image.name]
    before = root.image.read_bytes()
    root.set_mode("shared")
    told = root.module(
        {"BOOT_SIZE": str(sum(path.stat().st_size for path in (root.path / "boot").iterdir()) + (1 << 20))}
    )
    assert told["failed"] is True and "/boot has" in told["msg"]
    assert root.image.read_bytes() == before and root.boot_files() == [root.image.name]
