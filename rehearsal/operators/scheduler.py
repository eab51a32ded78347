# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduler: gives pending pods a node by selector, taints and resource requests, and says why when it cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from decimal import Decimal

from rehearsal.operators.client import ApiError, now
from rehearsal.operators.kinds import NODE, POD, Kind, labels_of, name_of, namespace_of
from rehearsal.operators.runtime import Controller
from rehearsal.operators.selection import (
    is_ready,
    label_selector_matches,
    pod_requests,
    pod_selects_node,
    quantity,
    untolerated_taint,
)

FINISHED = ("Succeeded", "Failed")


def usage(pods: Iterable[dict]) -> dict[str, dict[str, Decimal]]:
    """What the bound, unfinished pods request, by node name and resource; "pods" counts them."""
    used: dict[str, dict[str, Decimal]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if not node or pod.get("status", {}).get("phase") in FINISHED:
            continue
        row = used.setdefault(node, {})
        for name, value in {**pod_requests(pod["spec"]), "pods": Decimal(1)}.items():
            row[name] = row.get(name, Decimal(0)) + value
    return used


def obstacles(pod_spec: dict, node: dict, used: dict[str, Decimal]) -> list[str]:
    """Why the pod cannot run on the node, in the scheduler's own words; empty when it can.

    The words are those of kube-scheduler's plugins NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit.
    """
    tolerations = pod_spec.get("tolerations") or []
    if node.get("spec", {}).get("unschedulable"):
        cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        if untolerated_taint({"spec": {"taints": [cordon]}}, tolerations):
            return ["node(s) were unschedulable"]
    taint = untolerated_taint(node, tolerations)
    if taint:
        return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    if not is_ready(node):
        return ["node(s) had untolerated taint {node.kubernetes.io/not-ready: }"]
    if not pod_selects_node(pod_spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    allocatable = node.get("status", {}).get("allocatable") or {}
    wanted = {**pod_requests(pod_spec), "pods": Decimal(1)}
    return [
        "Too many pods" if name == "pods" else f"Insufficient {name}"
        for name, amount in sorted(wanted.items())
        if amount > 0 and amount + used.get(name, Decimal(0)) > quantity(allocatable.get(name))
    ]


def avoided(pod: dict, pods: list[dict]) -> set[str]:
    """Names of nodes that the pod's required anti-affinity keeps it off: a topology of nodes, and its own namespace."""
    affinity = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    found: set[str] = set()
    for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []:
        for other in pods:
            bound = other["spec"].get("nodeName") and (other.get("status") or {}).get("phase") not in FINISHED
            near = namespace_of(other) == namespace_of(pod) and other["metadata"]["uid"] != pod["metadata"]["uid"]
            if bound and near and label_selector_matches(term.get("labelSelector"), labels_of(other)):
                found.add(other["spec"]["nodeName"])
    return found


def choose(
    pod_spec: dict, nodes: list[dict], used: dict[str, dict[str, Decimal]], barred: Collection[str] = ()
) -> tuple[str | None, str]:
    """The node for a pod (the one with the fewest pods, ties by name), or None and the message of FailedScheduling.

    :param barred: nodes that its anti-affinity keeps it off.
    """
    reasons: Counter[str] = Counter()
    fitting = []
    for node in nodes:
        found = obstacles(pod_spec, node, used.get(name_of(node), {}))
        if not found and name_of(node) in barred:
            found = ["node(s) didn't match pod anti-affinity rules"]
        reasons.update(found)
        if not found:
            fitting.append((used.get(name_of(node), {}).get("pods", Decimal(0)), name_of(node)))
    if fitting:
        return min(fitting)[1], ""
    if not nodes:
        return None, "no nodes available to schedule pods"
    detail = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return None, f"0/{len(nodes)} nodes are available: {detail}."


class Scheduler(Controller):
    """One key for the whole cluster, so two pods never get the same resources."""

    watches = (POD, NODE)

    def __init__(self, manager):
        super().__init__(manager)
        # Bindings that the watch has not shown yet: without them the next pod would get the same devices.
        self._bound: dict[str, str] = {}

    def keys(self, kind: Kind, obj: dict) -> Iterable[str]:
        return ("cluster",)

    async def reconcile(self, key: str) -> float | None:
        pods = list(self.cache(POD))
        uids = {pod["metadata"]["uid"] for pod in pods}
        self._bound = {uid: node for uid, node in self._bound.items() if uid in uids}
        assumed = [
            {**pod, "spec": {**pod["spec"], "nodeName": self._bound[pod["metadata"]["uid"]]}}
            if pod["metadata"]["uid"] in self._bound
            else pod
            for pod in pods
        ]
        waiting = [
            pod for pod in assumed if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        ]
        used = usage(assumed)
        nodes = sorted(self.cache(NODE), key=name_of)
        for pod in sorted(waiting, key=lambda item: (item["metadata"].get("creationTimestamp", ""), name_of(item))):
            node, message = choose(pod["spec"], nodes, used, avoided(pod, assumed))
            if node is None:
                await self._refuse(pod, message)
                continue
            await self._bind(pod, node)
            assumed.append({**pod, "spec": {**pod["spec"], "nodeName": node}})  # the next pod of this round must see it
            row = used.setdefault(node, {})
            for name, value in {**pod_requests(pod["spec"]), "pods": Decimal(1)}.items():
                row[name] = row.get(name, Decimal(0)) + value
        return None

    async def _bind(self, pod: dict, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        meta = {"name": name_of(pod), "namespace": namespace_of(pod)}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        try:
            await self.api.call("POST", POD.path(namespace_of(pod), name_of(pod), "binding"), body)
        except ApiError as error:
            # 404: deleted meanwhile; 409: bound by an earlier try whose answer was lost.
            if error.code not in (404, 409):
                raise
        self._bound[pod["metadata"]["uid"]] = node

    async def _refuse(self, pod: dict, message: str) -> None:
        old = next((c for c in pod.get("status", {}).get("conditions") or [] if c["type"] == "PodScheduled"), {})
        if old.get("message") == message:
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        condition["lastTransitionTime"] = old.get("lastTransitionTime") or now()
        await self.api.patch(POD, pod, {"status": {"phase": "Pending", "conditions": [condition]}}, "status")
        await self.api.event(POD, pod, "FailedScheduling", message, "default-scheduler")
