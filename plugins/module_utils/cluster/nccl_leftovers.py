# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remove what there is of NCCL jobs, whatever run made them: by label and not by name, since a killed run may have had
other jobs, and what it left holds GPUs and rails."""

from __future__ import annotations

import time

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import lifetime
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import label
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.looks import looks
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.maintenance import controller_of
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.nccl_jobs import LABEL, MPI_JOB

POD, SERVICE = ("v1", "Pod"), ("v1", "Service")


def look(api, namespaces, mpi_operator):
    """(objects of jobs in the order of removal, those that belong to an MPIJob and stay).

    MPIJobs come first: their operator would make pods again while it has them. The Job of :mod:`lifetime` controls none.

    :param mpi_operator: whether MPIJobs are removed. Without, none is asked for, since the account may have no right to.
    :raises ApiError: the API server refuses or fails.
    """
    ours, kept = [], []
    for version, kind in ([MPI_JOB] if mpi_operator else []) + [POD, SERVICE]:
        for namespace in namespaces:
            for item in api.list_kind(version, kind, namespace, [("labelSelector", LABEL)]):
                stays = not mpi_operator and controller_of(item)
                (kept if stays else ours).append({"apiVersion": version, "kind": kind, **item})
    return ours, kept


def remove(api, namespaces, mpi_operator, timeout, clock=time.monotonic, pause=time.sleep):
    """(labels of what was removed, of what is still there, of what belongs to an MPIJob and stays).

    It looks until nothing is left, since an MPI operator may just have been about to make a pod when its job went.

    :param namespaces: of the jobs.
    :param mpi_operator: as for :func:`look`.
    :param timeout: seconds until all is gone.
    :raises ApiError: the API server refuses or fails.
    """
    seen, owners = {}, {}
    for _look in looks(timeout, clock=clock, pause=pause):
        ours, kept = look(api, namespaces, mpi_operator)
        owners.update({owner["uid"]: (place, owner) for place, owner in lifetime.owners_of(ours)})
        for obj in ours:
            meta = obj["metadata"]
            if not meta.get("deletionTimestamp"):
                place = api.path(obj["apiVersion"], obj["kind"], meta["namespace"], meta["name"])
                api.delete(place, meta["uid"], "Background")
            seen[meta["uid"]] = label(obj)
        if not ours:
            lifetime.release(api, list(owners.values()))
            break
    left = {obj["metadata"]["uid"] for obj in ours}
    removed = [text for uid, text in seen.items() if uid not in left]
    return removed, list(map(label, ours)), list(map(label, kept))
