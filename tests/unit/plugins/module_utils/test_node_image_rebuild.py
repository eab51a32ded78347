# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.boot import image_rebuild

MiB = 1 << 20


def described(**more):
    whole = {"whole": True, "reason": None, "holds_ib_core": True, "mode": "exclusive", "size": 1000, "modules": 100}
    return {**whole, **more}


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ({}, None),
        ({"size": 800, "modules": 80}, None),
        ({"whole": False, "reason": "cut short"}, "cut short"),
        ({"mode": "shared"}, "it sets shared"),
        ({"mode": None}, "sets no netns_mode"),
        ({"mode": None, "reason": "not a boolean"}, "not a boolean"),
        ({"holds_ib_core": False}, "ib_core is no longer"),
        ({"size": 799}, "799 bytes"),
        ({"modules": 79}, "79 modules"),
    ],
)
def test_a_new_image_is_judged_before_it_is_booted(new, words):
    reasons = image_rebuild.judge(described(mode="shared"), described(**new), "exclusive", 80)
    assert bool(reasons) == bool(words)
    assert words is None or words in "; ".join(reasons)


STORAGE = {"nvme": "kernel/drivers/nvme/host", "ext4": "kernel/fs/ext4", "snd": "kernel/sound"}


def judged(lost, loaded=(), **more):
    new = {name: place for name, place in STORAGE.items() if name not in lost}
    old = described(names=STORAGE)
    return "; ".join(image_rebuild.judge(old, described(names=new, **more), "exclusive", 80, frozenset(loaded)))


def test_a_lost_module_that_carries_the_root_is_never_accepted():
    assert judged([]) == judged(["snd"], ["snd"]) == judged(["nvme"]) == ""
    assert "in use: ext4, nvme" in judged(["nvme", "ext4"], ["nvme", "ext4", "snd"])


def test_lost_modules_are_named_those_of_disks_first():
    assert "lost are nvme, snd" in judged(["snd", "nvme"], modules=50)
    many = {f"m{number}": "kernel/net" for number in range(30)}
    told = image_rebuild.judge(described(names=many), described(names={}, modules=1), "exclusive", 80)
    assert "m0, m1, m10, m11, m12, m13, m14, m15 and 22 more" in told[0]


def test_a_damaged_old_image_is_no_measure():
    old = described(whole=False, holds_ib_core=None, modules=None, size=99999)
    assert image_rebuild.judge(old, described(), "exclusive", 80) == []


def test_space_is_asked_for_the_new_image_and_where_needed_a_copy():
    assert image_rebuild.space_needed(100 * MiB, beside=True) == 133 * MiB
    assert image_rebuild.space_needed(100 * MiB, beside=False) == 233 * MiB
    assert image_rebuild.workspace_needed(100 * MiB, 300 * MiB) == 708 * MiB
    assert image_rebuild.workspace_needed(100 * MiB, None) == 1108 * MiB


def test_a_directory_without_room_or_permission_is_told(tmp_path, monkeypatch):
    place = str(tmp_path)
    assert image_rebuild.space_problem(place, MiB, "the new image") is None
    assert "needed (the new image)" in image_rebuild.space_problem(place, 1 << 62, "the new image")
    assert "No such file" in image_rebuild.space_problem(place + "/x", 1, "")
    monkeypatch.setattr(os, "access", lambda *_more: False)
    assert "Run with become" in image_rebuild.space_problem(place, 1, "")
    status = os.statvfs(place)
    read_only = os.statvfs_result((*status[:8], status.f_flag | os.ST_RDONLY, *status[9:]))
    monkeypatch.setattr(os, "statvfs", lambda _place: read_only)
    assert "read-only" in image_rebuild.space_problem(place, 1, "")


@pytest.mark.parametrize("name", [image_rebuild.kept_name("/boot/X"), image_rebuild.new_name("/boot/X")])
def test_names_beside_an_image_match_no_pattern_of_a_shell(name):
    assert name.startswith("/boot/.") and name.endswith(".X")


def test_a_configuration_file_is_written_in_one_step(tmp_path, monkeypatch):
    place = tmp_path / "dracut.conf.d/90.conf"
    image_rebuild.write_file(str(place), "a\n")
    assert place.read_text() == "a\n" and place.stat().st_mode & 0o777 == 0o644

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        image_rebuild.write_file(str(place), "b\n")
    assert place.read_text() == "a\n" and os.listdir(place.parent) == ["90.conf"]
