# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply and delete many objects with as few requests as possible, and say exactly what happened to each."""

from __future__ import annotations

import copy
import json
import time

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, KindNotServed, answer_text
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.field_diff import conflicts, predicted
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.foreign import identity
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.looks import looks
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.owned import already_holds, own_fields

APPLY = "application/apply-patch+yaml"
# How an admission webhook's refusal begins (k8s.io/apiserver, pkg/admission/plugin/webhook/errors).
WEBHOOK = "admission webhook"
NOISE = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")


class InputError(ValueError):
    """The list of objects is not usable; nothing was sent."""


class PartialFailure(Exception):
    """Some objects could not be applied or deleted.

    Attributes: errors (list of str), done (list of results), not_done (list of labels).
    """

    def __init__(self, errors, done, not_done):
        super().__init__("; ".join(errors))
        self.errors, self.done, self.not_done = errors, done, not_done


def label(obj):
    """Kind, namespace and name as people write them: ``SriovNetwork nvidia-network-operator/rdma-vf-0``."""
    meta = obj.get("metadata") or {}
    place = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{obj.get('kind')} {place}{meta.get('name')}"


def flatten(entries):
    """Objects of a list that holds objects, documents ``{file, phase, objects: [...]}``, or both.

    Raises InputError naming every entry that is not an object with apiVersion, kind and metadata.name, and every
    duplicate.
    """
    objects, mistakes, seen = [], [], {}
    for number, entry in enumerate(entries, 1):
        inside = isinstance(entry, dict) and "objects" in entry and "kind" not in entry
        for obj in entry["objects"] or [] if inside else [entry]:
            source = f" ({entry['file']})" if inside and entry.get("file") else ""
            where = f"entry {number}{source}"
            if not isinstance(obj, dict):
                mistakes.append(f"{where}: got {type(obj).__name__}, expected an object")
                continue
            meta = obj.get("metadata") if isinstance(obj.get("metadata"), dict) else {}
            absent = [k for k in ("apiVersion", "kind") if not isinstance(obj.get(k), str) or not obj.get(k)]
            absent += [] if isinstance(meta.get("name"), str) and meta["name"] else ["metadata.name"]
            if absent:
                mistakes.append(f"{where}: {', '.join(absent)} missing or not a string")
                continue
            key = (obj["apiVersion"].rpartition("/")[0], obj["kind"], meta.get("namespace"), meta["name"])
            if key in seen:
                mistakes.append(f"{where}: {label(obj)} is already in {seen[key]}")
                continue
            seen[key] = where
            objects.append(obj)
    if mistakes:
        raise InputError("objects: " + "; ".join(mistakes))
    return objects


def shown(obj):
    """The object without what the server keeps for itself: what a person compares in a diff."""
    if obj is None:
        return None
    result = {k: copy.deepcopy(v) for k, v in obj.items() if k != "status"}
    result["metadata"] = {k: v for k, v in (result.get("metadata") or {}).items() if k not in NOISE}
    return result


def differs(before, after, manager):
    """Did applying change anything that lasts: the content, or which fields are ours?"""
    return shown(before) != shown(after) or own_fields(before, manager) != own_fields(after, manager)


def explain(obj, error, manager, verb="apply"):
    """One sentence or a few: which object, which field, who or what objects, and what helps."""
    name = label(obj)
    if error.field_conflict:
        parts = []
        for cause in error.causes:
            if cause.get("reason") == "FieldManagerConflict":
                owner = cause.get("message", "").replace("conflict with ", "")
                parts.append(f"field {cause.get('field')} is owned by {owner}")
        return (
            f"{name}: {'; '.join(parts)}. Remove the field from that owner's configuration, or set "
            f"force_conflicts=true to let the field manager '{manager}' take it over."
        )
    if error.refused:
        fields = [f"{c.get('field')}: {c.get('message')}" for c in error.causes if c.get("field")]
        return f"{name} is refused by the API server: {'; '.join(fields) or error.message}"
    if error.status == 403:
        return f"{name}: no permission to {verb} it: {error.message}"
    if error.status == 404:
        namespace = (obj.get("metadata") or {}).get("namespace")
        return f"{name}: not found by the API server ({error.message}). Does the namespace '{namespace}' exist?"
    return f"{name}: {answer_text(error)}"


def not_served(missing):
    kinds = ", ".join(sorted({f"{e.kind} ({e.api_version})" for e in missing}))
    return (
        f"The API server does not serve: {kinds}. The CustomResourceDefinition is not installed or not yet "
        "established; install the Network Operator first (nv-ipam's kinds appear only after a NicClusterPolicy "
        "with spec.nvIpam)."
    )


def kinds_missing(api, objects):
    """[(object, KindNotServed)] for the objects whose kind is not served."""
    missing = []
    for obj in objects:
        try:
            resource = api.kind(obj["apiVersion"], obj["kind"])
        except KindNotServed as error:
            missing.append((obj, error))
            continue
        if resource.get("namespaced") and not obj["metadata"].get("namespace"):
            raise InputError(f"objects: {label(obj)}: metadata.namespace missing, {obj['kind']} is namespaced")
    return missing


def read_live(api, objects, known=None):
    """Objects as they are now, by position (None: absent). One list for each kind and namespace, a single get for a
    lone object. known: {identity: object or None} of what was read already."""
    groups, live = {}, [None] * len(objects)
    for position, obj in enumerate(objects):
        if identity(obj) in (known or {}):
            live[position] = known[identity(obj)]
        else:
            groups.setdefault((obj["apiVersion"], obj["kind"], obj["metadata"].get("namespace")), []).append(position)
    for (api_version, kind, namespace), positions in groups.items():
        if len(positions) == 1:
            name = objects[positions[0]]["metadata"]["name"]
            live[positions[0]] = api.find(api.path(api_version, kind, namespace, name))
            continue
        found = {i["metadata"]["name"]: i for i in api.list_items(api.path(api_version, kind, namespace))}
        for position in positions:
            item = found.get(objects[position]["metadata"]["name"])
            # The items of a list carry no apiVersion and kind of their own.
            live[position] = None if item is None else {"apiVersion": api_version, "kind": kind, **item}
    return live


def result_of(obj, action, before=None, after=None, **more):
    meta = obj["metadata"]
    return dict(
        kind=obj["kind"],
        name=meta["name"],
        namespace=meta.get("namespace"),
        action=action,
        before=shown(before),
        after=shown(after),
        **more,
    )


def _apply_one(api, obj, before, manager, force, dry_run):
    query = [("fieldManager", manager), ("fieldValidation", "Strict"), ("force", "true" if force else "false")]
    if dry_run:
        query.append(("dryRun", "All"))
    meta = obj["metadata"]
    path = api.path(obj["apiVersion"], obj["kind"], meta.get("namespace"), meta["name"])
    # JSON is YAML: one serialisation, and no surprise from a YAML writer.
    after = api.request("PATCH", path, query, json.dumps(obj), APPLY)
    if before is None:
        return result_of(obj, "created", None, after)
    return result_of(obj, "changed" if differs(before, after, manager) else "unchanged", before, after)


def may(api, verb, obj):
    """Whether the account has a right about an object, as the server says (SelfSubjectAccessReview, which everybody may
    ask). A server that does not say it is asked by the request itself."""
    group, meta = obj["apiVersion"].rpartition("/")[0], obj["metadata"]
    right = {"verb": verb, "group": group, "resource": api.kind(obj["apiVersion"], obj["kind"])["name"]}
    right.update({key: meta[key] for key in ("namespace", "name") if meta.get(key)})
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": right},
    }
    try:
        answer = api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body, attempts=1)
    except ApiError:
        return True
    return (answer.get("status") or {}).get("allowed") is not False


def _foreseen(obj, before, manager, force):
    """What a dry run would answer, told from managedFields for an account that may not ask; the server's validation
    and defaults are missing from it. Raises ApiError for a conflict."""
    if before is None:
        return result_of(obj, "created", None, obj, validated=False)
    contested = [] if force else conflicts(before, obj, manager)
    if contested:
        raise ApiError(409, "field ownership conflict", "Conflict", contested)
    return result_of(obj, "changed", before, predicted(before, obj, manager), validated=False)


def _asked(api, obj, before, manager, force, dry_run, may_ask, reader):
    """(result, whether the account may write). A plan of an account that may only read is told from managedFields."""
    if may_ask is None:
        may_ask = may(api, "patch", obj)
    if may_ask:
        try:
            return _apply_one(api, obj, before, manager, force, dry_run), True
        except ApiError as error:
            # A webhook answers 403, too, and that is no missing right: the real run would meet it.
            if not reader or error.status != 403 or WEBHOOK in error.message:
                raise
    return _foreseen(obj, before, manager, force), False


def apply_objects(api, objects, manager, force=False, dry_run=False, excused=None, reader=False, known=None):
    """Server-side apply in the given order; what is already as wanted costs no request of its own.

    Returns one result ``{kind, name, namespace, action, before, after}`` for each object, action created, changed or
    unchanged.
    In a dry run an object whose kind or namespace does not exist yet is "created" with ``validated: False``, and so is
    one whose refusal ``excused(object, error)`` excuses: what stands against it may be gone when the time comes.
    ``reader``: the account may have no right to write. Once a dry run says so, the rest is told without asking.
    ``known``: {identity: object or None} of what the caller has read already.
    Raises InputError and KindNotServed-texts before anything was written; PartialFailure later. After the first
    failure the rest is only tried
    as a dry run, so that one run shows all mistakes and the layout grows no further.
    """
    missing = kinds_missing(api, objects)
    if missing and not dry_run:
        raise InputError(not_served([error for _obj, error in missing]))
    unserved = {id(obj) for obj, _error in missing}
    served = [obj for obj in objects if id(obj) not in unserved]
    live = dict(zip(map(id, served), read_live(api, served, known)))
    results, errors, not_done = [], [], []
    may_ask = None if reader else True
    for obj in objects:
        if id(obj) in unserved:
            results.append(result_of(obj, "created", None, obj, validated=False))
            continue
        before = live[id(obj)]
        if before is not None and already_holds(before, obj, manager):
            results.append(result_of(obj, "unchanged", before, before))
            continue
        try:
            result, may_ask = _asked(api, obj, before, manager, force, dry_run or bool(errors), may_ask, reader)
        except ApiError as error:
            if dry_run and (error.status == 404 or (excused and excused(obj, error))):
                results.append(result_of(obj, "changed" if before else "created", before, obj, validated=False))
                continue
            errors.append(explain(obj, error, manager))
            not_done.append(label(obj))
            continue
        if errors and not dry_run:
            not_done.append(label(obj))
        else:
            results.append(result)
    if errors:
        raise PartialFailure(errors, results, not_done)
    return results


def delete_objects(api, objects, manager, dry_run=False, known=None):
    """Delete in reverse order of application. A kind that is not served has no objects, so nothing is to be done for
    it. A dry run that the account has no right to is told without asking, with ``validated: False``."""
    unserved = {id(obj) for obj, _error in kinds_missing(api, objects)}
    served = [obj for obj in objects if id(obj) not in unserved]
    live = dict(zip(map(id, served), read_live(api, served, known)))
    results, errors, not_done = [], [], []
    may_ask = None if dry_run else True
    for obj in reversed(objects):
        before = live.get(id(obj))
        if before is None:
            results.append(result_of(obj, "unchanged"))
            continue
        may_ask = may(api, "delete", obj) if may_ask is None else may_ask
        if not may_ask:
            results.append(result_of(obj, "deleted", before, validated=False))
            continue
        meta = obj["metadata"]
        query = [("propagationPolicy", "Background")] + ([("dryRun", "All")] if dry_run else [])
        try:
            api.request("DELETE", api.path(obj["apiVersion"], obj["kind"], meta.get("namespace"), meta["name"]), query)
        except ApiError as error:
            if dry_run and error.status == 403:
                may_ask = False
                results.append(result_of(obj, "deleted", before, validated=False))
                continue
            if error.status != 404:  # Gone in the meantime is as good.
                errors.append(explain(obj, error, manager, "delete"))
                not_done.append(label(obj))
                continue
        results.append(result_of(obj, "deleted", before))
    if errors:
        raise PartialFailure(errors, results, not_done)
    return results


def wait_until_gone(api, objects, timeout, clock=time.monotonic, pause=time.sleep):
    """Labels of the objects that are still there when all are gone or ``timeout`` seconds are over (then not empty)."""
    unserved = {id(obj) for obj, _error in kinds_missing(api, objects)}
    objects = [obj for obj in objects if id(obj) not in unserved]
    for _look in looks(timeout, clock=clock, pause=pause):
        left = [label(obj) for obj, live in zip(objects, read_live(api, objects)) if live is not None]
        if not left:
            break
    return left
