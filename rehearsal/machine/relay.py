# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ssh into a node: connections on a unix socket of this machine, piped to a port inside the node's network namespace.

Runs in the boot process, which is in that namespace; so nothing appears on this machine's network and the socket is
gone when the node is down, as a host that does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from rehearsal.machine import sockets

_CHUNK = 65536


@contextlib.asynccontextmanager
async def serving(path: Path, port: int) -> AsyncIterator[None]:
    """Relay connections to 127.0.0.1:PORT while the block runs; the socket file is removed at its end."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pipe(reader, inner_writer), _pipe(inner_reader, writer))
        inner_writer.close()
        writer.close()

    server = await asyncio.start_unix_server(handle, sock=sockets.listen(path))
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()
