# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that is killed: at every step that changes the disk, then the next run must end with one good image and no
leftovers. The killed run is a process of its own that ends without any cleaning up, as by SIGKILL."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.boot import image_rebuild, image_rebuilder
from ansible_collections.railyard.rdma.plugins.modules import boot_image
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, image
from ansible_collections.railyard.rdma.tests.unit.plugins.modules.run_module import run

OLD, NEW = image("options ib_core netns_mode=1\n"), image("options ib_core netns_mode=0\n")
KILLED = 77


class Steps:
    """Counts the steps of a run and ends the process before step ``last``."""

    def __init__(self, last) -> None:
        self.left = last

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os._exit(KILLED)

    def wrapped(self, function):
        def call(*words, **more):
            self.step()
            result = function(*words, **more)
            self.step()
            return result

        return call


def write_in_pieces(place, data, steps) -> None:
    with open(place, "wb") as file:
        for start in range(0, len(data), len(data) // 3 + 1):
            steps.step()
            file.write(data[start : start + len(data) // 3 + 1])
            file.flush()


@pytest.fixture(params=["initramfs-tools", "dracut"])
def node(request, tmp_path):
    program = {"initramfs-tools": "update-initramfs", "dracut": "dracut"}[request.param]
    node = NodeTree(tmp_path).add(
        f"""
        /usr/sbin/{program} = x
        /lib/modules/6.8.0-1/modules.dep =
        /boot/vmlinuz-6.8.0-1 = x
        /etc/modprobe.d/ib_core.conf = options ib_core netns_mode=0
        /run/
        /var/tmp/
        """
    )
    node.image = tmp_path / "boot/initrd.img-6.8.0-1"
    node.image.write_bytes(OLD)
    return node


def install(node, monkeypatch, steps, data=NEW) -> None:
    def run_command(_self, command, **_more):
        target = command[2] if command[0].endswith("dracut") else "/boot/initrd.img-6.8.0-1"
        write_in_pieces(str(node.root) + target, data, steps)
        return 0, "", ""

    monkeypatch.setattr(image_rebuilder, "can_build", lambda tree: True)
    monkeypatch.setattr("ansible.module_utils.basic.AnsibleModule.run_command", run_command)


def killed_run(node, monkeypatch, capsys, last) -> bool:
    """Run the module in a process that ends before step ``last``; False when it ended by itself before that."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED
    code = 1
    try:
        steps = Steps(last)
        install(node, monkeypatch, steps)
        for name in ("replace", "unlink", "fsync", "chmod"):
            monkeypatch.setattr(image_rebuild.os, name, steps.wrapped(getattr(os, name)))
        monkeypatch.setattr(
            shutil, "copy2", lambda source, target: write_in_pieces(target, Path(source).read_bytes(), steps)
        )
        run(boot_image, capsys, root=str(node.root))
        code = 0
    finally:
        os._exit(code)


def test_after_a_kill_at_any_step_the_next_run_ends_well(node, monkeypatch, capsys):
    last, outcomes = 0, set()
    while True:
        last += 1
        shutil.rmtree(node.root / "boot")
        shutil.rmtree(node.root / "etc/dracut.conf.d", ignore_errors=True)
        node.add("/boot/vmlinuz-6.8.0-1 = x")
        node.image.write_bytes(OLD)
        killed = killed_run(node, monkeypatch, capsys, last)
        with monkeypatch.context() as patch:
            install(node, patch, Steps(-1))
            told = run(boot_image, capsys, root=str(node.root))
        assert told.get("failed") is not True, (last, told)
        assert node.image.read_bytes() == NEW, last
        left = [name for name in os.listdir(node.root / "boot") if name.startswith(".")]
        assert left == [], last
        outcomes.add((bool(told["rebuilt"]), bool(told["restored"]), bool(told["completed"])))
        if not killed:
            break
    assert last > 8
    assert (False, False, False) in outcomes, "the last run was not disturbed"
    if (node.root / "usr/sbin/update-initramfs").exists():
        assert (True, True, False) in outcomes, "half an image was put back and built again"
        assert (False, False, True) in outcomes, "a good image was kept"


def test_a_finished_image_is_judged_before_it_is_kept(node, monkeypatch, capsys):
    (node.root / "boot/.railyard-old.initrd.img-6.8.0-1").write_bytes(
        image("options ib_core netns_mode=1\n", modules=40)
    )
    node.image.write_bytes(NEW)  # holds the option, but lost three quarters of the modules
    install(node, monkeypatch, Steps(-1), image("options ib_core netns_mode=0\n", modules=40))
    told = run(boot_image, capsys, root=str(node.root), _ansible_check_mode=True)
    assert told["restored"] == ["/boot/initrd.img-6.8.0-1"] and node.image.read_bytes() == NEW
    told = run(boot_image, capsys, root=str(node.root))
    assert told["restored"] == told["rebuilt"] == ["/boot/initrd.img-6.8.0-1"]
    assert told["images"][0]["modules"] == 41


def test_an_image_that_vanished_comes_back_from_its_copy(node, monkeypatch, capsys):
    node.image.rename(node.root / "boot/.railyard-old.initrd.img-6.8.0-1")
    install(node, monkeypatch, Steps(-1))
    told = run(boot_image, capsys, root=str(node.root))
    assert told["restored"] == told["rebuilt"] == ["/boot/initrd.img-6.8.0-1"] and node.image.read_bytes() == NEW
