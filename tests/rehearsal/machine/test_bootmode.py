# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which mode a boot gets: the image's options when the image holds ib_core, else the root file system's; real kmod
reads them.
"""

from __future__ import annotations

import gzip
import shutil

import pytest

from rehearsal.machine import bootmode
from rehearsal.machine.bootloader import Entry
from rehearsal.machine.bootmode import BootFailure

KERNEL = "6.8.0-test"
ENTRY = Entry(KERNEL, f"/boot/vmlinuz-{KERNEL}", f"/boot/initrd.img-{KERNEL}", "ro")
MODULE = f"usr/lib/modules/{KERNEL}/kernel/drivers/infiniband/core/ib_core.ko"
pytestmark = pytest.mark.skipif(shutil.which("modprobe", path="/usr/sbin:/sbin:/usr/bin") is None, reason="no kmod")


@pytest.fixture
def node(tmp_path, boot_image):
    """make(image files, root files) -> root folder of a node."""

    def make(image, files=(), module=MODULE):
        (tmp_path / "boot").mkdir()
        (tmp_path / "boot" / f"vmlinuz-{KERNEL}").touch()
        content = {name: text.encode() for name, text in image.items()}
        if module:
            content[module] = b"\x7fELF"
        path = tmp_path / "boot" / f"initrd.img-{KERNEL}"
        path.write_bytes(gzip.compress(boot_image.archive(content)))
        for name, text in dict(files).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return make


def boot_mode(root):
    return bootmode.boot_mode(root, ENTRY)


def mode(root):
    return boot_mode(root).mode


def test_modules_of_another_kernel_do_not_count(node):
    other = MODULE.replace(KERNEL, "6.9.0-other")
    root = node({}, {"etc/modprobe.d/ib_core.conf": "options ib_core netns_mode=0\n"}, module=other)
    assert (boot_mode(root).mode, boot_mode(root).source) == ("exclusive", "root")


def test_an_entry_without_an_image_does_not_boot(node):
    with pytest.raises(BootFailure, match="no boot image for /boot/vmlinuz"):
        bootmode.boot_mode(node({}), Entry(KERNEL, ENTRY.linux, None, "ro"))


def test_default_is_shared(node):
    assert boot_mode(node({})).source == "default"


def test_image_decides_and_not_the_file(node):
    root = node(
        {"etc/modprobe.d/ib_core.conf": "options ib_core netns_mode=0\n"},
        {"etc/modprobe.d/ib_core.conf": "options ib_core netns_mode=1\n"},
    )
    assert mode(root) == "exclusive"


@pytest.mark.parametrize("suffix", ["", ".xz", ".zst"])
def test_compressed_module_counts(node, suffix):
    root = node({}, {"etc/modprobe.d/ib_core.conf": "options ib_core netns_mode=0\n"}, module=MODULE + suffix)
    assert mode(root) == "shared"


def test_without_the_module_in_the_image_the_root_decides(node):
    root = node(
        {"etc/modprobe.d/ib_core.conf": "options ib_core netns_mode=1\n"},
        {"etc/modprobe.d/ib_core.conf": "options ib_core netns_mode=0\n"},
        module=None,
    )
    found = boot_mode(root)
    assert (found.mode, found.source) == ("exclusive", "root")


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"a.conf": "netns_mode=0", "b.conf": "netns_mode=1"}, "shared"),
        ({"a.conf": "netns_mode=1", "b.conf": "netns_mode=0"}, "exclusive"),
        ({"a.conf": "netns_mode=1 other=3 netns_mode=0"}, "exclusive"),
        ({"a.conf": "netns_mode=N"}, "exclusive"),
        ({"a.conf": "netns_mode=off"}, "exclusive"),
        ({"a.conf": "netns_mode=on"}, "shared"),
        ({"a.conf.bak": "netns_mode=0"}, "shared"),
    ],
)
def test_the_last_option_wins(node, files, wanted):
    image = {f"etc/modprobe.d/{name}": f"options ib_core {text}\n" for name, text in files.items()}
    assert mode(node(image)) == wanted


def test_a_comment_is_no_option_and_a_continued_line_is(node):
    image = {"etc/modprobe.d/a.conf": "# options ib_core netns_mode=0\noptions ib_core \\\n netns_mode=0\n"}
    assert mode(node(image)) == "exclusive"


def test_a_file_in_etc_hides_the_vendors_of_the_same_name(node):
    image = {
        "usr/lib/modprobe.d/ib.conf": "options ib_core netns_mode=0\n",
        "etc/modprobe.d/ib.conf": "# nothing\n",
    }
    assert mode(node(image)) == "shared"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / f"boot/initrd.img-{KERNEL}").unlink(), "no boot image"),
        (lambda root: (root / f"boot/vmlinuz-{KERNEL}").unlink(), "not found"),
        (lambda root: (root / f"boot/initrd.img-{KERNEL}").write_bytes(b"x"), "broken"),
    ],
)
def test_a_boot_that_cannot_be(node, spoil, message):
    root = node({})
    assert mode(root) == "shared"
    spoil(root)
    with pytest.raises(BootFailure, match=message):
        mode(root)


def test_a_value_that_the_kernel_refuses(node):
    with pytest.raises(BootFailure, match="invalid for parameter"):
        mode(node({"etc/modprobe.d/a.conf": "options ib_core netns_mode=2\n"}))
