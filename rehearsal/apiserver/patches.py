# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON merge patch (RFC 7386), JSON patch (RFC 6902) and Kubernetes' strategic merge patch."""

from __future__ import annotations

from typing import Any

from .errors import ApiError, bad_request
from .schema import child

Object = dict[str, Any]


def merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """Apply the operations in turn; a failed `test` or an absent path is 422, as the API server answers."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    for operation in operations:
        try:
            target = _one(target, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            name, path = operation.get("op"), operation.get("path")
            text = f"the server rejected our request due to an error in our request: {name} at {path}: {error}"
            raise ApiError(422, "Invalid", text) from error
    return target


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"a path starts with /, got {pointer!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _get(node: Any, steps: list[str]) -> Any:
    for step in steps:
        node = node[int(step)] if isinstance(node, list) else node[step]
    return node


def _change(node: Any, steps: list[str], op: str, value: Any = None) -> Any:
    """A copy of `node` with one place added, replaced or removed."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(node, list):
        result: Any = list(node)
        index = len(node) if step == "-" else int(step)
        if rest:
            result[index] = _change(result[index], rest, op, value)
        elif op == "add":
            if index > len(node):
                raise IndexError(f"index {index} is past the end")
            result.insert(index, value)
        elif op == "remove":
            del result[index]
        else:
            result[index] = value
        return result
    result = dict(node)
    if rest:
        result[step] = _change(result[step], rest, op, value)
    elif op == "remove":
        del result[step]
    else:
        if op == "replace":
            result[step]  # must be there
        result[step] = value
    return result


def _one(target: Any, operation: Object) -> Any:
    op, steps = operation["op"], _steps(operation["path"])
    if op in ("add", "replace"):
        return _change(target, steps, op, operation["value"])
    if op == "remove":
        return _change(target, steps, op)
    if op == "test":
        if _get(target, steps) != operation.get("value"):
            raise ValueError("test failed")
        return target
    source = _steps(operation["from"])
    value = _get(target, source)
    if op == "move":
        target = _change(target, source, "remove")
    elif op != "copy":
        raise ValueError(f"unknown operation {op!r}")
    return _change(target, steps, "add", value)


def strategic_merge(target: Any, patch: Any, schema: Object | None) -> Any:
    """Strategic merge: like a merge patch, but lists with a merge key (see builtin_schemas) are merged by item."""
    if isinstance(patch, dict):
        return _strategic_map(target if isinstance(target, dict) else {}, patch, schema)
    if isinstance(patch, list):
        return _strategic_list(target if isinstance(target, list) else [], patch, schema)
    return patch


def _strategic_map(target: Object, patch: Object, schema: Object | None) -> Object:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result = dict(target)
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = strategic_merge(result.get(key), value, child(schema, key))
    return result


def _strategic_list(target: list[Any], patch: list[Any], schema: Object | None) -> list[Any]:
    kind = (schema or {}).get("x-kubernetes-list-type")
    if kind == "set":
        return target + [item for item in patch if item not in target]
    keys = (schema or {}).get("x-kubernetes-list-map-keys")
    if kind != "map" or not keys or not all(isinstance(item, dict) for item in patch):
        return patch
    if {"$patch": "replace"} in patch:
        return [item for item in patch if item != {"$patch": "replace"}]
    key, result = keys[0], list(target)
    for item in patch:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        places = [index for index, old in enumerate(result) if old.get(key) == item[key]]
        if item.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != item[key]]
        elif places:
            result[places[0]] = strategic_merge(result[places[0]], item, (schema or {}).get("items"))
        else:
            # Nulls mean "remove" and have nothing to remove in a new item.
            result.append(strategic_merge({}, item, (schema or {}).get("items")))
    return result
