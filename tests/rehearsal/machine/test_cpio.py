# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boot image: what the stand-in update-initramfs writes, the machine's own reader reads; damage is noticed."""

from __future__ import annotations

import gzip
import shutil
import stat
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_support import TOOLS

from rehearsal.machine.cpio import BrokenImage, members

NAMES = st.lists(
    st.text("abcdef-._", min_size=1, max_size=12).filter(lambda name: name.strip(".")), min_size=1, max_size=3
)
FILES = st.dictionaries(NAMES.map("/".join), st.binary(max_size=64), max_size=6)


def prefix_free(files):
    return not any(other.startswith(name + "/") for name in files for other in files)


@given(files=FILES.filter(prefix_free))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much], max_examples=50)
def test_reads_what_was_built(boot_image, files):
    image = gzip.compress(boot_image.archive(files))
    found = {name: content for name, mode, content in members(image) if stat.S_ISREG(mode)}
    assert found == files


def test_several_archives_follow_each_other(boot_image):
    early = boot_image.archive({"kernel/x86/microcode/AuthenticAMD.bin": b"ucode"})
    late = gzip.compress(boot_image.archive({"etc/modprobe.d/a.conf": b"options ib_core netns_mode=0\n"}))
    names = [name for name, _mode, _content in members(early + b"\0" * 512 + late)]
    assert "kernel/x86/microcode/AuthenticAMD.bin" in names
    assert "etc/modprobe.d/a.conf" in names


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd", "lz4", "cat"])
def test_every_compression_behind_microcode(boot_image, kind):
    if kind in boot_image.PROGRAMS and shutil.which(kind) is None:
        pytest.skip(f"no {kind} here")
    files = {"etc/modprobe.d/a.conf": b"x" * 5000}
    image = boot_image.image(files, kind)
    assert "kernel/x86/microcode/AuthenticAMD.bin" in [name for name, _mode, _content in members(image)]
    assert files.items() <= {name: content for name, _mode, content in members(image)}.items()
    with pytest.raises(BrokenImage):
        list(members(image[:-60]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda image: b"", "empty"),
        (lambda image: b"\0" * 64, "empty"),
        (lambda image: b"no image at all", "neither cpio nor a known"),
        (lambda image: image[: len(image) // 2], "ends too early"),
        (lambda image: image[:40] + bytes(40) + image[80:], "damaged"),
        (lambda image: gzip.compress(gzip.decompress(image)[:-124]), "expected"),
        (lambda image: gzip.compress(b"070701" + b"zz" + gzip.decompress(image)[8:]), "hexadecimal"),
    ],
)
def test_damage_is_noticed(boot_image, damage, message):
    image = gzip.compress(boot_image.archive({"etc/modprobe.d/a.conf": bytes(range(256)) * 4}))
    assert list(members(image))
    with pytest.raises(BrokenImage, match=message):
        list(members(damage(image)))


def test_lsinitramfs_lists_names(boot_image, tmp_path):
    image = tmp_path / "initrd.img"
    image.write_bytes(boot_image.image({"etc/modprobe.d/a.conf": b"x"}, "gzip"))
    done = subprocess.run(["python3", TOOLS / "lsinitramfs", image], capture_output=True, text=True, check=True)
    assert "etc/modprobe.d/a.conf" in done.stdout.splitlines()
    image.write_bytes(b"broken")
    assert subprocess.run(["python3", TOOLS / "lsinitramfs", image], capture_output=True, check=False).returncode == 1
