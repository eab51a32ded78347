# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovery documents: groups, resources, and the aggregated form that current clients ask for."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from aiohttp import web

from . import errors
from .kinds import Registry, Resource

Object = dict[str, Any]
#: Kinds that a subresource speaks of when it is not the parent's own: group, version, kind.
SUB_KINDS = {
    "scale": ("autoscaling", "v1", "Scale"),
    "eviction": ("policy", "v1", "Eviction"),
    "binding": ("", "v1", "Binding"),
    "exec": ("", "v1", "PodExecOptions"),
    "attach": ("", "v1", "PodAttachOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
SUB_VERBS = {
    "scale": ["get", "patch", "update"],
    "eviction": ["create"],
    "binding": ["create"],
    "token": ["create"],
    "exec": ["create", "get"],
    "attach": ["create", "get"],
    "portforward": ["create", "get"],
    "log": ["get"],
    "finalize": ["update"],
}


def root(request: web.Request, registry: Registry, core: bool) -> web.Response:
    """Answer to /api or /apis: aggregated when the client accepts that (apidiscovery.k8s.io/v2), else the old form."""
    for accepted in request.headers.get("Accept", "").split(","):
        if "as=APIGroupDiscoveryList" in accepted and "v=v2" in accepted and "v=v2beta1" not in accepted:
            kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            body = json.dumps(aggregated(registry, core)).encode()
            etag = '"' + hashlib.sha256(body).hexdigest()[:32].upper() + '"'
            headers = {"Content-Type": kind, "ETag": etag, "Vary": "Accept"}
            if request.headers.get("If-None-Match") == etag:
                return web.Response(status=304, headers=headers)
            return web.Response(body=body, headers=headers)
    if core:
        return web.json_response({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    groups = [_group(name, versions) for name, versions in registry.groups().items()]
    return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group(registry: Registry, name: str) -> Object:
    versions = registry.groups().get(name)
    if not versions:
        raise errors.no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def group_version(registry: Registry, group: str, version: str) -> Object:
    resources = registry.of_group_version(group, version)
    if not resources:
        raise errors.no_such_path()
    rows = []
    for resource in resources:
        row = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
            "shortNames": list(resource.short),
            "categories": list(resource.categories),
        }
        rows.append({key: value for key, value in row.items() if value != []})
        for name in resource.subresources:
            sub_group, sub_version, kind = SUB_KINDS.get(name, (None, None, resource.kind))
            row = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": _sub_verbs(name),
            }
            rows.append({**row, "group": sub_group, "version": sub_version} if sub_version else row)
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": rows}


def _sub_verbs(name: str) -> list[str]:
    return SUB_VERBS.get(name, ["get", "patch", "update"])


def aggregated(registry: Registry, core: bool) -> Object:
    groups = {"": ["v1"]} if core else registry.groups()
    items = []
    for name, versions in groups.items():
        rows = [
            {
                "version": version,
                "freshness": "Current",
                "resources": [_discovery(resource) for resource in registry.of_group_version(name, version)],
            }
            for version in versions
        ]
        items.append({"metadata": {"name": name, "creationTimestamp": None} if name else {}, "versions": rows})
    meta = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}}
    return {**meta, "items": items}


def _discovery(resource: Resource) -> Object:
    subresources = []
    for name in resource.subresources:
        own = (resource.group, resource.version, resource.kind)
        group, version, kind = SUB_KINDS.get(name, own)
        response = {"group": group, "version": version, "kind": kind}
        subresources.append({"subresource": name, "responseKind": response, "verbs": _sub_verbs(name)})
    row = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        "shortNames": list(resource.short),
        "categories": list(resource.categories),
        "subresources": subresources,
    }
    return {key: value for key, value in row.items() if value != []}
