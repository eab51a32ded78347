# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import fcntl
import gzip
import os

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.boot import (
    boot_loader,
    image_rebuild,
    image_rebuilder,
    unpackers,
)
from ansible_collections.railyard.rdma.plugins.modules import boot_image
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, cpio, image
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
        self.run = self.run_command

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
        /run/
        /var/tmp/
        """
    )
    node.image = tmp_path / "boot/initrd.img-6.8.0-1"
    node.image.write_bytes(OLD)
    node.kept = tmp_path / "boot/.railyard-old.initrd.img-6.8.0-1"
    return node


@pytest.fixture
def builder(node, monkeypatch):
    builder = Builder(node.image)
    monkeypatch.setattr(image_rebuilder, "can_build", lambda tree: True)
    monkeypatch.setattr(
        "ansible.module_utils.basic.AnsibleModule.run_command",
        lambda _self, *words, **more: builder.run(*words, **more),
    )
    return builder


def rebuild(node, capsys, **more):
    return run(boot_image, capsys, root=str(node.root), **more)


def test_a_stale_image_is_rebuilt_once(node, builder, capsys):
    planned = rebuild(node, capsys, _ansible_check_mode=True)
    assert planned["changed"] is True and planned["rebuilt"] == ["/boot/initrd.img-6.8.0-1"]
    assert planned["diff"] == [
        {"before": {"/boot/initrd.img-6.8.0-1": "shared"}, "after": {"/boot/initrd.img-6.8.0-1": "exclusive"}}
    ]
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
    assert told["failed"] is True and words in told["msg"] and "The old one was put back" in told["msg"]
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


def test_a_damaged_image_is_rebuilt(node, builder, capsys):
    node.image.write_bytes(OLD[:-20])
    assert rebuild(node, capsys)["rebuilt"] == ["/boot/initrd.img-6.8.0-1"]


def test_an_image_in_an_unknown_packing_is_left_alone(node, builder, capsys, monkeypatch):
    monkeypatch.setattr(unpackers, "_load", lambda name: None)
    monkeypatch.setattr(unpackers.shutil, "which", lambda *_names, **_more: None)
    node.image.write_bytes(b"\x02\x21\x4c\x18")
    for check in (True, False):
        told = rebuild(node, capsys, _ansible_check_mode=check)
        assert told["failed"] is True and "lz4" in told["msg"]
    assert builder.commands == []


def test_an_image_that_agrees_is_not_touched(node, builder, capsys):
    node.image.write_bytes(image(None, ib_core=False))
    assert rebuild(node, capsys)["changed"] is False
    assert builder.commands == []


def test_a_system_without_a_builder_says_what_to_do(node, builder, capsys):
    (node.root / "usr/sbin/update-initramfs").unlink()
    told = rebuild(node, capsys)
    assert told["failed"] is True and "no program that builds boot images" in told["msg"]
    assert "kernel argument ib_core.netns_mode=0" in told["advice"] and node.image.read_bytes() == OLD


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ("/etc/os-release = ID=talos", "extraKernelArgs"),
        ("/run/ostree-booted =\n/usr/bin/rpm-ostree = x\n/usr/bin/dracut = x", "rpm-ostree initramfs-etc --track"),
    ],
)
def test_on_a_system_whose_images_are_made_elsewhere_nothing_is_touched(node, builder, capsys, description, words):
    node.add(description)
    told = rebuild(node, capsys)
    assert told["failed"] is True and words in told["msg"] and words in told["advice"]
    assert builder.commands == [] and node.image.read_bytes() == OLD and told["configured"] == []
    node.image.write_bytes(image(EXCLUSIVE))
    told = rebuild(node, capsys)
    assert told["changed"] is False and words in told["advice"]


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


def test_only_the_next_kernel_where_that_is_asked_for(node, builder, capsys, monkeypatch):
    node.add("/lib/modules/6.11.0-2/modules.dep =\n/boot/vmlinuz-6.11.0-2 = x")
    (node.root / "boot/initrd.img-6.11.0-2").write_bytes(image(SHARED, kernel="6.11.0-2"))
    told = rebuild(node, capsys, kernels="next")
    assert told["failed"] is True and "cannot be told which kernel boots next" in told["msg"]
    entries = [{"kernel": "6.8.0-1", "initrd": ["/boot/initrd.img-6.8.0-1"], "default": True}]
    loader = {"default_kernel": "6.8.0-1", "reason": None, "entries": entries}
    monkeypatch.setattr(boot_loader, "read", lambda tree: loader)
    told = rebuild(node, capsys, kernels="next")
    assert told["rebuilt"] == ["/boot/initrd.img-6.8.0-1"]
    assert [(one["default"], one["stale"]) for one in told["images"]] == [(False, True), (True, False)]


def test_an_image_that_came_along_with_another_is_not_built_again(node, builder, capsys):
    other = node.root / "boot/0123/6.8.0-1/initrd.img-6.8.0-1"
    other.parent.mkdir(parents=True)
    other.write_bytes(OLD)
    run_command = builder.run_command

    def with_hook(command, **more):  # as Debian's systemd-boot has it in /etc/initramfs/post-update.d
        other.write_bytes(image(EXCLUSIVE))
        return run_command(command, **more)

    builder.run = with_hook
    told = rebuild(node, capsys)
    assert len(told["rebuilt"]) == 2 and len(builder.commands) == 1


def test_a_module_in_use_must_not_get_lost(node, builder, capsys):
    ext4 = "usr/lib/modules/6.8.0-1/kernel/fs/ext4/ext4.ko"
    node.image.write_bytes(OLD + gzip.compress(cpio({ext4: b"x"})))
    old = node.image.read_bytes()
    node.add("/sys/module/ext4/refcnt = 1")
    told = rebuild(node, capsys)
    assert told["failed"] is True and "in use: ext4" in told["msg"] and node.image.read_bytes() == old


def test_the_builders_last_words_are_told(node, builder, capsys):
    builder.code = 3
    told = rebuild(node, capsys)
    assert "update-initramfs ended with code 3" in told["msg"] and told["msg"].endswith("last words: err")


def test_two_runs_are_kept_apart(node, builder, capsys, monkeypatch):
    monkeypatch.setattr(image_rebuilder, "LOCK_SECONDS", 0)
    holder = os.open(node.root / "run/railyard-boot_image.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    told = rebuild(node, capsys)
    assert told["failed"] is True and "still works" in told["msg"] and builder.commands == []
    os.close(holder)
    assert rebuild(node, capsys)["changed"] is True


CURE = "/etc/dracut.conf.d/90-railyard-ib_core.conf"


@pytest.fixture
def dracut(node, builder, monkeypatch):
    """dracut as it is: leaves modprobe.d out unless a configuration file names it."""
    (node.root / "usr/sbin/update-initramfs").rename(node.root / "usr/sbin/dracut")

    def run_command(command, **_more):
        builder.commands.append(command)
        cured = (node.root / CURE[1:]).exists()
        node.root.joinpath(command[2][1:]).write_bytes(image(EXCLUSIVE if cured else None))
        return 0, "", ""

    builder.run = run_command
    node.image.write_bytes(image(None))
    return builder


def test_dracut_is_told_to_take_the_option_and_builds_beside_the_old_image(node, dracut, capsys):
    node.image.chmod(0o600)
    planned = rebuild(node, capsys, _ansible_check_mode=True)
    assert planned["configured"] == [CURE] and not (node.root / CURE[1:]).exists()
    assert planned["diff"][1]["after_header"] == CURE and "install_items" in planned["diff"][1]["after"]
    told = rebuild(node, capsys)
    assert told["configured"] == [CURE] and told["diff"] == planned["diff"]
    assert dracut.commands == [["/usr/sbin/dracut", "--force", "/boot/.railyard-new.initrd.img-6.8.0-1", "6.8.0-1"]]
    assert sorted(os.listdir(node.root / "boot")) == ["initrd.img-6.8.0-1", "vmlinuz-6.8.0-1"]
    assert node.image.stat().st_mode & 0o777 == 0o600
    again = rebuild(node, capsys)
    assert again["changed"] is False and again["configured"] == [] and len(dracut.commands) == 1


def test_check_mode_expects_the_file_that_is_not_written_yet(node, dracut, capsys):
    (node.root / "etc/modprobe.d/ib_core.conf").unlink()
    planned = rebuild(node, capsys, mode="exclusive", _ansible_check_mode=True)
    assert planned["configured"] == [CURE] and " /etc/modprobe.d/ib_core.conf " in planned["diff"][1]["after"]


def test_dracut_that_takes_the_option_anyway_needs_no_file_of_ours(node, dracut, capsys):
    node.image.write_bytes(image(SHARED))

    def run_command(command, **_more):
        node.root.joinpath(command[2][1:]).write_bytes(image(EXCLUSIVE))
        return 0, "", ""

    dracut.run = run_command
    told = rebuild(node, capsys)
    assert told["rebuilt"] and told["configured"] == []


def test_what_dracut_built_badly_never_gets_the_images_name(node, dracut, capsys):
    old = node.image.read_bytes()
    dracut.run = lambda command, **_more: (1, "", "no space")
    told = rebuild(node, capsys)
    assert told["failed"] is True and "The old image is untouched" in told["msg"] and told["restored"] == []
    assert node.image.read_bytes() == old
    assert sorted(os.listdir(node.root / "boot")) == ["initrd.img-6.8.0-1", "vmlinuz-6.8.0-1"]
