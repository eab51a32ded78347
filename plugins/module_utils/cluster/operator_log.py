# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the SR-IOV operator's own log says about a node or a network.

In daemon mode an apply error is retried for ever: the node state stays InProgress with an empty lastSyncError, and the
reason is in the log of the config daemon on that node only. A network that cannot be rendered shows in the operator's
log only.
"""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError

DAEMON = "sriov-network-config-daemon"
OPERATOR = "sriov-network-operator"
# The last lines are enough: the daemon tries again at least each half minute.
TAIL = 2000
LONGEST = 400
# klog ("E0519 12:00:00"), zap in both of its forms, and plain words.
ERROR = re.compile(
    r"^E\d{4} |\tERROR\t|\"level\":\s*\"error\"|\b(error|failed|fail|unable|cannot|invalid|refused)\b", re.I
)
# What a reader does not need: escape sequences of colours and what else does not print.
UNPRINTABLE = re.compile(r"\x1b\[[0-9;]*m|[^\x20-\x7e\t]")


def last_error(text, *words):
    """The newest line of a log that tells an error and names one of the words; any error when none does, None when
    there is no error."""
    lines = [UNPRINTABLE.sub("", line).strip() for line in (text or "").splitlines()]
    errors = [line for line in lines if ERROR.search(line)]
    named = [line for line in errors if any(word and word in line for word in words)]
    chosen = named or errors
    if not chosen:
        return None
    line = re.sub(r"\s+", " ", chosen[-1])
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def pods_on(api, namespace, app, node=None):
    """Pods of an app of the operator (label app), on a node."""
    query = [("labelSelector", f"app={app}")] + ([("fieldSelector", f"spec.nodeName={node}")] if node else [])
    return api.list_items(f"/api/v1/namespaces/{namespace}/pods", query)


def read(api, namespace, app, node=None):
    """(log or None, reason or None) of the newest pod of an app."""
    where = f"on {node}" if node else f"in {namespace}"
    try:
        found = pods_on(api, namespace, app, node)
        if not found:
            return None, f"there is no pod of {app} {where}"
        pod = max(found, key=lambda p: p["metadata"].get("creationTimestamp") or "")
        name = pod["metadata"]["name"]
        container = ((pod.get("spec") or {}).get("containers") or [{}])[0].get("name") or app
        query = [("container", container), ("tailLines", str(TAIL))]
        return api.text(f"/api/v1/namespaces/{namespace}/pods/{name}/log", query), None
    except ApiError as error:
        return None, f"the log of {app} {where} cannot be read: {error.message}"


def about_node(api, namespace, node, *words):
    """A sentence: what the config daemon of a node says about a PF (its address and name), or why that is not known."""
    text, reason = read(api, namespace, DAEMON, node)
    if reason:
        return reason
    line = last_error(text, *words)
    return f"the config daemon says: {line}" if line else "the log of the config daemon tells no error"


def about_network(api, namespace, name):
    """A sentence: what the operator says about a network whose attachment does not come."""
    text, reason = read(api, namespace, OPERATOR)
    if reason:
        return reason
    line = last_error(text, name)
    return f"the operator says: {line}" if line and name in line else "the operator's log does not name this network"
