# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Field ownership: sets of paths, their fieldsV1 form, and server-side apply over them.

A path is a tuple of fieldsV1 steps: `f:name` for a field, `k:{"name":"x"}` for an item of an associative list, `v:"x"`
for a member of a set. Rules: Kubernetes enhancement 555 and the structured-merge-diff library (which fields a manager
owns, conflicts, what an apply takes away).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .errors import ApiError
from .schema import child

Path = tuple[str, ...]
Object = dict[str, Any]
#: Stands for "this container is owned as such" where a leaf has its value.
ITEM = object()
_IDENTITY = "name namespace generateName uid creationTimestamp selfLink generation managedFields resourceVersion "
_IDENTITY += "deletionTimestamp deletionGracePeriodSeconds"
#: Never owned by anyone: they identify the object or belong to the server.
STRIPPED = {("f:apiVersion",), ("f:kind",)} | {("f:metadata", f"f:{name}") for name in _IDENTITY.split()}


def _associative(schema: Object | None) -> bool:
    return bool(schema) and schema.get("x-kubernetes-list-type") in ("map", "set")


def _atomic_map(schema: Object | None) -> bool:
    return bool(schema) and schema.get("x-kubernetes-map-type") == "atomic"


def element(item: Any, schema: Object, path: Path = ()) -> str:
    """The step that names a list's item. Raises ApiError when an item lacks its key."""
    if schema["x-kubernetes-list-type"] == "set":
        return "v:" + json.dumps(item, separators=(",", ":"))
    keys = {}
    for key in schema["x-kubernetes-list-map-keys"]:
        value = item.get(key) if isinstance(item, dict) else None
        if value is None:
            value = ((schema.get("items") or {}).get("properties") or {}).get(key, {}).get("default")
        if value is None:
            raise TypedError(path, f'associative list with keys has an element that omits key field "{key}"')
        keys[key] = value
    return "k:" + json.dumps(keys, separators=(",", ":"), sort_keys=True)


class TypedError(Exception):
    """An applied object does not fit its schema at `path`."""

    def __init__(self, path: Path, message: str):
        super().__init__(f"{show(path)}: {message}")


def leaves(value: Any, schema: Object | None, path: Path = (), out: dict[Path, Any] | None = None) -> dict[Path, Any]:
    """Owned paths of an object with their values; containers that count on their own have the value ITEM."""
    out = {} if out is None else out
    if isinstance(value, dict) and not _atomic_map(schema):
        declared = (schema or {}).get("properties") or {}
        for key, item in value.items():
            where = (*path, f"f:{key}")
            if where in STRIPPED:
                continue
            leaves(item, child(schema, key), where, out)
            if where not in out and (item == {} or key not in declared):
                out[where] = ITEM
    elif isinstance(value, list) and _associative(schema):
        for item in value:
            where = (*path, element(item, schema, path))
            if where in out:
                raise TypedError(path, f"duplicate entries for key {show(where[-1:])}")
            leaves(item, schema.get("items"), where, out)
            out.setdefault(where, ITEM)
    else:
        out[path] = value
    return out


def unknown_field(value: Any, schema: Object | None, path: Path = ()) -> Path | None:
    """The first field of an applied object that its schema does not declare."""
    from .schema import is_open

    if isinstance(value, dict) and schema is not None:
        for key, item in value.items():
            below = child(schema, key)
            if below is None and not is_open(schema):
                return (*path, f"f:{key}")
            found = unknown_field(item, below, (*path, f"f:{key}"))
            if found:
                return found
    if isinstance(value, list) and schema is not None:
        for index, item in enumerate(value):
            step = element(item, schema, path) if _associative(schema) else f"i:{index}"
            found = unknown_field(item, schema.get("items"), (*path, step))
            if found:
                return found
    return None


def merge(live: Any, applied: Any, schema: Object | None) -> Any:
    """`applied` over `live`: maps by key, associative lists by item (in the applied order), all else replaced."""
    if isinstance(live, dict) and isinstance(applied, dict) and not _atomic_map(schema):
        merged = dict(live)
        for key, value in applied.items():
            merged[key] = merge(live.get(key), value, child(schema, key))
        return merged
    if isinstance(live, list) and isinstance(applied, list) and _associative(schema):
        before = {element(item, schema): item for item in live}
        after = {element(item, schema): item for item in applied}
        ordered = iter(after)
        # Items that only the live list has keep their places; the shared ones follow the applied order in between.
        result = []
        for step, item in before.items():
            if step not in after:
                result.append(item)
                continue
            for wanted in ordered:
                result.append(merge(before.get(wanted), after[wanted], schema.get("items")))
                if wanted in before:
                    break
        return result + [merge(before.get(step), after[step], schema.get("items")) for step in ordered]
    return applied


def remove(value: Any, paths: Iterable[Path], schema: Object | None) -> Any:
    """`value` without what lies at the paths."""
    here: dict[str, list[Path]] = {}
    for path in paths:
        here.setdefault(path[0], []).append(path[1:])
    if isinstance(value, dict):
        result = {}
        for key, item in value.items():
            below = here.get(f"f:{key}")
            if below is None:
                result[key] = item
            elif () not in below:
                result[key] = remove(item, below, child(schema, key))
        return result
    if isinstance(value, list) and _associative(schema):
        kept = []
        for item in value:
            below = here.get(element(item, schema))
            if below is None:
                kept.append(item)
            elif () not in below:
                kept.append(remove(item, below, schema.get("items")))
        return kept
    return value


def encode(paths: Iterable[Path]) -> Object:
    """Paths as a fieldsV1 object."""
    root: Object = {}
    places = []
    for path in sorted(paths):
        node = root
        for step in path:
            node = node.setdefault(step, {})
        places.append(node)
    for node in places:
        if node:
            node["."] = {}
    return root


def decode(fields: Object, path: Path = ()) -> set[Path]:
    """A fieldsV1 object as paths."""
    found = set()
    for step, below in fields.items():
        if step == ".":
            found.add(path)
        elif not below:
            found.add((*path, step))
        else:
            found |= decode(below, (*path, step))
    return found


def show(path: Path) -> str:
    """A path as conflicts show it: `.spec.containers[name="x"].image`."""
    text = ""
    for step in path:
        kind, _, body = step.partition(":")
        if kind == "f":
            text += f".{body}"
        elif kind == "k":
            pairs = (f"{key}={json.dumps(value)}" for key, value in json.loads(body).items())
            text += f"[{','.join(pairs)}]"
        else:
            text += f"[={body}]" if kind == "v" else f"[{body}]"
    return text


@dataclass(frozen=True)
class Manager:
    """Who owns fields: one entry of managedFields is one of these."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass
class Owned:
    paths: set[Path] = field(default_factory=set)
    time: str = ""


Managers = dict[Manager, Owned]


def read_managers(obj: Object | None) -> Managers:
    managers = {}
    for entry in ((obj or {}).get("metadata") or {}).get("managedFields") or []:
        key = Manager(entry.get("manager", ""), entry["operation"], entry["apiVersion"], entry.get("subresource", ""))
        managers[key] = Owned(decode(entry.get("fieldsV1") or {}), entry.get("time", ""))
    return managers


def write_managers(managers: Managers, before: Managers, now: str) -> list[Object]:
    """managedFields; an entry whose paths did not change keeps its time."""
    entries = []
    for key, owned in managers.items():
        if not owned.paths:
            continue
        old = before.get(key)
        entry = {
            "manager": key.name,
            "operation": key.operation,
            "apiVersion": key.api_version,
            "time": old.time if old and old.paths == owned.paths else now,
            "fieldsType": "FieldsV1",
            "fieldsV1": encode(owned.paths),
        }
        entries.append({**entry, "subresource": key.subresource} if key.subresource else entry)
    return entries


def changes(old: dict[Path, Any], new: dict[Path, Any]) -> set[Path]:
    """Paths that were added or whose values differ."""
    return {path for path, value in new.items() if path not in old or not _same(old[path], value)}


def _same(one: Any, other: Any) -> bool:
    return one is other or (one == other and isinstance(one, bool) == isinstance(other, bool))


def own_update(
    managers: Managers, old: Object | None, new: Object, schema: Object, me: Manager, ignored: set[str]
) -> Managers:
    """Ownership after a create, update or patch: what changed is the manager's alone, what is gone is nobody's."""
    before, after = leaves(old or {}, schema), leaves(new, schema)
    changed = {path for path in changes(before, after) if path[0] not in ignored}
    gone = before.keys() - after.keys()
    if not changed and not gone:
        return managers
    result = {key: Owned(owned.paths - gone - (set() if key == me else changed)) for key, owned in managers.items()}
    result.setdefault(me, Owned()).paths |= changed
    return result


def apply(
    live: Object | None,
    applied: Object,
    managers: Managers,
    schema: Object,
    me: Manager,
    force: bool,
    ignored: set[str],
) -> tuple[Object, Managers]:
    """Server-side apply: (merged object, its managers). Raises ApiError 409 with a cause for each conflict."""
    name = f"{applied['metadata'].get('namespace', '')}/{applied['metadata'].get('name', '')}"
    group, _, version = applied["apiVersion"].rpartition("/")
    try:
        unknown = unknown_field(applied, schema)
        if unknown:
            raise TypedError(unknown, "field not declared in schema")
        wanted = {path for path in leaves(applied, schema) if path[0] not in ignored}
    except TypedError as error:
        # structured-merge-diff's error is no API status, so clients get a plain 500 with it.
        kind = f"{name}; {group}/{version}, Kind={applied['kind']}"
        raise ApiError(500, "", f"failed to create typed patch object ({kind}): {error}") from error
    merged = merge(live, applied, schema) if live else applied
    others = {key: owned for key, owned in managers.items() if key != me}
    dropped = _named(managers[me].paths) - _named(wanted) if me in managers else set()
    if dropped:
        held = {path[:end] for owned in others.values() for path in owned.paths for end in range(1, len(path) + 1)}
        merged = remove(merged, [path for path in dropped if path not in held], schema)
    before, after = leaves(live or {}, schema), leaves(merged, schema)
    changed = changes(before, after)
    conflicts = {key: sorted(owned.paths & changed & wanted) for key, owned in others.items()}
    conflicts = {key: paths for key, paths in conflicts.items() if paths}
    if conflicts and not force:
        raise _conflict_error(conflicts, managers)
    gone = before.keys() - after.keys()
    result = {key: Owned(owned.paths - gone - set(conflicts.get(key, ()))) for key, owned in others.items()}
    order = [*managers, *([] if me in managers else [me])]
    return merged, {key: Owned(wanted) if key == me else result[key] for key in order}


def _named(paths: set[Path]) -> set[Path]:
    """The paths and all fields above them, since a field goes away with the last thing that was applied in it."""
    above = {path[:end] for path in paths for end in range(1, len(path)) if path[end - 1].startswith("f:")}
    return paths | {path for path in above if path not in (("f:metadata",), ("f:spec",), ("f:status",))}


def _conflict_error(conflicts: dict[Manager, list[Path]], managers: Managers) -> ApiError:
    causes, lines = [], []
    for key in sorted(conflicts, key=lambda manager: manager.name):
        who = json.dumps(key.name) + (f' with subresource "{key.subresource}"' if key.subresource else "")
        if key.operation == "Update":
            time = managers[key].time
            who += f" using {key.api_version}" + (f" at {time}" if time else "")
        lines.append(f"conflicts with {who}:")
        for path in conflicts[key]:
            causes.append({"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": show(path)})
            lines.append(f"- {show(path)}")
    text = "\n".join(lines)
    if len(causes) == 1:
        text = f"{causes[0]['message']}: {causes[0]['field']}"
    plural = "s" if len(causes) > 1 else ""
    return ApiError(409, "Conflict", f"Apply failed with {len(causes)} conflict{plural}: {text}", causes=causes)
