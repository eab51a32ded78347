# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a refusal of the API server is told as."""

from __future__ import annotations

import base64
import json
import socket
import ssl

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import api as api_module
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import forbidden, pod_exec, rights, trouble

WHO = "system:serviceaccount:railyard:railyard-verify"


def cannot(verb="patch", resource="sriovnetworks", group="sriovnetwork.openshift.io", place='in the namespace "ops"'):
    return f'{resource} "rail-0" is forbidden: User "{WHO}" cannot {verb} resource "{resource}" in API group "{group}" {place}'


def test_a_missing_right_is_told_with_who_what_where_and_the_role_that_has_it():
    text = forbidden.explain(cannot())
    assert text.startswith(cannot())
    assert (
        f"Missing right of {WHO}: patch sriovnetworks (API group sriovnetwork.openshift.io) in namespace ops, name rail-0."
        in text
    )
    assert "ClusterRole railyard-apply-rails-operator (access/roles/apply_rails.yml)" in text
    assert "RoleBinding in namespace ops" in text


def test_a_right_in_the_whole_cluster_is_only_in_roles_that_are_bound_there():
    text = forbidden.explain(
        cannot("list", "sriovnetworknodestates", "sriovnetwork.openshift.io", "at the cluster scope")
    )
    assert "in the whole cluster" in text and "ClusterRoleBinding" in text
    # apply_rails holds it in the operator's namespace only.
    assert "railyard-prepare-nodes " in text and "railyard-apply-rails" not in text.partition("It is in")[2]
    assert "the core API group" in forbidden.explain(cannot("list", "pods", "", "at the cluster scope"))


def test_an_apply_that_may_not_create_is_refused_without_words_and_told_all_the_same():
    text = forbidden.explain(
        'sriovnetworks "rail-0" is forbidden: ', "PATCH", "/apis/g.io/v1/namespaces/ops/rails/a%2Fb"
    )
    assert "Missing right of this account: create rails (API group g.io) in namespace ops, name a/b." in text
    assert "No role in access/ holds it" in text
    assert forbidden.explain('rails "a" is forbidden: ', "POST", "/api/v1/nodes") == 'rails "a" is forbidden: '


@pytest.mark.parametrize(
    "message",
    [
        'pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged',
        'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
        'configmaps "a" is forbidden: unable to create new content in namespace x because it is being terminated',
        'admission webhook "w.example.com" denied the request: no',
        "",
    ],
    ids=["pod security", "quota", "namespace ends", "webhook", "nothing"],
)
def test_what_is_not_about_rights_is_left_as_it_is(message):
    assert forbidden.explain(message, "POST", "/api/v1/namespaces/x/pods") == message


def test_other_refusals_of_rbac():
    grant = 'clusterroles "x" is forbidden: user "a" (groups=["b"]) is attempting to grant RBAC permissions not currently held:\n{}'
    assert "escalate" in forbidden.explain(grant) and "install_operator.yml" in forbidden.explain(grant)
    path = f'forbidden: User "{WHO}" cannot get path "/apis"'
    assert "system:discovery" in forbidden.explain(path)
    cloud = cannot() + ': requires one of ["container.thirdPartyObjects.update"] permission(s).'
    assert "Missing right of" in forbidden.explain(cloud) and "container.third" in forbidden.explain(cloud)


def test_a_handshake_that_is_refused_names_the_right_too():
    body = {
        "kind": "Status",
        "message": f'pods "p" is forbidden: {cannot("create", "pods/exec", "").partition(": ")[2]}',
    }
    error = RuntimeError()
    error.reason = f"Handshake status 403 Forbidden -+-+- {{'date': 'x'}} -+-+- {json.dumps(body).encode()!r}"
    text = pod_exec.handshake_message(error)
    assert text.startswith("Handshake status 403 Forbidden: pods")
    assert f"Missing right of {WHO}: create pods/exec (the core API group) in namespace ops, name p." in text
    assert "access/roles/verify.yml" in text


def test_the_table_names_places_that_exist():
    places = {holder.partition("@")[2] for verbs in rights.HOLDERS.values() for row in verbs.values() for holder in row}
    assert places <= set(rights.SUFFIXES)


def test_a_403_is_explained_by_the_request_and_not_retried():
    calls = []

    def send(method, path, query, body, content_type):
        calls.append(path)
        raise api_module.ApiError(403, cannot(), "Forbidden")

    api = api_module.Api(send, pause=lambda seconds: pytest.fail("no later try helps"))
    with pytest.raises(api_module.ApiError) as caught:
        api.get("/apis/sriovnetwork.openshift.io/v1/namespaces/ops/sriovnetworks/rail-0")
    assert "access/roles/apply_rails.yml" in caught.value.message and len(calls) == 1


def token(**claims):
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return "Bearer " + ".".join(
        [*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "secretpart"]
    )


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (token(exp=1000), "The token ended at 1970-01-01T00:16:40Z"),
        (token(exp=9000), "The token would end at 1970-01-01T02:30:00Z"),
        (token(sub="x"), "The token is over, was taken back, or belongs to another cluster"),
        ("Bearer opaque", "The token is over, was taken back"),
        ("Bearer a.%%%.c", "The token is over, was taken back"),
        (token(exp="soon"), "The token is over, was taken back"),
        (None, "They hold no token"),
    ],
    ids=["over", "valid", "endless", "opaque", "broken", "no number", "none"],
)
def test_a_401_says_which_connection_and_when_its_token_ended(header, told):
    text = trouble.unauthorized_text("context prod of kubeconfig /k", header, now=lambda: 5000)
    assert "context prod of kubeconfig /k" in text and told in text
    assert "secretpart" not in text


def verification(message, code=20):
    error = ssl.SSLCertVerificationError(1, f"certificate verify failed: {message}")
    error.verify_message, error.verify_code = message, code
    return error


def wrapped(cause):
    """As urllib3 wraps it: the cause is an argument, not __cause__."""
    return RuntimeError("Max retries exceeded", OSError(cause))


CONNECT, READ = (type(name, (Exception,), {}) for name in ("ConnectTimeoutError", "ReadTimeoutError"))


@pytest.mark.parametrize(
    ("error", "told", "hopeless"),
    [
        (verification("certificate has expired"), "Renew the certificate", True),
        (verification("self-signed certificate"), "Give the cluster's authority", True),
        (verification("unable to get local issuer certificate"), "Give the cluster's authority", True),
        (verification("IP address mismatch, certificate is not valid for '10.0.0.9'."), "tls-server-name", True),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "no TLS connection", True),
        (socket.gaierror(-2, "Name or service not known"), "cannot be resolved (Name or service not known)", False),
        (ConnectionRefusedError(111, "Connection refused"), "refuses the connection", False),
        (ConnectionResetError(104, "Connection reset by peer"), "ended the connection", False),
        (OSError(113, "No route to host"), "cannot be reached: No route to host", False),
        (CONNECT("x"), "did not take the connection in time", False),
        (READ("x"), "did not answer in time", False),
        (ValueError("what"), "does not answer: what", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_trouble_below_http_names_the_address_and_what_helps(error, told, hopeless):
    for shape in (error, wrapped(error)):
        if shape is not error and error.args == ("what",):
            continue
        text, is_hopeless = trouble.connection_text(shape, "https://api.example.com:6443/prefix")
        assert told in text and is_hopeless is hopeless
        assert "api.example.com port 6443" in text


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("https://10.0.0.1:6443", "10.0.0.1 port 6443"),
        ("https://k8s.example.com", "k8s.example.com port 443"),
        ("http://[::1]:8080/x", "::1 port 8080"),
        ("https://a:port", "https://a:port"),
        (None, "None"),
    ],
)
def test_addresses(host, told):
    assert trouble.address(host) == told


def test_an_error_that_is_its_own_cause_ends():
    error = OSError(1, "x")
    error.__context__ = error
    assert trouble.chain(error) == [error]


@pytest.mark.parametrize(
    ("params", "environment", "told"),
    [
        ({"kubeconfig": "/k", "context": "c"}, {}, "context c of kubeconfig /k"),
        ({}, {"K8S_AUTH_KUBECONFIG": "/e"}, "context (unknown) of kubeconfig /e"),
        ({"kubeconfig": {"current-context": "d"}}, {}, "context d of the kubeconfig in the task"),
        ({"host": "h", "api_key": "t"}, {}, "the host and credentials of the task"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "service account of the pod"),
        ({}, {}, "of kubeconfig ~/.kube/config"),
    ],
    ids=["arguments", "environment", "inline", "token", "pod", "nothing"],
)
def test_the_source_of_a_connection(monkeypatch, params, environment, told):
    for name in ("K8S_AUTH_KUBECONFIG", "KUBECONFIG", "K8S_AUTH_HOST", "K8S_AUTH_CONTEXT", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert told in trouble.source_text(params)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (api_module.ApiError(403, "nodes is forbidden"), "HTTP status 403: nodes is forbidden"),
        (
            api_module.ApiError(0, f"{api_module.NO_ANSWER}: 127.0.0.1 port 1 is closed"),
            "no answer: 127.0.0.1 port 1 is closed",
        ),
        (api_module.ApiError(0, api_module.NO_ANSWER), f"no answer: {api_module.NO_ANSWER}"),
        (api_module.ApiError(0, "what"), "no answer: what"),
    ],
    ids=["refused", "silent", "bare", "other"],
)
def test_an_answer_or_none_is_told_in_one_way(error, text):
    assert api_module.answer_text(error) == text
