# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a boot image (initramfs) holds, read from the image itself and without unpacking it.

An image is a row of cpio archives ("newc"), plain or compressed, with zero bytes between them: microcode first, then
the root file system (Documentation/driver-api/early-userspace/buffer-format.rst). It is read as a stream, so its size
does not matter. Compressions are those of the Python that runs: gzip, bzip2, xz, lzma, and zstd from Python 3.14.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from typing import BinaryIO, Callable

try:
    from compression import zstd  # Python 3.14
except ImportError:
    zstd = None

_CHUNK = 1 << 18
_HEADER = 110
# Real images unpack to some hundred MiB; the bound keeps a damaged or hostile one from running for ever.
_MAXIMUM_UNPACKED = 4 << 30
_MAXIMUM_NAME = 65536
_MAXIMUM_CONFIG = 1 << 20
_CONFIG = re.compile(r"(?:etc|run|usr/local/lib|usr/lib|lib)/modprobe\.d/[^/]+\.conf")
_MODULE = re.compile(r"\.ko(?:\.(?:gz|xz|zst))?$")
_VERSION = re.compile(r"(?:usr/)?lib/modules/([^/]+)/")
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x5d\0\0", "lzma"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x02\x21\x4c\x18", "lz4"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x89LZO", "lzo"),
)


class UnreadableImage(Exception):
    """The image is damaged, cut short, or in a format that cannot be read here; the text says which."""


def read_image(file: BinaryIO) -> dict:
    """Read an image to its end.

    :param file: open for binary reading, at its start.
    :returns: ``{formats, members, modules, kernels, holds_ib_core, config}``: the archives' compressions in order
        (``cpio`` for an uncompressed one), the number of files and of kernel modules, the kernel versions below
        lib/modules, whether ib_core is among the modules, and the modprobe.d files as ``{absolute path: text}``.
    :raises UnreadableImage: unless every archive is whole. A file that holds no archive at all is not an image.
    """
    contents: dict = {"formats": [], "members": 0, "modules": 0, "kernels": set(), "holds_ib_core": False, "config": {}}
    budget = [_MAXIMUM_UNPACKED]
    _read_segments(_Stream(lambda: file.read(_CHUNK)), contents, budget, compressed=False)
    if not contents["members"]:
        raise UnreadableImage("no files in it")
    contents["kernels"] = sorted(contents["kernels"])
    return contents


class _Stream:
    """Bytes to come, with a look ahead."""

    def __init__(self, pull: Callable[[], bytes]) -> None:
        self._pull = pull
        self._buffer = b""
        self._start = 0

    def _available(self) -> int:
        return len(self._buffer) - self._start

    def _fill(self, size: int) -> bool:
        while self._available() < size:
            data = self._pull()
            if not data:
                return False
            self._buffer = self._buffer[self._start :] + data
            self._start = 0
        return True

    def peek(self, size: int) -> bytes:
        self._fill(size)
        return self._buffer[self._start : self._start + size]

    def take(self, size: int, what: str) -> bytes:
        if not self._fill(size):
            raise UnreadableImage(f"cut short: it ends within {what}")
        data = self._buffer[self._start : self._start + size]
        self._start += size
        return data

    def skip(self, size: int, what: str) -> None:
        while size > 0:
            if not self._fill(1):
                raise UnreadableImage(f"cut short: it ends within {what}")
            step = min(size, self._available())
            self._start += step
            size -= step

    def skip_zeros(self) -> None:
        while self._fill(1):
            rest = self._buffer[self._start :].lstrip(b"\0")
            self._start = len(self._buffer) - len(rest)
            if rest:
                return

    def some(self) -> bytes:
        """Return whatever comes next, b"" at the end."""
        self._fill(1)
        data = self._buffer[self._start :]
        self._buffer, self._start = b"", 0
        return data

    def give_back(self, data: bytes) -> None:
        self._buffer = data + self._buffer[self._start :]
        self._start = 0


def _read_segments(stream: _Stream, contents: dict, budget: list, compressed: bool) -> None:
    while True:
        stream.skip_zeros()
        head = stream.peek(6)
        if not head:
            return
        if head in (b"070701", b"070702"):
            if not compressed:
                contents["formats"].append("cpio")
            _read_archive(stream, contents, budget)
            continue
        name = next((name for magic, name in _MAGIC if head.startswith(magic)), None)
        if compressed or name is None:
            raise UnreadableImage(f"damaged: expected an archive, found bytes {head.hex()}")
        contents["formats"].append(name)
        inner = _Stream(_unpacker(stream, name))
        _read_segments(inner, contents, budget, compressed=True)


def _unpacker(stream: _Stream, name: str) -> Callable[[], bytes]:
    """Return a function that gives the next unpacked bytes of one compressed segment and leaves the stream behind
    it."""
    makers: dict = {
        "gzip": lambda: zlib.decompressobj(31),
        "bzip2": bz2.BZ2Decompressor,
        "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
        "lzma": lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE),
    }
    if zstd is not None:
        makers["zstd"] = zstd.ZstdDecompressor
    if name not in makers:
        raise UnreadableImage(f"compressed with {name}, which this Python's standard library cannot unpack")
    errors = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) + ((zstd.ZstdError,) if zstd else ())
    unpacker = makers[name]()
    finished = [False]

    def pull() -> bytes:
        while not finished[0]:
            waiting = getattr(unpacker, "unconsumed_tail", b"")
            needed = not waiting if name == "gzip" else unpacker.needs_input
            packed = stream.some() if needed else waiting
            try:
                data = unpacker.decompress(packed, _CHUNK)
            except errors as error:
                raise UnreadableImage(f"damaged {name} data: {error}") from error
            if unpacker.eof:
                stream.give_back(unpacker.unused_data)
                finished[0] = True
            elif needed and not packed and not data:
                raise UnreadableImage(f"cut short: it ends within {name} data")
            if data:
                return data
        return b""

    return pull


def _read_archive(stream: _Stream, contents: dict, budget: list) -> None:
    """Read one newc archive up to its trailer."""
    while True:
        header = stream.take(_HEADER, "a file header")
        if header[:6] not in (b"070701", b"070702"):
            raise UnreadableImage(f"damaged: no file header where one must be, but bytes {header[:6].hex()}")
        try:
            mode, size, name_size = (int(header[start : start + 8], 16) for start in (14, 54, 94))
        except ValueError:
            raise UnreadableImage("damaged: a file header holds no numbers") from None
        if not 0 < name_size <= _MAXIMUM_NAME or size < 0:
            raise UnreadableImage(f"damaged: a file name of {name_size} bytes")
        budget[0] -= _HEADER + name_size + size
        if budget[0] < 0:
            raise UnreadableImage(f"it unpacks to more than {_MAXIMUM_UNPACKED >> 30} GiB")
        name = stream.take(name_size, "a file name").split(b"\0", 1)[0].decode("utf-8", "replace")
        stream.skip(-(_HEADER + name_size) % 4, "padding")
        if name == "TRAILER!!!":
            return
        name = re.sub(r"^(?:\./|/)+", "", name)
        _note_member(name, mode, contents)
        if _CONFIG.fullmatch(name) and mode & 0o170000 == 0o100000 and size <= _MAXIMUM_CONFIG:
            contents["config"]["/" + name] = stream.take(size, name).decode("utf-8", "replace")
        else:
            stream.skip(size, name)
        stream.skip(-size % 4, "padding")


def _note_member(name: str, mode: int, contents: dict) -> None:
    contents["members"] += 1
    version = _VERSION.match(name)
    if version:
        contents["kernels"].add(version.group(1))
    if mode & 0o170000 == 0o100000 and _MODULE.search(name):
        contents["modules"] += 1
        stem = _MODULE.sub("", name.rsplit("/", 1)[-1])
        contents["holds_ib_core"] = contents["holds_ib_core"] or stem.replace("-", "_") == "ib_core"
