# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real etcd and kube-apiserver: the command lines, recorded by stand-ins, and what is asked of the server that
answers.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rehearsal.fleet import control_plane
from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.state import State, end, this_process

RECORDER = """\
#!/bin/sh
for word in "$@"; do
    echo "$word" >>"$0.arguments"
    case $word in --cert-dir=*) sleep 0.2; echo certificate >"${word#*=}/apiserver.crt" ;; esac
done
exec sleep 60
"""


@pytest.fixture
def state(tmp_path):
    state = State(tmp_path / "state")
    state.create([], True, this_process("cli", "cli"))
    yield state
    end(state.processes())


@pytest.fixture
def assets(tmp_path):
    folder = tmp_path / "assets"
    folder.mkdir()
    for name in control_plane.PROGRAMS:
        (folder / name).write_text(RECORDER)
        (folder / name).chmod(0o755)
    return folder


def arguments(assets, name):
    words = (assets / f"{name}.arguments").read_text().split("\n")[:-1]
    return dict(word.removeprefix("--").partition("=")[::2] for word in words)


def test_both_are_started_with_each_others_addresses(state, assets):
    control_plane.start(state, assets)
    etcd, api = arguments(assets, "etcd"), arguments(assets, "kube-apiserver")
    assert etcd["data-dir"].startswith(str(state.folder))
    assert etcd["listen-client-urls"] == etcd["advertise-client-urls"] == api["etcd-servers"]
    assert etcd["initial-cluster"] == f"default={etcd['listen-peer-urls']}"
    assert api["authorization-mode"] == "AlwaysAllow"
    assert api["kubelet-preferred-address-types"] == "ExternalDNS,InternalIP"
    assert api["service-cluster-ip-range"] == "10.96.0.0/16"
    assert api["bind-address"] == "127.0.0.1"
    key = Path(api["service-account-signing-key-file"]).read_text()
    assert key.startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert [process.name for process in state.processes()] == ["etcd", "kube-apiserver"]

    config = json.loads((state.folder / "kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{api['secure-port']}"
    token = config["users"][0]["user"]["token"]
    assert Path(api["token-auth-file"]).read_text() == f"{token},rehearsal,rehearsal,system:masters\n"
    assert config["clusters"][0]["cluster"]["certificate-authority"] == f"{api['cert-dir']}/apiserver.crt"
    assert control_plane.ready(state) is False


def test_missing_binary_is_named(state, assets):
    (assets / "etcd").unlink()
    with pytest.raises(FleetError, match=r"lacks etcd:"):
        control_plane.start(state, assets)


def test_binary_that_ends_shows_its_log(state, assets):
    (assets / "kube-apiserver").write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
    with pytest.raises(FleetError, match="no such flag"):
        control_plane.start(state, assets)


class Server(BaseHTTPRequestHandler):
    """Answers /readyz to the right token; takes CRDs but the one named refused."""

    seen: list[tuple[str, str]]

    def do_GET(self):
        good = self.headers["Authorization"] == "Bearer secret" and self.path == "/readyz"
        self.answer(200 if good else 401)

    def do_POST(self):
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = document["metadata"]["name"]
        self.seen.append((self.path, name))
        self.answer({"refused": 422, "old": 409}.get(name, 201))

    def answer(self, code):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(b"answer")

    def log_message(self, *_):
        pass


@pytest.fixture
def server(state):
    Server.seen = []
    with HTTPServer(("127.0.0.1", 0), Server) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        config = control_plane.kubeconfig(http.server_port, "secret", "unused")
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{http.server_port}"}
        (state.folder / "kubeconfig").write_text(json.dumps(config))
        yield config
        http.shutdown()


def test_ready_needs_the_right_answer(state, server):
    assert control_plane.ready(state) is True
    server["users"][0]["user"]["token"] = "wrong"
    (state.folder / "kubeconfig").write_text(json.dumps(server))
    assert control_plane.ready(state) is False
    (state.folder / "kubeconfig").write_text("")
    assert control_plane.ready(state) is False


def test_crds_are_created_and_a_refused_one_is_named(state, server, tmp_path):
    def crd(name):
        return json.dumps({"kind": "CustomResourceDefinition", "metadata": {"name": name}})

    folder = tmp_path / "crds"
    folder.mkdir()
    (folder / "a.yaml").write_text(crd("new") + "\n---\n" + crd("old") + "\n---\n{kind: ConfigMap}\n")
    control_plane.apply_crds(state, folder)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert Server.seen == [(path, "new"), (path, "old")]
    (folder / "b.yaml").write_text(crd("refused"))
    with pytest.raises(FleetError, match=r"b\.yaml was refused with 422"):
        control_plane.apply_crds(state, folder)
