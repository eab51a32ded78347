# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect a module to the cluster with kubernetes.core's client and its authentication arguments."""

from __future__ import annotations

import sys
import traceback

try:
    from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_SPEC
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s.client import get_api_client

    IMPORT_ERROR = None
except ImportError:
    AUTH_ARG_SPEC, get_api_client = {}, None
    IMPORT_ERROR = traceback.format_exc()

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, dynamic_transport


def auth_argument_spec():
    """kubernetes.core's authentication arguments, as a copy that a module may extend."""
    return {name: dict(spec) for name, spec in AUTH_ARG_SPEC.items()}


class NoConnection(Exception):
    """There is no client for the API; the text says why and what to do."""


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
            f"is installed for {sys.executable}."
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
