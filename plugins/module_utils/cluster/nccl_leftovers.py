# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remove what there is of NCCL jobs, whatever run made them: by label and not by name, since a killed run may have had
other jobs, and what it left holds GPUs and rails."""

from __future__ import annotations

import time

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import lifetime
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.nccl_jobs import LABEL, MPI_JOB

POD, SERVICE = ("v1", "Pod"), ("v1", "Service")
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 3.0


def listed(api, namespaces, mpi_operator):
    """Objects of jobs in the order of removal: the MPI operator would make pods again while it has their job.

    :param mpi_operator: whether MPIJobs are asked for, which may need a right that the account lacks.
    :raises ApiError: the API server refuses or fails.
    """
    found = []
    for version, kind in ([MPI_JOB] if mpi_operator else []) + [POD, SERVICE]:
        for namespace in namespaces:
            items = api.list_kind(version, kind, namespace, [("labelSelector", LABEL)])
            found += [{"apiVersion": version, "kind": kind, **item} for item in items]
    return found


def is_controlled(obj):
    """Whether a controller, such as an MPIJob's, would make the object again. The Job of :mod:`lifetime` controls none."""
    return any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences") or [])


def name(obj):
    """``Pod default/nccl-worker-0``."""
    meta = obj["metadata"]
    return f"{obj['kind']} {meta['namespace']}/{meta['name']}"


def remove(api, namespaces, mpi_operator, timeout, clock=time.monotonic, pause=time.sleep):
    """(names of what was removed, names of what is still there, objects that belong to an MPIJob and stay).

    It looks until nothing is left, since an MPI operator may just have been about to make a pod when its job went.

    :param namespaces: of the jobs.
    :param mpi_operator: whether MPIJobs are removed; without, the pods of one stay.
    :param timeout: seconds until all is gone.
    :raises ApiError: the API server refuses or fails.
    """
    removed, owners, deadline, interval = {}, {}, clock() + timeout, SHORTEST_PAUSE
    while True:
        there = listed(api, namespaces, mpi_operator)
        kept = [] if mpi_operator else [obj for obj in there if is_controlled(obj)]
        ours = [obj for obj in there if obj not in kept]
        owners.update({owner["uid"]: (place, owner) for place, owner in lifetime.owners_of(ours)})
        for obj in ours:
            if not obj["metadata"].get("deletionTimestamp"):
                _delete(api, obj)
            removed[obj["metadata"]["uid"]] = name(obj)
        if not ours or clock() >= deadline:
            break
        pause(min(interval, max(0.0, deadline - clock())))
        interval = min(interval * 1.5, LONGEST_PAUSE)
    if not ours:
        lifetime.release(api, list(owners.values()))
    left = {obj["metadata"]["uid"]: name(obj) for obj in ours}
    return [text for uid, text in removed.items() if uid not in left], list(left.values()), kept


def _delete(api, obj):
    meta = obj["metadata"]
    try:
        api.delete(api.path(obj["apiVersion"], obj["kind"], meta["namespace"], meta["name"]), meta["uid"], "Background")
    except ApiError as error:
        # Gone in the meantime, or another of that name: the next look tells.
        if error.status not in (404, 409):
            raise
