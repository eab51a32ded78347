# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect a module to the cluster with kubernetes.core's client and its authentication arguments."""

from __future__ import annotations

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


def dynamic_client(module):
    """The client of kubernetes.core for this module's arguments; ends the module with a clear message when there is
    none."""
    if get_api_client is None:
        module.fail_json(
            msg="The collection kubernetes.core is missing on the controller; install it with "
            "'ansible-galaxy collection install -r collections/requirements.yml'.",
            exception=IMPORT_ERROR,
        )
    auth = {name: module.params[name] for name in AUTH_ARG_SPEC if module.params.get(name) is not None}
    try:
        return get_api_client(**auth)
    except Exception as error:
        # kubernetes.core, kubernetes and urllib3 each raise their own types here; the user needs the same advice for
        # all.
        module.fail_json(
            msg="No connection to the Kubernetes API: {}. Check kubeconfig and context "
            "(K8S_AUTH_KUBECONFIG, K8S_AUTH_CONTEXT or the module's options of the same names), and that the "
            "Python library kubernetes is installed for {}.".format(error, "the interpreter that runs this module"),
            exception=traceback.format_exc(),
        )


def connect(module):
    """Api for this module's authentication arguments."""
    return Api(dynamic_transport(dynamic_client(module).client))
