# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in the way of taking a node out of service, and of giving it back: pure functions over API objects.

Nothing here talks to the API; ``drain.py`` does. Objects are dicts as the API gives them, missing keys included.
"""

from __future__ import annotations

import json

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import label_selector_matches

# Our cordon. Its value is JSON ``{by, at, boot_id}``; a node that is cordoned without it was cordoned by somebody else.
CORDON = "railyard.rdma/cordoned"
# api/v1/helper.go and pkg/consts of the SR-IOV Network Operator: what the daemon wants, and what the drain controller
# has reached. The node object carries the older single annotation.
STATE_ANNOTATIONS = ("sriovnetwork.openshift.io/desired-state", "sriovnetwork.openshift.io/current-state")
NODE_ANNOTATION = "sriovnetwork.openshift.io/state"
MIRROR = "kubernetes.io/config.mirror"
FINISHED = ("Succeeded", "Failed")
# Pods that one of our own interrupted runs left behind: probes without a controller that nobody misses.
OWN_LABEL = "railyard.io/verify"


def metadata(obj):
    return (obj or {}).get("metadata") or {}


def annotations(obj):
    return metadata(obj).get("annotations") or {}


def full_name(obj):
    """``namespace/name`` of an object, the name alone where there is no namespace."""
    meta = metadata(obj)
    return "/".join(part for part in (meta.get("namespace"), meta.get("name")) if part)


def cordoned(node):
    return bool(((node or {}).get("spec") or {}).get("unschedulable"))


def own_cordon(node):
    """``{by, at, boot_id}`` of our annotation, values None where it does not tell; None when it is not there."""
    text = annotations(node).get(CORDON)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, dict):
        found = {}
    return {key: found[key] if isinstance(found.get(key), str) else None for key in ("by", "at", "boot_id")}


def cordon_patch(node, by, at):
    """Merge patch that cordons a node and marks the cordon as ours, in one request: there is no moment between."""
    mark = json.dumps({"by": by, "at": at, "boot_id": boot_id_of(node)}, sort_keys=True)
    return {
        "metadata": {"annotations": {CORDON: mark}, **_unchanged(node)},
        "spec": {"unschedulable": True},
    }


def uncordon_patch(node):
    """Merge patch that takes our cordon back."""
    patch = {"metadata": {"annotations": {CORDON: None}, **_unchanged(node)}}
    if cordoned(node):
        patch["spec"] = {"unschedulable": None}
    return patch


def _unchanged(node):
    """With a resource version the API refuses (409) when somebody changed the node since it was read, so nobody's
    cordon is taken for ours."""
    version = metadata(node).get("resourceVersion")
    return {"resourceVersion": version} if version else {}


def boot_id_of(node):
    return (((node or {}).get("status") or {}).get("nodeInfo") or {}).get("bootID") or None


def ready_condition(node):
    conditions = ((node or {}).get("status") or {}).get("conditions") or []
    return next((c for c in conditions if isinstance(c, dict) and c.get("type") == "Ready"), {})


def is_ready(node):
    return ready_condition(node).get("status") == "True"


def why_not_back(node, boot_id=None, pulse=None):
    """Why a node is not back yet, or None when it is.

    A kubelet that ended with its node leaves Ready at True until the node controller's grace period is over (40 to 50
    seconds), so True alone proves nothing: it counts when the kubelet has reported the boot that the node runs now,
    or, where that is not known, when it gave a sign of life since we look.

    :param boot_id: what /proc/sys/kernel/random/boot_id says on the node, or None.
    :param pulse: without boot_id: ``(first, latest)`` sign of life, see :func:`sign_of_life`.
    """
    if node is None:
        return "the cluster has no Node of this name"
    reported, condition = boot_id_of(node), ready_condition(node)
    if boot_id and reported and reported != boot_id:
        return f"the kubelet has not reported boot {boot_id} yet; its last report is of boot {reported}"
    if condition.get("status") != "True":
        parts = [condition.get("reason"), condition.get("message")]
        told = ": ".join(part for part in parts if part)
        since = condition.get("lastTransitionTime")
        text = f"condition Ready is {condition.get('status') or 'not set'}" + (f" since {since}" if since else "")
        return f"{text} ({told})" if told else text
    if not (boot_id and reported) and pulse is not None and pulse[0] == pulse[1]:
        return f"condition Ready is True, but the kubelet gave no sign of life since {pulse[1] or 'we look'}"
    return None


def sign_of_life(node, lease):
    """The newest time that the kubelet wrote: of its Lease (every 10 s) or, without one, of condition Ready.

    Only whether it changes counts, since the node's clock may differ from ours.
    """
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    return renewed or ready_condition(node).get("lastHeartbeatTime")


def operator_busy(node, states, maintenances):
    """What the operators are doing on a node, one sentence each; empty when they are at rest.

    :param states: the SriovNetworkNodeStates of the node's name (one, or none).
    :param maintenances: all NodeMaintenances (maintenance.nvidia.com) of the cluster.
    """
    name, busy = metadata(node).get("name"), []
    for state in states:
        told = [
            f"{key.rpartition('/')[2]} is {annotations(state)[key]}"
            for key in STATE_ANNOTATIONS
            if annotations(state).get(key, "Idle") != "Idle"
        ]
        status = state.get("status") or {}
        sync, planned = status.get("syncStatus"), (state.get("spec") or {}).get("interfaces")
        if sync != "Succeeded" and (sync or planned):
            error = f" ({status['lastSyncError']})" if status.get("lastSyncError") else ""
            told.append(f"syncStatus is {sync or 'not set'}{error}")
        if told:
            busy.append(f"SriovNetworkNodeState {full_name(state)}: {', '.join(told)}")
    on_node = annotations(node).get(NODE_ANNOTATION, "Idle")
    if on_node != "Idle":
        busy.append(f"node annotation {NODE_ANNOTATION} is {on_node}")
    for item in maintenances:
        spec = item.get("spec") or {}
        if spec.get("nodeName") == name:
            conditions = (item.get("status") or {}).get("conditions") or []
            reason = next((c.get("reason") for c in conditions if c.get("type") == "Ready"), None)
            asked = f" of {spec['requestorID']}" if spec.get("requestorID") else ""
            busy.append(f"NodeMaintenance {full_name(item)}{asked} is {reason or 'not started'}")
    return busy


def controller_of(pod):
    """The owner reference of the pod's controller, or None: then nothing makes the pod anew elsewhere."""
    return next((o for o in metadata(pod).get("ownerReferences") or [] if o.get("controller")), None)


def empty_dirs(pod):
    return [v.get("name") for v in (pod.get("spec") or {}).get("volumes") or [] if v.get("emptyDir") is not None]


def judge_pod(pod, unmanaged="refuse", emptydir="evict"):
    """What a drain does with a pod: ``(verdict, reason)``.

    Verdicts: ``skip`` (it stays, or is no longer there), ``wait`` (it is on its way out), ``evict``, ``refuse``.
    """
    if MIRROR in annotations(pod):
        return "skip", "static pod"
    if (pod.get("status") or {}).get("phase") in FINISHED:
        return "skip", "finished"
    owner = controller_of(pod)
    if owner and owner.get("kind") == "DaemonSet":
        return "skip", f"of DaemonSet {owner.get('name')}"
    if metadata(pod).get("deletionTimestamp"):
        return "wait", leaving(pod)
    if owner is None and unmanaged != "evict" and OWN_LABEL not in (metadata(pod).get("labels") or {}):
        return "refuse", "no controller would make it anew elsewhere"
    if emptydir != "evict" and empty_dirs(pod):
        return "refuse", f"what is in its emptyDir {', '.join(map(str, empty_dirs(pod)))} would be lost"
    return "evict", "managed" if owner else "unmanaged"


def leaving(pod):
    meta = metadata(pod)
    seconds, held = meta.get("deletionGracePeriodSeconds"), meta.get("finalizers")
    text = f"is to end at {meta.get('deletionTimestamp')}"
    text += f" (grace period {seconds} s)" if seconds is not None else ""
    return text + (f", held by finalizers {', '.join(held)}" if held else "")


def judge_pods(pods, unmanaged="refuse", emptydir="evict"):
    """``{skip, wait, evict, refuse}``, each a list of ``(pod, reason)`` in order of the pods' names."""
    result = {"skip": [], "wait": [], "evict": [], "refuse": []}
    for pod in sorted(pods, key=full_name):
        verdict, reason = judge_pod(pod, unmanaged, emptydir)
        result[verdict].append((pod, reason))
    return result


def budgets_of(pod, budgets):
    """The PodDisruptionBudgets that protect a pod."""
    meta = metadata(pod)
    return [
        budget
        for budget in budgets
        if metadata(budget).get("namespace") == meta.get("namespace")
        and label_selector_matches((budget.get("spec") or {}).get("selector"), meta.get("labels") or {})
    ]


def budget_text(budget):
    """``PodDisruptionBudget ns/name (3 of 4 pods healthy, needs 3, allows 0 disruptions)``."""
    status = budget.get("status") or {}
    number = {key: status.get(key, "?") for key in ("currentHealthy", "expectedPods", "desiredHealthy")}
    healthy = f"{number['currentHealthy']} of {number['expectedPods']} pods healthy, needs {number['desiredHealthy']}"
    return (
        f"PodDisruptionBudget {full_name(budget)} ({healthy}, allows {status.get('disruptionsAllowed', 0)} disruptions)"
    )


def blocked_text(pod, budgets, answer):
    """Why a pod was not evicted: its budgets with their numbers, else the API's own words."""
    found = budgets_of(pod, budgets)
    if not found:
        return f"pod {full_name(pod)}: {answer}"
    text = f"pod {full_name(pod)}: {' and '.join(map(budget_text, found))}"
    return text if len(found) == 1 else f"{text}; the API evicts no pod that has more than one budget"


def drain_obstacles(pods, budgets, unmanaged="refuse", emptydir="evict"):
    """What of a node's pods would stop or delay a drain, without trying: one sentence a pod."""
    judged = judge_pods(pods, unmanaged, emptydir)
    rows = [f"pod {full_name(pod)}: {reason}" for pod, reason in judged["refuse"] + judged["wait"]]
    for pod, _reason in judged["evict"]:
        found = budgets_of(pod, budgets)
        if len(found) > 1 or any(not (b.get("status") or {}).get("disruptionsAllowed") for b in found):
            rows.append(blocked_text(pod, budgets, ""))
    return rows
