# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other forms of an answer: Table for `kubectl get`, PartialObjectMetadata for clients that only want metadata."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

from aiohttp import web

from .kinds import Resource

Object = dict[str, Any]
_AGE = {"name": "Age", "type": "string", "jsonPath": ".metadata.creationTimestamp", "format": "date"}
#: Columns of built-in kinds between Name and Age: heading, path (CRD's additionalPrinterColumns in short form).
_BUILTIN = {
    "Pod": "Ready=.ready Status=.phase Restarts=.restarts Age IP=.status.podIP Node=.spec.nodeName",
    "Node": "Status=.ready Age Version=.status.nodeInfo.kubeletVersion",
    "Namespace": "Status=.status.phase Age",
    "Deployment": "Ready=.replicas Up-to-date=.status.updatedReplicas Available=.status.availableReplicas Age",
    "DaemonSet": "Desired=.status.desiredNumberScheduled Current=.status.currentNumberScheduled "
    "Ready=.status.numberReady Up-to-date=.status.updatedNumberScheduled Available=.status.numberAvailable Age",
    "Job": "Status=.job Completions=.completions Age",
    "Secret": "Type=.type Data=.count Age",
    "ConfigMap": "Data=.count Age",
    "Service": "Type=.spec.type Cluster-IP=.spec.clusterIP Age",
    "Event": "Type=.type Reason=.reason Object=.involvedObject.name Message=.message",
    "CustomResourceDefinition": "Created-At=.metadata.creationTimestamp",
}
_IN_WIDE = {"IP", "Node", "Version"}


def convert(request: web.Request, resource: Resource, obj: Object, columns: bool = True) -> Object:
    """The object or list in the first form of the Accept header that we have."""
    for accepted in request.headers.get("Accept", "").split(","):
        if "as=Table" in accepted and "g=meta.k8s.io" in accepted:
            return _table(request, resource, obj, columns)
        if "as=PartialObjectMetadata" in accepted:
            return _partial(obj)
        if "as=" not in accepted and ("json" in accepted or "*/*" in accepted):
            break
    if "items" in obj and not resource.custom:
        # The API server's typed lists leave the type of each item out; that of custom resources have it.
        items = [{key: item[key] for key in item if key not in ("apiVersion", "kind")} for item in obj["items"]]
        return {**obj, "items": items}
    return obj


def _partial(obj: Object) -> Object:
    if "items" in obj:
        items = [_partial(item) for item in obj["items"]]
        kind = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        return {**kind, "metadata": obj["metadata"], "items": items}
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _columns(resource: Resource) -> list[Object]:
    if resource.custom:
        own = list(resource.columns) or [_AGE]
        return [{"name": "Name", "type": "string", "jsonPath": ".metadata.name", "format": "name"}, *own]
    found = [{"name": "Name", "type": "string", "jsonPath": ".metadata.name", "format": "name"}]
    for word in _BUILTIN.get(resource.kind, "Age").split():
        name, _, path = word.partition("=")
        wide = {"priority": 1} if name in _IN_WIDE else {}
        found.append({"name": name, "type": "string", "jsonPath": path, **wide} if path else _AGE)
    return found


def _table(request: web.Request, resource: Resource, obj: Object, with_columns: bool) -> Object:
    columns = _columns(resource)
    items = obj.get("items", [obj])
    include = request.query.get("includeObject", "Metadata")
    rows = []
    for item in items:
        row: Object = {"cells": [_cell(column, item) for column in columns]}
        if include != "None":
            row["object"] = item if include == "Object" else _partial(item)
        rows.append(row)
    keys = ("name", "type", "format", "description", "priority")
    head = [{"format": "", "description": "", "priority": 0} | {k: c[k] for k in keys if k in c} for c in columns]
    meta = {k: v for k, v in obj["metadata"].items() if k in ("resourceVersion", "continue", "remainingItemCount")}
    head = [] if not with_columns else head
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": head, "rows": rows}


def _cell(column: Object, item: Object) -> Any:
    special = _SPECIAL.get(column["jsonPath"])
    value = special(item) if special else _at(item, column["jsonPath"])
    if column.get("format") == "date" or column.get("type") == "date":
        return _age(value)
    if value is None:
        return "" if column.get("type") == "string" else None
    return value if isinstance(value, (str, int, float, bool)) else str(value)


def _at(value: Any, path: str) -> Any:
    """A value by the JSONPath forms that printer columns use: fields, indexes and `[?(@.type=="Ready")]`."""
    pattern = r'\.([\w-]+)|\[(\d+)\]|\[\?\(@\.(\w+)\s*==\s*["\']([^"\']*)["\']\)\]|\[["\']([^"\']+)["\']\]'
    for key, index, where, wanted, quoted in re.findall(pattern, path.replace("\\.", "\0")):
        if index or where:
            rows = value if isinstance(value, list) else []
            if where:
                value = next((row for row in rows if isinstance(row, dict) and row.get(where) == wanted), None)
            else:
                value = rows[int(index)] if int(index) < len(rows) else None
        else:
            value = value.get((key or quoted).replace("\0", ".")) if isinstance(value, dict) else None
    return value


def _age(stamp: str | None) -> str:
    if not stamp:
        return "<unknown>"
    try:
        then = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    except ValueError:
        return "<invalid>"
    seconds = max(0, int((datetime.now(timezone.utc) - then).total_seconds()))
    for unit, length, limit in (("s", 1, 120), ("m", 60, 3600 * 3), ("h", 3600, 86400 * 2), ("d", 86400, None)):
        if limit is None or seconds < limit:
            return f"{seconds // length}{unit}"
    return ""


def _condition(item: Object, name: str) -> str:
    return str(_at(item, f'.status.conditions[?(@.type=="{name}")].status'))


def _phase(item: Object) -> str:
    status = item.get("status") or {}
    if item["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for row in status.get("containerStatuses") or []:
        for state in ("waiting", "terminated"):
            reason = ((row.get("state") or {}).get(state) or {}).get("reason")
            if reason:
                return str(reason)
    return str(status.get("reason") or status.get("phase", "Unknown"))


def _containers(item: Object) -> list[Object]:
    return (item.get("status") or {}).get("containerStatuses") or []


def _node_state(item: Object) -> str:
    ready = {"True": "Ready", "False": "NotReady"}.get(_condition(item, "Ready"), "Unknown")
    return ready + (",SchedulingDisabled" if (item.get("spec") or {}).get("unschedulable") else "")


def _replicas(item: Object) -> str:
    return f"{(item.get('status') or {}).get('readyReplicas', 0)}/{item['spec'].get('replicas', 1)}"


_SPECIAL = {
    ".phase": _phase,
    ".ready": lambda item: (
        _node_state(item)
        if item["kind"] == "Node"
        else f"{sum(1 for row in _containers(item) if row.get('ready'))}/{len(item['spec']['containers'])}"
    ),
    ".restarts": lambda item: str(sum(row.get("restartCount", 0) for row in _containers(item))),
    ".replicas": _replicas,
    ".completions": lambda item: (
        f"{(item.get('status') or {}).get('succeeded', 0)}/{item['spec'].get('completions', 1)}"
    ),
    ".job": lambda item: next((n for n in ("Complete", "Failed") if _condition(item, n) == "True"), "Running"),
    ".count": lambda item: str(len(item.get("data") or {})),
}
