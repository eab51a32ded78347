# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Opening a boot image: a file, several files that the boot loader joins, or the section of a unified kernel image.

A unified kernel image is a PE file whose section ``.initrd`` is the boot image and whose ``.uname`` names the kernel
(UAPI.5 of the UAPI group, systemd-stub(7)). Boot loaders load all files of an ``initrd`` line one behind the other,
which is how rpm-ostree adds what ``initramfs-etc`` tracks.
"""

from __future__ import annotations

import os
import stat
import struct
from typing import BinaryIO

from ansible_collections.railyard.rdma.plugins.module_utils.boot.byte_stream import DamagedImage

_MAXIMUM_SECTIONS = 256
_MAXIMUM_UNAME = 256


def open_file(place: str) -> BinaryIO:
    """Open a regular file without ever waiting for one that is not (a FIFO, a device). Raises OSError."""
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file", place)
    return os.fdopen(descriptor, "rb", buffering=0)


class Parts:
    """Several parts of files, read as one: ``(place, offset, size)`` each, size None for the rest of the file."""

    def __init__(self, parts: list[tuple[str, int, int | None]]) -> None:
        self._parts = parts
        self._index = 0
        self._position = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def tell(self) -> int:
        return 0 if not (self._index or self._position) else -1

    def seek(self, _start: int) -> None:
        """Go back to the start."""
        self.close()
        self._index = self._position = 0

    def read(self, size: int) -> bytes:
        while self._index < len(self._parts):
            place, offset, length = self._parts[self._index]
            if self._file is None:
                self._file = open_file(place)
                self._file.seek(offset)
                self._position = 0
            data = self._file.read(size if length is None else min(size, length - self._position))
            if data:
                self._position += len(data)
                return data
            if length is not None and self._position < length:
                raise DamagedImage("cut short: its section ends behind the end of the file")
            self.close()
            self._index += 1
        return b""


def sections(place: str) -> dict[str, tuple[int, int]] | None:
    """Return the sections of a PE file as ``{name: (offset, size)}``, None for a file that is none.

    Of sections with the same name the first counts. Raises OSError and DamagedImage.
    """
    with open_file(place) as file:
        head = file.read(64)
        if head[:2] != b"MZ" or len(head) < 64:
            return None
        file.seek(struct.unpack_from("<I", head, 60)[0])
        header = file.read(24)
        if header[:4] != b"PE\0\0" or len(header) < 24:
            return None
        count, optional = struct.unpack_from("<H", header, 6)[0], struct.unpack_from("<H", header, 20)[0]
        if count > _MAXIMUM_SECTIONS:
            raise DamagedImage(f"damaged: a PE file with {count} sections")
        file.seek(optional, os.SEEK_CUR)
        table = file.read(40 * count)
        if len(table) < 40 * count:
            raise DamagedImage("cut short: it ends within the table of sections")
        found: dict[str, tuple[int, int]] = {}
        for number in range(count):
            name, used, _address, size, offset = struct.unpack_from("<8sIIII", table, 40 * number)
            text = name.rstrip(b"\0").decode("ascii", "replace")
            found.setdefault(text, (offset, min(used, size) if used else size))
        return found


def kernel_of(place: str) -> str | None:
    """Return the kernel version that a unified kernel image names, None when it names none or cannot be read."""
    try:
        found = sections(place)
        if not found or ".uname" not in found:
            return None
        offset, size = found[".uname"]
        with open_file(place) as file:
            file.seek(offset)
            text = file.read(min(size, _MAXIMUM_UNAME))
    except (OSError, DamagedImage):
        return None
    return text.split(b"\0")[0].decode("utf-8", "replace").strip() or None


def open_image(places: list[str]) -> Parts:
    """Open a boot image. Raises OSError, and DamagedImage for a unified kernel image without a boot image."""
    parts: list[tuple[str, int, int | None]] = []
    for place in places:
        found = sections(place)
        if found is None:
            parts.append((place, 0, None))
        elif ".initrd" not in found:
            raise DamagedImage("no files in it: a unified kernel image without a section .initrd")
        else:
            parts.append((place, *found[".initrd"]))
    return Parts(parts)
