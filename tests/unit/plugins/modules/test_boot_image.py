# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils import image_rebuild
from ansible_collections.railyard.rdma.plugins.modules import boot_image
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, image
from ansible_collections.railyard.rdma.tests.unit.plugins.modules.run_module import run

EXCLUSIVE, SHARED = "options ib_core netns_mode=0\n", "options ib_core netns_mode=1\n"
OLD = image(SHARED)


class Builder:
    """Stands for the builder: writes ``data`` over the image, as dracut does, and ends with ``code``."""

    def __init__(self, place) -> None:
        self.place = place
        self.data = image(EXCLUSIVE)
        self.code = 0
        self.commands: list = []

    def run_command(self, command, **_more):
        self.commands.append(command)
        if self.data is not None:
            with self.place.open("r+b") as file:
                file.truncate()
                file.write(self.data)
        return self.code, "out", "err"


@pytest.fixture
def node(tmp_path):
    node = NodeTree(tmp_path).add(
        """
        /usr/sbin/update-initramfs = x
        /lib/modules/6.8.0-1/modules.dep =
        /boot/vmlinuz-6.8.0-1 = x
        /etc/modprobe.d/ib_core.conf = options ib_core netns_mode=0
        """
    )
    node.image = tmp_path / "boot/initrd.img-6.8.0-1"
    node.image.write_bytes(OLD)
    node.kept = tmp_path / "boot/initrd.img-6.8.0-1.railyard-old"
    return node


@pytest.fixture
def builder(node, monkeypatch):
    builder = Builder(node.image)
    monkeypatch.setattr(boot_image, "can_build", lambda tree: True)
    monkeypatch.setattr("ansible.module_utils.basic.AnsibleModule.run_command", builder.run_command)
    return builder


def rebuild(node, capsys, **more):
    return run(boot_image, capsys, root=str(node.root), **more)


def test_a_stale_image_is_rebuilt_once(node, builder, capsys):
    planned = rebuild(node, capsys, _ansible_check_mode=True)
    assert planned["changed"] is True and planned["rebuilt"] == ["/boot/initrd.img-6.8.0-1"]
    assert planned["diff"] == {
        "before": {"/boot/initrd.img-6.8.0-1": "shared"},
        "after": {"/boot/initrd.img-6.8.0-1": "exclusive"},
    }
    assert builder.commands == [] and node.image.read_bytes() == OLD
    told = rebuild(node, capsys)
    assert told["changed"] is True and told["diff"] == planned["diff"]
    assert builder.commands == [["/usr/sbin/update-initramfs", "-u", "-k", "6.8.0-1"]]
    assert told["images"][0]["mode"] == "exclusive" and told["images"][0]["stale"] is False
    assert not node.kept.exists()
    assert rebuild(node, capsys)["changed"] is False
    assert len(builder.commands) == 1


def test_in_check_mode_the_mode_may_still_have_to_be_written(node, builder, capsys):
    told = rebuild(node, capsys, mode="shared", _ansible_check_mode=True)
    assert told["changed"] is False
    told = rebuild(node, capsys, mode="shared")
    assert told["failed"] is True and "ib_core_netns first" in told["msg"]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (image(SHARED), 0, "it sets shared"),
        (image(None), 0, "it sets no netns_mode"),
        (image(EXCLUSIVE)[:-20], 0, "cannot be read"),
        (b"", 0, "cannot be read"),
        (image(EXCLUSIVE, modules=1), 0, "modules"),
        (image(EXCLUSIVE, ib_core=False), 0, "ib_core is no longer in it"),
        (image(EXCLUSIVE), 1, "ended with code 1"),
        (None, 2, "ended with code 2"),
    ],
    ids=[
        "another mode",
        "no mode",
        "cut off",
        "empty",
        "fewer modules",
        "without ib_core",
        "builder failed",
        "builder wrote nothing",
    ],
)
def test_fc26_a_new_image_that_must_not_be_booted_is_replaced_by_the_old_one(node, builder, capsys, data, code, words):
    builder.data, builder.code = data, code
    told = rebuild(node, capsys)
    assert told["failed"] is True and words in told["msg"] and "the old one was put back" in told["msg"]
    assert told["restored"] == ["/boot/initrd.img-6.8.0-1"] and told["rebuilt"] == []
    assert node.image.read_bytes() == OLD
    assert not node.kept.exists()


def test_a_smaller_image_can_be_allowed(node, builder, capsys):
    builder.data = image(EXCLUSIVE, modules=8)
    assert rebuild(node, capsys, minimum_percent=90)["failed"] is True
    assert rebuild(node, capsys, minimum_percent=50)["changed"] is True


def test_without_room_nothing_is_started(node, builder, capsys, monkeypatch):
    monkeypatch.setattr(image_rebuild, "_MARGIN", 1 << 60)
    told = rebuild(node, capsys)
    assert told["failed"] is True and "Remove old kernels" in told["msg"]
    assert builder.commands == [] and node.image.read_bytes() == OLD


def test_after_an_interrupted_rebuild_the_old_image_comes_back_first(node, builder, capsys):
    node.kept.write_bytes(OLD)
    node.image.write_bytes(image(EXCLUSIVE)[:-9])
    told = rebuild(node, capsys)
    assert told["restored"] == told["rebuilt"] == ["/boot/initrd.img-6.8.0-1"]
    assert told["images"][0]["mode"] == "exclusive" and not node.kept.exists()


def test_a_damaged_image_is_rebuilt(node, builder, capsys):
    node.image.write_bytes(OLD[:-20])
    assert rebuild(node, capsys)["rebuilt"] == ["/boot/initrd.img-6.8.0-1"]


def test_an_image_in_an_unknown_packing_is_left_alone(node, builder, capsys):
    node.image.write_bytes(b"\x02\x21\x4c\x18")
    for check in (True, False):
        told = rebuild(node, capsys, _ansible_check_mode=check)
        assert told["failed"] is True and "lz4" in told["msg"]
    assert builder.commands == []


def test_an_image_that_agrees_is_not_touched(node, builder, capsys):
    node.image.write_bytes(image(None, ib_core=False))
    assert rebuild(node, capsys)["changed"] is False
    assert builder.commands == []


def test_a_system_without_a_supported_builder_says_what_to_do(node, builder, capsys):
    (node.root / "usr/sbin/update-initramfs").rename(node.root / "usr/sbin/booster")
    told = rebuild(node, capsys)
    assert told["failed"] is True and "booster is not supported" in told["msg"] and node.image.read_bytes() == OLD


def test_another_root_is_only_looked_at(node, capsys):
    assert "running system only" in rebuild(node, capsys)["msg"]
    assert rebuild(node, capsys, _ansible_check_mode=True)["changed"] is True


def test_every_stale_kernel_is_rebuilt_and_only_those(node, builder, capsys):
    node.add("/lib/modules/6.11.0-2/modules.dep =\n/boot/vmlinuz-6.11.0-2 = x")
    (node.root / "boot/initrd.img-6.11.0-2").write_bytes(image(EXCLUSIVE, kernel="6.11.0-2"))
    told = rebuild(node, capsys)
    assert told["rebuilt"] == ["/boot/initrd.img-6.8.0-1"] and len(builder.commands) == 1


def test_minimum_percent_has_bounds(node, capsys):
    assert "1 to 100" in rebuild(node, capsys, minimum_percent=0)["msg"]
