# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a request may and may not change in an object: pure functions over the old and the new one."""

from __future__ import annotations

from datetime import datetime, timezone

from . import errors
from .errors import MODIFIED
from .kinds import Resource
from .store import Object


def url_meta(resource: Resource, namespace: str, name: str, meta: Object) -> Object:
    """Metadata with the namespace and name of the URL, which the body may repeat but not contradict."""
    meta = dict(meta)
    if resource.namespaced:
        if meta.setdefault("namespace", namespace) != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
    else:
        meta.pop("namespace", None)
    if name and (meta.get("name") or name) != name:
        text = f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        raise errors.bad_request(text)
    if name:
        meta["name"] = name
    return meta


def reset(resource: Resource, subresource: str) -> set[str]:
    """Top-level fields that a request of this subresource cannot own."""
    if subresource == "status":
        return {"f:spec", "f:metadata"} if resource.custom else {"f:spec"}
    return {"f:status"} if resource.has_status else set()


def carry_over(resource: Resource, old: Object, obj: Object, subresource: str) -> Object:
    """Preconditions, and all that this request may not change taken from the stored object."""
    old_meta, meta = old["metadata"], obj["metadata"]
    name = old_meta["name"]
    if meta.get("uid") and meta["uid"] != old_meta["uid"]:
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old_meta['uid']}"
        raise errors.conflict(resource.plural, resource.group, name, why)
    if meta.get("resourceVersion") and meta["resourceVersion"] != old_meta["resourceVersion"]:
        raise errors.conflict(resource.plural, resource.group, name, MODIFIED)
    if subresource and resource.custom:
        meta = old_meta
    kept = "uid creationTimestamp deletionTimestamp deletionGracePeriodSeconds generation resourceVersion generateName"
    meta = {key: value for key, value in meta.items() if key not in kept.split() and key != "managedFields"}
    meta |= {key: old_meta[key] for key in kept.split() if key in old_meta}
    if subresource == "status":
        return {**old, "apiVersion": obj["apiVersion"], "metadata": meta, **_only(obj, "status")}
    result = {**obj, "metadata": meta}
    if resource.has_status:
        result.pop("status", None)
        result |= _only(old, "status")
    if resource.kind == "Service" and not result["spec"].get("clusterIP"):
        result["spec"] = {**result["spec"], **_only(old["spec"], "clusterIP", "clusterIPs")}
    if resource.kind == "Job" and "selector" not in result["spec"]:
        result["spec"] = {**result["spec"], **_only(old["spec"], "selector", "template")}
    if resource.key == ("", "namespaces") and subresource != "finalize":
        result["spec"] = old.get("spec", {})
    return result


def spec_changed(resource: Resource, old: Object, new: Object) -> bool:
    ignored = {"metadata", "apiVersion", *(("status",) if resource.has_status else ())}
    return {k: v for k, v in old.items() if k not in ignored} != {k: v for k, v in new.items() if k not in ignored}


def grace(resource: Resource, obj: Object, asked: int | None) -> int:
    """Seconds that a pod gets; the kubelet ends it and deletes it with 0. Other kinds have no grace."""
    if resource.key != ("", "pods"):
        return 0
    if not obj["spec"].get("nodeName") or (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    grace = asked if asked is not None else obj["spec"].get("terminationGracePeriodSeconds", 30)
    grace = 1 if grace < 0 else grace
    running = obj["metadata"].get("deletionGracePeriodSeconds")
    return grace if running is None else min(grace, running)


def present(resource: Resource, obj: Object) -> Object:
    """A stored object as this version shows it (CRD versions differ in apiVersion only: conversion None)."""
    return obj if obj["apiVersion"] == resource.api_version else {**obj, "apiVersion": resource.api_version}


def is_over(key: tuple[str, str], obj: Object) -> bool:
    """Whether nothing holds a deleted object any more: no finalizer, and no grace that the kubelet has to end."""
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return key != ("", "namespaces") or not (obj.get("spec") or {}).get("finalizers")


def _only(obj: Object, *keys: str) -> Object:
    return {key: obj[key] for key in keys if key in obj}


def later(seconds: int) -> str:
    stamp = datetime.now(timezone.utc).timestamp() + seconds
    return datetime.fromtimestamp(stamp, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
