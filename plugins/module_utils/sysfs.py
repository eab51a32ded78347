# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading files of a node without ever failing: a value, or the reason why there is none.

Everything on the node side reads through :class:`Tree`, so that the same code serves the running machine, a mounted
rescue disk, a chroot and a test.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Iterable
from typing import Callable, NamedTuple

# "Not there" in its variants: the file, the device behind it, or the row of a table (EINVAL and ENODATA are what GID
# attributes of an empty or foreign row answer, see NVIDIA/nccl#1573).
ABSENT = frozenset({"ENOENT", "ENOTDIR", "ENODEV", "ENXIO", "EINVAL", "ENODATA", "EOPNOTSUPP"})

_CHUNK = 65536
_SHORT = 4096  # a sysfs attribute is one page at most
_MAXIMUM = 16 * 1024 * 1024
_MAXIMUM_LINKS = 40


def number(text: str | None) -> int | None:
    """Return the decimal number that a file's text is, or None; the kernel writes nothing else than ``-?[0-9]+``."""
    bare = (text or "").strip()
    digits = bare[1:] if bare.startswith("-") else bare
    return int(bare) if digits.isascii() and digits.isdigit() and len(digits) < 32 else None


def describe(error: OSError) -> str:
    """Return ``No such file or directory (ENOENT)`` for an error, without the path."""
    code = errno.errorcode.get(error.errno or 0, "EIO")
    return f"{os.strerror(error.errno or errno.EIO)} ({code})"


class Reading(NamedTuple):
    """What reading one file gave: ``value`` is its text, or None with ``reason`` and the
    name of the error (``code``, like ``ENOENT``)."""

    value: str | None
    reason: str | None = None
    code: str | None = None

    @property
    def absent(self) -> bool:
        """True when there is nothing to read, as opposed to something that we may not or cannot read."""
        return self.value is None and self.code in ABSENT


def read_file(path: str, flags: int = 0) -> bytes:
    """Read a whole file with as few system calls as possible. Raises OSError.

    O_NONBLOCK keeps a FIFO or a silent device from blocking the run; it means nothing to regular files and sysfs.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    try:
        data = os.read(descriptor, _CHUNK)
        if len(data) < _CHUNK:
            return data
        parts = [data]
        total = len(data)
        while data and total < _MAXIMUM:
            data = os.read(descriptor, _CHUNK)
            parts.append(data)
            total += len(data)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _link_target(place: str) -> str | None:
    try:
        return os.readlink(place)
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=8)
def _numbers(count: int) -> dict[str, None]:
    return dict.fromkeys(str(number) for number in range(count))


class Tree:
    """A file system as seen from ``root``; paths given to its methods start with ``/`` and mean the inside of it.

    :param root: ``/`` for the running machine.
    :param read_bytes: replaces the reading of one file (absolute path on this machine in, bytes out, OSError raised).
        Tests use it for errors that no ordinary file gives, like EINVAL.
    """

    def __init__(self, root: str = "/", read_bytes: Callable[[str], bytes] | None = None) -> None:
        self.root = "/" + root.strip("/")
        self.live = self.root == "/"
        self.read_bytes = read_bytes or read_file
        self.known: dict = {}  # what several readers of this tree need and one of them has read
        self._places: dict[str, str] = {}
        self._steps: dict[str, str] = {}

    def path(self, path: str) -> str:
        """Return the place of ``path`` on this machine with links resolved inside the root: an absolute link in a
        mounted tree must not lead to a file of the machine that inspects it."""
        if self.live:
            return path
        folder, _slash, name = path.rpartition("/")
        if name in ("", ".", ".."):
            return self.folder(path)
        place = f"{self.folder(folder)}/{name}"
        target = _link_target(place)
        return place if target is None else self.root + self._follow(place[len(self.root) : -len(name) - 1], target, 1)

    def folder(self, path: str) -> str:
        """Return the place of a directory. What was found once is kept, since a run of a module moves no folders."""
        if self.live:
            return path
        place = self._places.get(path)
        if place is None:
            place = self._places[path] = self.root + self._follow("", path, 0)
        return place

    def _follow(self, start: str, path: str, links: int) -> str:
        """Walk from ``start`` (inside the root, without links) along ``path`` and return where it ends, without
        links; ``links``: how many led here."""
        here = "" if path.startswith("/") else start
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if part == "..":
                here = here.rpartition("/")[0]
                continue
            step = f"{here}/{part}"
            found = self._steps.get(step)
            if found is None:
                target = _link_target(self.root + step)
                # After too many links the last one stays: opening it gives ELOOP.
                found = step if target is None or links > _MAXIMUM_LINKS else self._follow(here, target, links + 1)
                self._steps[step] = found
            here = found
        return here

    def inside(self, path: str) -> str:
        """Resolve all links and return the path as seen inside the root (``/sys/devices/…`` for a class link)."""
        if self.live:
            place = self._places.get(path)
            if place is None:
                place = self._places[path] = os.path.realpath(path)
            return place
        return self.folder(path)[len(self.root) :] or "/"

    def read(self, path: str) -> Reading:
        """Read one file as text."""
        if not self.live and self.read_bytes is read_file:
            folder, _slash, name = path.rpartition("/")
            try:
                return Reading(read_file(f"{self.folder(folder)}/{name}", os.O_NOFOLLOW).decode("utf-8", "replace"))
            except (OSError, ValueError):
                pass  # a link, or something that the next attempt tells
        return self.read_at(self.path(path))

    def read_at(self, place: str) -> Reading:
        """Read one file whose place on this machine is known already (saves resolving it)."""
        try:
            data = self.read_bytes(place)
        except OSError as error:
            return Reading(None, describe(error), errno.errorcode.get(error.errno or 0, "EIO"))
        except ValueError as error:
            return Reading(None, str(error), "EINVAL")
        return Reading(data.decode("utf-8", "replace"))

    def read_each(
        self, place: str, names: Iterable[str], ignore: bytes | None = None
    ) -> list[tuple[str, bytes | OSError]]:
        """Read many short files (4096 bytes at most, as sysfs has them) of one directory: ``(name, content or error)``.

        The directory is walked to once, which is most of the cost of opening a file in sysfs, and nothing is done for a
        file but to open, read and close it.

        :param place: the directory's place on this machine.
        :param ignore: files with exactly this content are left out.
        """
        found: list[tuple[str, bytes | OSError]] = []
        if self.read_bytes is not read_file:
            for name in names:
                try:
                    data = self.read_bytes(f"{place}/{name}")
                except OSError as error:
                    found.append((name, error))
                else:
                    if data != ignore:
                        found.append((name, data))
            return found
        try:
            directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            return [(name, error) for name in names]
        except ValueError as error:
            return [(name, OSError(errno.EINVAL, str(error))) for name in names]
        # In another root a link may lead out of it; attributes in sysfs are no links.
        flags = os.O_RDONLY | os.O_NONBLOCK | (0 if self.live else os.O_NOFOLLOW)
        opening, reading, closing = os.open, os.read, os.close
        try:
            for name in names:
                try:
                    descriptor = opening(name, flags, dir_fd=directory)
                except OSError as error:
                    found.append((name, error))
                    continue
                try:
                    data = reading(descriptor, _SHORT)
                    if data != ignore:
                        found.append((name, data))
                except OSError as error:
                    found.append((name, error))
                closing(descriptor)
        finally:
            closing(directory)
        return found

    def attributes(self, directory: str, names: Iterable[str]) -> tuple[dict[str, str | None], dict[str, str]]:
        """Read several attributes of one directory: ``({name: stripped text or None}, {name: reason})``; an attribute
        that is None has a reason. Names are plain file names."""
        values: dict[str, str | None] = {}
        reasons: dict[str, str] = {}
        for name, data in self.read_each(self.folder(directory), names):
            if isinstance(data, OSError):
                values[name] = None
                reasons[name] = describe(data)
            else:
                values[name] = data.decode("utf-8", "replace").strip() or None
                if values[name] is None:
                    reasons[name] = "the file is empty"
        return values, reasons

    def text(self, path: str) -> str | None:
        """Return the stripped text of a file, or None when it is empty or cannot be read."""
        return (self.read(path).value or "").strip() or None

    def integer(self, path: str) -> int | None:
        """Return the decimal number in a file, or None."""
        return number(self.text(path))

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory; an empty list when it is not there or not readable."""
        try:
            return sorted(os.listdir(self.folder(path)))
        except (OSError, ValueError):
            return []

    def rows(self, path: str) -> list[str]:
        """Return the names of a directory that are numbers, in the order of the numbers (ports, rows of a table)."""
        try:
            found = os.listdir(self.folder(path))
        except (OSError, ValueError):
            return []
        complete = _numbers(len(found))
        if complete.keys() == set(found):  # as the kernel has them
            return list(complete)
        return sorted((name for name in found if name.isascii() and name.isdigit()), key=int)

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory is there (a dangling link is not)."""
        folder, _slash, name = path.rpartition("/")
        place = path if self.live else f"{self.folder(folder)}/{name}"
        try:
            if not stat.S_ISLNK(os.lstat(place).st_mode):
                return True
        except (OSError, ValueError):
            return False
        return os.path.exists(self.path(path))

    def link_name(self, path: str) -> str | None:
        """Return the last part of what a link points to (a driver's name, a PCI address), or None without a link."""
        place = self.folder(os.path.dirname(path)) + "/" + os.path.basename(path)
        target = _link_target(place)
        return os.path.basename(target.rstrip("/")) or None if target else None
