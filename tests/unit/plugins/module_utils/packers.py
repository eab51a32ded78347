# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Frames of every compression that a kernel takes, made by hand from the formats' descriptions, so that the tests need
no library to pack: the data goes in as literals or raw blocks. What packs for real is in :func:`by_library`.

xxHash is implemented after its specification, for the checksums of zstd and LZ4.
"""

from __future__ import annotations

import ctypes
import struct
import zlib

_P32 = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_P64 = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)


def _rotate(value: int, by: int, bits: int) -> int:
    return (value << by | value >> (bits - by)) & ((1 << bits) - 1)


def xxh32(data: bytes) -> int:
    mask = 0xFFFFFFFF
    one, two, three, four, five = _P32
    place = 0
    if len(data) >= 16:
        lanes = [(one + two) & mask, two, 0, -one & mask]
        while place + 16 <= len(data):
            for lane, value in enumerate(struct.unpack_from("<4I", data, place)):
                lanes[lane] = _rotate((lanes[lane] + value * two) & mask, 13, 32) * one & mask
            place += 16
        total = sum(_rotate(lane, by, 32) for lane, by in zip(lanes, (1, 7, 12, 18)))
    else:
        total = five
    total = total + len(data) & mask
    while place + 4 <= len(data):
        value = int.from_bytes(data[place : place + 4], "little")
        total = _rotate(total + value * three & mask, 17, 32) * four & mask
        place += 4
    for value in data[place:]:
        total = _rotate(total + value * five & mask, 11, 32) * one & mask
    total = (total ^ total >> 15) * two & mask
    total = (total ^ total >> 13) * three & mask
    return total ^ total >> 16


def xxh64(data: bytes) -> int:
    mask = (1 << 64) - 1
    one, two, three, four, five = _P64

    def mix(lane: int, value: int) -> int:
        return _rotate(lane + value * two & mask, 31, 64) * one & mask

    place = 0
    if len(data) >= 32:
        lanes = [(one + two) & mask, two, 0, -one & mask]
        while place + 32 <= len(data):
            for lane, value in enumerate(struct.unpack_from("<4Q", data, place)):
                lanes[lane] = mix(lanes[lane], value)
            place += 32
        total = sum(_rotate(lane, by, 64) for lane, by in zip(lanes, (1, 7, 12, 18))) & mask
        for lane in lanes:
            total = (total ^ mix(0, lane)) * one + four & mask
    else:
        total = five
    total = total + len(data) & mask
    while place + 8 <= len(data):
        value = int.from_bytes(data[place : place + 8], "little")
        total = _rotate(total ^ mix(0, value), 27, 64) * one + four & mask
        place += 8
    if place + 4 <= len(data):
        value = int.from_bytes(data[place : place + 4], "little")
        total = _rotate(total ^ value * one & mask, 23, 64) * two + three & mask
        place += 4
    for value in data[place:]:
        total = _rotate(total ^ value * five & mask, 11, 64) * one & mask
    total = (total ^ total >> 33) * two & mask
    total = (total ^ total >> 29) * three & mask
    return total ^ total >> 32


def zstd(data: bytes) -> bytes:
    """A zstd frame of raw blocks with a content checksum (RFC 8878)."""
    frame = b"\x28\xb5\x2f\xfd" + bytes((0x04, 0x38))
    parts = [data[start : start + 65536] for start in range(0, len(data), 65536)] or [b""]
    for number, part in enumerate(parts, start=1):
        frame += (len(part) << 3 | (number == len(parts))).to_bytes(3, "little") + part
    return frame + (xxh64(data) & 0xFFFFFFFF).to_bytes(4, "little")


def _lz4_block(data: bytes) -> bytes:
    """An LZ4 block of literals only."""
    if len(data) < 15:
        return bytes((len(data) << 4,)) + data
    rest = len(data) - 15
    return b"\xf0" + b"\xff" * (rest // 255) + bytes((rest % 255,)) + data


def lz4(data: bytes) -> bytes:
    """The legacy form, as ``lz4 -l`` makes it."""
    frame = b"\x02\x21\x4c\x18"
    for start in range(0, len(data), 65536):
        block = _lz4_block(data[start : start + 65536])
        frame += struct.pack("<I", len(block)) + block
    return frame


def lz4_frame(data: bytes) -> bytes:
    """The frame format with unpacked blocks and all checksums."""
    descriptor = bytes((0x40 | 0x20 | 0x10 | 0x04, 0x40))
    frame = b"\x04\x22\x4d\x18" + descriptor + bytes((xxh32(descriptor) >> 8 & 0xFF,))
    for start in range(0, len(data), 65536):
        part = data[start : start + 65536]
        frame += struct.pack("<I", len(part) | 1 << 31) + part + struct.pack("<I", xxh32(part))
    return frame + b"\0\0\0\0" + struct.pack("<I", xxh32(data))


def lzo(data: bytes, blocks: list | None = None) -> bytes:
    """An lzop file with Adler-32 of the data; its blocks are stored.

    :param blocks: further blocks, ``(unpacked, packed)`` each.
    """
    header = struct.pack(">HHHBBIIIIB", 0x1030, 0x20A0, 0x0940, 1, 5, 0x1, 0o100644, 0, 0, 0)
    file = b"\x89LZO\0\r\n\x1a\n" + header + struct.pack(">I", zlib.adler32(header))
    parts = [(data[start : start + 65536],) * 2 for start in range(0, len(data), 65536)]
    for plain, packed in parts + (blocks or []):
        file += struct.pack(">III", len(plain), len(packed), zlib.adler32(plain)) + packed
    return file + b"\0\0\0\0"


def _library(name: str):
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def by_library(name: str, data: bytes) -> bytes | None:
    """Pack with the system's library, None when it is not there."""
    library = _library("libzstd.so.1" if name == "zstd" else "liblz4.so.1")
    if library is None:
        return None
    output = ctypes.create_string_buffer(len(data) * 2 + 1024)
    if name == "zstd":
        library.ZSTD_createCCtx.restype = ctypes.c_void_p
        context = ctypes.c_void_p(library.ZSTD_createCCtx())
        library.ZSTD_CCtx_setParameter(context, 201, 1)  # ZSTD_c_checksumFlag
        library.ZSTD_compress2.restype = ctypes.c_size_t
        size = library.ZSTD_compress2(context, output, ctypes.c_size_t(len(output)), data, ctypes.c_size_t(len(data)))
        library.ZSTD_freeCCtx(context)
    elif name == "lz4":
        size = library.LZ4_compress_default(data, output, len(data), len(output))
        return b"\x02\x21\x4c\x18" + struct.pack("<I", size) + output.raw[:size]
    else:
        library.LZ4F_compressFrame.restype = ctypes.c_size_t
        size = library.LZ4F_compressFrame(output, ctypes.c_size_t(len(output)), data, ctypes.c_size_t(len(data)), None)
    return output.raw[:size]
