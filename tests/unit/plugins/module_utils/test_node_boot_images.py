# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import bz2
import gzip
import io
import lzma

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils import boot_images, image_rebuild, initramfs
from ansible_collections.railyard.rdma.plugins.module_utils.initramfs import UnreadableImage, read_image
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, cpio, image
from hypothesis import given, settings
from hypothesis import strategies as st

EXCLUSIVE, SHARED = "options ib_core netns_mode=0\n", "options ib_core netns_mode=1\n"
UNSET = {"mode": None, "reason": None}


def setting(mode):
    return {"mode": mode, "reason": None}


def read(data):
    return read_image(io.BytesIO(data))


@pytest.mark.parametrize(
    ("pack", "formats"),
    [
        (gzip.compress, ["cpio", "gzip"]),
        (bz2.compress, ["cpio", "bzip2"]),
        (lzma.compress, ["cpio", "xz"]),
        (lambda data: lzma.compress(data, lzma.FORMAT_ALONE), ["cpio", "lzma"]),
        (lambda data: data, ["cpio", "cpio"]),
    ],
)
def test_every_packing_that_python_knows(pack, formats):
    told = read(image(EXCLUSIVE, pack=pack))
    assert told["formats"] == formats
    assert told["config"] == {"/etc/modprobe.d/ib_core.conf": EXCLUSIVE}
    assert told["holds_ib_core"] is True
    assert told["modules"] == 11
    assert told["kernels"] == ["6.8.0-1"]


def test_a_later_archive_replaces_files_of_an_earlier_one():
    later = gzip.compress(cpio({"./etc/modprobe.d/ib_core.conf": SHARED.encode()}))
    told = read(image(EXCLUSIVE) + b"\0" * 512 + later)
    assert told["config"] == {"/etc/modprobe.d/ib_core.conf": SHARED}
    assert told["formats"] == ["cpio", "gzip", "gzip"]


def test_two_archives_in_one_compressed_part():
    data = gzip.compress(cpio({"init": b"x"}) + b"\0" * 100 + cpio({"etc/modprobe.d/a.conf": b"options a b=1"}))
    assert read(data)["config"] == {"/etc/modprobe.d/a.conf": "options a b=1"}


def test_every_cut_of_an_image_is_seen():
    for pack in (gzip.compress, lzma.compress, lambda data: data):
        whole = image(EXCLUSIVE, modules=2, pack=pack, microcode=False)
        ending = len(whole.rstrip(b"\0")) - 1  # zero bytes at the very end are padding
        for size in range(0, ending, 7):
            with pytest.raises(UnreadableImage):
                read(whole[:size])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no files"),
        (b"\0" * 999, "no files"),
        (b"not an image at all", "damaged"),
        (b"\x02\x21\x4c\x18rest", "compressed with lz4"),
        (cpio({"a": b"1"}) + b"garbage", "damaged"),
        (cpio({"a": b"1"}).replace(b"070701", b"zzzzzz", 2)[110:], "damaged"),
        (b"\x1f\x8b\x08" + b"\xff" * 99, "damaged gzip data"),
    ],
)
def test_what_cannot_be_read_says_why(data, words):
    with pytest.raises(UnreadableImage, match=words):
        read(data)


def test_an_image_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(initramfs, "_MAXIMUM_UNPACKED", 1 << 30)
    bomb = cpio({}).replace(b"TRAILER!!!", b"a" * 10)[:124]
    header = bytearray(bomb)
    header[54:62] = b"7fffffff"
    with pytest.raises(UnreadableImage, match="unpacks to more than 1 GiB|cut short"):
        read(bytes(header) + b"\0" * 1000)


@settings(max_examples=300)
@given(st.binary(max_size=300), st.integers(0, 900), st.sampled_from([gzip.compress, lzma.compress, lambda data: data]))
def test_no_bytes_make_the_reader_fail_otherwise_or_hang(noise, place, pack):
    data = image(SHARED, modules=1, pack=pack)
    for broken in (noise, data[:place] + noise + data[place + len(noise) :], pack(data[:place] + noise)):
        try:
            assert read(broken)["members"] > 0
        except UnreadableImage as error:
            assert str(error)


@pytest.fixture
def system(tmp_path):
    return NodeTree(tmp_path).add(
        """
        /usr/sbin/update-initramfs = x
        /usr/sbin/mkinitramfs = x
        /lib/modules/6.8.0-1/modules.dep =
        /boot/vmlinuz-6.8.0-1 = x
        """
    )


def inspect(system, data, wanted=None, name="initrd.img-6.8.0-1"):
    if data is not None:
        (system.root / "boot" / name).write_bytes(data)
    return boot_images.inspect_all(system.tree(), wanted or setting("exclusive"))


def test_fc26_an_image_older_than_the_file_is_stale(system):
    (told,) = inspect(system, image(SHARED))
    assert told["stale"] is True and told["mode"] == "shared" and told["holds_option"] is True
    assert told["builder"] == "initramfs-tools" and told["default"] is True and told["whole"] is True
    after = boot_images.next_boot(setting("exclusive"), UNSET, [told], "initramfs-tools")
    assert after == setting("shared")
    (told,) = inspect(system, image(EXCLUSIVE))
    assert told["stale"] is False
    assert boot_images.next_boot(setting("exclusive"), UNSET, [told], "initramfs-tools") == setting("exclusive")


def test_fc26_an_image_without_the_file_gives_the_kernels_default(system):
    (told,) = inspect(system, image(None))
    assert told["stale"] is True and told["holds_option"] is False
    assert boot_images.next_boot(setting("exclusive"), UNSET, [told], "initramfs-tools") == setting("shared")
    (told,) = inspect(system, image(None), setting("shared"))
    assert told["stale"] is False, "no rebuild for an option that changes nothing"


def test_an_image_without_ib_core_leaves_it_to_the_file(system):
    (told,) = inspect(system, image(SHARED, ib_core=False))
    assert told["stale"] is False
    assert boot_images.next_boot(setting("exclusive"), UNSET, [told], "initramfs-tools") == setting("exclusive")


def test_the_kernel_line_beats_image_and_file(system):
    images = inspect(system, image(EXCLUSIVE))
    assert boot_images.next_boot(setting("exclusive"), setting("shared"), images, "dracut") == setting("shared")


def test_an_unreadable_image_makes_the_next_boot_unknown(system):
    (told,) = inspect(system, b"\x02\x21\x4c\x18")
    assert told["stale"] is None and "lz4" in told["reason"] and told["whole"] is None
    after = boot_images.next_boot(setting("exclusive"), UNSET, [told], "initramfs-tools")
    assert after["mode"] is None and "lz4" in after["reason"]
    (told,) = inspect(system, image(EXCLUSIVE)[:-20])
    assert told["whole"] is False and "cut short" in told["reason"]


def test_a_missing_image_is_unknown_not_fine(system):
    (told,) = inspect(system, None)
    assert told["path"] is None and told["stale"] is None and "no image" in told["reason"]
    assert boot_images.next_boot(UNSET, UNSET, [], "dracut")["mode"] is None
    assert boot_images.next_boot(setting("exclusive"), UNSET, [], "none") == setting("exclusive")


def test_two_kernels_that_differ_leave_the_next_boot_open(system):
    system.add("/lib/modules/6.11.0-2/modules.dep =\n/boot/vmlinuz-6.11.0-2 = x")
    (system.root / "boot/initramfs-6.11.0-2.img").write_bytes(image(SHARED, kernel="6.11.0-2"))
    images = inspect(system, image(EXCLUSIVE))
    assert [entry["stale"] for entry in images] == [True, False]
    assert [entry["default"] for entry in images] == [None, None]
    after = boot_images.next_boot(setting("exclusive"), UNSET, images, "initramfs-tools")
    assert after["mode"] is None and "6.11.0-2 shared" in after["reason"]
    assert "differ" in boot_images.summary(images)["reason"]


@pytest.mark.parametrize(
    ("programs", "builder"),
    [
        (["usr/sbin/update-initramfs", "usr/sbin/mkinitramfs"], "initramfs-tools"),
        (["usr/sbin/update-initramfs"], "initramfs-tools"),
        (["usr/bin/dracut"], "dracut"),
        (["usr/sbin/update-initramfs", "usr/bin/dracut"], "dracut"),
        (["usr/bin/mkinitcpio"], "mkinitcpio"),
        (["usr/bin/booster"], "booster"),
        ([], "none"),
    ],
)
def test_fc27_the_builder_is_what_is_installed(tmp_path, programs, builder):
    node = NodeTree(tmp_path)
    for program in programs:
        node.add(f"/{program} = x")
    assert boot_images.find_builder(node.tree()) == builder


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


def test_space_is_asked_for_the_new_image_and_a_copy(tmp_path):
    assert image_rebuild.space_problem(str(tmp_path), 1 << 20) is None
    assert "needs" in image_rebuild.space_problem(str(tmp_path), 1 << 60)


def test_builders_that_are_not_supported_say_what_to_do():
    entry = {"path": "/boot/i", "kernel": "6.8.0-1"}
    assert image_rebuild.build_command("dracut", entry, "/usr/bin/dracut") == [
        "/usr/bin/dracut",
        "--force",
        "/boot/i",
        "6.8.0-1",
    ]
    for builder in ("mkinitcpio", "booster", "none"):
        with pytest.raises(ValueError, match="Rebuild it with the system's own tool"):
            image_rebuild.build_command(builder, entry, "")
