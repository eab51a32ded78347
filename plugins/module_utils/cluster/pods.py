# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a pod does not run: from its status and its events, in the words that a person can act on."""

from __future__ import annotations

# As many pods a line of progress names.
NAMED = 3


def container_reason(pod):
    """Reason of the first container that waits or ended: ``ImagePullBackOff: …``; None when all is well."""
    status = pod.get("status") or {}
    for entry in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        state = entry.get("state") or {}
        for kind in ("waiting", "terminated"):
            detail = state.get(kind)
            if detail and detail.get("reason") != "Completed":
                parts = [f"container {entry.get('name')}", detail.get("reason") or kind, detail.get("message")]
                return ": ".join(part for part in parts if part)
    return None


def condition_reason(pod):
    """Message of the scheduler when it found no node for the pod; None otherwise."""
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"not scheduled: {condition.get('message') or condition.get('reason')}"
    return None


def event_reason(events):
    """The newest warning among a pod's events; None when there is none."""
    warnings = [e for e in events if e.get("type") == "Warning"]
    if not warnings:
        return None
    newest = max(warnings, key=lambda e: e.get("lastTimestamp") or e.get("eventTime") or "")
    return f"{newest.get('reason')}: {newest.get('message')}"


def is_running(pod):
    """True when the pod's containers run and it is not on its way out."""
    status = pod.get("status") or {}
    if (pod.get("metadata") or {}).get("deletionTimestamp") or status.get("phase") != "Running":
        return False
    states = [e.get("state") or {} for e in status.get("containerStatuses") or []]
    return all("running" in s for s in states)


def is_hopeless(pod):
    """True when waiting longer cannot help: the pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def stuck_reason(pod, events=()):
    """One line for a pod that does not run: its phase, then the most telling of scheduler, events and container states.

    The event comes before a waiting container, since ``ContainerCreating`` says nothing while the event quotes the
    CNI plugin.
    """
    if pod is None:
        return "the pod does not exist"
    status = pod.get("status") or {}
    phase = status.get("phase") or "no phase yet"
    waiting = container_reason(pod)
    vague = waiting is None or waiting.endswith((": ContainerCreating", ": PodInitializing"))
    details = [condition_reason(pod), None if vague else waiting, event_reason(events), status.get("message"), waiting]
    detail = next((d for d in details if d), None)
    return f"{phase}: {detail}" if detail else str(phase)


def in_short(pending: dict[str, str]) -> str:
    """Which pods do not run yet and why, the first ones by name."""
    told = "; ".join(f"{name}: {reason}" for name, reason in sorted(pending.items())[:NAMED])
    return told + (f"; and {len(pending) - NAMED} more" if len(pending) > NAMED else "")
