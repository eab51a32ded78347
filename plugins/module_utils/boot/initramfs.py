# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a boot image (initramfs) holds, read from the image itself and without unpacking it to disk.

An image is a row of cpio archives ("newc", or "crc" with checksums), plain or compressed, with zero bytes between them:
microcode first, then the root file system (Documentation/driver-api/early-userspace/buffer-format.rst). It is read as a
stream, so its size does not matter. What counts is what the kernel makes of it: a later member replaces an earlier one
of the same name, links are followed, and of hard links only one carries the data.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from ansible_collections.railyard.rdma.plugins.module_utils.boot import image_config
from ansible_collections.railyard.rdma.plugins.module_utils.boot.byte_stream import (
    CHUNK,
    DamagedImage,
    Stream,
    UnreadableImage,
)
from ansible_collections.railyard.rdma.plugins.module_utils.boot.unpackers import compression_of, unpacked

__all__ = ["DamagedImage", "UnreadableImage", "read_image"]

_HEADER = 110
# Real images unpack to some hundred MiB; the bounds keep a damaged or hostile one from running for ever or taking all
# memory.
_MAXIMUM_PACKED = 2 << 30
_MAXIMUM_UNPACKED = 4 << 30
_MAXIMUM_NAME = 4096  # PATH_MAX, as the kernel has it (init/initramfs.c)
_MAXIMUM_MEMBERS = 1 << 20
_MAXIMUM_MODULES = 50_000
_KIND, _FILE, _LINK = 0o170000, 0o100000, 0o120000
_MODULE = re.compile(r"\.ko(?:\.(?:gz|xz|zst))?$")
_VERSION = re.compile(r"(?:usr/)?lib/modules/([^/]{1,255})/")
# dracut's module "squash" packs modules and programs once more; looking only at the outside would find no ib_core.
_NESTED = re.compile(r"(?:squash|squashfs|erofs)-?root\.img")


def read_image(file: BinaryIO) -> dict:
    """Read an image to its end, twice when links lead to files that were not kept the first time.

    :param file: open for binary reading, at its start, and seekable.
    :returns: ``{formats, members, modules, kernels, holds_ib_core, config, force_loaded, booster, unpacked}``: the
        archives' compressions in order (``cpio`` for an uncompressed one), the number of files, the kernel modules as
        ``{name: directory}`` (dashes as underscores), the kernel versions below lib/modules, whether ib_core is among
        the modules, the modprobe.d files as ``{absolute path: text}``, the modules that the image loads by name rather
        than for a device (see image_config), whether booster built it (which replaces modprobe.d by a configuration of
        its own), and the size of all files in bytes.
    :raises UnreadableImage: unless every archive is whole. A file that holds no archive at all is not an image.
    """
    start = file.tell()
    kept = image_config.Kept()
    contents = _read_once(file, kept)
    missing = kept.missing()
    if missing:
        file.seek(start)
        kept = image_config.Kept(missing)
        contents = _read_once(file, kept)
    contents["kernels"] = sorted(contents["kernels"])
    contents["holds_ib_core"] = "ib_core" in contents["modules"]
    contents.update(kept.told())
    if contents["booster"]:
        contents["kernels"] = contents.pop("booster_kernels")
    contents.pop("booster_kernels", None)
    return contents


def _read_once(file: BinaryIO, kept: image_config.Kept) -> dict:
    contents: dict = {"formats": [], "members": 0, "modules": {}, "kernels": set(), "unpacked": 0}
    stream = Stream(lambda: file.read(CHUNK), _MAXIMUM_PACKED)
    while True:
        stream.skip_zeros()
        head = stream.peek(6)
        if not head:
            break
        if head in (b"070701", b"070702"):
            contents["formats"].append("cpio")
            _read_archive(stream, contents, kept)
            continue
        name = compression_of(head)
        if name is None:
            raise DamagedImage(f"damaged: expected an archive, found bytes {head.hex()}")
        contents["formats"].append(name)
        with unpacked(stream, name) as pull:
            _read_archives(Stream(pull, _MAXIMUM_UNPACKED - contents["unpacked"]), contents, kept)
    if not contents["members"]:
        raise DamagedImage("no files in it")
    return contents


def _read_archives(stream: Stream, contents: dict, kept: image_config.Kept) -> None:
    """Read the archives within one compressed part, which may hold nothing else."""
    while True:
        stream.skip_zeros()
        head = stream.peek(6)
        if not head:
            return
        if head not in (b"070701", b"070702"):
            raise DamagedImage(f"damaged: expected an archive, found bytes {head.hex()}")
        _read_archive(stream, contents, kept)


def _read_archive(stream: Stream, contents: dict, kept: image_config.Kept) -> None:
    """Read one archive up to its trailer."""
    while True:
        header = stream.take(_HEADER, "a file header")
        if header[:6] not in (b"070701", b"070702"):
            raise DamagedImage(f"damaged: no file header where one must be, but bytes {header[:6].hex()}")
        try:
            fields = [int(header[start : start + 8], 16) for start in range(6, _HEADER, 8)]
        except ValueError:
            raise DamagedImage("damaged: a file header holds no numbers") from None
        inode, mode, links, size, name_size = fields[0], fields[1], fields[4], fields[6], fields[11]
        if not 0 < name_size <= _MAXIMUM_NAME or min(fields) < 0:
            raise DamagedImage(f"damaged: a file name of {name_size} bytes")
        name = stream.take(name_size, "a file name").split(b"\0", 1)[0].decode("utf-8", "replace")
        stream.skip(-(_HEADER + name_size) % 4, "padding")
        if name == "TRAILER!!!":
            kept.end_of_archive()
            return
        name = re.sub(r"^(?:\.?/)+", "", name)
        contents["members"] += 1
        contents["unpacked"] += size
        if contents["members"] > _MAXIMUM_MEMBERS or contents["unpacked"] > _MAXIMUM_UNPACKED:
            raise UnreadableImage(
                f"too large: more than {_MAXIMUM_MEMBERS} files or {_MAXIMUM_UNPACKED >> 30} GiB in it"
            )
        if _NESTED.fullmatch(name):
            raise UnreadableImage(f"its files are in {name}, a file system of its own, which cannot be read here")
        kind = mode & _KIND
        if kind == _FILE:
            _note_module(name, contents)
            if links > 1:
                kept.hard_link(name, (inode, fields[7], fields[8]), size)
        checksum = fields[12] if header[:6] == b"070702" and kind == _FILE and size else None
        wanted = kept.wants(name, size, regular=kind == _FILE, link=kind == _LINK)
        if wanted or checksum is not None:
            data = _take_data(stream, name, size, checksum, wanted)
            if wanted:
                kept.put(name, data.decode("utf-8", "replace"), link=kind == _LINK)
        else:
            stream.skip(size, name)
        stream.skip(-size % 4, "padding")


def _take_data(stream: Stream, name: str, size: int, checksum: int | None, wanted: bool) -> bytes:
    """Take a member's data and check it; returns it when it is wanted, else b""."""
    total = 0
    parts = []
    for piece in stream.pieces(size, name):
        if checksum is not None:
            total += sum(piece)
        if wanted:
            parts.append(piece)
    if checksum is not None and total & 0xFFFFFFFF != checksum:
        raise DamagedImage(f"damaged: the checksum of {name} is wrong")
    return b"".join(parts)


def _note_module(name: str, contents: dict) -> None:
    version = _VERSION.match(name)
    if version and len(contents["kernels"]) < 1000:
        contents["kernels"].add(version.group(1))
    if _MODULE.search(name):
        directory, _slash, file_name = name.rpartition("/")
        stem = _MODULE.sub("", file_name).replace("-", "_")
        contents["modules"][stem] = (directory[version.end() :] if version else directory)[:255]
        if len(contents["modules"]) > _MAXIMUM_MODULES:
            raise UnreadableImage(f"too large: more than {_MAXIMUM_MODULES} modules in it")
