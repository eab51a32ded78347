# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect a module to the cluster with kubernetes.core's client and its authentication arguments."""

from __future__ import annotations

import contextlib
import os
import ssl
import sys
import time
import traceback
import types

try:
    from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC

    IMPORT_ERROR = None
except ImportError:
    AUTH_ARG_SPEC = {}
    IMPORT_ERROR = traceback.format_exc()

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import forbidden, settings, trouble
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import (
    CONNECT_TIMEOUT,
    NO_ANSWER,
    REQUEST_TIMEOUT,
    RETRIED,
    Api,
    ApiError,
    dynamic_transport,
    error_from_body,
)
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.transport import plain_transport

# What says that a cluster is meant, even when it cannot be reached: environment of kubernetes.core, of every client,
# and of a pod.
ENVIRONMENT = ("K8S_AUTH_KUBECONFIG", "K8S_AUTH_CONTEXT", "K8S_AUTH_HOST", "KUBECONFIG", "KUBERNETES_SERVICE_HOST")
KUBECONFIG = "~/.kube/config"
# Tries to reach a server when a module starts: long enough for a load balancer to find another server.
FIRST_ATTEMPTS = 4


def auth_argument_spec():
    """kubernetes.core's authentication arguments, as a copy that a module may extend."""
    return {name: dict(spec) for name, spec in AUTH_ARG_SPEC.items()}


class NoConnection(Exception):
    """There is no client for the API; the text says why and what to do.

    Attributes: unanswered (bool), True when everything is there but the server does not answer, so that a later try
    may; short (str), what is wrong without the advice.
    """

    def __init__(self, message, unanswered=False, short=None):
        super().__init__(message)
        self.unanswered = unanswered
        self.short = short or message


def is_configured(params):
    """Whether anything names a cluster: an argument, the environment, or a kubeconfig at its usual place."""
    named = any(params.get(name) for name in ("kubeconfig", "context", "host"))
    return named or any(os.environ.get(name) for name in ENVIRONMENT) or os.path.exists(os.path.expanduser(KUBECONFIG))


def _one_try(rest_client):
    """Leave retries to us: those of urllib3 are silent, and hide how long a server is away. Redirects are followed."""
    from urllib3.util.retry import Retry

    once = Retry(
        total=None, connect=0, read=0, other=0, status=0, respect_retry_after_header=False, raise_on_status=False
    )
    rest_client.pool_manager.connection_pool_kw.setdefault("retries", once)


@contextlib.contextmanager
def _first_requests(looked):
    """While kubernetes.core makes a client it asks the server for its kinds, unless it remembers them from an earlier
    run, without a timeout and with silent retries of urllib3. Inside of this, requests have timeouts and one try.

    looked: gets the attributes ``host`` (URL of the server) and ``header`` (Authorization).
    """
    from kubernetes.client import rest

    original = rest.RESTClientObject.request

    def request(self, method, url, *args, **kwargs):
        looked.host = "/".join(url.split("/")[:3])
        headers = kwargs.get("headers") or {}
        looked.header = next((value for name, value in headers.items() if name.lower() == "authorization"), None)
        _one_try(self)
        if kwargs.get("_request_timeout") is None:
            kwargs["_request_timeout"] = (CONNECT_TIMEOUT, REQUEST_TIMEOUT)
        return original(self, method, url, *args, **kwargs)

    rest.RESTClientObject.request = request
    try:
        yield
    finally:
        rest.RESTClientObject.request = original


def _refusal(error, looked, source):
    """(what went wrong, whether a later try may end otherwise) of an error that came up while a client was made."""
    status = getattr(error, "status", None)
    if status == 401:
        return trouble.unauthorized_text(source, looked.header), False
    if status:
        body = getattr(error, "body", None)
        found = error_from_body(status, body, getattr(error, "reason", "") or "")
        return forbidden.explain(found.message) if status == 403 else found.message, status in RETRIED
    below = trouble.chain(error)
    if any(_is_of_network(seen) for seen in below):
        text, hopeless = trouble.connection_text(error, looked.host)
        return text, not hopeless
    return str(error).rstrip("."), False


def _is_of_network(error):
    """True for errors of the network or of TLS; a kubeconfig that is not there is none."""
    if isinstance(error, OSError) and not isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError)):
        return True
    return type(error).__module__.startswith("urllib3")


def no_connection(text, source, unanswered=False, tried=1, seconds=0.0):
    """NoConnection with the advice for whoever made the connection."""
    more = f" Tried {int(tried)} times in {seconds:.0f} s." if tried > 1 else ""
    return NoConnection(
        f"No connection to the Kubernetes API: {text.rstrip('.')}.{more} The connection is that of {source}. Check "
        "kubeconfig and context (K8S_AUTH_KUBECONFIG, K8S_AUTH_CONTEXT, KUBECONFIG, or the options of the same "
        f"names), and that the Python library kubernetes is installed for {sys.executable}.",
        unanswered=unanswered,
        short=text,
    )


def client_for(params, attempts=None, pause=time.sleep, clock=time.monotonic):
    """The client of kubernetes.core for a module's parameters. Raises NoConnection.

    attempts: how often a server that does not answer is tried.
    """
    attempts = attempts or FIRST_ATTEMPTS
    try:
        from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client
    except ImportError:
        raise NoConnection(
            "The collection kubernetes.core is missing on the controller; install it with "
            "'ansible-galaxy collection install -r collections/requirements.yml'."
        ) from None
    auth = {name: params[name] for name in AUTH_ARG_SPEC if params.get(name) is not None}
    attempt, started = 0, clock()
    looked = types.SimpleNamespace(host=None, header=None)
    while True:
        attempt += 1
        try:
            with _first_requests(looked):
                client = get_api_client(**auth)
            _one_try(client.client.client.rest_client)
            client.client.railyard_source = trouble.source_text(params)
            return client
        except Exception as error:
            # kubernetes.core, kubernetes and urllib3 each raise their own types here; the user needs the same advice for
            # all.
            source = trouble.source_text(params)
            text, unanswered = _refusal(error, looked, source)
            if unanswered and attempt < attempts:
                pause(0.5 * 2 ** (attempt - 1))
                continue
            raise no_connection(text, source, unanswered, attempt, clock() - started) from error


def _plain_for(params, attempts, pause, clock):
    """Transport over urllib3 alone, None when this kind of access is left to kubernetes.core.

    Until the server has answered once, its requests raise NoConnection as client_for does.
    """
    known = settings.plain(params)
    if known is None:
        return None
    try:
        send = plain_transport(known, lambda: (CONNECT_TIMEOUT, REQUEST_TIMEOUT))
    except (ImportError, ssl.SSLError, ValueError, OSError):
        return None  # A library or a certificate: kubernetes.core says what is wrong with it.
    answered = []

    def careful(*request):
        attempt, started = 0, clock()
        while not answered:
            attempt += 1
            try:
                found = send(*request)
            except ApiError as error:
                if error.status not in (0, 401):
                    answered.append(True)
                    raise
                unanswered = error.status == 0 and not error.hopeless
                if unanswered and attempt < attempts:
                    pause(0.5 * 2 ** (attempt - 1))
                    continue
                text = error.message.removeprefix(f"{NO_ANSWER}: ")
                raise no_connection(text, known.source, unanswered, attempt, clock() - started) from error
            answered.append(True)
            return found
        return send(*request)

    careful.host = known.host
    return careful


def transport_for(params, attempts=None, pause=time.sleep, clock=time.monotonic):
    """Transport for a module's parameters; its attribute ``host`` is the URL of the server. Raises NoConnection, now or
    with the first request."""
    attempts = attempts or FIRST_ATTEMPTS
    plain = _plain_for(params, attempts, pause, clock)
    return plain or dynamic_transport(client_for(params, attempts, pause, clock).client)


def dynamic_client(module):
    """The client of kubernetes.core for this module; ends the module with a clear message when there is none."""
    try:
        return client_for(module.params)
    except NoConnection as error:
        module.fail_json(msg=str(error), exception=IMPORT_ERROR or traceback.format_exc())


def connect(module):
    """Api for this module's authentication arguments; ends the module with a clear message when there is no connection."""

    def fail(error):
        module.fail_json(msg=str(error), exception=IMPORT_ERROR or traceback.format_exc())

    try:
        send = transport_for(module.params)
    except NoConnection as error:
        fail(error)

    def told(*request):
        try:
            return send(*request)
        except NoConnection as error:
            fail(error)

    return Api(told)


def connect_later(params, **options):
    """Api that connects with its first request; while the server does not answer, requests fail as ApiError 0.

    For callers that wait for a server that may be away, such as one that restarts with the node it runs on.
    Requests raise NoConnection when waiting cannot help. options: of Api, such as ``attempts`` for callers that look
    again themselves.
    """
    transport = []

    def send(method, path, query, body, content_type):
        try:
            if not transport:
                transport.append(transport_for(params, attempts=1))
            return transport[0](method, path, query, body, content_type)
        except NoConnection as error:
            if not error.unanswered:
                raise
            raise ApiError(0, f"{NO_ANSWER}: {error.short}") from error

    return Api(send, **options)
