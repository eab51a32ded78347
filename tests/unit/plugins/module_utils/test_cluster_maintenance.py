# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in the way of a drain and of the return from it: every branch over plain objects."""

from __future__ import annotations

import json

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import maintenance, selection
from ansible_collections.railyard.rdma.plugins.modules import cluster_facts
from hypothesis import given
from hypothesis import strategies as st

DESIRED, CURRENT = maintenance.STATE_ANNOTATIONS


def node(name="gpu-1", annotations=None, unschedulable=None, boot="b1", ready="True", **status):
    condition = {"type": "Ready", "status": ready, **status}
    made = {
        "metadata": {"name": name, "annotations": annotations or {}, "resourceVersion": "7"},
        "spec": {},
        "status": {"nodeInfo": {"bootID": boot}, "conditions": [{"type": "DiskPressure"}, condition]},
    }
    if unschedulable is not None:
        made["spec"]["unschedulable"] = unschedulable
    return made


def pod(name, kind=None, phase="Running", labels=None, volumes=(), **meta):
    owners = [{"kind": kind, "name": "owner", "controller": True}] if kind else []
    metadata = {"name": name, "namespace": "jobs", "uid": name, "labels": labels or {}, "ownerReferences": owners}
    return {
        "metadata": {**metadata, **meta},
        "spec": {"nodeName": "gpu-1", "volumes": list(volumes)},
        "status": {"phase": phase},
    }


def budget(name, selector, namespace="jobs", **status):
    numbers = {"currentHealthy": 1, "expectedPods": 2, "desiredHealthy": 1, "disruptionsAllowed": 0, **status}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector},
        "status": numbers,
    }


def test_the_cordon_and_its_mark_are_one_patch_of_the_node_as_it_was_read():
    patch = maintenance.cordon_patch(node(), "me", "now")
    assert patch["spec"] == {"unschedulable": True}
    assert patch["metadata"]["resourceVersion"] == "7"
    mark = json.loads(patch["metadata"]["annotations"][maintenance.CORDON])
    assert mark == {"by": "me", "at": "now", "boot_id": "b1"}
    marked = node(annotations=patch["metadata"]["annotations"], unschedulable=True)
    assert maintenance.own_cordon(marked) == mark
    assert maintenance.uncordon_patch(marked) == {
        "metadata": {"annotations": {maintenance.CORDON: None}, "resourceVersion": "7"},
        "spec": {"unschedulable": None},
    }
    # Somebody made the node schedulable meanwhile: only our mark is left to remove.
    assert "spec" not in maintenance.uncordon_patch(node(annotations={maintenance.CORDON: "{}"}))


@given(st.one_of(st.none(), st.text(), st.recursive(st.none() | st.booleans() | st.text(), st.lists).map(json.dumps)))
def test_any_text_in_our_annotation_is_ours_and_does_no_harm(text):
    found = maintenance.own_cordon(
        {"metadata": {"annotations": {maintenance.CORDON: text} if text is not None else {}}}
    )
    assert found is None if text is None else set(found) == {"by", "at", "boot_id"}


@pytest.mark.parametrize(
    ("item", "boot", "pulse", "text"),
    [
        (None, "b1", None, "has no Node"),
        (node(boot="b0"), "b1", None, "last report is of boot b0"),  # Ready is True, and stale
        (node(ready="Unknown", reason="NodeStatusUnknown", message="Kubelet stopped"), "b1", None, "Kubelet stopped"),
        (node(ready="False", lastTransitionTime="12:00"), "b1", None, "False since 12:00"),
        ({"metadata": {}}, "b1", None, "Ready is not set"),
        (node(), None, ("t1", "t1"), "no sign of life since t1"),
        (node(boot=""), "b1", (None, None), "no sign of life since we look"),
        (node(), "b1", None, None),
        (node(), "b1", ("t1", "t1"), None),  # the boot says enough
        (node(), None, ("t1", "t2"), None),
        (node(), None, None, None),  # one look only: check mode
    ],
)
def test_a_node_is_back_when_its_kubelet_has_reported_this_boot(item, boot, pulse, text):
    reason = maintenance.why_not_back(item, boot, pulse)
    assert reason is None if text is None else text in reason


def test_the_sign_of_life_is_the_lease_or_else_the_heartbeat():
    assert maintenance.sign_of_life(node(lastHeartbeatTime="h"), {"spec": {"renewTime": "r"}}) == "r"
    assert maintenance.sign_of_life(node(lastHeartbeatTime="h"), None) == "h"
    assert maintenance.sign_of_life(node(), {}) is None


def state(sync="Succeeded", desired="Idle", current="Idle", planned=True, **status):
    return {
        "metadata": {"name": "gpu-1", "namespace": "op", "annotations": {DESIRED: desired, CURRENT: current}},
        "spec": {"interfaces": [{"pciAddress": "x"}] if planned else []},
        "status": {"syncStatus": sync, **status},
    }


@pytest.mark.parametrize(
    ("item", "states", "maintenances", "texts"),
    [
        (node(), [], [], []),
        (node(), [state()], [], []),
        (node(), [{"metadata": {"name": "gpu-1"}}], [], []),  # just made, nothing asked for
        (node(), [state(sync=None, planned=False)], [], []),
        (node(), [state(sync=None)], [], ["syncStatus is not set"]),
        (node(), [state(sync="InProgress")], [], ["op/gpu-1", "syncStatus is InProgress"]),
        (node(), [state(sync="Failed", lastSyncError="no VFs")], [], ["Failed (no VFs)"]),
        # The reboot loop of sriov-network-operator#959.
        (node(), [state(desired="Reboot_Required", current="DrainComplete")], [], ["Reboot_Required", "DrainComplete"]),
        (node(annotations={maintenance.NODE_ANNOTATION: "Draining"}), [], [], ["is Draining"]),
        (node(annotations={maintenance.NODE_ANNOTATION: "Idle"}), [], [], []),
        (
            node(),
            [],
            [
                {
                    "metadata": {"name": "m", "namespace": "op"},
                    "spec": {"nodeName": "gpu-1", "requestorID": "driver"},
                    "status": {"conditions": [{"type": "Ready", "reason": "Draining"}]},
                }
            ],
            ["NodeMaintenance op/m of driver is Draining"],
        ),
        (node(), [], [{"metadata": {"name": "m"}, "spec": {"nodeName": "gpu-1"}}], ["m is not started"]),
        (node(), [], [{"metadata": {"name": "m"}, "spec": {"nodeName": "gpu-2"}}], []),
    ],
)
def test_operators_are_at_rest_or_it_is_told_what_they_do(item, states, maintenances, texts):
    busy = maintenance.operator_busy(item, states, maintenances)
    assert bool(busy) == bool(texts)
    for text in texts:
        assert text in " ".join(busy)


SCRATCH = {"name": "shm", "emptyDir": {}}


@pytest.mark.parametrize(
    ("item", "options", "verdict", "reason"),
    [
        (pod("a", "ReplicaSet"), {}, "evict", "managed"),
        (pod("a", "DaemonSet"), {}, "skip", "of DaemonSet owner"),
        (pod("a", "Node", annotations={maintenance.MIRROR: "x"}), {}, "skip", "static pod"),
        (pod("a", "Job", phase="Succeeded"), {}, "skip", "finished"),
        (pod("a", phase="Failed"), {}, "skip", "finished"),
        (pod("a"), {}, "refuse", "no controller"),
        (pod("a"), {"unmanaged": "evict"}, "evict", "unmanaged"),
        (pod("a", labels={maintenance.OWN_LABEL: "pod"}), {}, "evict", "unmanaged"),  # our own probe
        (pod("a", "Job", volumes=[SCRATCH]), {}, "evict", "managed"),
        (pod("a", "Job", volumes=[SCRATCH]), {"emptydir": "refuse"}, "refuse", "emptyDir shm"),
        (pod("a", "Job", volumes=[{"name": "c", "configMap": {}}]), {"emptydir": "refuse"}, "evict", "managed"),
        # On its way out already: nothing is left to refuse.
        (pod("a", deletionTimestamp="12:00", deletionGracePeriodSeconds=30), {}, "wait", "12:00 (grace period 30 s)"),
        (pod("a", "Job", deletionTimestamp="12:00", finalizers=["x/y"]), {}, "wait", "held by finalizers x/y"),
    ],
)
def test_what_becomes_of_a_pod(item, options, verdict, reason):
    found = maintenance.judge_pod(item, **options)
    assert found[0] == verdict and reason in found[1]
    judged = maintenance.judge_pods([item, pod("0", "DaemonSet")], **options)
    assert [p["metadata"]["name"] for p, _reason in judged[verdict]][-1] == "a"


def test_an_owner_that_is_no_controller_manages_nothing():
    item = pod("a", ownerReferences=[{"kind": "Widget", "name": "w"}])
    assert maintenance.judge_pod(item)[0] == "refuse"


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        (None, {}, False),
        ({}, {"a": "1"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {"a": "1"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {"a": "1"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Near"}]}, {"a": ""}, False),
    ],
)
def test_label_selectors(selector, labels, matches):
    assert selection.label_selector_matches(selector, labels) is matches


def test_a_budget_is_named_with_its_numbers():
    item = pod("trainer-0", "StatefulSet", labels={"app": "trainer"})
    rows = [
        budget("trainer", {"matchLabels": {"app": "trainer"}}),
        budget("other", {"matchLabels": {"app": "web"}}),
        budget("elsewhere", {}, namespace="web"),
    ]
    assert maintenance.budgets_of(item, rows) == rows[:1]
    text = maintenance.blocked_text(item, rows, "429")
    assert text == (
        "pod jobs/trainer-0: PodDisruptionBudget jobs/trainer (1 of 2 pods healthy, needs 1, allows 0 disruptions)"
    )
    two = maintenance.blocked_text(item, [rows[0], budget("second", {})], "500")
    assert "jobs/trainer" in two and "jobs/second" in two and "more than one budget" in two
    assert maintenance.blocked_text(item, [], "too busy") == "pod jobs/trainer-0: too busy"
    unseen = {"metadata": {"name": "new", "namespace": "jobs"}, "spec": {"selector": {}}}
    assert "? of ? pods healthy" in maintenance.blocked_text(item, [unseen], "")


def test_obstacles_of_a_drain_without_trying():
    pods = [
        pod("a", "Job", labels={"app": "x"}),
        pod("b", "Job"),
        pod("c"),
        pod("d", "Job", deletionTimestamp="12:00"),
        pod("e", "DaemonSet"),
    ]
    rows = [budget("x", {"matchLabels": {"app": "x"}})]
    text = "\n".join(maintenance.drain_obstacles(pods, rows))
    assert "jobs/a: PodDisruptionBudget jobs/x" in text and "jobs/c: no controller" in text and "jobs/d" in text
    assert "jobs/b" not in text and "jobs/e" not in text
    free = [budget("x", {"matchLabels": {"app": "x"}}, disruptionsAllowed=1)]
    assert "jobs/a" not in "\n".join(maintenance.drain_obstacles(pods, free))


def nodes(*rows):
    return [
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": hostname}},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        }
        for name, hostname, address in rows
    ]


@pytest.mark.parametrize(
    ("names", "found", "text"),
    [
        (["gpu-1"], "gpu-1", None),
        (["host-2"], "gpu-2", None),
        (["x", "10.0.0.1"], "gpu-1", None),
        (["gpu-1", "10.0.0.2"], "gpu-1", None),  # the name says more than the address
        (["twin"], None, "2 nodes answer to twin: gpu-3, gpu-4"),
        (["10.0.0.9"], None, "gpu-3, gpu-4"),
        (["nobody", ""], None, "no node has the name, hostname label or address nobody"),
        (["", None], None, "no name or address"),
    ],
)
def test_a_host_is_one_node_or_none(names, found, text):
    rows = nodes(
        ("gpu-1", "host-1", "10.0.0.1"),
        ("gpu-2", "host-2", "10.0.0.2"),
        ("gpu-3", "twin", "10.0.0.9"),
        ("gpu-4", "twin", "10.0.0.9"),
    )
    node_found, reason = selection.find_node(names, rows)
    assert (node_found or {}).get("metadata", {}).get("name") == found
    assert reason is None if text is None else text in reason


@pytest.mark.parametrize(
    ("spec", "owned"),
    [
        ({"rdmaMode": "exclusive", "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "host-1"}}}, True),
        ({"rdmaMode": "exclusive", "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "host-2"}}}, False),
        ({"rdmaMode": "exclusive", "nodeSelector": {}}, True),
        # A plain label is no field of a LabelSelector: the server drops it, and what is left takes every node.
        ({"rdmaMode": "exclusive"}, True),
        ({"maxUnavailable": 1}, False),
    ],
)
def test_fc21_a_pool_that_sets_rdma_mode_is_an_owner_of_the_mode(spec, owned):
    """FC-21, sriov-network-operator#959."""
    pool = {"metadata": {"name": "p", "namespace": "op"}, "spec": spec}
    found = cluster_facts.rdma_mode_owners(nodes(("gpu-1", "host-1", "10.0.0.1"))[0], [pool])
    assert bool(found) is owned
    if owned:
        assert found[0]["mode"] == "exclusive" and "op/p" in found[0]["path"] and "op/p" in found[0]["remedy"]
