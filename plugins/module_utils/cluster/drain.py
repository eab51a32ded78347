# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes a node out of service and gives it back: looks at the cluster, acts, looks again.

Nothing is remembered between two looks but the cordon's annotation on the node, so a drain that was killed at any
moment is carried on by the next one. What a look means is decided in ``maintenance.py``.
"""

from __future__ import annotations

import time

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import maintenance
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, answer_text

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
NODE_STATE = ("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState")
NODE_MAINTENANCE = ("maintenance.nvidia.com/v1alpha1", "NodeMaintenance")
MERGE = "application/merge-patch+json"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
# Requests of a look are tried a few times at once; the loop around them tries for as long as it may.
TRIES = 3


class GiveUp(Exception):
    """Waiting longer cannot help; the text says what stands in the way."""


class Overdue(GiveUp):
    """The time of a phase is over; the text says what was waited for."""


class Progress:
    """What has happened so far, and how long each phase has taken.

    waited: seconds by phase that earlier calls spent; limits: seconds by phase; cordoned: whether a cordon of ours was
    on the node.
    """

    def __init__(self, limits, waited, interval, cordoned=False, clock=time.monotonic, pause=time.sleep):
        self.limits, self.waited = limits, {name: float(waited.get(name) or 0) for name in limits}
        self._interval, self._clock, self._sleep = interval, clock, pause
        self._begun = self._mark = clock()
        self._pause = FIRST_PAUSE
        self.phase, self.waiting, self.cordoned = None, [], cordoned
        self.changed, self.evicted, self.staying, self.diff = False, [], [], None

    def count(self, phase=None):
        """Add the time since the last call to the phase that was waited for in it; the time now."""
        now = self._clock()
        if self.phase or phase:
            self.waited[self.phase or phase] += now - self._mark
        self._mark = now
        return now

    def wait(self, phase, waiting):
        """Wait a little for ``waiting`` (sentences). False: the caller is to be told first. Raises Overdue."""
        now = self.count(phase)
        self._pause = (
            FIRST_PAUSE if (phase, waiting) != (self.phase, self.waiting) else min(self._pause * 1.5, LONGEST_PAUSE)
        )
        self.phase, self.waiting = phase, waiting
        left = self.limits[phase] - self.waited[phase]
        if left <= 0:
            raise Overdue("; ".join(waiting))
        until_told = self._interval - (now - self._begun)
        if until_told <= 0:
            return False
        self._sleep(min(self._pause, left, until_told))
        return True


def read_or_none(api, path):
    return api.find(path, attempts=TRIES)


def pods_of(api, name):
    return api.list_items("/api/v1/pods", [("fieldSelector", f"spec.nodeName={name}")])


def busy_with(api, node):
    """What the operators do on the node, see maintenance.operator_busy."""
    name = node["metadata"]["name"]
    api.forget_kinds()
    states = api.list_kind(*NODE_STATE, query=[("fieldSelector", f"metadata.name={name}")])
    return maintenance.operator_busy(node, states, api.list_kind(*NODE_MAINTENANCE))


def change_node(api, progress, node, patch):
    """Patch the node as it was read; raises ApiError 409 when it is another by now."""
    name = node["metadata"]["name"]
    after = api.request("PATCH", f"{NODES}/{name}", body=patch, content_type=MERGE, attempts=1)
    before = view(node) if progress.diff is None else progress.diff["before"]
    progress.changed, progress.diff = True, {"before": before, "after": view(after)}
    progress.cordoned = maintenance.own_cordon(after) is not None
    return after


def view(node):
    """What of a node this module may change, for diff."""
    return {
        "unschedulable": maintenance.cordoned(node),
        maintenance.CORDON: maintenance.annotations(node).get(maintenance.CORDON),
    }


def evict(api, pod):
    """Ask for the eviction of this very pod; None, or why it was not granted. Raises ApiError for what no later try
    cures.

    429 is a disruption budget or a busy server, 500 a pod with two budgets, 403 with cause NamespaceTerminating a
    namespace that takes its pods away itself (pkg/registry/core/pod/storage/eviction.go, kubectl's drain).
    """
    meta = pod["metadata"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
    }
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    try:
        api.request("POST", path, body=body, attempts=1)
    except ApiError as error:
        if error.status == 404:
            return None
        ending = any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes)
        if not error.retriable and not ending:
            raise
        return answer_text(error)
    return None


def take_out(api, name, options, progress):
    """Cordon and empty a node. True when done, False when the caller is to be told what is waited for.

    options: ``{by, now, unmanaged, emptydir}``. Raises GiveUp, ApiError.
    """
    phase, waiting = "operator", []
    while True:
        try:
            phase, waiting = _step_out(api, name, options, progress)
        except ApiError as error:
            if not error.retriable:
                raise
            waiting = [f"the API: {answer_text(error)}"]
        if phase is None:
            progress.count()
            return True
        if not progress.wait(phase, waiting):
            return False


def _step_out(api, name, options, progress):
    """One look and what follows from it: (phase, what is waited for); phase None when the node is empty."""
    node = read_or_none(api, f"{NODES}/{name}")
    if node is None:
        raise GiveUp(f"the cluster has no Node {name}")
    busy = busy_with(api, node)
    if busy:
        return "operator", busy + held_up(api, name, options["emptydir"])
    judged = maintenance.judge_pods(pods_of(api, name), options["unmanaged"], options["emptydir"])
    progress.staying = [{"pod": maintenance.full_name(pod), "reason": reason} for pod, reason in judged["skip"]]
    if judged["refuse"]:
        told = "; ".join(f"pod {maintenance.full_name(pod)}: {reason}" for pod, reason in judged["refuse"])
        raise GiveUp(f"these pods are not evicted: {told}. Remove them, or allow it with unmanaged_pods or emptydir")
    ours = maintenance.own_cordon(node) is not None
    if progress.cordoned and not ours:
        # Another run has finished what we carry on, or a person wants the node. A drain that was cut off from its run
        # must not take it out of service again.
        progress.cordoned = False
        raise GiveUp("somebody took our cordon off while the node was drained")
    progress.cordoned = ours
    if not maintenance.cordoned(node):
        # Also when the annotation is there already: the SR-IOV operator ends its drains with an uncordon.
        change_node(api, progress, node, maintenance.cordon_patch(node, options["by"], options["now"]()))
        return "drain", ["the cordon to be seen by all"]
    blocked = []
    for pod, _reason in judged["evict"]:
        answer = evict(api, pod)
        if answer is None:
            progress.changed = True
            progress.evicted.append(maintenance.full_name(pod))
        else:
            blocked.append((pod, answer))
    if not judged["evict"] and not judged["wait"]:
        return None, []
    waiting = [f"pod {maintenance.full_name(pod)} {reason}" for pod, reason in judged["wait"]]
    if blocked:
        budgets = api.list_items(BUDGETS)
        waiting += [maintenance.blocked_text(pod, budgets, answer) for pod, answer in blocked]
    return "drain", waiting or ["evicted pods to end"]


def held_up(api, name, emptydir="evict"):
    """What holds up the operator's own drain of a node, where it drains: it evicts through the same budgets, and its
    status names none of them (sriov-network-operator#306)."""
    node = read_or_none(api, f"{NODES}/{name}")
    if not maintenance.cordoned(node):
        return []
    return maintenance.drain_obstacles(pods_of(api, name), api.list_items(BUDGETS), "evict", emptydir)


def look_out(api, name, options):
    """What take_out would do, for check mode: ``{cordon, evict, skip, waiting}``; changes nothing."""
    node = read_or_none(api, f"{NODES}/{name}")
    if node is None:
        raise GiveUp(f"the cluster has no Node {name}")
    pods = pods_of(api, name)
    judged = maintenance.judge_pods(pods, options["unmanaged"], options["emptydir"])
    obstacles = maintenance.drain_obstacles(pods, api.list_items(BUDGETS), options["unmanaged"], options["emptydir"])
    return {
        "node": node,
        "cordon": not maintenance.cordoned(node),
        "evict": [maintenance.full_name(pod) for pod, _reason in judged["evict"]],
        "skip": [{"pod": maintenance.full_name(pod), "reason": reason} for pod, reason in judged["skip"]],
        "waiting": busy_with(api, node) + obstacles,
    }


def take_back(api, name, progress):
    """Take our cordon off a node that was not rebooted after all. A sentence about what was done, or could not be."""
    for _try in range(5):
        try:
            node = read_or_none(api, f"{NODES}/{name}")
            if maintenance.own_cordon(node) is None:
                return "It was cordoned before and stays cordoned." if maintenance.cordoned(node) else ""
            change_node(api, progress, node, maintenance.uncordon_patch(node))
            return "Our cordon was taken back."
        except ApiError as error:
            if error.status == 409:
                continue
            return f"Our cordon stays on the node, since it could not be taken back: {error.message}"
    return "Our cordon stays on the node: other writers changed the node each time it was to be taken back."


def give_back(api, name, boot_id, progress):
    """Wait until the node is back and take our cordon off. True when done, False when the caller is to be told first.

    boot_id: the boot that runs on the node now, or None. Raises GiveUp, ApiError.
    """
    first, waiting = None, []
    while True:
        try:
            node = read_or_none(api, f"{NODES}/{name}")
            pulse = None
            if not boot_id or not maintenance.boot_id_of(node):
                latest = maintenance.sign_of_life(node, _lease(api, name))
                first = latest if first is None else first
                pulse = (first, latest)
            reason = maintenance.why_not_back(node, boot_id, pulse)
            if reason is None:
                if maintenance.own_cordon(node) is not None:
                    change_node(api, progress, node, maintenance.uncordon_patch(node))
                progress.count()
                return True
            waiting = [reason]
        except ApiError as error:
            if not error.retriable:
                raise
            waiting = [f"the API: {answer_text(error)}"]
        if not progress.wait("ready", waiting):
            return False


def _lease(api, name):
    """The kubelet's lease; None where there is none or we may not read it."""
    try:
        return read_or_none(api, f"{LEASES}/{name}")
    except ApiError as error:
        if error.status == 403:
            return None
        raise
