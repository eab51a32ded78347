# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import struct

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.boot import boot_images, unpackers
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, cpio, image

EXCLUSIVE, SHARED = "options ib_core netns_mode=0\n", "options ib_core netns_mode=1\n"
UNSET = {"mode": None, "reason": None}


def setting(mode):
    return {"mode": mode, "reason": None}


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


def test_an_unreadable_image_makes_the_next_boot_unknown(system, monkeypatch):
    monkeypatch.setattr(unpackers, "_load", lambda name: None)
    monkeypatch.setattr(unpackers.shutil, "which", lambda *_names, **_more: None)
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


def loader(kernel, initrd=(), reason=None):
    entry = {"kernel": kernel, "initrd": list(initrd), "default": True}
    return {"default_kernel": kernel, "reason": reason, "entries": [entry] if kernel else []}


def test_the_boot_loader_tells_which_image_is_the_default(system):
    system.add("/lib/modules/6.11.0-2/modules.dep =\n/boot/vmlinuz-6.11.0-2 = x")
    for version, option in (("6.8.0-1", EXCLUSIVE), ("6.11.0-2", SHARED)):
        (system.root / f"boot/initrd.img-{version}").write_bytes(image(option, kernel=version))
    wanted = setting("exclusive")
    images = boot_images.inspect_all(system.tree(), wanted, loader("6.8.0-1"))
    assert [(one["kernel"], one["default"]) for one in images] == [("6.11.0-2", False), ("6.8.0-1", True)]
    assert boot_images.next_boot(wanted, UNSET, images, "initramfs-tools") == wanted
    images = boot_images.inspect_all(system.tree(), wanted, loader(None, reason="GRUB_DEFAULT is a riddle"))
    assert [one["default"] for one in images] == [None, None]
    assert images[0]["reason_default"] == "GRUB_DEFAULT is a riddle"
    images = boot_images.inspect_all(system.tree(), wanted, loader("5.4"))
    assert [one["default"] for one in images] == [None, None] and "5.4" in images[0]["reason_default"]


def test_a_fallback_image_is_the_default_only_where_the_entry_names_it(system):
    system.add("/lib/modules/6.8.0-1/pkgbase = linux")
    for name in ("initramfs-linux.img", "initramfs-linux-fallback.img"):
        (system.root / "boot" / name).write_bytes(image(EXCLUSIVE))
    tree, wanted = system.tree(), setting("exclusive")
    told = boot_images.inspect_all(tree, wanted, loader("6.8.0-1"))
    assert [(one["kind"], one["default"]) for one in told] == [("plain", True), ("fallback", False)]
    told = boot_images.inspect_all(tree, wanted, loader("6.8.0-1", ["/boot/initramfs-linux-fallback.img"]))
    assert [one["default"] for one in told] == [False, True]


@pytest.mark.parametrize(
    ("paths", "builder", "found"),
    [
        (["boot/initramfs-6.8.0-1.img"], "dracut", [("plain", "/boot/initramfs-6.8.0-1.img")]),
        (["boot/initrd-6.8.0-1"], "dracut", [("plain", "/boot/initrd-6.8.0-1")]),
        (["boot/0123abcd/6.8.0-1/initrd"], "dracut", [("entry", "/boot/0123abcd/6.8.0-1/initrd")]),
        (["efi/arch/6.8.0-1/initrd.img-6.8.0-1"], "none", [("entry", "/efi/arch/6.8.0-1/initrd.img-6.8.0-1")]),
        (["boot/initramfs-linux.img", "boot/booster-linux.img"], "booster", [("plain", "/boot/booster-linux.img")]),
        (["boot/initramfs-linux.img", "boot/booster-linux.img"], "none", [("plain", "/boot/initramfs-linux.img")]),
        (["boot/booster-6.8.0-1.img"], "booster", [("plain", "/boot/booster-6.8.0-1.img")]),
        (
            ["boot/ostree/os-1/initramfs-6.8.0-1.img"],
            "dracut",
            [("ostree", "/boot/ostree/os-1/initramfs-6.8.0-1.img")],
        ),
        (["boot/.railyard-old.initrd.img-6.8.0-1"], "dracut", [("plain", None)]),
        (["boot/initramfs-0-rescue-0123.img"], "dracut", [("plain", None)]),
    ],
)
def test_images_are_found_where_the_builders_put_them(system, paths, builder, found):
    system.add("/lib/modules/6.8.0-1/pkgbase = linux")
    for path in paths:
        system.add(f"/{path} = x")
    images = boot_images.list_images(system.tree(), builder)
    assert [(one["kind"], one["path"]) for one in images] == found


def test_what_rpm_ostree_tracks_is_read_behind_the_image(system):
    (system.root / "boot/ostree/os-1").mkdir(parents=True)
    (system.root / "boot/ostree/etc").mkdir()
    (system.root / "boot/ostree/os-1/initramfs-6.8.0-1.img").write_bytes(image(None))
    (system.root / "boot/ostree/etc/1.img").write_bytes(cpio({"etc/modprobe.d/ib_core.conf": EXCLUSIVE.encode()}))
    (told,) = boot_images.inspect_all(system.tree(), setting("exclusive"))
    assert told["stale"] is True and told["kind"] == "ostree"
    line = "initrd /ostree/os-1/initramfs-6.8.0-1.img /ostree/etc/1.img"
    system.add(f"/boot/loader/entries/ostree-1.conf = title x\\nlinux /vmlinuz\\n{line}")
    (told,) = boot_images.inspect_all(system.tree(), setting("exclusive"))
    assert told["stale"] is False and told["mode"] == "exclusive"


def unified(initrd, uname=b"6.8.0-1\n", cut=0):
    """A PE file with sections .uname and .initrd."""
    sections = [(b".linux", b"k" * 99), (b".uname", uname)] + ([(b".initrd", initrd)] if initrd is not None else [])
    table, body, offset = b"", b"", 512
    for name, data in sections:
        table += struct.pack("<8sIIIIIIHHI", name, len(data), 0, len(data) + 5, offset, 0, 0, 0, 0, 0)
        body += data + b"\0" * 5
        offset += len(data) + 5
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64)
    head += b"PE\0\0" + struct.pack("<HHIIIHH", 0x8664, len(sections), 0, 0, 0, 16, 0) + b"\0" * 16 + table
    whole = head.ljust(512, b"\0") + body
    return whole[: len(whole) - cut]


def test_a_unified_kernel_image_is_read(system):
    place = system.root / "boot/efi/EFI/Linux/os.efi"
    place.parent.mkdir(parents=True)
    place.write_bytes(unified(image(SHARED)))
    (told,) = boot_images.inspect_all(system.tree(), setting("exclusive"))
    assert told["path"] == "/boot/efi/EFI/Linux/os.efi" and told["kind"] == "uki"
    assert told["mode"] == "shared" and told["stale"] is True and told["modules"] == 11
    place.write_bytes(unified(None))
    (told,) = boot_images.inspect_all(system.tree(), setting("exclusive"))
    assert told["whole"] is False and ".initrd" in told["reason"]
    place.write_bytes(unified(image(SHARED), cut=40))
    (told,) = boot_images.inspect_all(system.tree(), setting("exclusive"))
    assert told["whole"] is False and "cut short" in told["reason"]


def test_every_cut_and_flip_of_a_pe_header_is_survived(system):
    place = system.root / "boot/EFI/Linux/os.efi"
    place.parent.mkdir(parents=True)
    whole = unified(image(SHARED))
    for size in range(0, 400, 3):
        place.write_bytes(whole[:size])
        boot_images.inspect_all(system.tree(), setting("exclusive"))
        broken = bytearray(whole)
        broken[size] ^= 0xFF
        place.write_bytes(broken)
        boot_images.inspect_all(system.tree(), setting("exclusive"))


def test_an_ib_core_within_the_kernel_leaves_only_the_kernel_line(system):
    system.add("/lib/modules/6.8.0-1/modules.builtin = kernel/fs/a.ko\\nkernel/drivers/infiniband/core/ib_core.ko")
    (told,) = inspect(system, image(EXCLUSIVE, ib_core=False))
    assert told["builtin"] is True and told["stale"] is False
    assert boot_images.next_boot(setting("exclusive"), UNSET, [told], "dracut") == setting("shared")
    assert boot_images.next_boot(UNSET, setting("exclusive"), [told], "dracut") == setting("exclusive")


def test_what_is_no_regular_file_is_not_waited_for(system):
    os.mkfifo(system.root / "boot/initrd.img-6.8.0-1")
    (told,) = inspect(system, None)
    assert told["whole"] is None and "not a regular file" in told["reason"]
