# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Structural schemas: unknown fields, pruning, defaults and validation of objects.

Rules: "Extend the Kubernetes API with CustomResourceDefinitions" (structural schemas, pruning, defaulting, nulls).
Validation itself is done by jsonschema; this module only turns schemas and mistakes from one form into the other.
"""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft4Validator

from .builtin_schemas import metadata_schema
from .errors import Cause

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
TYPE_META = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}


def with_metadata(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with apiVersion, kind and the full ObjectMeta in it, which a CRD leaves out."""
    return {**schema, "properties": {**(schema.get("properties") or {}), **TYPE_META, "metadata": metadata_schema()}}


def child(schema: dict[str, Any] | None, key: str) -> dict[str, Any] | None:
    """Schema of a field, or None when the schema says nothing about it."""
    if not schema:
        return None
    properties = schema.get("properties")
    if properties and key in properties:
        return properties[key]
    if schema.get(EMBEDDED) and key in ("apiVersion", "kind", "metadata"):
        return {**TYPE_META, "metadata": metadata_schema()}[key]
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, dict) else None


def is_open(schema: dict[str, Any]) -> bool:
    """Whether fields that the schema does not name are kept."""
    extra = schema.get("additionalProperties")
    if schema.get(PRESERVE) or schema.get("x-kubernetes-int-or-string") or (extra not in (None, False)):
        return True
    return "properties" not in schema and schema.get("type") != "object"


def prune(value: Any, schema: dict[str, Any] | None, path: str = "") -> tuple[Any, list[str]]:
    """(value without the fields that the schema does not know, their paths like `spec.rows[0].x`)."""
    if schema is None:
        return value, []
    unknown: list[str] = []
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            below = child(schema, key)
            where = f"{path}.{key}" if path else key
            if below is None and not is_open(schema):
                unknown.append(where)
                continue
            kept[key], more = prune(item, below, where)
            unknown += more
        return kept, unknown
    if isinstance(value, list):
        items = [prune(item, schema.get("items"), f"{path}[{index}]") for index, item in enumerate(value)]
        return [item for item, _ in items], [name for _, names in items for name in names]
    return value, unknown


def apply_defaults(value: Any, schema: dict[str, Any] | None) -> Any:
    """The value with the schema's defaults; nulls of fields that are not nullable but have a default give way to it."""
    if not schema:
        return value
    if isinstance(value, dict):
        filled = dict(value)
        for key, below in (schema.get("properties") or {}).items():
            if "default" in below and (key not in filled or (filled[key] is None and not below.get("nullable"))):
                filled[key] = json.loads(json.dumps(below["default"]))
        return {key: apply_defaults(item, child(schema, key)) for key, item in filled.items()}
    if isinstance(value, list) and schema.get("items"):
        return [apply_defaults(item, schema["items"]) for item in value]
    return value


_COPIED = (
    "enum pattern minLength maxLength minItems maxItems uniqueItems minimum maximum exclusiveMinimum exclusiveMaximum"
)
_COPIED += " multipleOf minProperties maxProperties required"
_RANGES = {"int32": 2**31, "int64": 2**63}


def to_json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema (draft 4, whose exclusive bounds are booleans like OpenAPI v3's) that says the same."""
    result: dict[str, Any] = {key: schema[key] for key in _COPIED.split() if key in schema}
    if not result.get("required", True):
        del result["required"]  # draft 4 forbids an empty list
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        kind = ["integer", "string"]
    if kind:
        result["type"] = ([kind] if isinstance(kind, str) else kind) + (["null"] if schema.get("nullable") else [])
    if "enum" in result and schema.get("nullable"):
        result["enum"] = [*result["enum"], None]
    if schema.get("format") in _RANGES and kind == "integer":
        limit = _RANGES[schema["format"]]
        result = {"minimum": -limit, "maximum": limit - 1, **result}
    for key in ("properties", "patternProperties"):
        if schema.get(key):
            result[key] = {name: to_json_schema(below) for name, below in schema[key].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = to_json_schema(schema["additionalProperties"])
    if isinstance(schema.get("items"), dict):
        result["items"] = to_json_schema(schema["items"])
    for key in ("allOf", "anyOf", "oneOf"):
        if schema.get(key):
            result[key] = [to_json_schema(part) for part in schema[key]]
    if schema.get("not"):
        result["not"] = to_json_schema(schema["not"])
    return result


_validators: dict[int, tuple[dict[str, Any], Draft4Validator]] = {}


def _validator(schema: dict[str, Any]) -> Draft4Validator:
    cached = _validators.get(id(schema))
    if cached is None or cached[0] is not schema:
        cached = (schema, Draft4Validator(to_json_schema(schema)))
        _validators[id(schema)] = cached
    return cached[1]


def validate(obj: dict[str, Any], schema: dict[str, Any], skip: tuple[str, ...] = ()) -> list[Cause]:
    """Mistakes of an object against a structural schema. Top-level fields in `skip` are not looked at."""
    looked_at = {key: value for key, value in obj.items() if key not in ("metadata", *skip)}
    causes = []
    for error in sorted(
        _validator(schema).iter_errors(looked_at), key=lambda e: [str(part) for part in e.absolute_path]
    ):
        path = dotted(error.absolute_path)
        if not (error.validator == "required" and not path and _required_name(error) in ("metadata", *skip)):
            causes += _causes(path, error)
    return causes


def dotted(path: Any) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _required_name(error: Any) -> str:
    return error.message.split("'")[1]


def _shown(value: Any) -> str:
    """How Kubernetes shows a refused value: lists and objects by their type's name."""
    return json.dumps("array" if isinstance(value, list) else "object" if isinstance(value, dict) else value)


def _causes(path: str, error: Any) -> list[Cause]:
    value, limit, rule = error.instance, error.validator_value, error.validator
    if rule == "required":
        name = _required_name(error)
        return [Cause(f"{path}.{name}" if path else name, "FieldValueRequired", "Required value")]
    if rule == "enum":
        allowed = ", ".join(json.dumps(option) for option in limit)
        return [
            Cause(path, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {allowed}")
        ]
    if rule == "type":
        wanted = ",".join(kind for kind in ([limit] if isinstance(limit, str) else limit) if kind != "null")
        names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
        got = names.get(type(value), "null")
        text = f'Invalid value: "{got}": {path} in body must be of type {wanted}: "{got}"'
        return [Cause(path, "FieldValueTypeInvalid", text)]
    if rule in ("maxItems", "maxProperties"):
        return [Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {limit} items")]
    if rule == "maxLength":
        return [Cause(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")]
    exclusive = error.schema.get(f"exclusive{rule.capitalize()}")
    more_less = {"minimum": "greater", "maximum": "less"}.get(rule)
    text = {
        "minimum": f"should be {more_less} than {'' if exclusive else 'or equal to '}{limit}",
        "maximum": f"should be {more_less} than {'' if exclusive else 'or equal to '}{limit}",
        "pattern": f"should match '{limit}'",
        "minLength": f"should be at least {limit} chars long",
        "minItems": f"should have at least {limit} items",
        "minProperties": f"should have at least {limit} properties",
        "uniqueItems": "shouldn't contain duplicates",
        "multipleOf": f"should be a multiple of {limit}",
    }.get(rule, f"must validate {rule}")
    where = f"{path} in body" if path else '"" in body'
    return [Cause(path or "<nil>", "FieldValueInvalid", f"Invalid value: {_shown(value)}: {where} {text}")]
