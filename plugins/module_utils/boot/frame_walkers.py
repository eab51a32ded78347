# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a compressed frame ends, told from its own structure, so that a program (``zstd -dc``) can be given exactly its
bytes while the rest of the image stays with the reader.

Each function is a generator over a stream that stands at the frame's start: it yields the frame's bytes in pieces,
leaves the stream behind the frame, and raises DamagedImage where the structure is broken. Formats: zstd RFC 8878,
sections 3.1.1 and 3.1.2; LZ4 doc/lz4_Frame_format.md; lzop as written by its ``write_header`` and read by the kernel's
lib/decompress_unlzo.c.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from ansible_collections.railyard.rdma.plugins.module_utils.boot.byte_stream import DamagedImage, Stream

LZ4_LEGACY_MAGIC = b"\x02\x21\x4c\x18"
LZ4_LEGACY_BLOCK = 8 << 20
LZ4_LEGACY_LARGEST = LZ4_LEGACY_BLOCK + LZ4_LEGACY_BLOCK // 255 + 16
# lzop writes blocks of 256 KiB, the kernel takes no larger ones.
LZO_LARGEST = 8 << 20


def zstd(stream: Stream) -> Iterator[bytes]:
    """Walk one zstd frame."""
    head = stream.take(5, "a zstd frame header")
    yield head
    descriptor = head[4]
    single = bool(descriptor & 0x20)
    size = (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3]
    size += (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    yield stream.take(size, "a zstd frame header")
    last = False
    while not last:
        head = stream.take(3, "a zstd block header")
        yield head
        value = int.from_bytes(head, "little")
        last, kind, size = bool(value & 1), value >> 1 & 3, value >> 3
        if kind == 3:
            raise DamagedImage("damaged zstd data: a block of an unknown type")
        yield from stream.pieces(1 if kind == 1 else size, "a zstd block")
    if descriptor & 4:
        yield stream.take(4, "a zstd checksum")


def lz4(stream: Stream) -> Iterator[bytes]:
    """Walk one frame of the LZ4 frame format."""
    head = stream.take(6, "an LZ4 frame header")
    yield head
    flags = head[4]
    yield stream.take((8 if flags & 8 else 0) + (4 if flags & 1 else 0) + 1, "an LZ4 frame header")
    while True:
        head = stream.take(4, "an LZ4 block header")
        yield head
        size = int.from_bytes(head, "little") & 0x7FFFFFFF
        if not size:
            break
        if size > LZ4_LEGACY_LARGEST:
            raise DamagedImage(f"damaged lz4 data: a block of {size} bytes")
        yield from stream.pieces(size + (4 if flags & 0x10 else 0), "an LZ4 block")
    if flags & 4:
        yield stream.take(4, "an LZ4 checksum")


def lz4_legacy(stream: Stream) -> Iterator[bytes]:
    """Walk one LZ4 legacy frame. It has no end mark: it ends where the file ends, or where no block size follows."""
    yield stream.take(4, "an LZ4 header")
    while True:
        head = stream.peek(4)
        if head == LZ4_LEGACY_MAGIC:
            yield stream.take(4, "an LZ4 header")
            continue
        size = int.from_bytes(head, "little")
        if len(head) < 4 or size == 0 or size > LZ4_LEGACY_LARGEST:
            return
        yield stream.take(4, "an LZ4 block size")
        yield from stream.pieces(size, "an LZ4 block")


class LzoBlock(NamedTuple):
    """One block of an lzop file: ``size`` is that of the unpacked data, ``stored`` means that ``data`` is unpacked
    already. Checksums are None where the file has none; ``raw`` is the block as it stands in the file."""

    raw: bytes
    data: bytes
    size: int
    stored: bool
    adler32: int | None
    crc32: int | None


def lzo_header(stream: Stream) -> tuple[bytes, int]:
    """Take the header of an lzop file; returns its bytes and its flags."""
    what = "an lzop header"
    raw = magic = stream.take(9, what)
    version_bytes = stream.take(2, what)
    version = int.from_bytes(version_bytes, "big")
    newer = version >= 0x0940
    raw += version_bytes + stream.take(2 + (2 if newer else 0) + 1 + (1 if newer else 0), what)
    flag_bytes = stream.take(4, what)
    flags = int.from_bytes(flag_bytes, "big")
    raw += flag_bytes + stream.take((4 if flags & 0x800 else 0) + 8 + (4 if newer else 0), what)
    length = stream.take(1, what)
    raw += length + stream.take(length[0], what)
    checksum = stream.take(4, what)
    function = zlib.crc32 if flags & 0x1000 else zlib.adler32
    if function(raw[len(magic) :]) != int.from_bytes(checksum, "big"):
        raise DamagedImage("damaged lzo data: the checksum of the header is wrong")
    if flags & 0x40:
        raise DamagedImage("damaged lzo data: an extra field, which the kernel does not know")
    return raw + checksum, flags


def lzo_blocks(stream: Stream, flags: int) -> Iterator[LzoBlock]:
    """Take the blocks of an lzop file whose header was taken; the last one is the end mark, of size 0."""
    while True:
        raw = stream.take(4, "an lzop block header")
        size = int.from_bytes(raw, "big")
        if not size:
            yield LzoBlock(raw, b"", 0, True, None, None)
            return
        sums = [flag for flag in (0x1, 0x100) if flags & flag]
        head = stream.take(4 + 4 * len(sums), "an lzop block header")
        packed = int.from_bytes(head[:4], "big")
        if not 0 < packed <= size <= LZO_LARGEST:
            raise DamagedImage(f"damaged lzo data: a block of {packed} bytes that unpacks to {size}")
        values = dict(zip(sums, struct.unpack(f">{len(sums)}I", head[4:])))
        if packed < size:
            head += stream.take(4 * sum(1 for flag in (0x2, 0x200) if flags & flag), "an lzop block header")
        data = stream.take(packed, "an lzop block")
        yield LzoBlock(raw + head + data, data, size, packed == size, values.get(0x1), values.get(0x100))


def lzo(stream: Stream) -> Iterator[bytes]:
    """Walk one lzop file."""
    raw, flags = lzo_header(stream)
    yield raw
    for block in lzo_blocks(stream, flags):
        yield block.raw
