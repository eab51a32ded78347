# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import shutil
import subprocess

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.boot import unpackers
from ansible_collections.railyard.rdma.plugins.module_utils.boot.byte_stream import (
    DamagedImage,
    Stream,
    UnreadableImage,
)
from ansible_collections.railyard.rdma.plugins.module_utils.boot.initramfs import read_image
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils import packers
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import cpio, image
from hypothesis import given, settings
from hypothesis import strategies as st

SHARED = "options ib_core netns_mode=1\n"
PACKERS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lzma": functools.partial(lzma.compress, format=lzma.FORMAT_ALONE),
    "zstd": packers.zstd,
    "lz4": packers.lz4,
    "lz4-frame": packers.lz4_frame,
    "lzo": packers.lzo,
}
PROGRAMS = {"zstd": "zstd", "lz4": "lz4", "lz4-frame": "lz4", "lzo": "lzop"}


def unpack(data, name=None):
    """Unpack the first part of some bytes; returns it and the bytes behind it."""
    pending = [data[start : start + 1000] for start in range(0, len(data), 1000)][::-1]
    stream = Stream(lambda: pending.pop() if pending else b"", 1 << 30)
    parts = []
    with unpackers.unpacked(stream, name or unpackers.compression_of(stream.peek(6))) as pull:
        while True:
            part = pull()
            if not part:
                break
            parts.append(part)
    return b"".join(parts), b"".join(iter(stream.some, b""))


def available(name):
    try:
        unpack(PACKERS[name](b"x" * 99), name)
    except UnreadableImage as error:
        if not error.damaged:
            return False
        raise
    return True


@pytest.fixture(params=sorted(PACKERS))
def name(request):
    if not available(request.param):
        pytest.skip(f"neither a library nor a program for {request.param} is installed here")
    return request.param


def test_the_end_of_the_part_is_found_exactly(name):
    data = bytes(range(256)) * 1000
    rest = b"" if name == "lz4" else b"07070 what follows"  # lz4's legacy form has no end
    assert unpackers.compression_of(PACKERS[name](data)[:6]) == name
    assert unpack(PACKERS[name](data) + rest) == (data, rest)


def test_lz4_ends_where_no_block_follows():
    if not available("lz4"):
        pytest.skip("no lz4 here")
    for rest in (b"070701", b"\0\0\0\0\0", b"\0\0"):
        assert unpack(packers.lz4(b"abc" * 99) + rest) == (b"abc" * 99, rest)
    assert unpack(packers.lz4(b"abc") + packers.lz4(b"def")) == (b"abcdef", b"")


def test_an_image_of_every_packing_is_read(name):
    told = read_image(io.BytesIO(image(SHARED, pack=PACKERS[name])))
    assert told["formats"] == ["cpio", name] and told["holds_ib_core"] is True
    assert told["config"] == {"/etc/modprobe.d/ib_core.conf": SHARED} and len(told["modules"]) == 11


def test_every_cut_is_damage(name):
    whole = image(SHARED, modules=2, pack=PACKERS[name], microcode=False)
    for size in range(0, len(whole), 1 if len(whole) < 700 else 7):
        if name == "lz4" and whole[:size] in (whole, whole[:4]):
            continue
        with pytest.raises(UnreadableImage) as caught:
            read_image(io.BytesIO(whole[:size]))
        assert caught.value.damaged, size


def test_every_changed_bit_is_survived_and_a_checksum_shows_it(name):
    plain = cpio({"usr/lib/modules/1/ib_core.ko": bytes(range(160))})
    whole = PACKERS[name](plain)
    refused = 0
    for place in range(len(whole) * 8):
        broken = bytearray(whole)
        broken[place // 8] ^= 1 << place % 8
        try:
            data = unpack(bytes(broken), name)[0]
        except UnreadableImage:
            refused += 1
            continue
        # lzma and lz4's legacy form have no checksum; of the others only time stamps and padding may change unseen.
        assert data == plain or name in ("lzma", "lz4")
    assert refused > (8 if name == "lz4" else len(whole))


@pytest.mark.parametrize("name", ["zstd", "lz4", "lz4-frame"])
def test_what_the_library_packed_is_unpacked(name):
    data = b"".join(b"%d" % (number * number) for number in range(99999))
    packed = packers.by_library(name, data)
    if packed is None:
        pytest.skip(f"no library for {name} here")
    assert len(packed) < len(data) * 0.9
    assert unpack(packed) == (data, b"")
    if name == "zstd":
        with pytest.raises(DamagedImage, match="damaged zstd"):
            unpack(packed[:-1] + bytes((packed[-1] ^ 1,)))


def test_lzo_blocks_are_unpacked_and_checked():
    if not available("lzo"):
        pytest.skip("neither liblzo2 nor lzop is installed here")
    # LZO1X: four literals (21 - 17), a match of 196 bytes at distance 1 (M3: 32, length 33 + 163), the end mark.
    packed = bytes((21,)) + b"abcd" + bytes((32, 163)) + b"\0\0" + b"\x11\0\0"
    plain = b"abcd" + b"d" * 196
    assert unpack(packers.lzo(b"", [(plain, packed)])) == (plain, b"")
    broken = bytearray(packers.lzo(b"", [(plain, packed)]))
    broken[-12] ^= 2
    with pytest.raises(DamagedImage):
        unpack(bytes(broken))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_without_python_and_library_the_program_unpacks(name, monkeypatch):
    if shutil.which(PROGRAMS[name]) is None:
        pytest.skip(f"{PROGRAMS[name]} is not installed here")
    monkeypatch.setattr(unpackers, "_load", lambda name: None)
    monkeypatch.setattr(unpackers, "zstd", None)
    data = bytes(range(256)) * 2000
    rest = b"" if name == "lz4" else b"070701 and so on"
    assert unpack(PACKERS[name](data) + rest) == (data, rest)
    for broken in (PACKERS[name](data)[:-9], PACKERS[name](data)[:300000]):
        with pytest.raises(DamagedImage):
            unpack(broken)
    if name == "zstd":
        wrong = bytearray(packers.zstd(data))
        wrong[5000] ^= 1
        with pytest.raises(DamagedImage, match="ended with code"):
            unpack(bytes(wrong))


def test_a_reader_that_stops_early_ends_the_program(monkeypatch):
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not installed here")
    monkeypatch.setattr(unpackers, "_load", lambda name: None)
    monkeypatch.setattr(unpackers, "zstd", None)
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        unpackers.subprocess, "Popen", lambda *words, **more: started.append(popen(*words, **more)) or started[-1]
    )
    with pytest.raises(DamagedImage, match="expected an archive"):
        read_image(io.BytesIO(packers.zstd(b"no archive" * 99999)))
    assert started[0].poll() is not None


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_what_is_missing_is_named_and_is_no_damage(name, monkeypatch):
    monkeypatch.setattr(unpackers, "_load", lambda name: None)
    monkeypatch.setattr(unpackers, "zstd", None)
    monkeypatch.setattr(unpackers.shutil, "which", lambda *_names, **_more: None)
    with pytest.raises(
        UnreadableImage, match=f"compressed with {name}: .*lib.*{PROGRAMS[name]} is installed"
    ) as caught:
        unpack(PACKERS[name](b"x"))
    assert not caught.value.damaged


def test_a_dictionary_larger_than_any_kernel_takes_is_refused():
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    packed = bytearray(lzma.compress(b"x" * 100, lzma.FORMAT_ALONE))
    packed[1:5] = b"\xff\xff\xff\x7f"
    with pytest.raises(UnreadableImage, match="needs more memory"):
        unpack(bytes(packed), "lzma")
    assert unpack(lzma.compress(b"y", filters=filters)) == (b"y", b"")


@settings(max_examples=300)
@given(st.sampled_from(sorted(PACKERS)), st.binary(max_size=300), st.integers(0, 900), st.booleans())
def test_no_bytes_make_an_unpacker_fail_otherwise_or_hang(name, noise, place, within):
    packed = PACKERS[name](cpio({"a": b"b" * 300}))
    data = packed[:place] + noise + packed[place + len(noise) :] if within else packed[:8] + noise
    try:
        unpack(data, name)
    except UnreadableImage as error:
        assert str(error)


def test_a_bomb_is_given_up(monkeypatch):
    monkeypatch.setattr(
        "ansible_collections.railyard.rdma.plugins.module_utils.boot.initramfs._MAXIMUM_UNPACKED", 1 << 22
    )
    bomb = gzip.compress(cpio({"a": b"1"}) + b"\0" * (1 << 23))
    with pytest.raises(UnreadableImage, match="too large: more than 3 MiB|too large: more than 4 MiB"):
        read_image(io.BytesIO(bomb))
