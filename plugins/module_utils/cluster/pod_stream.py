# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stream of the benchmark's script in a pod, over the exec subresource with standard input."""

from __future__ import annotations

import contextlib
import ssl

from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth.script import STOP
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth.session import StreamError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pod_exec import (
    ERROR,
    STDERR,
    STDOUT,
    handshake_message,
    status_message,
)

CONNECT_SECONDS = 30


class PodStream:
    """See :mod:`session` for what a stream is. The container runtime closes the script's input when the connection ends."""

    def __init__(self, open_socket, endpoint, argv):
        """open_socket: of :func:`pod_exec.opener`."""
        from kubernetes.client.rest import ApiException

        self._complaint = ""
        try:
            self._socket = open_socket(
                endpoint["pod"], endpoint["namespace"], endpoint.get("container"), argv, True, CONNECT_SECONDS
            )
        except ApiException as error:
            raise StreamError(f"exec refused: {handshake_message(error)}") from error
        except Exception as error:
            # The WebSocket library and urllib3 raise their own types for every kind of lost connection.
            raise StreamError(f"exec failed: {error}") from error

    def send(self, data):
        """Write to the script's standard input."""
        try:
            self._socket.write_stdin(data)
        except Exception as error:
            raise StreamError(f"the connection to the pod broke: {error}") from error

    def receive(self, seconds):
        """What the script said within so many seconds; empty when it said nothing, None at its end."""
        try:
            connection = self._socket.sock.sock
            if isinstance(connection, ssl.SSLSocket) and connection.pending():
                # Clients older than 34 wait for the descriptor while the next frame is decrypted already; the answer to a
                # ping wakes them.
                self._socket.sock.ping()
            self._socket.update(timeout=seconds)
            data = self._socket.read_channel(STDOUT)
            self._complaint = (self._complaint + self._socket.read_channel(STDERR))[-500:]
        except Exception as error:
            raise StreamError(f"the connection to the pod broke: {error}") from error
        if data:
            return data if isinstance(data, bytes) else data.encode()
        if self._socket.is_open():
            return b""
        failure = status_message(self._socket.read_channel(ERROR))
        if failure:
            raise StreamError(f"{failure} {self._complaint.strip()[-200:]}".strip())
        return None

    def close(self):
        """End the script, then the connection. Neither may fail: there may be nobody left at the other end."""
        with contextlib.suppress(Exception):
            if self._socket.is_open():
                self._socket.write_stdin(STOP)
        with contextlib.suppress(Exception):
            self._socket.close()
