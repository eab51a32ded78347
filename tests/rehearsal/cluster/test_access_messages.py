# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the modules say when the account lacks a right, is not known, or the server cannot be reached."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.kubernetes.core.plugins.module_utils.k8s import client as core_client
from ansible_collections.kubernetes.core.plugins.modules import k8s_info
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import api as cluster_api
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import auth
from ansible_collections.railyard.rdma.plugins.modules import (
    cluster_facts,
    node_drain,
    pod_rdma_facts,
    rail_objects,
    rail_state,
    rail_wait,
)

from rehearsal.apiserver import certificates

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rails", "namespace": "default"}, "data": {}}
MODULES = {
    "rail_wait": (rail_wait, {"crds": ["ippools.nv-ipam.nvidia.com"], "timeout": 0}, "get customresourcedefinitions"),
    "rail_state": (rail_state, {"namespace": "op", "parts": ["nodes"], "required": True}, "list nodes"),
    "rail_objects": (rail_objects, {"objects": [MAP]}, "get configmaps"),
    "node_drain": (node_drain, {"node": "gpu-1", "state": "drained"}, "get nodes"),
    "pod_rdma_facts": (pod_rdma_facts, {"namespace": "default", "names": ["p"]}, "list pods"),
}


def run(capsys, module, kubeconfig, **arguments) -> dict:
    """The result of a module; it may fail."""
    capsys.readouterr()
    with patch_module_args({"kubeconfig": str(kubeconfig), **arguments}), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def own_client(monkeypatch):
    """A module is a process of its own; here kubernetes.core would keep the client of the test before."""
    monkeypatch.setattr(core_client, "_pool", {})


@pytest.fixture(scope="module")
def config(cluster, tmp_path_factory):
    """Function that writes a kubeconfig for the guarded door, changed as asked."""
    admin = cluster.api()
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
    admin.request("POST", "/api/v1/namespaces/default/serviceaccounts", body=account)
    path = "/api/v1/namespaces/default/serviceaccounts/nobody/token"
    good = admin.request("POST", path, body={})["status"]["token"]
    folder, count = tmp_path_factory.mktemp("configs"), iter(range(1000))

    def write(token: str = good, **cluster_changes: object) -> Path:
        data = yaml.safe_load(Path(cluster.kubeconfig).read_text())
        data["current-context"] = "guarded"
        data["users"][1]["user"]["token"] = token
        entry = data["clusters"][1]["cluster"]
        entry.update(cluster_changes)
        data["clusters"][1]["cluster"] = {key: value for key, value in entry.items() if value is not None}
        file = folder / f"{next(count)}.yml"
        file.write_text(yaml.safe_dump(data))
        return file

    return write


@pytest.mark.parametrize("name", MODULES)
def test_a_missing_right_is_named(capsys, config, name):
    module, arguments, right = MODULES[name]
    result = run(capsys, module, config(), **arguments)
    assert result["failed"]
    assert f"Missing right of system:serviceaccount:default:nobody: {right}" in result["msg"]
    assert "access/roles/" in result["msg"] or "No role in access/ holds it" in result["msg"]


def test_a_part_that_is_not_required_is_unknown_with_the_right_it_lacks(capsys, config):
    state = run(capsys, rail_state, config(), namespace="op", parts=["nodes"])["state"]
    assert state["nodes"] is None
    assert "Missing right of system:serviceaccount:default:nobody: list nodes" in state["reasons"]["nodes"]


def test_a_look_for_hosts_says_which_right_it_lacks(capsys, config):
    result = run(capsys, cluster_facts, config(), hosts={"gpu-1": ["gpu-1"]})
    told = (
        "Missing right of system:serviceaccount:default:nobody: list nodes (the core API group) in the whole cluster."
    )
    assert told in result["cluster"]["reason"] and told in result["hosts"]["gpu-1"]["reason"]
    assert "access/roles/prepare_nodes.yml" in result["cluster"]["reason"]


def test_what_kubernetes_core_says_names_the_right_too(capsys, config):
    result = run(capsys, k8s_info, config(), kind="Node")
    text = result.get("msg", "") + json.dumps(result)
    assert 'cannot list resource \\"nodes\\"' in text and "system:serviceaccount:default:nobody" in text


def over() -> str:
    """A token that ended in 2001."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 10**9}).encode()).decode().rstrip("=")
    return f"e30.{claims}.signature"


@pytest.mark.parametrize("name", MODULES)
def test_a_token_that_is_over_is_told_with_its_end_and_its_context(capsys, config, name):
    module, arguments, _right = MODULES[name]
    file = config(over())
    result = run(capsys, module, file, **arguments)
    assert result["failed"]
    assert f"does not accept the credentials of context guarded of kubeconfig {file}" in result["msg"]
    assert "The token ended at 2001-09-09T01:46:40Z" in result["msg"] and "signature" not in result["msg"]


def test_a_look_says_that_the_token_is_over(capsys, config):
    result = run(capsys, cluster_facts, config(over()))
    assert "The token ended at 2001-09-09T01:46:40Z" in result["cluster"]["reason"]


@pytest.fixture
def quick(monkeypatch):
    """Timeouts and pauses that a test can wait for."""
    monkeypatch.setattr(auth, "CONNECT_TIMEOUT", 0.3)
    monkeypatch.setattr(auth, "REQUEST_TIMEOUT", 0.3)
    monkeypatch.setattr(cluster_api, "REQUEST_TIMEOUT", 0.3)
    monkeypatch.setattr(auth, "FIRST_ATTEMPTS", 2)


class Silent:
    """A port that takes connections and never says a word, behind TLS if a context is given."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.tls, self.taken = self.socket.getsockname()[1], tls, []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self.socket.accept()[0]
                self.taken.append(self.tls.wrap_socket(connection, server_side=True) if self.tls else connection)
            except ssl.SSLError:
                continue
            except OSError:
                return

    def close(self) -> None:
        self.socket.close()
        for connection in self.taken:
            connection.close()


@pytest.fixture
def silent(request):
    found = Silent(getattr(request, "param", None))
    yield found
    found.close()


def message(capsys, file: Path) -> str:
    result = run(capsys, rail_wait, file, crds=["x"], timeout=0)
    assert result["failed"]
    return result["msg"]


def test_a_certificate_of_an_unknown_authority(capsys, config):
    text = message(capsys, config(**{"certificate-authority-data": None}))
    assert "the certificate of 127.0.0.1 port " in text and "is not accepted" in text
    assert "certificate-authority-data" in text and "context guarded of kubeconfig" in text


def test_a_certificate_for_another_name(capsys, cluster, config):
    server = yaml.safe_load(Path(cluster.kubeconfig).read_text())["clusters"][1]["cluster"]["server"]
    text = message(capsys, config(server=server.replace("127.0.0.1", "localhost")))
    assert "the certificate of localhost port " in text and "tls-server-name" in text


def test_a_certificate_that_is_over(capsys, config):
    certificate, key = certificates.self_signed(days=-2)
    port = Silent(certificates.context(certificate, key))
    try:
        authority = base64.b64encode(certificate.encode()).decode()
        server = f"https://127.0.0.1:{port.port}"
        text = message(capsys, config(server=server, **{"certificate-authority-data": authority}))
    finally:
        port.close()
    assert f"the certificate of 127.0.0.1 port {port.port} is not accepted: certificate has expired" in text
    assert "Renew the certificate" in text


def test_a_port_that_speaks_no_tls(capsys, cluster, config):
    server = yaml.safe_load(Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    text = message(capsys, config(server=server.replace("http:", "https:").rpartition("/")[0]))
    assert "no TLS connection with 127.0.0.1 port " in text and "Is the URL of the server https" in text


def test_a_port_where_nobody_listens(capsys, config, quick):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = message(capsys, config(server=f"https://127.0.0.1:{port}"))
    assert f"127.0.0.1 port {port} refuses the connection: no server listens there" in text
    assert "tried 2 times in" in text.lower()


def test_a_server_that_never_answers_does_not_hold_a_module_up(capsys, config, silent, quick):
    text = message(capsys, config(server=f"http://127.0.0.1:{silent.port}"))
    assert f"127.0.0.1 port {silent.port} took the connection and did not answer in time" in text


def test_a_server_that_falls_silent_later(cluster, quick):
    found = auth.client_for({"kubeconfig": cluster.kubeconfig})
    silent = Silent()
    try:
        found.client.configuration.host = f"http://127.0.0.1:{silent.port}"
        later = cluster_api.Api(cluster_api.dynamic_transport(found.client), pause=lambda seconds: None, attempts=2)
        with pytest.raises(cluster_api.ApiError) as caught:
            later.get("/version")
    finally:
        silent.close()
    assert caught.value.status == 0 and "(tried 2 times in" in caught.value.message


def test_a_kubeconfig_that_is_not_there(capsys, tmp_path):
    text = message(capsys, tmp_path / "none")
    assert "No connection to the Kubernetes API" in text and str(tmp_path / "none") in text
