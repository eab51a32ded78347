# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deployments and DaemonSets: their status follows the nodes they could run on, without pods of their own."""

from __future__ import annotations

from rehearsal.operators.client import now
from rehearsal.operators.kinds import DAEMON_SET, DEPLOYMENT, NODE, REPLICA_SET, Kind, name_of, namespace_of
from rehearsal.operators.replica_sets import owned_by, replica_set, replica_set_status
from rehearsal.operators.runtime import Controller
from rehearsal.operators.scheduler import obstacles
from rehearsal.operators.selection import daemon_runs_on, is_ready


def template_of(obj: dict) -> dict:
    """The pod spec of a workload's template."""
    return obj["spec"]["template"]["spec"]


def condition(kind: str, good: bool, reason: str, message: str, old: list[dict] | None) -> dict:
    """A workload condition that keeps its transition time while its status stays."""
    status = "True" if good else "False"
    before = next((item for item in old or [] if item["type"] == kind and item["status"] == status), {})
    stamp = before.get("lastTransitionTime") or now()
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp}


def deployment_status(deployment: dict, nodes: list[dict]) -> dict:
    """Status of a Deployment: available when some node takes its pods, else it waits with the reason."""
    wanted = deployment["spec"].get("replicas", 1)
    fits = any(not obstacles(template_of(deployment), node, {}) for node in nodes)
    ready = wanted if fits else 0
    old = (deployment.get("status") or {}).get("conditions")
    reason = "MinimumReplicasAvailable" if ready >= wanted else "MinimumReplicasUnavailable"
    text = (
        "Deployment has minimum availability." if ready >= wanted else "Deployment does not have minimum availability."
    )
    progress = "NewReplicaSetAvailable" if ready >= wanted else "ReplicaSetUpdated"
    return {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        "replicas": wanted,
        "updatedReplicas": wanted,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": wanted - ready,
        "conditions": [
            condition("Available", ready >= wanted, reason, text, old),
            condition("Progressing", True, progress, f'ReplicaSet "{name_of(deployment)}" has been rolled out.', old),
        ],
    }


def daemon_set_status(daemon_set: dict, nodes: list[dict]) -> dict:
    """Status of a DaemonSet: one pod on each node that its selector and tolerations take, ready where the node is."""
    chosen = [node for node in nodes if daemon_runs_on(template_of(daemon_set), node)]
    ready = sum(1 for node in chosen if is_ready(node))
    return {
        "observedGeneration": daemon_set["metadata"].get("generation", 1),
        "desiredNumberScheduled": len(chosen),
        "currentNumberScheduled": len(chosen),
        "updatedNumberScheduled": len(chosen),
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": len(chosen) - ready,
        "numberMisscheduled": 0,
    }


class Workloads(Controller):
    """Keys are "<plural>/<namespace>/<name>"; a change of any node looks at all workloads again."""

    watches = (DEPLOYMENT, DAEMON_SET, NODE, REPLICA_SET)

    def keys(self, kind: Kind, obj: dict) -> list[str]:
        if kind == REPLICA_SET:
            owners = obj["metadata"].get("ownerReferences") or []
            return [
                f"{DEPLOYMENT.plural}/{namespace_of(obj)}/{o['name']}" for o in owners if o["kind"] == DEPLOYMENT.kind
            ]
        if kind != NODE:
            return [f"{kind.plural}/{namespace_of(obj)}/{name_of(obj)}"]
        return [
            f"{k.plural}/{namespace_of(item)}/{name_of(item)}"
            for k in (DEPLOYMENT, DAEMON_SET)
            for item in self.cache(k)
        ]

    async def reconcile(self, key: str) -> float | None:
        plural, namespace, name = key.split("/")
        kind = {k.plural: k for k in (DEPLOYMENT, DAEMON_SET)}[plural]
        obj = self.cache(kind).get(name, namespace)
        if obj is None:
            return None
        build = {DEPLOYMENT: deployment_status, DAEMON_SET: daemon_set_status}[kind]
        status = build(obj, list(self.cache(NODE)))
        old = obj.get("status") or {}
        if any(old.get(field) != value for field, value in status.items()):
            await self.api.patch(kind, obj, {"status": status}, "status")
        if kind == DEPLOYMENT:
            await self._replica_sets(obj, status.get("readyReplicas", 0))
        return None

    async def _replica_sets(self, deployment: dict, ready: int) -> None:
        """The newest ReplicaSet carries the pods; those of earlier templates stay, with none."""
        have = owned_by(deployment, list(self.cache(REPLICA_SET)))
        newest = replica_set(deployment, len(have) + 1)
        for found in have:
            current = name_of(found) == name_of(newest)
            wanted = newest["spec"]["replicas"] if current else 0
            if found["spec"].get("replicas") != wanted:
                await self.api.patch(REPLICA_SET, found, {"spec": {"replicas": wanted}})
                continue
            status = replica_set_status(found, ready if current else 0)
            old = found.get("status") or {}
            if any(old.get(field) != value for field, value in status.items()):
                await self.api.patch(REPLICA_SET, found, {"status": status}, "status")
        if name_of(newest) not in map(name_of, have):
            await self.api.create(REPLICA_SET, newest)
