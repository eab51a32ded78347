# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loops of a drain and of the return, over a cluster in memory whose time is the test's."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import drain, maintenance
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError
from ansible_collections.railyard.rdma.plugins.modules import rail_wait

OPTIONS = {"by": "me", "now": lambda: "now", "unmanaged": "refuse", "emptydir": "evict"}
BLOCKED = ApiError(429, "Cannot evict pod as it would violate the pod's disruption budget.", "TooManyRequests")


class World:
    """One node, its pods, and a clock that only sleeping moves. ``later``: {second: function of this world}."""

    def __init__(self, *pods, annotations=None, unschedulable=None):
        self.node = {
            "metadata": {"name": "gpu-1", "annotations": dict(annotations or {}), "resourceVersion": "1"},
            "spec": {"unschedulable": True} if unschedulable else {},
            "status": {
                "nodeInfo": {"bootID": "b1"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.pods = {name: self.pod(name, kind) for name, kind in pods}
        self.states, self.lease, self.grace = None, "t0", 0
        self.evictions, self.patches, self.failures = [], [], []
        self.refusals = {}
        self.time, self.later = 0.0, {}

    @staticmethod
    def pod(name, kind):
        owner = [{"kind": kind, "name": "o", "controller": True}] if kind else []
        return {
            "metadata": {"name": name, "namespace": "jobs", "uid": f"uid-{name}", "ownerReferences": owner},
            "spec": {},
            "status": {"phase": "Running"},
        }

    def progress(self, interval=10**6, **limits):
        limits = limits or {"operator": 100, "drain": 100}
        return drain.Progress(limits, {}, interval, clock=lambda: self.time, pause=self.sleep)

    def sleep(self, seconds):
        assert seconds > 0
        self.time += seconds
        for second in sorted(s for s in self.later if s <= self.time):
            self.later.pop(second)(self)

    def api(self):
        return Api(self.answer, pause=lambda _seconds: None)

    def answer(self, method, path, query, body, content_type):
        if self.failures:
            failure = self.failures.pop(0)
            if failure is not None:
                raise failure
        if path.endswith("/eviction"):
            return self.evict(path.split("/")[6], body)
        if method == "PATCH":
            return self.patch(body)
        return {"items": copy.deepcopy(self.items(path))} if self.items(path) is not None else self.single(path)

    def items(self, path):
        return {
            "/api/v1/pods": list(self.pods.values()),
            drain.BUDGETS: [],
            "/apis/sriovnetwork.openshift.io/v1/sriovnetworknodestates": self.states,
        }.get(path)

    def single(self, path):
        if path == "/api/v1/nodes/gpu-1":
            return copy.deepcopy(self.node)
        if path == "/apis/sriovnetwork.openshift.io/v1" and self.states is not None:
            return {"resources": [{"name": "sriovnetworknodestates", "kind": "SriovNetworkNodeState"}]}
        if path.endswith("/leases/gpu-1") and self.lease:
            return {"spec": {"renewTime": self.lease}}
        raise ApiError(404, "not found", "NotFound")

    def patch(self, body):
        if body["metadata"]["resourceVersion"] != self.node["metadata"]["resourceVersion"]:
            raise ApiError(409, "the object has been modified", "Conflict")
        self.patches.append(body)
        self.node["metadata"]["resourceVersion"] += "1"
        for key, value in body["metadata"]["annotations"].items():
            self.node["metadata"]["annotations"].pop(key, None)
            if value is not None:
                self.node["metadata"]["annotations"][key] = value
        for key, value in body.get("spec", {}).items():
            self.node["spec"].pop(key, None)
            if value is not None:
                self.node["spec"][key] = value
        return copy.deepcopy(self.node)

    def evict(self, name, body):
        assert body["kind"] == "Eviction" and body["apiVersion"] == "policy/v1"
        self.evictions.append(name)
        if self.refusals.get(name):
            raise self.refusals[name].pop(0)
        pod = self.pods[name]
        assert body["deleteOptions"] == {"preconditions": {"uid": pod["metadata"]["uid"]}}
        if self.grace:
            pod["metadata"].update(deletionTimestamp="soon", deletionGracePeriodSeconds=self.grace)
            # Keys differ, so that pods that are evicted in one moment all end.
            self.later[self.time + self.grace + len(self.later) / 1000] = lambda world: world.pods.pop(name)
        else:
            del self.pods[name]
        return {"status": "Success"}

    @property
    def marked(self):
        return maintenance.own_cordon(self.node) is not None

    @property
    def cordoned(self):
        return maintenance.cordoned(self.node)


def empty(world, progress=None):
    return drain.take_out(world.api(), "gpu-1", OPTIONS, progress or world.progress())


def test_cordons_evicts_and_waits_until_the_pods_are_gone():
    world = World(("a", "Job"), ("b", "ReplicaSet"), ("d", "DaemonSet"))
    world.grace = 30
    progress = world.progress()
    assert empty(world, progress) and world.cordoned and world.marked
    assert world.evictions == ["a", "b"] and progress.evicted == ["jobs/a", "jobs/b"]
    assert list(world.pods) == ["d"] and progress.staying == [{"pod": "jobs/d", "reason": "of DaemonSet o"}]
    assert progress.changed and progress.diff["before"]["unschedulable"] is False
    again = world.progress()
    assert empty(world, again) and not again.changed and len(world.patches) == 1


def test_a_node_that_was_cordoned_before_gets_no_mark():
    world = World(("a", "Job"), unschedulable=True)
    assert empty(world) and world.pods == {} and not world.marked and world.patches == []
    assert drain.give_back(world.api(), "gpu-1", "b1", world.progress(ready=100))
    assert world.cordoned and world.patches == []


def test_a_budget_is_waited_for_and_then_named():
    world = World(("a", "Job"))
    world.refusals["a"] = [BLOCKED, BLOCKED]
    assert empty(world) and world.evictions == ["a", "a", "a"]
    stuck = World(("a", "Job"))
    stuck.refusals["a"] = [BLOCKED] * 1000
    progress = stuck.progress(operator=100, drain=60)
    with pytest.raises(drain.Overdue, match="jobs/a: HTTP status 429: Cannot evict pod"):
        empty(stuck, progress)
    assert progress.phase == "drain" and 60 <= progress.waited["drain"] <= 61
    # Pauses grow: a drain of an hour must not ask each half second.
    assert len(stuck.evictions) < 25
    assert drain.take_back(stuck.api(), "gpu-1", progress) == "Our cordon was taken back."
    assert not stuck.cordoned and not stuck.marked


@pytest.mark.parametrize(
    "error",
    [
        ApiError(0, "the API server does not answer: refused"),
        ApiError(409, "modified", "Conflict"),
        ApiError(429, "too many requests", "TooManyRequests", retry_after=1),
        ApiError(500, "etcdserver: leader changed", "InternalError"),
        ApiError(503, "apiserver not ready", "ServiceUnavailable"),
        ApiError(504, "timeout", "Timeout"),
    ],
)
@pytest.mark.parametrize("count", [1, 3, 7, 20])
def test_errors_that_pass_do_not_end_a_drain(error, count):
    world = World(("a", "Job"), ("b", "Job"))
    # Every second request fails for a while, wherever it strikes.
    world.failures = [error, None] * count
    assert empty(world) and world.pods == {} and world.marked
    world.failures = [error, None] * count
    assert drain.give_back(world.api(), "gpu-1", "b1", world.progress(ready=100)) and not world.cordoned


def test_an_error_that_stays_is_told():
    world = World(("a", "Job"))
    world.failures = [ApiError(403, "nodes is forbidden", "Forbidden")]
    with pytest.raises(ApiError, match="forbidden"):
        empty(world)
    world.refusals["a"] = [ApiError(403, "eviction is forbidden", "Forbidden")]
    with pytest.raises(ApiError, match="eviction is forbidden"):
        empty(world)
    assert world.marked and drain.take_back(world.api(), "gpu-1", world.progress()) and not world.cordoned
    world = World(("a", "Job"))
    ending = ApiError(403, "namespace is ending", "Forbidden", causes=[{"reason": "NamespaceTerminating"}])
    world.refusals["a"] = [ending, ending]
    assert empty(world)


def test_a_pod_that_must_not_be_evicted_stops_the_drain_before_the_cordon():
    world = World(("a", None), ("b", "Job"))
    with pytest.raises(drain.GiveUp, match="jobs/a: no controller.*unmanaged_pods"):
        empty(world)
    assert world.patches == [] and world.evictions == []
    assert drain.take_out(world.api(), "gpu-1", {**OPTIONS, "unmanaged": "evict"}, world.progress())


def state(sync, desired, current):
    names = maintenance.STATE_ANNOTATIONS
    meta = {"name": "gpu-1", "namespace": "op", "annotations": dict(zip(names, (desired, current)))}
    return {"metadata": meta, "spec": {"interfaces": [{}]}, "status": {"syncStatus": sync}}


def test_the_operator_is_waited_for_before_anything_is_touched():
    world = World(("a", "Job"))
    world.states = [state("InProgress", "Drain_Required", "Draining")]

    def done(world):
        assert world.patches == [] and world.evictions == []
        world.states = [state("Succeeded", "Idle", "Idle")]

    world.later[40] = done
    progress = world.progress()
    assert empty(world, progress) and progress.waited["operator"] >= 40 and world.marked


def test_fc29_an_operator_that_never_rests_is_told_with_what_blocks_its_drain():
    """FC-29, sriov-network-operator#306: its own drain hangs on a disruption budget that its status does not name."""
    world = World(("a", "Job"), unschedulable=True)
    world.states = [state("InProgress", "Drain_Required", "Draining")]
    world.items = lambda path, items=world.items: (
        [
            {
                "metadata": {"name": "keep", "namespace": "jobs"},
                "spec": {"selector": {}},
                "status": {"currentHealthy": 1, "expectedPods": 1, "desiredHealthy": 1, "disruptionsAllowed": 0},
            }
        ]
        if path == drain.BUDGETS
        else items(path)
    )
    with pytest.raises(drain.Overdue) as caught:
        empty(world)
    for part in (
        "desired-state is Drain_Required",
        "current-state is Draining",
        "InProgress",
        "pod jobs/a",
        "jobs/keep",
    ):
        assert part in str(caught.value)
    assert world.patches == [] and world.evictions == []


def test_a_cordon_that_the_operator_took_off_is_put_on_again():
    world = World(("a", "Job"), annotations={maintenance.CORDON: "{}"})
    assert empty(world) and world.cordoned and world.marked


def test_a_drain_that_lost_its_cordon_does_not_cordon_again():
    """A drain that outlived its run: the next run has rebooted the node and given it back."""
    world = World(("a", "Job"))
    world.refusals["a"] = [BLOCKED] * 1000

    def given_back(world):
        assert world.marked
        world.node["spec"], world.node["metadata"]["annotations"] = {}, {}

    world.later[20] = given_back
    with pytest.raises(drain.GiveUp, match="took our cordon off"):
        empty(world)
    assert not world.cordoned and not world.marked
    clock = {"clock": lambda: world.time, "pause": world.sleep}
    later = drain.Progress({"operator": 50, "drain": 50}, {}, 20, True, **clock)
    with pytest.raises(drain.GiveUp, match="took our cordon off"):
        empty(world, later)
    assert not world.cordoned


def test_a_change_between_look_and_cordon_is_looked_at_again():
    world = World()

    def somebody(world):
        world.node["spec"]["unschedulable"] = True
        world.node["metadata"]["resourceVersion"] = "99"

    patch, raced = world.patch, []

    def race(body):
        if not raced:
            raced.append(somebody(world))
        return patch(body)

    world.patch = race
    assert empty(world) and world.cordoned and not world.marked


def test_slices_add_up_to_one_deadline():
    world = World(("a", "Job"))
    world.refusals["a"] = [BLOCKED] * 1000
    waited, slices = {}, 0
    with pytest.raises(drain.Overdue):
        while True:
            clock = {"clock": lambda: world.time, "pause": world.sleep}
            progress = drain.Progress({"operator": 50, "drain": 50}, waited, 20, slices > 0, **clock)
            assert not empty(world, progress)
            waited, slices = progress.waited, slices + 1
    assert slices == 2 and 50 <= progress.waited["drain"] <= 51


def test_a_stale_ready_does_not_give_the_node_back():
    world = World(annotations={maintenance.CORDON: "{}"}, unschedulable=True)
    seen = []

    def silent(world):
        seen.append(world.cordoned)
        world.node["status"]["conditions"][0]["status"] = "Unknown"

    def boots(world):
        seen.append(world.cordoned)
        world.node["status"]["nodeInfo"]["bootID"] = "b2"
        world.node["status"]["conditions"][0]["status"] = "False"

    def ready(world):
        seen.append(world.cordoned)
        world.node["status"]["conditions"][0]["status"] = "True"

    world.later = {40: silent, 60: boots, 80: ready}
    assert drain.give_back(world.api(), "gpu-1", "b2", world.progress(ready=900))
    assert seen == [True, True, True] and not world.cordoned and not world.marked and world.time >= 80


def test_without_a_boot_id_a_new_sign_of_life_is_needed():
    world = World(annotations={maintenance.CORDON: "{}"}, unschedulable=True)
    with pytest.raises(drain.Overdue, match="no sign of life since t0"):
        drain.give_back(world.api(), "gpu-1", None, world.progress(ready=60))
    assert world.cordoned
    world.later[world.time + 10] = lambda world: setattr(world, "lease", "t1")
    assert drain.give_back(world.api(), "gpu-1", None, world.progress(ready=60)) and not world.cordoned


def test_a_node_that_is_not_in_the_cluster():
    world = World()
    with pytest.raises(drain.GiveUp, match="no Node gpu-2"):
        drain.take_out(world.api(), "gpu-2", OPTIONS, world.progress())
    with pytest.raises(drain.Overdue, match="no Node of this name"):
        drain.give_back(world.api(), "gpu-2", "b1", world.progress(ready=5))
    assert drain.take_back(world.api(), "gpu-2", world.progress()) == ""


def test_check_mode_tells_and_changes_nothing():
    world = World(("a", "Job"), ("b", None), ("d", "DaemonSet"))
    world.states = [state("InProgress", "Idle", "Idle")]
    seen = drain.look_out(world.api(), "gpu-1", OPTIONS)
    assert seen["cordon"] and seen["evict"] == ["jobs/a"]
    assert "InProgress" in seen["waiting"][0] and "jobs/b" in seen["waiting"][1]
    assert world.patches == [] and world.evictions == []


def test_fc29_rail_wait_names_what_holds_up_the_drain():
    """FC-29: the wait for the rails ends with the pods and budgets, not only with InProgress."""
    world = World(("a", "Job"), unschedulable=True)
    pending = [{"node": "gpu-1", "object": "SriovNetworkNodeState", "reason": "syncStatus InProgress"}]
    world.pods["a"]["metadata"].update(deletionTimestamp="12:00", finalizers=["x/hold"])
    found = rail_wait.blocked_drains(world.api(), pending)
    assert [(row["node"], row["object"]) for row in found] == [("gpu-1", "drain")]
    assert "jobs/a" in found[0]["reason"] and "x/hold" in found[0]["reason"]
    world.node["spec"] = {}
    assert rail_wait.blocked_drains(world.api(), pending) == []
