# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two ways to the API server, over urllib3 alone and with the client of kubernetes.core, send and tell the same."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from ansible_collections.kubernetes.core.plugins.module_utils.k8s import client as core_client
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import api as cluster_api
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import auth, settings

from rehearsal.apiserver import certificates

STATUS = {"kind": "Status", "reason": "Conflict", "message": "changed", "details": {"retryAfterSeconds": 3}}
ANSWERS = {"/ok": (200, "application/json", b'{"a": 1}'), "/log": (200, "text/plain", b"line\xff\n"),
           "/conflict": (409, "application/json", json.dumps(STATUS).encode()), "/page": (200, "text/html", b"<html>")}  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        kept = ("Accept", "Content-Type", "Authorization")
        seen = (self.command, self.path, {k: self.headers.get(k) for k in kept}, self.rfile.read(length))
        self.server.seen.append(seen)
        status, kind, body = ANSWERS[self.path.partition("?")[0]]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PATCH = do_POST = do_DELETE = answer

    def log_message(self, *args):
        pass


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Function that starts a server, over TLS that asks for a client certificate if wanted, and gives (server, kubeconfig)."""
    monkeypatch.setattr(core_client, "_pool", {})
    servers = []

    def start(with_certificate: bool = True, **user: str):
        certificate, key = certificates.self_signed()
        (tmp_path / "client.pem").write_text(certificate)
        (tmp_path / "client.key").write_text(key)
        tls = certificates.context(certificate, key)
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(cadata=certificate)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.seen = []
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        if with_certificate:
            user |= {"client-certificate": "client.pem", "client-key": "client.key"}
        cluster = {"server": f"https://127.0.0.1:{server.server_port}", "certificate-authority": "client.pem"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        return server, {"kubeconfig": str(file)}

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def both(params, monkeypatch):
    """The two transports for the same parameters."""
    # kubernetes.core asks for the kinds when it makes a client; this server has none.
    monkeypatch.setattr(
        core_client.k8sdynamicclient, "K8SDynamicClient", lambda client, discoverer: FakeDynamic(client)
    )
    core = cluster_api.dynamic_transport(core_client.get_api_client(**params).client)
    return [auth.transport_for(params), core]


class FakeDynamic:
    """What dynamic_transport uses of a dynamic client, without discovery."""

    def __init__(self, client):
        from kubernetes.dynamic import DynamicClient

        self.client, self.configuration = client, client.configuration
        self.request = DynamicClient.request.__get__(self)


@pytest.mark.parametrize("body", [None, {"a": [1]}, '{"a": 1}'], ids=["none", "object", "text"])
def test_both_send_the_same(serve, monkeypatch, body):
    server, params = serve(token="abc")
    kind = "application/apply-patch+yaml" if isinstance(body, str) else "application/json"
    method = "GET" if body is None else "PATCH"
    for send in both(params, monkeypatch):
        assert send(method, "/ok", [("fieldManager", "a b"), ("x", "1=2&")], body, kind) == {"a": 1}
    first, second = server.seen
    assert first == second
    assert first[2]["Authorization"] == "Bearer abc"


def told(error):
    return {name: getattr(error, name) for name in ("status", "reason", "message", "retry_after", "hopeless")}


def test_both_tell_the_same_of_errors_and_logs(serve, monkeypatch):
    _server, params = serve()
    errors = []
    for send in both(params, monkeypatch):
        assert send("GET", "/log", [], None, "application/json")[cluster_api.TEXT] == "line\ufffd\n"
        found = []
        for path in ("/conflict", "/page"):
            with pytest.raises(cluster_api.ApiError) as caught:
                send("GET", path, [], None, "application/json")
            found.append(told(caught.value))
        errors.append(found)
    assert errors[0] == errors[1]
    assert (errors[0][0]["status"], errors[0][0]["retry_after"]) == (409, 3.0)
    assert errors[0][1]["hopeless"] and "no JSON" in errors[0][1]["message"]


def test_without_its_certificate_a_client_is_refused(serve):
    _server, params = serve(with_certificate=False, token="abc")
    pauses = []
    with pytest.raises(auth.NoConnection) as caught:
        auth.transport_for(params, attempts=2, pause=pauses.append)("GET", "/ok", [], None, "application/json")
    assert "No connection to the Kubernetes API" in str(caught.value)


def test_a_certificate_that_is_none_is_left_to_kubernetes_core(serve, tmp_path):
    _server, params = serve()
    assert settings.plain(params) is not None
    (tmp_path / "client.key").write_text("nothing")
    with pytest.raises(auth.NoConnection):
        auth.transport_for(params, attempts=1)("GET", "/ok", [], None, "application/json")


def test_the_usual_way_does_not_import_the_generated_client(cluster):
    """What makes a module quick: nobody imports kubernetes, not even for a message."""
    code = (
        "import sys\n"
        "from ansible_collections.railyard.rdma.plugins.module_utils.cluster import auth\n"
        f"send = auth.transport_for({{'kubeconfig': {cluster.kubeconfig!r}}})\n"
        "send('GET', '/version', [], None, 'application/json')\n"
        "sys.exit('kubernetes' in sys.modules)\n"
    )
    path = ":".join(p for p in sys.path if p)
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"})
