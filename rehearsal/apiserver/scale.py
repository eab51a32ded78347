# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scale subresource of workloads and of CRDs that declare one (autoscaling/v1 Scale)."""

from __future__ import annotations

from typing import Any

from . import errors, patches
from .api import Api, Options
from .kinds import Resource

Object = dict[str, Any]


def handle(
    api: Api, resource: Resource, namespace: str, name: str, method: str, media: str, body: Any, options: Options
) -> Object:
    """GET, PUT or PATCH of a Scale; the latter two change the replicas of the object."""
    paths = resource.scale or {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    spec_path = paths["specReplicasPath"].strip(".").split(".")
    obj = api.get(resource, namespace, name)
    current = _scale(obj, paths)
    if method == "GET":
        return current
    if method not in ("PUT", "PATCH"):
        raise errors.method_not_allowed()
    if method == "PATCH":
        body = (
            patches.json_patch(current, body)
            if media.endswith("json-patch+json")
            else patches.merge_patch(current, body)
        )
    version = (body.get("metadata") or {}).get("resourceVersion")
    change: Any = (body.get("spec") or {}).get("replicas", 0)
    for step in reversed(spec_path):
        change = {step: change}
    if version:
        change["metadata"] = {"resourceVersion": version}
    return _scale(api.patch(resource, namespace, name, change, "application/merge-patch+json", options), paths)


def _at(obj: Any, path: str) -> Any:
    for step in path.strip(".").split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _scale(obj: Object, paths: Object) -> Object:
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    meta = {key: obj["metadata"][key] for key in kept if key in obj["metadata"]}
    status: Object = {"replicas": _at(obj, paths["statusReplicasPath"]) or 0}
    labels = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels")
    if labels:
        status["selector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    spec = {"replicas": _at(obj, paths["specReplicasPath"]) or 0}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}
