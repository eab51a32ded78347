# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gzip
import io
import lzma

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.boot import image_config, initramfs
from ansible_collections.railyard.rdma.plugins.module_utils.boot.byte_stream import DamagedImage, UnreadableImage
from ansible_collections.railyard.rdma.plugins.module_utils.boot.initramfs import read_image
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import cpio, image
from hypothesis import given, settings
from hypothesis import strategies as st

EXCLUSIVE, SHARED = "options ib_core netns_mode=0\n", "options ib_core netns_mode=1\n"
CONFIG = "etc/modprobe.d/ib_core.conf"
FILE, LINK, DIRECTORY = 0o100644, 0o120777, 0o040755


def read(data):
    return read_image(io.BytesIO(data))


def archive(*members, magic=b"070701", checksum=None):
    """A newc archive of ``(name, mode, data)`` or ``(name, mode, data, inode, links)``."""
    data = b""
    for number, (name, mode, content, *more) in enumerate((*members, ("TRAILER!!!", 0, b"")), start=1):
        inode, links = more or (number, 1)
        raw = name.encode() + b"\0"
        total = sum(content) if checksum is None else checksum
        check = total if magic == b"070702" and mode == FILE else 0
        fields = (inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(raw), check)
        data += magic + b"".join(b"%08x" % field for field in fields) + raw
        data += b"\0" * (-len(data) % 4) + content
        data += b"\0" * (-len(data) % 4)
    return data


def test_a_later_archive_replaces_files_of_an_earlier_one():
    later = gzip.compress(cpio({"./etc/modprobe.d/ib_core.conf": SHARED.encode()}))
    told = read(image(EXCLUSIVE) + b"\0" * 512 + later)
    assert told["config"] == {"/" + CONFIG: SHARED}
    assert told["formats"] == ["cpio", "gzip", "gzip"]


def test_two_archives_in_one_compressed_part():
    data = gzip.compress(cpio({"init": b"x"}) + b"\0" * 100 + cpio({"etc/modprobe.d/a.conf": b"options a b=1"}))
    assert read(data)["config"] == {"/etc/modprobe.d/a.conf": "options a b=1"}


def test_what_an_image_holds_is_told():
    told = read(image(EXCLUSIVE, kernel="6.8.0-1", modules=2))
    assert told["modules"] == {"m0": "kernel", "m1": "kernel", "ib_core": "kernel/drivers/infiniband/core"}
    assert told["kernels"] == ["6.8.0-1"] and told["holds_ib_core"] is True and told["force_loaded"] == []
    assert told["unpacked"] == 777 + 2 * 200 + 33 + 10 + len(EXCLUSIVE)
    for ending in (".ko", ".ko.gz", ".ko.xz", ".ko.zst"):
        told = read(cpio({f"lib/modules/1/updates/dkms/ib-core{ending}": b"x"}))
        assert told["holds_ib_core"] is True and told["modules"] == {"ib_core": "updates/dkms"}


def test_a_link_leads_to_the_file_that_counts():
    relative = archive(
        ("etc/modprobe.d/a.conf", LINK, b"../../usr/share/rdma.conf"), ("usr/share/rdma.conf", FILE, b"x")
    )
    assert read(relative)["config"] == {"/etc/modprobe.d/a.conf": "x"}
    absolute = archive(("usr/share/r", FILE, b"y"), ("etc/modprobe.d/a.conf", LINK, b"/usr/share/r"))
    assert read(gzip.compress(absolute))["config"] == {"/etc/modprobe.d/a.conf": "y"}
    merged = archive(("lib", LINK, b"usr/lib"), ("usr/lib/modprobe.d/a.conf", FILE, b"z"))
    assert read(merged)["config"] == {"/usr/lib/modprobe.d/a.conf": "z"}
    directory = archive(("etc/modprobe.d", LINK, b"/opt/kmod"), ("opt/kmod/a.conf", FILE, b"w"))
    assert read(directory)["config"] == {"/etc/modprobe.d/a.conf": "w"}


def test_a_link_to_nothing_hides_like_an_empty_file():
    for target in (b"/dev/null", b"nowhere", b"a.conf"):
        told = read(archive(("etc/modprobe.d/a.conf", LINK, target), ("usr/lib/modprobe.d/a.conf", FILE, b"x")))
        assert told["config"] == {"/etc/modprobe.d/a.conf": "", "/usr/lib/modprobe.d/a.conf": "x"}


def test_of_hard_links_one_carries_the_data():
    twice = archive(
        ("etc/modprobe.d/a.conf", FILE, b"", 7, 2),
        ("usr/lib/modprobe.d/b.conf", FILE, b"x", 7, 2),
    )
    assert read(twice)["config"] == {"/etc/modprobe.d/a.conf": "x", "/usr/lib/modprobe.d/b.conf": "x"}
    elsewhere = archive(("usr/share/doc/same", FILE, b"y", 7, 2), ("etc/modprobe.d/a.conf", FILE, b"", 7, 2))
    assert read(elsewhere)["config"] == {"/etc/modprobe.d/a.conf": "y"}


def test_a_file_replaces_a_link_and_the_other_way_round():
    first = archive((CONFIG, LINK, b"/usr/share/x"), ("usr/share/x", FILE, SHARED.encode()))
    second = archive((CONFIG, FILE, EXCLUSIVE.encode()))
    assert read(first + second)["config"] == {"/" + CONFIG: EXCLUSIVE}
    assert read(second + first)["config"] == {"/" + CONFIG: SHARED}


def test_checksums_of_the_crc_format_are_checked():
    members = ((CONFIG, FILE, SHARED.encode()), ("init", FILE, b"\xff" * 9000), ("etc", DIRECTORY, b""))
    assert read(archive(*members, magic=b"070702"))["config"] == {"/" + CONFIG: SHARED}
    with pytest.raises(DamagedImage, match="checksum of etc/modprobe.d/ib_core.conf is wrong"):
        read(archive(*members, magic=b"070702", checksum=5))
    broken = archive(*members, magic=b"070702").replace(b"\xff" * 9000, b"\xff" * 8999 + b"\xfe")
    with pytest.raises(DamagedImage, match="checksum of init"):
        read(broken)


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("conf/modules", "ext4\nib_core  # comment\nmlx5-ib\n#ib_uverbs\n", ["ib_core", "mlx5_ib"]),
        ("etc/modules-load.d/x.conf", "; a\nib_core\nnvme\n", ["ib_core"]),
        ("usr/lib/modules-load.d/rdma.conf", "rdma_cm\n\n", ["rdma_cm"]),
        ("etc/cmdline.d/20-force_drivers.conf", "rd.driver.pre=ext4,ib_core\nrd.driver.pre=siw", ["ib_core", "siw"]),
        ("config", "EARLYHOOKS='udev'\nMODULES='vfat ib_core '\n", ["ib_core"]),
        ("etc/modules", "ib_core\n", []),
        ("conf/modules", "library\nibm_thing\nribbon\n", []),
    ],
)
def test_what_is_loaded_by_name_is_told_apart_from_what_is_only_there(name, text, names):
    assert read(cpio({name: text.encode()}))["force_loaded"] == names


BOOSTER = """\
network: null
moduledependencies:
  mlx5_ib:
  - ib_core
  - ib_uverbs
modulesforceload:
- ib_core
- nvme
modprobeoptions:
  ib_core: netns_mode=1 netns_mode=0
  other: 'a="b c"'
kernel: 6.18.2-arch1-1
mounttimeout: 180
"""


def test_booster_keeps_options_in_its_own_file():
    files = {"etc/booster.init.yaml": BOOSTER.encode(), "usr/lib/modules/ib_core.ko": b"x", "init": b"x"}
    told = read(gzip.compress(cpio(files)))
    assert told["booster"] is True and told["kernels"] == ["6.18.2-arch1-1"] and told["holds_ib_core"] is True
    assert told["force_loaded"] == ["ib_core"]
    assert told["config"] == {
        "/etc/modprobe.d/booster.conf": 'options ib_core netns_mode=1 netns_mode=0\noptions other a="b c"\n'
    }
    files["etc/booster.init.yaml"] = b"kernel: 1\n"
    files["etc/modprobe.d/ib_core.conf"] = EXCLUSIVE.encode()  # which booster's init does not read
    assert read(cpio(files))["config"] == {"/etc/modprobe.d/booster.conf": ""}


@given(st.text(max_size=300))
def test_no_text_makes_the_reader_of_boosters_file_fail(text):
    assert set(image_config.parse_booster("modprobeoptions:\n" + text)) == {"config", "force_load", "kernels"}


def test_modules_packed_once_more_are_not_taken_for_missing():
    with pytest.raises(UnreadableImage, match="file system of its own") as caught:
        read(cpio({"init": b"x", "squashfs-root.img": b"hsqs"}))
    assert not caught.value.damaged


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no files"),
        (b"\0" * 999, "no files"),
        (b"not an image at all", "damaged"),
        (cpio({"a": b"1"}) + b"garbage", "damaged"),
        (gzip.compress(cpio({"a": b"1"}) + b"garbage"), "damaged"),
        (gzip.compress(gzip.compress(cpio({"a": b"1"}))), "damaged"),
        (cpio({"a": b"1"}).replace(b"070701", b"zzzzzz", 2)[110:], "damaged"),
        (b"\x1f\x8b\x08" + b"\xff" * 99, "damaged gzip data"),
        (cpio({"a" * 5000: b"1"}), "a file name of 5001 bytes"),
    ],
    ids=range(9),  # not the data: gzip writes the time into it, and all workers must have the same names
)
def test_what_is_damaged_says_why(data, words):
    with pytest.raises(DamagedImage, match=words):
        read(data)


def test_an_image_without_end_is_given_up(monkeypatch):
    header = bytearray(cpio({}).replace(b"TRAILER!!!", b"a" * 10)[:124])
    header[54:62] = b"7fffffff"
    with pytest.raises(DamagedImage, match="cut short"):
        read(bytes(header) + b"\0" * 1000)
    monkeypatch.setattr(initramfs, "_MAXIMUM_UNPACKED", 1 << 30)
    with pytest.raises(UnreadableImage, match="too large"):
        read(bytes(header) + b"\0" * 1000)
    monkeypatch.setattr(initramfs, "_MAXIMUM_MODULES", 5)
    with pytest.raises(UnreadableImage, match="more than 5 modules"):
        read(image(SHARED))
    monkeypatch.setattr(image_config, "_MAXIMUM_KEPT", 100)
    with pytest.raises(UnreadableImage, match="configuration and links"):
        read(cpio({f"etc/modprobe.d/{number}.conf": b"x" * 20 for number in range(9)}))


@settings(max_examples=300)
@given(st.binary(max_size=300), st.integers(0, 900), st.sampled_from([gzip.compress, lzma.compress, lambda data: data]))
def test_no_bytes_make_the_reader_fail_otherwise_or_hang(noise, place, pack):
    data = image(SHARED, modules=1, pack=pack)
    for broken in (noise, data[:place] + noise + data[place + len(noise) :], pack(data[:place] + noise)):
        try:
            assert read(broken)["members"] > 0
        except UnreadableImage as error:
            assert str(error)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [CONFIG, "etc/modprobe.d", "etc", "lib", "usr/lib", "a", "usr/lib/modprobe.d/b.conf", ".", ""]
            ),
            st.sampled_from([FILE, LINK, DIRECTORY, 0o020600]),
            st.sampled_from([b"", b"/", b"..", b"a", b"/etc", b"../usr/lib", b"/etc/modprobe.d", b"lib/../a"]),
            st.integers(1, 3),
            st.integers(1, 2),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_no_web_of_links_makes_the_reader_fail_or_go_round_in_circles(members):
    assert read(archive(*members))["members"] == len(members)


@given(st.integers(0, 900), st.integers(0, 7))
def test_every_changed_bit_of_a_plain_image_is_survived(place, bit):
    data = bytearray(image(SHARED, modules=1, pack=lambda packed: packed, microcode=False))
    data[place % len(data)] ^= 1 << bit
    try:
        assert read(bytes(data))["members"] > 0
    except UnreadableImage as error:
        assert str(error)
