# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect a module to the cluster with kubernetes.core's client and its authentication arguments."""

from __future__ import annotations

import os
import sys
import traceback

try:
    from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client

    IMPORT_ERROR = None
except ImportError:
    AUTH_ARG_SPEC, get_api_client = {}, None
    IMPORT_ERROR = traceback.format_exc()

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import (
    RETRIED,
    Api,
    ApiError,
    dynamic_transport,
)

# What says that a cluster is meant, even when it cannot be reached: environment of kubernetes.core, of every client,
# and of a pod.
ENVIRONMENT = ("K8S_AUTH_KUBECONFIG", "K8S_AUTH_CONTEXT", "K8S_AUTH_HOST", "KUBECONFIG", "KUBERNETES_SERVICE_HOST")
KUBECONFIG = "~/.kube/config"


def auth_argument_spec():
    """kubernetes.core's authentication arguments, as a copy that a module may extend."""
    return {name: dict(spec) for name, spec in AUTH_ARG_SPEC.items()}


class NoConnection(Exception):
    """There is no client for the API; the text says why and what to do.

    Attribute: unanswered (bool), True when everything is there but the server does not answer, so that a later try
    may.
    """

    def __init__(self, message, unanswered=False):
        super().__init__(message)
        self.unanswered = unanswered


def is_configured(params):
    """Whether anything names a cluster: an argument, the environment, or a kubeconfig at its usual place."""
    named = any(params.get(name) for name in ("kubeconfig", "context", "host"))
    return named or any(os.environ.get(name) for name in ENVIRONMENT) or os.path.exists(os.path.expanduser(KUBECONFIG))


def _unanswered(error):
    """True for errors of the network, and for an answer that says so (the client asks the server for its kinds)."""
    seen = error
    while seen is not None:
        if isinstance(seen, OSError) and not isinstance(seen, (FileNotFoundError, PermissionError)):
            return True
        if type(seen).__module__.startswith("urllib3") or getattr(seen, "status", None) in RETRIED:
            return True
        seen = seen.__cause__
    return False


def client_for(params):
    """The client of kubernetes.core for a module's parameters. Raises NoConnection."""
    if get_api_client is None:
        raise NoConnection(
            "The collection kubernetes.core is missing on the controller; install it with "
            "'ansible-galaxy collection install -r collections/requirements.yml'."
        )
    auth = {name: params[name] for name in AUTH_ARG_SPEC if params.get(name) is not None}
    try:
        return get_api_client(**auth)
    except Exception as error:
        # kubernetes.core, kubernetes and urllib3 each raise their own types here; the user needs the same advice for
        # all.
        raise NoConnection(
            f"No connection to the Kubernetes API: {str(error).rstrip('.')}. Check kubeconfig and context (K8S_AUTH_KUBECONFIG, "
            "K8S_AUTH_CONTEXT, KUBECONFIG, or the options of the same names), and that the Python library kubernetes "
            f"is installed for {sys.executable}.",
            unanswered=_unanswered(error),
        ) from error


def dynamic_client(module):
    """The client of kubernetes.core for this module; ends the module with a clear message when there is none."""
    try:
        return client_for(module.params)
    except NoConnection as error:
        module.fail_json(msg=str(error), exception=IMPORT_ERROR or traceback.format_exc())


def connect(module):
    """Api for this module's authentication arguments."""
    return Api(dynamic_transport(dynamic_client(module).client))


def connect_later(params):
    """Api that connects with its first request; while the server does not answer, requests fail as ApiError 0.

    For callers that wait for a server that may be away, such as one that restarts with the node it runs on.
    Requests raise NoConnection when waiting cannot help.
    """
    transport = []

    def send(method, path, query, body, content_type):
        if not transport:
            try:
                transport.append(dynamic_transport(client_for(params).client))
            except NoConnection as error:
                if not error.unanswered:
                    raise
                raise ApiError(0, f"the API server does not answer: {error.__cause__}") from error
        return transport[0](method, path, query, body, content_type)

    return Api(send)
