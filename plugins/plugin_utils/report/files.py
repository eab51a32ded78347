# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of a report: read an earlier one, check where new ones go, write them whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ansible_collections.railyard.rdma.plugins.module_utils import whole_file
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import ReportError

# An earlier report of a thousand nodes with all evidence is some ten megabytes.
MOST_BYTES = 1 << 30
_REASONS = {
    errno.ENOSPC: "no space is left on its file system",
    errno.EDQUOT: "the quota is used up",
    errno.EACCES: "this user may not do that",
    errno.EPERM: "this user may not do that",
    errno.EROFS: "the file system is read-only",
    errno.ENAMETOOLONG: "the name is too long",
}


def target(name: str, path: str) -> Path:
    """Return where a file is written: a link stays one, its target is replaced.

    :param name: the variable, for the error.
    :raises ReportError: nothing can be written there.
    """
    if "\0" in path:
        raise ReportError(f"{name}: got {path!r}, must be the path of a file.")
    try:
        found = Path(os.path.expanduser(path)).resolve()
        kind = found.stat().st_mode if found.exists() else None
        folder = found.parent
        if path.endswith("/") or (kind is not None and stat.S_ISDIR(kind)):
            raise ReportError(f"{name}: {path} is a folder, must be a file. Add the name of a file.")
        if kind is not None and not stat.S_ISREG(kind):
            raise ReportError(
                f"{name}: {path} is no regular file, which alone can be replaced as a whole. Name another one."
            )
        if not folder.is_dir():
            raise ReportError(f"{name}: the folder {folder} does not exist. Create it, or name a file in another one.")
    except (OSError, RuntimeError) as error:
        raise ReportError(f"{name}: {path} cannot be looked at: {reason(error)}.") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ReportError(f"{name}: this user may not write into {folder}. Grant it, or name a file in another folder.")
    return found


def write(name: str, path: Path, content: bytes) -> None:
    """Write a file as a whole: who reads it meanwhile, or after a crash, sees the old one or the new one.

    :raises ReportError: it cannot be written; the old one is still there.
    """
    try:
        whole_file.replace(path, content, ".railyard-report-")
    except OSError as error:
        raise ReportError(
            f"{name}: {path} cannot be written: {reason(error)}. What was there before is unchanged."
        ) from error


def read(name: str, path: str) -> bytes:
    """Return the content of an earlier report. :raises ReportError: it cannot be read."""
    remedy = "Name a file that a run wrote as report_file, or none."
    try:
        found = Path(os.path.expanduser(path))
        size = found.stat().st_size
        if not found.is_file():
            raise ReportError(f"{name}: {path} is no regular file. {remedy}")
        if size > MOST_BYTES:
            raise ReportError(f"{name}: {path} has {size} bytes, at most {MOST_BYTES} are read. {remedy}")
        return found.read_bytes()
    except FileNotFoundError as error:
        raise ReportError(f"{name}: {path} does not exist. {remedy}") from error
    except (OSError, ValueError) as error:
        raise ReportError(f"{name}: {path} cannot be read: {reason(error)}. {remedy}") from error


def reason(error: Exception) -> str:
    """Why something failed, in words."""
    number = getattr(error, "errno", None)
    return _REASONS.get(number) or getattr(error, "strerror", None) or str(error)
