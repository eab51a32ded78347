# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One look at everything of the operator in the cluster. Nothing is judged here; ``operands.py`` does."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, answer_text
from ansible_collections.railyard.rdma.plugins.module_utils.operator import nfd, releases

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONFIG = ("sriovnetwork.openshift.io/v1", "SriovOperatorConfig")
POLICY = ("mellanox.com/v1alpha1", "NicClusterPolicy")
POLICY_NAME = "nic-cluster-policy"
PARTS = ("crds", "deployments", "config", "policies", "daemon_sets", "pods", "nodes", "release", "nfd")


def policies_of(api):
    """The one NicClusterPolicy that the operator serves, as a list: rights may be limited to its name."""
    found = api.find_named(*POLICY, namespace=None, name=POLICY_NAME)
    return [found] if found else []


def release_of(api, namespace, release):
    query = [("labelSelector", releases.SELECTOR.format(release))]
    secrets = api.list_items(f"/api/v1/namespaces/{namespace}/secrets", query)
    return releases.state([s for s in secrets if s.get("type") == "helm.sh/release.v1"])


def read(api, namespace, crds=(), parts=(), release="network-operator", tolerant=False):
    """A snapshot: every part by name, with ``reasons`` of those that could not be read (None then).

    :param parts: of PARTS; others are None without a reason.
    :param tolerant: whether a part that is refused (403) or fails leaves the others readable; else ApiError is raised.
    """
    readers = {
        "crds": lambda: {name: api.find(f"{CRD}/{name}") for name in crds},
        "deployments": lambda: api.list_kind("apps/v1", "Deployment", namespace),
        "config": lambda: api.find_named(*CONFIG, namespace=namespace, name="default"),
        "policies": lambda: policies_of(api),
        "daemon_sets": lambda: api.list_kind("apps/v1", "DaemonSet", namespace),
        "pods": lambda: api.list_kind("v1", "Pod", namespace),
        "nodes": lambda: api.list_kind("v1", "Node"),
        "release": lambda: release_of(api, namespace, release),
        "nfd": lambda: nfd.instances(api.list_items("/apis/apps/v1/daemonsets")),
    }
    api.forget_kinds()
    found, reasons = dict.fromkeys(readers), {}
    for part in parts:
        try:
            found[part] = readers[part]()
        except (ApiError, releases.Unreadable) as error:
            if not tolerant:
                raise
            reasons[part] = answer_text(error) if isinstance(error, ApiError) else str(error)
    return {**found, "reasons": reasons}
