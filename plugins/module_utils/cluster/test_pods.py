# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Test pods in the cluster: what their namespace must allow, making them, and removing what any run left of them."""

from __future__ import annotations

import hashlib
import time

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import lifetime
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import apply_objects
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.looks import looks
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pods import stuck_reason

# The label's value is what the pods are for, the prefix of their names: verify leaves those of a benchmark alone. On a
# namespace it says that we made it.
LABEL, HOST_LABEL = "railyard.io/verify", "railyard.io/host"
OWN_NAMESPACE = "namespace"
# Pod Security Standards, from strict to lax, and the label by which a namespace enforces one.
LEVELS = ("restricted", "baseline", "privileged")
ENFORCE = "pod-security.kubernetes.io/enforce"


class TestPodsError(Exception):
    """What keeps the test pods from being made or removed, with the remedy."""


def host_mark(host):
    """A label's value for an inventory name, which may hold what no label may."""
    return hashlib.sha256(host.encode()).hexdigest()[:16]


def level_of(pod):
    """(Pod Security level that a test pod needs, what in it needs it; empty for restricted).

    Only of what test pods have: see https://kubernetes.io/docs/concepts/security/pod-security-standards/.
    """
    spec = pod["spec"]
    if spec.get("hostNetwork"):
        return "privileged", "the network of the host"
    lax = []
    for container in spec["containers"]:
        security = container.get("securityContext") or {}
        if "IPC_LOCK" in ((security.get("capabilities") or {}).get("add") or []):
            return "privileged", "the capability IPC_LOCK"
        if not security.get("runAsNonRoot"):
            lax.append(container["name"])
    return ("baseline", "a process that may be root") if lax else ("restricted", "")


def level_problem(namespace, pods):
    """Why pods are refused in a namespace, or None. A namespace without the label enforces nothing by itself; the
    cluster may have a default of its own, which no object tells."""
    enforced = ((namespace["metadata"].get("labels")) or {}).get(ENFORCE)
    if enforced not in LEVELS:
        return None
    for pod in pods:
        needed, why = level_of(pod)
        if LEVELS.index(needed) > LEVELS.index(enforced):
            return (
                f"namespace {namespace['metadata']['name']} enforces the Pod Security level {enforced}, and the test pods need "
                f"{needed} because of {why}"
            )
    return None


def needed_level(pods):
    """The level that all of the pods need together."""
    return max((level_of(pod)[0] for pod in pods), key=LEVELS.index)


def _by_namespace(pods):
    found = {}
    for pod in pods:
        found.setdefault(pod["metadata"]["namespace"], []).append(pod)
    return found


def _object(name, level):
    labels = {LABEL: OWN_NAMESPACE, ENFORCE: level}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def is_ours(namespace):
    """Whether we made a namespace."""
    return ((namespace["metadata"].get("labels")) or {}).get(LABEL) == OWN_NAMESPACE


def prepare_namespace(api, name, pods, make, manager):
    """Make sure that a namespace is there and takes the pods. Gives what could not be looked at, or None.

    :param make: whether it may be made, with the level that the pods need as its label. Labels of a namespace that
        somebody else made are never changed.
    :raises TestPodsError: it is not there, it is on its way out, or it refuses the pods.
    """
    try:
        found = api.find(api.path("v1", "Namespace", None, name))
    except ApiError as error:
        if error.status != 403:
            raise
        return f"whether namespace {name} allows the test pods was not looked at: {error.message}"
    if found is None or (make and is_ours(found) and level_problem(found, pods)):
        if not make:
            raise TestPodsError(f"namespace {name} of the test pods does not exist; the networks' own one always does")
        apply_objects(api, [_object(name, needed_level(pods))], manager, force=True)
        return None
    if (found.get("status") or {}).get("phase") == "Terminating":
        raise TestPodsError(f"namespace {name} is being deleted; run again when it is gone")
    problem = level_problem(found, pods)
    if problem:
        raise TestPodsError(
            f"{problem}. Its labels are not changed here. Leave IPC_LOCK out, set a user (run_as_user), or let the pods have a "
            "namespace of their own"
        )
    return None


def left_pods(api, pods):
    """(test pods in the cluster that are these or an earlier run's on the same hosts, whatever they are called; those of the
    same purpose on other hosts)."""
    found, others = [], []
    for namespace, own in _by_namespace(pods).items():
        names = {pod["metadata"]["name"] for pod in own}
        kinds = sorted({pod["metadata"]["labels"][LABEL] for pod in own})
        hosts = {pod["metadata"]["labels"][HOST_LABEL] for pod in own}
        selector = f"{LABEL} in ({','.join(kinds)})"
        for pod in api.list_items(api.path("v1", "Pod", namespace), [("labelSelector", selector)]):
            labels = pod["metadata"].get("labels") or {}
            ours = pod["metadata"]["name"] in names or labels.get(HOST_LABEL) in hosts
            (found if ours else others).append(pod)
    return found, others


def remove(api, pods, timeout, clock=time.monotonic, pause=time.sleep):
    """Delete the test pods and those of earlier runs, and wait until they are gone. Gives their names. The Jobs that would
    have removed them go, too, unless they own pods on other hosts: those are of a run that may still need them.

    The kubelet lets an object go when the pod's network is torn down, so its devices are free then.

    :param timeout: seconds.
    :raises TestPodsError: some are still there.
    """
    asked, refused, owners = set(), {}, {}
    for _look in looks(timeout, longest=2.0, clock=clock, pause=pause):
        left, others = left_pods(api, pods)
        owners.update((owner["uid"], (namespace, owner)) for namespace, owner in lifetime.owners_of(left))
        for pod in left:
            meta = pod["metadata"]
            place = f"{meta['namespace']}/{meta['name']}"
            if place not in asked:
                asked.add(place)
                refused.update(_delete(api, meta, place))
        if refused:
            raise TestPodsError(f"{len(refused)} test pods cannot be deleted: {'; '.join(sorted(refused.values()))}")
        if not left:
            needed = {owner["uid"] for _namespace, owner in lifetime.owners_of(others)}
            lifetime.release(api, [entry for uid, entry in owners.items() if uid not in needed])
            return sorted(asked)
    told = "; ".join(f"{pod['metadata']['name']} ({stuck_reason(pod)})" for pod in left[:5])
    raise TestPodsError(
        f"{len(left)} test pods are still there after {timeout} s: {told}. Their node or its kubelet may be down; the "
        "next run removes them"
    )


def _delete(api, meta, place):
    """{} or {place: why the API refuses}."""
    try:
        api.delete(api.path("v1", "Pod", meta["namespace"], meta["name"]), meta["uid"])
    except ApiError as error:
        return {place: f"{place}: HTTP status {error.status}: {error.message}"}
    return {}


def make(api, pods, make_namespace, timeout, manager="railyard"):
    """Make the test pods after anything that an earlier run left is gone. Gives {removed, level, unknown}.

    ``unknown`` are sentences about what could not be looked at or arranged. Should nobody ever remove the pods, Kubernetes
    does when they had ``timeout`` seconds to start and the seconds of their own deadline to run.
    """
    unknown = []
    for name, own in _by_namespace(pods).items():
        told = prepare_namespace(api, name, own, make_namespace, manager)
        unknown += [told] if told else []
    removed = remove(api, pods, timeout)
    owned, owners = pods, []
    deadlines = [pod["spec"].get("activeDeadlineSeconds") for pod in pods]
    if pods and all(deadlines):
        owned, owners, told = lifetime.limit(api, pods, timeout + max(deadlines))
        unknown += told
    try:
        apply_objects(api, owned, manager, force=True)
    except Exception:
        lifetime.release(api, owners)
        raise
    return {"removed": removed, "level": needed_level(pods) if pods else None, "unknown": unknown}


def take_away(api, pods, timeout):
    """Remove the test pods, then a namespace that we made and in which no pod is left."""
    removed = remove(api, pods, timeout)
    for name in _by_namespace(pods):
        try:
            found = api.find(api.path("v1", "Namespace", None, name))
        except ApiError as error:
            if error.status == 403:
                continue  # Who may not look has not made it either.
            raise
        if found is None or not is_ours(found) or api.list_items(api.path("v1", "Pod", name)):
            continue
        api.delete(api.path("v1", "Namespace", None, name), found["metadata"]["uid"])
    return {"removed": removed}
