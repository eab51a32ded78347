# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Unix sockets at paths of any length.

A socket address holds 107 bytes (unix(7)), a checkout may lie deeper. The folder is opened and the socket addressed
through /proc/self/fd/N/NAME, which is always short.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path


def listen(path: str | Path, backlog: int = 128) -> socket.socket:
    """A listening stream socket at ``path``; a leftover of an earlier run there is replaced."""
    path = Path(path)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    path.chmod(0o600)
    sock.listen(backlog)
    return sock
