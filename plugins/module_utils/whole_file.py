# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file that is replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import tempfile


def replace(path, data, prefix, keep_owner=False):
    """Write a file that all may read: who reads it meanwhile, or after a crash, sees the old one or the new one.

    :param data: bytes.
    :param prefix: of the name of the draft beside it, which only a killed run leaves.
    :param keep_owner: give it the owner of the old one, where this user may.
    :raises OSError: it cannot be written; the old one is still there.
    """
    draft = None
    try:
        handle, draft = tempfile.mkstemp(prefix=prefix, dir=os.path.dirname(path))
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
        if keep_owner:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                there = os.stat(path)
                os.chown(draft, there.st_uid, there.st_gid)
        os.replace(draft, path)
        draft = None
    finally:
        if draft is not None:
            os.unlink(draft)
