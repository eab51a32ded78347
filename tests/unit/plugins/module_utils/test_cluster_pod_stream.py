# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stream of a script in a pod over the exec subresource: what it says, how it ends, and how the connection can fail."""

from __future__ import annotations

import json
import sys
import types
from urllib.parse import parse_qs, urlsplit

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth.session import StreamError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pod_exec import opener
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pod_stream import PodStream

ENDPOINT = {"pod": "p", "namespace": "n", "container": "c"}


class ApiException(Exception):
    reason = 'Handshake status 403 Forbidden -+-+- {} -+-+- b\'{"message": "pods is forbidden"}\''


class Socket:
    """A WSClient with what the server says, step by step: text of standard output, an exception, or None for the end."""

    def __init__(self, steps, status=None, complaint=""):
        self.steps, self.status, self.complaint, self.written = list(steps), status, complaint, []
        self.open, self.closed, self.data = True, False, ""
        self.sock = types.SimpleNamespace(sock=object())

    def update(self, timeout):
        step = self.steps.pop(0) if self.steps else ""
        if isinstance(step, Exception):
            raise step
        self.open = step is not None
        self.data = step or ""

    def read_channel(self, channel):
        return {1: self.data, 2: self.complaint, 3: json.dumps(self.status) if self.status else ""}[channel]

    def is_open(self):
        return self.open

    def write_stdin(self, data):
        if isinstance(self.written, Exception):
            raise self.written
        self.written.append(data)

    def close(self):
        self.closed = True


@pytest.fixture
def opened(monkeypatch):
    """Opens a stream to a socket, or fails as the socket says; ``asked`` are the arguments of the call."""
    asked = {}

    def open_to(socket):
        def websocket_call(configuration, method, url, **kwargs):
            asked.update(kwargs, method=method, url=urlsplit(url))
            if isinstance(socket, Exception):
                raise socket
            return socket

        modules = {
            "kubernetes": {}, "kubernetes.client": {}, "kubernetes.client.rest": {"ApiException": ApiException},
            "kubernetes.stream": {}, "kubernetes.stream.ws_client": {"websocket_call": websocket_call},
        }  # fmt: skip
        for name, content in modules.items():
            monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**content))
        bearer = {"type": "api_key", "in": "header", "key": "authorization", "value": "Bearer t"}
        configuration = types.SimpleNamespace(host="https://api:6443/at", auth_settings=lambda: {"BearerToken": bearer})
        inner = types.SimpleNamespace(default_headers={"User-Agent": "railyard", "Authorization": "Basic x"})
        client = types.SimpleNamespace(configuration=configuration, client=types.SimpleNamespace(client=inner))
        return PodStream(opener(client), ENDPOINT, ["sh", "-c", "x y"])

    open_to.asked = asked
    return open_to


def test_it_says_what_the_script_says_until_the_end(opened):
    socket = Socket(["@ hello server\n", "", None], status={"status": "Success"})
    stream = opened(socket)
    url = opened.asked["url"]
    assert (url.scheme, url.netloc, url.path) == ("https", "api:6443", "/at/api/v1/namespaces/n/pods/p/exec")
    query = parse_qs(url.query)
    assert query.pop("command") == ["sh", "-c", "x y"]
    assert query == {"container": ["c"], "stdin": ["true"], "stdout": ["true"], "stderr": ["true"], "tty": ["false"]}
    # A token of the configuration is the newer one: a plugin of the user's may have renewed it.
    assert opened.asked["headers"] == {"user-agent": "railyard", "authorization": "Bearer t"}
    assert opened.asked["_preload_content"] is False
    stream.send(b"together\n")
    assert [stream.receive(1) for _step in range(3)] == [b"@ hello server\n", b"", None]
    stream.close()
    assert socket.written == [b"together\n"] and socket.closed


def test_closing_it_tells_the_script_to_stop(opened):
    socket = Socket([""])
    opened(socket).close()
    assert socket.written == [b"stop\n"] and socket.closed


def test_a_shell_that_is_not_there_is_told(opened):
    status = {"status": "Failure", "message": "command terminated with exit code 127"}
    stream = opened(Socket([None], status=status, complaint="sh: not found"))
    with pytest.raises(StreamError, match="exit code 127 sh: not found"):
        stream.receive(1)


@pytest.mark.parametrize(
    ("error", "text"),
    [(ApiException(), "exec refused: .*pods is forbidden"), (OSError("reset"), "exec failed: reset")],
    ids=["refused", "lost"],
)
def test_a_stream_that_cannot_be_opened(opened, error, text):
    with pytest.raises(StreamError, match=text):
        opened(error)


def test_a_connection_that_breaks(opened):
    socket = Socket([OSError("reset by peer")])
    stream = opened(socket)
    with pytest.raises(StreamError, match="the connection to the pod broke: reset by peer"):
        stream.receive(1)
    socket.written = OSError("broken pipe")
    with pytest.raises(StreamError, match="broken pipe"):
        stream.send(b"x")
    stream.close()
    assert socket.closed


def test_frames_that_are_decrypted_already_are_not_waited_for(opened, monkeypatch):
    class Secure:
        def pending(self):
            return 12

    monkeypatch.setattr("ssl.SSLSocket", Secure)
    socket, pings = Socket(["@ end\n"]), []
    socket.sock = types.SimpleNamespace(sock=Secure(), ping=lambda: pings.append(1))
    assert opened(socket).receive(1) == b"@ end\n"
    assert pings == [1]
