# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Structural schemas of built-in kinds, made from the typed models of lightkube-models.

The models are generated from Kubernetes' OpenAPI. They carry field names, types and which fields are required, but not
how lists merge; that is the table below.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import types
import typing
from typing import Any

import msgspec

#: (class, field): merge keys of an associative list ("type" etc.), or "set". Source: x-kubernetes-list-map-keys,
#: x-kubernetes-list-type and x-kubernetes-patch-merge-key in Kubernetes' published OpenAPI. All other lists are atomic.
#: The first key is also the merge key of strategic merge patches.
LIST_KEYS: dict[tuple[str, str], list[str] | str] = {
    ("ObjectMeta", "ownerReferences"): ["uid"],
    ("ObjectMeta", "finalizers"): "set",
    ("PodSpec", "containers"): ["name"],
    ("PodSpec", "initContainers"): ["name"],
    ("PodSpec", "ephemeralContainers"): ["name"],
    ("PodSpec", "volumes"): ["name"],
    ("PodSpec", "imagePullSecrets"): ["name"],
    ("PodSpec", "hostAliases"): ["ip"],
    ("PodSpec", "resourceClaims"): ["name"],
    ("PodSpec", "schedulingGates"): ["name"],
    ("PodSpec", "topologySpreadConstraints"): ["topologyKey", "whenUnsatisfiable"],
    ("Container", "env"): ["name"],
    ("Container", "ports"): ["containerPort", "protocol"],
    ("Container", "volumeMounts"): ["mountPath"],
    ("Container", "volumeDevices"): ["devicePath"],
    ("ResourceRequirements", "claims"): ["name"],
    ("PodStatus", "podIPs"): ["ip"],
    ("PodStatus", "hostIPs"): ["ip"],
    ("NodeStatus", "addresses"): ["type"],
    ("NodeSpec", "podCIDRs"): "set",
    ("ServiceSpec", "ports"): ["port", "protocol"],
    ("ServiceAccount", "secrets"): ["name"],
    ("MutatingWebhookConfiguration", "webhooks"): ["name"],
    ("ValidatingWebhookConfiguration", "webhooks"): ["name"],
}
#: Associative in every status that has it.
STATUS_CONDITIONS = ["type"]
ATOMIC_STRUCTS = {
    "LabelSelector",
    "SecretKeySelector",
    "ConfigMapKeySelector",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "LocalObjectReference",
    "ObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "RoleRef",
    "Subject",
    "OwnerReference",
    "TypedLocalObjectReference",
}
ATOMIC_MAPS = {("PodSpec", "nodeSelector"), ("ServiceSpec", "selector")}
#: Defaults that take part in a list key, so that an absent one still finds its item.
KEY_DEFAULTS = {("ContainerPort", "protocol"): "TCP", ("ServicePort", "protocol"): "TCP"}
QUANTITY_MAPS = {"limits", "requests", "capacity", "allocatable", "hard", "used", "allocatedResources", "overhead"}
QUANTITY_MAPS |= {"default", "defaultRequest", "max", "min", "maxLimitRequestRatio"}
ANYTHING: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
#: Classes whose content is free JSON or too recursive to write out.
FREE = {"JSONSchemaProps", "JSON", "RawExtension", "FieldsV1", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool"}
MODULES = {"rbac.authorization.k8s.io": "rbac"}


def schema_of(group: str, version: str, kind: str) -> dict[str, Any]:
    """Structural schema of a built-in kind; free-form when the models do not have it."""
    module = f"{MODULES.get(group, group.partition('.')[0] or 'core')}_{version}"
    try:
        model = getattr(importlib.import_module(f"lightkube.models.{module}"), kind)
    except (ImportError, AttributeError):
        return {"type": "object", **ANYTHING}
    return _struct(model)


@functools.cache
def metadata_schema() -> dict[str, Any]:
    from lightkube.models import meta_v1

    return _struct(meta_v1.ObjectMeta)


@functools.cache
def _struct(model: type) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "x-class": f"{model.__module__.rpartition('.')[2]}.{model.__name__}"}
    if model.__name__ in FREE:
        return {**schema, **ANYTHING}
    module = vars(importlib.import_module(model.__module__))
    hints = typing.get_type_hints(model, module, module)
    properties: dict[str, Any] = {}
    required = []
    for spec in msgspec.structs.fields(model):
        properties[spec.encode_name] = _field(model.__name__, spec.encode_name, hints[spec.name])
        if spec.required:
            required.append(spec.encode_name)
    schema["properties"] = properties
    if required:
        schema["required"] = required
    if model.__name__ in ATOMIC_STRUCTS:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _field(owner: str, name: str, hint: Any) -> dict[str, Any]:
    options = [hint]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
    if set(options) == {int, str} or name in ("quantity", "sizeLimit", "divisor", "minAvailable", "maxUnavailable"):
        return {"x-kubernetes-int-or-string": True}
    hint = options[0]
    if typing.get_origin(hint) is list:
        items = _field(owner, "", typing.get_args(hint)[0])
        keys = LIST_KEYS.get((owner.replace("EphemeralContainer", "Container"), name))
        if name == "conditions" and owner.endswith("Status"):
            keys = STATUS_CONDITIONS
        schema: dict[str, Any] = {"type": "array", "items": items, "x-kubernetes-list-type": "atomic"}
        if keys == "set":
            schema["x-kubernetes-list-type"] = "set"
        elif keys:
            schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
        return schema
    if hint is typing.Dict:  # noqa: UP006 - how the models write free JSON: FieldsV1, RawExtension
        return {"type": "object", **ANYTHING}
    if hint is dict or typing.get_origin(hint) is dict:
        value = {"x-kubernetes-int-or-string": True} if name in QUANTITY_MAPS else {"type": "string"}
        schema = {"type": "object", "additionalProperties": value}
        return {**schema, "x-kubernetes-map-type": "atomic"} if (owner, name) in ATOMIC_MAPS else schema
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    if hint is datetime.datetime:
        return {"type": "string", "format": "date-time"}
    scalar = {str: "string", int: "integer", bool: "boolean", float: "number"}.get(hint)
    schema = {"type": scalar} if scalar else dict(ANYTHING)
    if (owner, name) in KEY_DEFAULTS:
        schema["default"] = KEY_DEFAULTS[(owner, name)]
    return schema
