# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A door in front of an API server: closed, the server is away as while it restarts, and its objects stay."""

from __future__ import annotations

import contextlib
import socket
import threading


class Door:
    """Forwards TCP connections on 127.0.0.1. ``close_after`` N requests for writing it closes by itself.

    :ivar port: where it listens, also after it was closed and opened again.
    """

    def __init__(self, target: int):
        self.target, self.port = target, 0
        self._listener: socket.socket | None = None
        self._lock, self._open = threading.Lock(), []
        self._writes_left: int | None = None
        self.open()

    def open(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self._listener, self.port = listener, listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Refuse new connections and break those that there are."""
        listener, self._listener = self._listener, None
        if listener:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            broken, self._open = self._open, []
        for one in broken:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close_after(self, writes: int) -> None:
        self._writes_left = writes

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _address = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            with self._lock:
                self._open += [client, server]
            threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, watched: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if watched and self._writes_left is not None and data.split(b" ", 1)[0] in (b"PATCH", b"DELETE"):
                    self._writes_left -= 1
                    if self._writes_left < 0:
                        self._writes_left = None
                        self.close()
                        return
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
