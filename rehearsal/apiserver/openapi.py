# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenAPI v2 and v3, as much as clients read: schemas by group, version and kind, and the parameters of PATCH."""

from __future__ import annotations

from typing import Any

from . import VERSION, errors
from .kinds import Registry, Resource

Object = dict[str, Any]
GVK = "x-kubernetes-group-version-kind"
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")


def document(registry: Registry, tail: str) -> Object:
    """The document below /openapi/: `v2`, `v3` (the index) or `v3/apis/GROUP/VERSION`."""
    groups = [("", "v1"), *((group, v) for group, versions in registry.groups().items() for v in versions)]
    if tail == "v2":
        return _document(sum((registry.of_group_version(*pair) for pair in groups), []), 2)
    if tail.rstrip("/") == "v3":
        paths = [f"apis/{group}/{version}" if group else f"api/{version}" for group, version in groups]
        # kubectl keeps documents on disk by this hash, so it must differ when the content does.
        return {
            "paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(registry, path)}"} for path in paths}
        }
    parts = tail.split("/")
    if len(parts) not in (3, 4):
        raise errors.no_such_path()
    resources = registry.of_group_version(parts[2] if parts[1] == "apis" else "", parts[-1])
    if not resources:
        raise errors.no_such_path()
    return _document(resources, 3)


def _hash(registry: Registry, path: str) -> str:
    parts = path.split("/")
    resources = registry.of_group_version(parts[1] if parts[0] == "apis" else "", parts[-1])
    return f"{abs(hash(tuple((r.plural, id(r.schema)) for r in resources))):016X}"


def _document(resources: list[Resource], version: int) -> Object:
    prefix = "#/definitions/" if version == 2 else "#/components/schemas/"
    schemas: Object = {}
    paths: Object = {}
    for resource in resources:
        name = _name(resource)
        schemas[name] = _plain(resource.schema, schemas, prefix, top=True)
        gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        schemas[name] = {**schemas[name], GVK: [gvk]}
        if "patch" in resource.verbs:
            paths[_path(resource)] = _operations(gvk, prefix + name, version)
    info = {"info": {"title": "Kubernetes", "version": VERSION}, "paths": paths}
    if version == 2:
        return {"swagger": "2.0", **info, "definitions": schemas}
    return {"openapi": "3.0.0", **info, "components": {"schemas": schemas}}


def _path(resource: Resource) -> str:
    start = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return (
        f"{start}/namespaces/{{namespace}}/{resource.plural}/{{name}}"
        if resource.namespaced
        else f"{start}/{resource.plural}/{{name}}"
    )


def _name(resource: Resource) -> str:
    if "x-class" in resource.schema:
        return _class_name(resource.schema["x-class"])
    return ".".join([*reversed((resource.group or "core").split(".")), resource.version, resource.kind])


def _class_name(name: str) -> str:
    module, _, kind = name.partition(".")
    group, _, version = module.rpartition("_")
    if group == "meta":
        return f"io.k8s.apimachinery.pkg.apis.meta.{version}.{kind}"
    return f"io.k8s.api.{group or module}.{version}.{kind}"


def _operations(gvk: Object, ref: str, version: int) -> Object:
    if version == 2:
        typed: Object = {"type": "string"}
        parameters = [{"name": name, "in": "query", "uniqueItems": True, **typed} for name in _PARAMETERS]
        parameters.append({"name": "body", "in": "body", "required": True, "schema": {"type": "object"}})
        answer = {"200": {"description": "OK", "schema": {"$ref": ref}}}
    else:
        parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PARAMETERS]
        answer = {"200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": ref}}}}}
    verbs = {"get": ("get", []), "put": ("put", parameters), "patch": ("patch", parameters), "delete": ("delete", [])}
    return {
        verb: {"x-kubernetes-action": action, GVK: gvk, "parameters": rows, "responses": answer}
        for verb, (action, rows) in verbs.items()
    }


def _plain(schema: Object, schemas: Object, prefix: str, top: bool = False) -> Object:
    """The schema with each typed model as a reference to a schema of its own, which is added to `schemas`."""
    name = schema.get("x-class")
    if name and not top:
        name = _class_name(name)
        if name not in schemas:
            schemas[name] = {}
            schemas[name] = _plain(schema, schemas, prefix, top=True)
        return {"$ref": prefix + name}
    result = {key: value for key, value in schema.items() if key != "x-class"}
    if result.get("x-kubernetes-int-or-string"):
        result |= {"type": "string", "format": "int-or-string"}
    if "properties" in result:
        result["properties"] = {key: _plain(below, schemas, prefix) for key, below in result["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), dict):
            result[key] = _plain(result[key], schemas, prefix)
    keys = result.get("x-kubernetes-list-map-keys")
    if keys and "x-kubernetes-patch-merge-key" not in result:
        result |= {"x-kubernetes-patch-merge-key": keys[0], "x-kubernetes-patch-strategy": "merge"}
    return result
