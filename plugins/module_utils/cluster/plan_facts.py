# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain would meet, read with one list for each kind and cut down to what matters; and rows of the other objects
that a plan looks at.

The number of requests does not depend on the number of objects, but for pages of 500. What cannot be read is None, and
``unknown`` says why.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import maintenance
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, answer_text

# The operator's own default (pkg/vars); the chart sets nvidia.com.
DEFAULT_PREFIX = "openshift.io"
SPEC_FIELDS = ("interfaces", "system")
STATUS_FIELDS = ("interfaces", "system", "syncStatus", "lastSyncError")


def node_row(node):
    """``{name, labels, unschedulable}``."""
    meta = maintenance.metadata(node)
    return {"name": meta.get("name"), "labels": meta.get("labels") or {}, "unschedulable": maintenance.cordoned(node)}


def state_row(state):
    """What of a SriovNetworkNodeState matters: ``{spec, status, busy}``; busy says what the operator does just now."""
    spec, status = state.get("spec") or {}, state.get("status") or {}
    return {
        "spec": {key: spec[key] for key in SPEC_FIELDS if spec.get(key)},
        "status": {key: status[key] for key in STATUS_FIELDS if status.get(key)},
        "busy": maintenance.operator_busy({}, [state], []),
    }


def pod_row(pod, budgets=()):
    """What of a pod matters: ``{namespace, name, node, resources, empty_dirs, grace, unmanaged, own, blocked}``.

    resources are the names of extended resources that its containers request (a limit is a request, too), grace is in
    seconds, blocked says which PodDisruptionBudget lets no pod go now. None for a pod that no drain evicts: of a
    DaemonSet, static, finished, or leaving already, and for one that is on no node.
    """
    if not (pod.get("spec") or {}).get("nodeName"):
        return None
    if maintenance.judge_pod(pod, "evict", "evict")[0] != "evict":
        return None
    meta, spec = maintenance.metadata(pod), pod.get("spec") or {}
    names = set()
    for container in spec.get("containers") or []:
        resources = container.get("resources") or {}
        for kind in ("requests", "limits"):
            names.update(name for name in resources.get(kind) or {} if "/" in name)
    blocked = maintenance.drain_obstacles([pod], budgets, "evict", "evict") if budgets else []
    return {
        "namespace": meta.get("namespace"),
        "name": meta.get("name"),
        "node": spec.get("nodeName"),
        "resources": sorted(names),
        "empty_dirs": [str(name) for name in maintenance.empty_dirs(pod)],
        "grace": spec.get("terminationGracePeriodSeconds"),
        "unmanaged": maintenance.controller_of(pod) is None,
        "own": maintenance.OWN_LABEL in (meta.get("labels") or {}),
        "blocked": blocked[0] if blocked else None,
    }


def policy_row(obj):
    """An object without what only the server needs."""
    meta = maintenance.metadata(obj)
    return {"metadata": {key: meta[key] for key in ("name", "namespace") if key in meta}, "spec": obj.get("spec") or {}}


def prefix_of(deployments):
    """RESOURCE_PREFIX of the SR-IOV operator among Deployments, None when the operator is not there."""
    for deployment in deployments:
        pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
        for container in pod.get("containers") or []:
            for variable in container.get("env") or []:
                if variable.get("name") == "RESOURCE_PREFIX":
                    return variable.get("value") or DEFAULT_PREFIX
    return None


def rows(items, make):
    """Rows of the items, without those that do not matter; None stays None."""
    if items is None:
        return None
    return [row for row in map(make, items) if row is not None]


def gather(api, namespace, pods, reason=None):
    """``{pods, resource_prefix, unknown}``: what drains would meet, see the module rail_state.

    :param pods: all pods as the API gives them, None when they are not known; ``reason`` says why then.
    """
    unknown = {} if pods is not None else {"pods": reason or "the pods were not read"}

    def listed(part, api_version, kind, place=None):
        try:
            return api.list_kind(api_version, kind, place)
        except ApiError as error:
            unknown[part] = answer_text(error)
            return []

    deployments = listed("resource_prefix", "apps/v1", "Deployment", namespace)
    budgets = listed("budgets", "policy/v1", "PodDisruptionBudget")
    found = rows(pods, lambda pod: pod_row(pod, budgets))
    return {"pods": found, "resource_prefix": prefix_of(deployments), "unknown": unknown}


# Names of rail_state's parts, and what a plan calls them.
PARTS = {"nodes": "nodes", "node_states": "states", "policies": "policies", "pool_configs": "pool_configs"}


def cluster_of(state, drains):
    """What ``node_effects`` looks at, from the state and the drains that rail_state returned."""
    states = state.get("node_states")
    configs = state.get("operator_configs")
    config = next((c for c in configs or [] if maintenance.metadata(c).get("name") == "default"), None)
    reasons = {PARTS.get(part, part): text for part, text in (state.get("reasons") or {}).items()}
    return {
        "nodes": rows(state.get("nodes"), node_row),
        "states": None if states is None else {maintenance.metadata(s).get("name"): state_row(s) for s in states},
        "policies": rows(state.get("policies"), policy_row),
        "pool_configs": rows(state.get("pool_configs"), policy_row),
        "config": None if config is None else config.get("spec") or {},
        "resource_prefix": drains.get("resource_prefix"),
        "pods": drains.get("pods"),
        "unknown": {**reasons, **(drains.get("unknown") or {})},
    }
