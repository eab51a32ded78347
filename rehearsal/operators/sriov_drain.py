# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains of the SR-IOV operator: a pool lets so many nodes go at once; cordon, evict, uncordon."""

from __future__ import annotations

from rehearsal.operators.client import ApiError
from rehearsal.operators.install import running_in
from rehearsal.operators.kinds import (
    DEPLOYMENT,
    NODE,
    POD,
    SRIOV_POOL_CONFIG,
    SRIOV_STATE,
    Kind,
    annotations_of,
    name_of,
    namespace_of,
)
from rehearsal.operators.runtime import Controller
from rehearsal.operators.scheduler import FINISHED
from rehearsal.operators.selection import pod_requests
from rehearsal.operators.sriov_operator import CURRENT, DESIRED, SRIOV, pools_of, resource_prefix
from rehearsal.operators.sriov_policy import max_unavailable

IDLE, DRAIN, REBOOT = "Idle", "Drain_Required", "Reboot_Required"
DRAINING, DRAINED = "Draining", "DrainComplete"


def asked(state: dict) -> str:
    return annotations_of(state).get(DESIRED, IDLE)


def reached(state: dict) -> str:
    return annotations_of(state).get(CURRENT, IDLE)


def to_evict(pods: list[dict], node: str, prefix: str, reboot: bool) -> list[dict]:
    """Pods that a drain removes: all of them before a reboot, else those that request a resource of the prefix.
    DaemonSets' pods stay, as in kubectl's drain, which the operator uses.

    With prefix nvidia.com that is every pod with a GPU, not only those with a VF.
    """
    return [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == node
        and pod.get("status", {}).get("phase") not in FINISHED
        and not any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or [])
        and (reboot or any(name.startswith(f"{prefix}/") for name in pod_requests(pod["spec"])))
    ]


def may_start(node: dict, nodes: list[dict], pools: list[dict], states: dict[str, dict]) -> bool:
    """Whether the node's pool has room for one more drain; in two pools never, in no pool one at a time."""
    mine = pools_of(node, pools)
    if len(mine) > 1:
        return False
    names = {name_of(mine[0])} if mine else set()
    members = [item for item in nodes if {name_of(pool) for pool in pools_of(item, pools)} == names]
    limit = max_unavailable(mine[0]["spec"].get("maxUnavailable"), len(members)) if mine else 1
    busy = sum(1 for item in members if name_of(item) in states and reached(states[name_of(item)]) != IDLE)
    return busy < limit


class Drains(Controller):
    """One key, so that the limit of a pool holds over all its nodes."""

    watches = (SRIOV_STATE, SRIOV_POOL_CONFIG, NODE, POD, DEPLOYMENT)

    def __init__(self, manager):
        super().__init__(manager)
        # What this controller wrote and the watch has not shown yet; without it two nodes could take one free place.
        self._written: dict[str, str] = {}

    def keys(self, kind: Kind, obj: dict) -> tuple[str, ...]:
        return ("cluster",)

    async def reconcile(self, key: str) -> float | None:
        namespace = running_in(self.cache(DEPLOYMENT), SRIOV)
        if namespace is None:
            return None
        states = {name_of(item): item for item in self.cache(SRIOV_STATE) if namespace_of(item) == namespace}
        for name, state in states.items():
            if self._written.get(name) == reached(state):
                del self._written[name]
            elif name in self._written:
                states[name] = {
                    **state,
                    "metadata": {
                        **state["metadata"],
                        "annotations": {**annotations_of(state), CURRENT: self._written[name]},
                    },
                }
        pools = [item for item in self.cache(SRIOV_POOL_CONFIG) if namespace_of(item) == namespace]
        nodes = list(self.cache(NODE))
        again = None
        for name in sorted(states):
            node = self.cache(NODE).get(name)
            if node is None:
                continue
            want, have = asked(states[name]), reached(states[name])
            # Also in the middle of a drain, when the daemon needs it no more (a policy that came back, say).
            if want == IDLE and have in (DRAINING, DRAINED):
                await self._cordon(node, False)
                await self._mark(states, name, IDLE)
            elif want != IDLE and have == IDLE and may_start(node, nodes, pools, states):
                await self._mark(states, name, DRAINING)
                again = 0.1
            elif want != IDLE and have == DRAINING:
                again = 1.0
                if await self._drained(node, want == REBOOT):
                    await self._mark(states, name, DRAINED)
            elif CURRENT not in annotations_of(states[name]):
                await self._mark(states, name, IDLE)
        return again

    async def _mark(self, states: dict[str, dict], name: str, current: str) -> None:
        state = states[name]
        await self.api.patch(SRIOV_STATE, state, {"metadata": {"annotations": {CURRENT: current}}})
        self._written[name] = current
        states[name] = {
            **state,
            "metadata": {**state["metadata"], "annotations": {**annotations_of(state), CURRENT: current}},
        }

    async def _cordon(self, node: dict, cordon: bool) -> None:
        if bool(node["spec"].get("unschedulable")) != cordon:
            await self.api.patch(NODE, node, {"spec": {"unschedulable": True if cordon else None}})

    async def _drained(self, node: dict, reboot: bool) -> bool:
        await self._cordon(node, True)
        pods = to_evict(list(self.cache(POD)), name_of(node), resource_prefix(self.cache(DEPLOYMENT)), reboot)
        for pod in pods:
            if pod["metadata"].get("deletionTimestamp"):
                continue
            name, namespace = name_of(pod), namespace_of(pod)
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
            try:
                await self.api.call("POST", POD.path(namespace, name, "eviction"), body)
            except ApiError as error:
                if error.code == 429:
                    message = "Cannot evict pod as it would violate the pod's disruption budget."
                    await self.api.event(NODE, node, "DrainController", message, SRIOV)
                elif error.code != 404:
                    raise
        return not pods
