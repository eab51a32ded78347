# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read from kubeconfig and arguments is what kubernetes.core makes of them; all else is left to it."""

from __future__ import annotations

import base64
import copy
import os
from pathlib import Path

import pytest
import yaml
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import settings

# Without kubernetes.core nothing is plain: its argument names are taken from there.
pytest.importorskip("ansible_collections.kubernetes.core.plugins.module_utils.args_common")

CA, CERT, KEY = (f"-----BEGIN {kind}-----\nAA==\n".encode() for kind in ("CA", "CERTIFICATE", "KEY"))


def data(content):
    return base64.b64encode(content).decode()


CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "one",
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "x"}},
        {"name": "two", "context": {"cluster": "d", "user": "v"}},
        {"name": "open", "context": {"cluster": "plain"}},
    ],
    "clusters": [
        {"name": "c", "cluster": {"server": "https://10.0.0.1:6443/", "certificate-authority-data": data(CA)}},
        {"name": "d", "cluster": {"server": "https://api.example:6443", "certificate-authority": "ca.pem"}},
        {"name": "plain", "cluster": {"server": "http://127.0.0.1:8080/base"}},
    ],
    "users": [
        {"name": "u", "user": {"token": "secret"}},
        {"name": "v", "user": {"client-certificate-data": data(CERT), "client-key": "key.pem"}},
    ],
}


def changed(path, value):
    """CONFIG with another value at a path; None takes the key away."""
    config = copy.deepcopy(CONFIG)
    place = config
    for key in path[:-1]:
        place = place[key]
    if value is None:
        place.pop(path[-1])
    else:
        place[path[-1]] = value
    return config


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("K8S_AUTH", "KUBE")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path):
    (tmp_path / "ca.pem").write_bytes(CA)
    (tmp_path / "cert.pem").write_bytes(CERT)
    (tmp_path / "key.pem").write_bytes(KEY)

    def put(config, name="config"):
        file = tmp_path / name
        file.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
        return str(file)

    return put


def content(path):
    return Path(path).read_bytes() if path else None


def seen(found):
    return {
        name: getattr(found, name) for name in ("host", "authorization", "verify", "ca", "cert", "key", "server_name")
    }


def of_kubernetes_core(params, monkeypatch):
    """The same from the configuration that kubernetes.core makes."""
    kubernetes = pytest.importorskip("kubernetes")
    core = pytest.importorskip("ansible_collections.kubernetes.core.plugins.module_utils.k8s.client")
    monkeypatch.setattr(kubernetes.client.Configuration, "_default", None)
    made = core._create_configuration(core._create_auth_spec(None, **params))
    # The pool of connections is made of these before the first request, whose header refreshes the rest from the file.
    names = ("host", "verify", "ca", "cert", "key", "server_name")
    files = map(content, (made.ssl_ca_cert, made.cert_file, made.key_file))
    found = dict(zip(names, (made.host, made.verify_ssl, *files, made.tls_server_name)))
    return {**found, "authorization": next((a["value"] for a in made.auth_settings().values()), None)}


PLAIN = {
    "token": (CONFIG, {}),
    "another context": (CONFIG, {"context": "two"}),
    "no user": (CONFIG, {"context": "open"}),
    "own authority": (CONFIG, {"ca_cert": "cert.pem"}),
    "not verified by the task": (CONFIG, {"validate_certs": False}),
    "not verified by the file": (changed(["clusters", 0, "cluster", "insecure-skip-tls-verify"], True), {}),
    "verified against the file": (
        changed(["clusters", 0, "cluster", "insecure-skip-tls-verify"], True),
        {"validate_certs": True},
    ),
    "server name": (changed(["clusters", 0, "cluster", "tls-server-name"], "kubernetes"), {}),
    "data before file": (changed(["clusters", 0, "cluster", "certificate-authority"], "cert.pem"), {}),
    "authorities of the machine": (changed(["clusters", 0, "cluster", "certificate-authority-data"], None), {}),
    "extensions": (changed(["clusters", 0, "cluster", "extensions"], [{"name": "minikube"}]), {}),
    "host and token": (None, {"host": "https://10.0.0.2:6443/", "api_key": "abc", "ca_cert": "ca.pem"}),
    "host and certificate": (
        None,
        {"host": "https://10.0.0.2", "client_cert": "cert.pem", "client_key": "key.pem", "validate_certs": False},
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_read_is_what_kubernetes_core_makes_of_it(name, write, tmp_path, monkeypatch):
    config, params = PLAIN[name]
    monkeypatch.chdir(tmp_path)
    params = {**params, **({"kubeconfig": write(config)} if config else {})}
    found = settings.plain(params)
    assert found is not None
    assert seen(found) == of_kubernetes_core(params, monkeypatch)
    assert "secret" not in repr(found)


def test_files_are_relative_to_the_kubeconfig(write, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = settings.plain({"kubeconfig": write(CONFIG), "context": "two"})
    assert (found.ca, found.cert, found.key) == (CA, CERT, KEY)


ENVIRONMENTS = {
    "kubeconfig": {"K8S_AUTH_KUBECONFIG": "FILE"},
    "kubeconfig and context": {"K8S_AUTH_KUBECONFIG": "FILE", "K8S_AUTH_CONTEXT": "two"},
    "of every client": {"KUBECONFIG": "FILE"},
    "as AWX sets it": {
        "K8S_AUTH_HOST": "https://10.0.0.3:6443",
        "K8S_AUTH_API_KEY": "abc",
        "K8S_AUTH_VERIFY_SSL": "False",
        "K8S_AUTH_SSL_CA_CERT": "",
    },
    "verified": {"K8S_AUTH_KUBECONFIG": "FILE", "K8S_AUTH_VERIFY_SSL": "yes"},
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_environment_counts_as_for_kubernetes_core(name, write, monkeypatch):
    file = write(CONFIG)
    for key, value in ENVIRONMENTS[name].items():
        monkeypatch.setenv(key, file if value == "FILE" else value)
    found = settings.plain({})
    if "KUBECONFIG" in ENVIRONMENTS[name]:  # kubernetes.config reads it when it is imported.
        assert seen(found) == of_kubernetes_core({"kubeconfig": file}, monkeypatch)
    else:
        assert seen(found) == of_kubernetes_core({}, monkeypatch)


USER = ["users", 0, "user"]
LEFT = {
    "a program for the token": changed([*USER, "exec"], {"command": "aws"}),
    "an identity provider": changed([*USER, "auth-provider"], {"name": "oidc"}),
    "a password": changed(USER, {"username": "a", "password": "b"}),
    "a file with the token": changed(USER, {"tokenFile": "/token"}),
    "another identity": changed([*USER, "as"], "root"),
    "a key without its certificate": changed([*USER, "client-key-data"], data(KEY)),
    "a token that is empty": changed([*USER, "token"], ""),
    "a token that is a number": changed([*USER, "token"], 5),
    "a proxy": changed(["clusters", 0, "cluster", "proxy-url"], "http://proxy"),
    "no server": changed(["clusters", 0, "cluster", "server"], None),
    "a server without a scheme": changed(["clusters", 0, "cluster", "server"], "10.0.0.1"),
    "an unknown key of the cluster": changed(["clusters", 0, "cluster", "new"], 1),
    "a text for a boolean": changed(["clusters", 0, "cluster", "insecure-skip-tls-verify"], "yes"),
    "no base64": changed(["clusters", 0, "cluster", "certificate-authority-data"], "a"),
    "a file that is missing": changed(
        ["clusters", 0, "cluster"], {"server": "https://a", "certificate-authority": "no"}
    ),
    "no such context": changed(["current-context"], "three"),
    "no current context": changed(["current-context"], None),
    "no such user": changed(["contexts", 0, "context", "user"], "w"),
    "two clusters of one name": changed(["clusters"], [CONFIG["clusters"][0]] * 2),
    "a list": [],
    "nothing": "",
    "no YAML": "{",
    "another encoding": "\x00",
}


@pytest.mark.parametrize("name", LEFT)
def test_all_else_is_left_to_kubernetes_core(name, write):
    assert settings.plain({"kubeconfig": write(LEFT[name])}) is None
    assert settings.plain({"kubeconfig": write(CONFIG)}) is not None


@pytest.mark.parametrize(
    ("params", "environment"),
    [
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}),
        ({}, {"https_proxy": "http://proxy"}),
        ({}, {"K8S_AUTH_PROXY": "http://proxy"}),
        ({}, {"K8S_AUTH_CONTEXT": ""}),
        ({}, {"K8S_AUTH_SSL_CA_CERT": ""}),
        ({}, {"K8S_AUTH_IMPERSONATE_USER": "root"}),
        ({"impersonate_groups": ["a"]}, {}),
        ({"proxy_headers": {"user_agent": "a"}}, {}),
        ({"username": "a", "password": "b", "host": "https://a"}, {}),
        ({"host": "10.0.0.1", "api_key": "a"}, {}),
        ({"host": "https://10.0.0.1", "api_key": "a", "client_cert": "FILE"}, {}),
        ({"kubeconfig": {"apiVersion": "v1"}}, {}),
        ({"kubeconfig": "FILE:FILE"}, {}),
        ({"kubeconfig": "FILE", "api_key": "a"}, {}),
        ({"kubeconfig": "/nowhere"}, {}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_arguments_that_are_left_to_kubernetes_core(params, environment, write):
    file = write(CONFIG)
    fill = {key: value.replace("FILE", file) if isinstance(value, str) else value for key, value in params.items()}
    assert settings.plain(fill, {"HOME": "/nowhere", "KUBECONFIG": file, **environment}) is None
    assert settings.plain({}, {"KUBECONFIG": file, "no_proxy": "10.0.0.0/8", "HTTPS_PROXY": ""}) is not None
