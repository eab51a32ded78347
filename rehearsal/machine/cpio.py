# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the files of a boot image: one or more cpio archives ("newc"), each plain or compressed, one after the other.

Written from the kernel's Documentation/driver-api/early-userspace/buffer-format.rst, apart from the product's own
reader, so that one mistake cannot hide in both. xz, zstd and lz4 are unpacked by their own programs, as the builders
pack them; such an archive is the last one of an image.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import zlib
from collections.abc import Iterator

_MAGIC = (b"070701", b"070702")
_TRAILER = "TRAILER!!!"
_PROGRAMS = {b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x02\x21\x4c\x18": "lz4"}


class BrokenImage(Exception):
    """The bytes are no boot image that a kernel could unpack."""


def members(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """(path without leading slash, st_mode, content) of each member; raises BrokenImage where a kernel would give
    up.
    """
    found = False
    while data := data.lstrip(b"\0"):
        if data[:2] == b"\x1f\x8b":
            unpack = zlib.decompressobj(wbits=31)
            try:
                plain = unpack.decompress(data)
            except zlib.error as error:
                raise BrokenImage(f"gzip data is damaged: {error}") from None
            if not unpack.eof:
                raise BrokenImage("gzip data ends too early")
            stream, data = io.BytesIO(plain), unpack.unused_data
            yield from _archive(stream)
        elif data[:6] in _MAGIC:
            stream = io.BytesIO(data)
            yield from _archive(stream)
            data = data[stream.tell() :]
        elif program := next((name for magic, name in _PROGRAMS.items() if data.startswith(magic)), None):
            yield from _archive(io.BytesIO(_unpack(program, data)))
            data = b""
        else:
            raise BrokenImage(f"neither cpio nor a known compression: starts with {data[:6].hex(' ')}")
        found = True
    if not found:
        raise BrokenImage("the image is empty")


def _unpack(program: str, data: bytes) -> bytes:
    if shutil.which(program) is None:
        raise BrokenImage(f"this machine has no {program} to unpack it with")
    done = subprocess.run([program, "-dc"], input=data, capture_output=True, check=False)
    if done.returncode != 0:
        raise BrokenImage(f"{program} data is damaged: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def _archive(stream: io.BytesIO) -> Iterator[tuple[str, int, bytes]]:
    while True:
        head = stream.read(110)
        if len(head) < 110 or head[:6] not in _MAGIC:
            raise BrokenImage(f"cpio header expected at byte {stream.tell() - len(head)}, got {head[:6]!r}")
        try:
            fields = [int(head[at : at + 8], 16) for at in range(6, 110, 8)]
        except ValueError:
            raise BrokenImage(f"cpio header at byte {stream.tell() - 110} is not hexadecimal") from None
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = _take(stream, name_size, header=110).rstrip(b"\0").decode("utf-8", "surrogateescape")
        content = _take(stream, size)
        if name == _TRAILER:
            return
        yield name.removeprefix(".").lstrip("/") if name.startswith("./") else name.lstrip("/"), mode, content


def _take(stream: io.BytesIO, size: int, header: int = 0) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise BrokenImage(f"cpio member ends {size - len(data)} bytes too early")
    stream.read(-(header + size) % 4)
    return data
