# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects that Kubernetes removes by itself, should the run that made them be killed before it does so.

They are owned by a Job that starts no pod, since its ``parallelism`` is 0. Its ``activeDeadlineSeconds`` run from the
moment in which the Job controller sees it (syncJob and pastActiveDeadline in pkg/controller/job/job_controller.go); then
it has failed, and a finished Job whose ``ttlSecondsAfterFinished`` are over is deleted with all that it owns
(processJob in pkg/controller/ttlafterfinished/ttlafterfinished_controller.go).
"""

from __future__ import annotations

import contextlib

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, answer_text

LABEL = "railyard.io/lifetime"
PREFIX = "railyard-lifetime-"
API_VERSION, KIND = "batch/v1", "Job"


def limit(api, objects, seconds):
    """(the objects with an owner that takes them along after ``seconds``, its owner references, sentences about what could
    not be done).

    One Job for each namespace. Who may not make it, or whose cluster refuses it, gets the objects as they are.

    :param objects: namespaced, and not made yet.
    :raises ApiError: the API server does not answer, or fails.
    """
    owners, told = {}, []
    job = _job(seconds, next((found for obj in objects if (found := _image(obj))), "none"))
    for namespace in sorted({obj["metadata"]["namespace"] for obj in objects}):
        try:
            made = api.request("POST", api.path(API_VERSION, KIND, namespace), body=job)
        except ApiError as error:
            if not 400 <= error.status < 500:
                raise
            told.append(
                f"what this run makes in namespace {namespace} would stay if it were killed, since no Job could be made that "
                f"removes it: {answer_text(error)}"
            )
            continue
        owners[namespace] = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": made["metadata"]["name"],
            "uid": made["metadata"]["uid"],
        }
    owned = [
        _owned(obj, owners[place]) if (place := obj["metadata"]["namespace"]) in owners else obj for obj in objects
    ]
    return owned, list(owners.items()), told


def owners_of(objects):
    """``[(namespace, owner reference)]`` of the Jobs of :func:`limit` that own the objects, as the API gives them.

    A reference that controls its object is that of somebody else's Job.
    """
    found = {}
    for obj in objects:
        meta = obj.get("metadata") or {}
        for owner in meta.get("ownerReferences") or []:
            if owner["kind"] == KIND and owner["name"].startswith(PREFIX) and not owner.get("controller"):
                found[owner["uid"]] = (meta.get("namespace"), owner)
    return list(found.values())


def release(api, owners):
    """Delete Jobs of :func:`limit`, and with them what they still own. One that cannot be deleted goes by itself later."""
    for namespace, owner in owners:
        # By default a Job's dependents are orphaned (batch/v1, DefaultGarbageCollectionPolicy).
        with contextlib.suppress(ApiError):
            api.delete(api.path(API_VERSION, KIND, namespace, owner["name"]), owner["uid"], "Background")


def _owned(obj, owner):
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "ownerReferences": [*(meta.get("ownerReferences") or []), owner]}}


def _image(obj):
    """An image that the object names somewhere, so that rules about images allow it in the Job, too."""
    if isinstance(obj, dict):
        if isinstance(obj.get("image"), str):
            return obj["image"]
        obj = obj.values()
    return next((found for item in obj if isinstance(item, (dict, list)) and (found := _image(item))), None)


def _job(seconds, image):
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "never-started", "image": image, "securityContext": security}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"generateName": PREFIX, "labels": {LABEL: "job"}},
        "spec": {
            "parallelism": 0,
            "completions": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "containers": [container],
                }
            },
        },
    }
