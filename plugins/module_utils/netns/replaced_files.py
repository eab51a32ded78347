# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changing several files so that either all changes stay or none: each in one step, with backups and undo."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile

BACKUP = ".railyard-backup"  # no program that reads *.conf or *.cfg of a directory takes a file of that name


class Changes:
    """Replaces files and remembers what was there.

    :param settle: called with the place of each file that did not exist before, to give it the context that the system
        wants (SELinux).

    A link is replaced by a file and its target stays as it is: whoever manages the target elsewhere (a package, a
    checked-out configuration) owns it, and would undo or commit our change. All methods raise OSError.
    """

    def __init__(self, settle=None) -> None:
        self._settle = settle or (lambda place: None)
        self._done: list[tuple[str, str | None, bytes | None, str | None]] = []
        self._backups: list[str] = []

    def back_up(self, place: str) -> str:
        """Copy a file or link beside itself; returns the copy's place.

        An earlier backup is never overwritten; one with the same content serves again (an interrupted run left it).
        """
        link = os.readlink(place) if os.path.islink(place) else None
        data = None if link is not None else _read(place)
        for number in range(1, 1000):
            copy = f"{place}{BACKUP}" + (f"-{number}" if number > 1 else "")
            try:
                if link is not None:
                    os.symlink(link, copy)
                else:
                    _create(copy, data or b"", place)
            except FileExistsError:
                if _same(copy, link, data):
                    return copy
                continue
            self._backups.append(copy)
            return copy
        raise FileExistsError(17, "999 backups are there already", place)

    def write(self, place: str, data: bytes) -> None:
        """Give a file new content. It is on disk before it gets its name, since a reboot may follow; mode, owner and
        extended attributes (the SELinux context, access lists) of the old one stay."""
        directory, name = os.path.split(place)
        new = not os.path.lexists(place)
        link = os.readlink(place) if os.path.islink(place) else None
        before = None if new or link is not None else _read(place)
        os.makedirs(directory, mode=0o755, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if os.path.exists(place) and stat.S_ISREG(os.stat(place).st_mode):
                    _copy_attributes(place, temporary)
                else:
                    os.chmod(temporary, 0o644)
                os.fsync(file.fileno())
            os.replace(temporary, place)
        except BaseException:
            _remove(temporary)
            raise
        self._done.append((place, link, before, "new" if new else None))
        _sync_directory(directory)
        if new:
            self._settle(place)

    def remember(self, place: str) -> None:
        """Note a file that a program is going to write, for :meth:`undo`."""
        self._done.append((place, None, _read(place), None))

    def undo(self) -> list[str]:
        """Put everything back, the last change first, and remove the backups of this run; returns what could not be
        put back."""
        problems = []
        for place, link, before, new in reversed(self._done):
            try:
                if new:
                    _remove(place)
                elif link is not None:
                    temporary = f"{place}.tmp"
                    _remove(temporary)
                    os.symlink(link, temporary)
                    os.replace(temporary, place)
                elif not os.path.exists(place) or _read(place) != before:
                    Changes().write(place, before or b"")
            except OSError as error:
                problems.append(f"{place}: {error.strerror}")
        if not problems:
            for copy in self._backups:
                _remove(copy)
        self._done, self._backups = [], []
        return problems


def _read(place: str) -> bytes:
    with open(place, "rb") as file:
        return file.read()


def _same(copy: str, link: str | None, data: bytes | None) -> bool:
    try:
        if os.path.islink(copy) or link is not None:
            return os.path.islink(copy) and os.readlink(copy) == link
        return _read(copy) == data
    except OSError:
        return False


def _create(copy: str, data: bytes, source: str) -> None:
    descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            _copy_attributes(source, copy)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        _remove(copy)
        raise


def _copy_attributes(source: str, target: str) -> None:
    status = os.stat(source)
    try:
        os.chown(target, status.st_uid, status.st_gid)
    except PermissionError:
        if (os.stat(target).st_uid, os.stat(target).st_gid) != (status.st_uid, status.st_gid):
            raise
    shutil.copystat(source, target)
    os.utime(target)  # copystat copied the times, too, and a program that compares them must see the change


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(place: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place)
