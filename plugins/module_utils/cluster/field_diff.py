# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Field by field, what applying an object changes: pure functions, so that a plan needs no right to write.

A dry run of the server is the better answer, since it validates and fills in defaults, but it needs the rights of the
real thing. ``predicted`` says what server-side apply would leave, from ``metadata.managedFields`` alone.
"""

from __future__ import annotations

import copy
import json
import re

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.owned import own_fields

PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
# Stands for "the field is not there", since null is a value.
ABSENT = object()


def field_diff(before, after):
    """``[{path, before, after}]`` for each field that differs, in the order of the paths; null for one that is absent.

    Objects are compared key by key. A list is one field unless both sides hold objects at each place. Text that is JSON
    on both sides, as the configuration of a network attachment, is compared as data.
    """
    rows = []
    _compare("", before, after, rows)
    return rows


def _compare(path, before, after, rows):
    if _same_value(before, after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}, key=str):
            _compare(_joined(path, key), before.get(key, ABSENT), after.get(key, ABSENT), rows)
        return
    if _lists_of_objects(before, after):
        for place in range(max(len(before), len(after))):
            sides = [side[place] if place < len(side) else ABSENT for side in (before, after)]
            _compare(f"{path}[{place}]", *sides, rows)
        return
    inside = [_as_json(side) for side in (before, after)]
    if None not in inside and inside[0] != inside[1]:
        _compare(path, *inside, rows)
        return
    rows.append({"path": path, "before": _value(before), "after": _value(after)})


def _same_value(one, other):
    """Equal, also in type: to Python 1 and true are the same, to the API they are not."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        return all(_same_value(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return all(map(_same_value, one, other))
    return True


def _lists_of_objects(before, after):
    return all(
        isinstance(side, list) and side and all(isinstance(item, dict) for item in side) for side in (before, after)
    )


def _as_json(text):
    """Objects or lists that a text holds, also without the brackets around them (``{…}, {…}``); None for other texts."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return None
    for candidate in (text, f"[{text}]"):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    return None


def _joined(path, key):
    name = str(key)
    if not PLAIN_KEY.match(name):
        return f"{path}[{json.dumps(name)}]"
    return f"{path}.{name}" if path else name


def _value(side):
    return None if side is ABSENT else side


def predicted(live, wanted, manager):
    """The object that server-side apply of ``wanted`` by ``manager`` would leave of ``live``; ``live`` stays as it is.

    Fields of the wanted object are set. Fields that this manager set earlier and no longer wants go, unless another
    manager owns them, too. Lists are merged where managedFields show that the server merges them (``k:`` and ``v:`` of
    structured-merge-diff), else they are replaced. Defaults of the schema and admission are the server's secret.
    """
    result = copy.deepcopy(live)
    entries = (live.get("metadata") or {}).get("managedFields") or []
    others = [e.get("fieldsV1") or {} for e in entries if e.get("manager") != manager or e.get("operation") != "Apply"]
    _drop(result, own_fields(live, manager) or {}, wanted, others)
    _set(result, wanted, [own_fields(live, manager) or {}, *others])
    return result


def conflicts(live, wanted, manager):
    """``[{reason, field, message}]`` as the server's causes of a conflict (409): fields that another manager owns and
    that ``wanted`` would change. Lists are looked at as a whole."""
    entries = (live.get("metadata") or {}).get("managedFields") or []
    found = []
    for entry in entries:
        mine = entry.get("manager") == manager and entry.get("operation") == "Apply"
        if mine or entry.get("subresource") or not isinstance(entry.get("fieldsV1"), dict):
            continue
        for path in _contested(entry["fieldsV1"], live, wanted, ""):
            owner = f'conflict with "{entry.get("manager")}"'
            found.append({"reason": "FieldManagerConflict", "field": path, "message": owner})
    return found


def _contested(theirs, live, wanted, path):
    for key, below in sorted(_children(theirs).items()):
        name = key[2:]
        if name not in wanted or not isinstance(live, dict):
            continue
        place, have, want = f"{path}.{name}", live.get(name), wanted[name]
        if isinstance(have, dict) and isinstance(want, dict) and _children(below):
            yield from _contested(below, have, want, place)
        elif have != want and not any(selector[:2] in ("k:", "v:") for selector in below):
            yield place


def _children(fields):
    return {key: value for key, value in fields.items() if key.startswith("f:") and isinstance(value, dict)}


def _drop(target, ours, wanted, others):
    """Remove what is in ``ours`` and not in ``wanted``, and in nobody else's fields."""
    if not isinstance(target, dict):
        return
    for key, below in _children(ours).items():
        name = key[2:]
        if name not in target:
            continue
        elsewhere = [fields[key] for fields in others if isinstance(fields.get(key), dict)]
        want = wanted.get(name, ABSENT) if isinstance(wanted, dict) else ABSENT
        if isinstance(target[name], dict) and _children(below):
            _drop(target[name], below, want if isinstance(want, dict) else {}, elsewhere)
            if want is ABSENT and not target[name] and not elsewhere:
                del target[name]
        elif want is ABSENT and not elsewhere:
            del target[name]


def _set(target, wanted, records):
    for name, value in wanted.items():
        inside = [fields[f"f:{name}"] for fields in records if isinstance(fields.get(f"f:{name}"), dict)]
        if isinstance(value, dict) and isinstance(target.get(name), dict):
            _set(target[name], value, inside)
        elif isinstance(value, list) and isinstance(target.get(name), list):
            target[name] = _merged_list(target[name], value, inside)
        else:
            target[name] = copy.deepcopy(value)


def _merged_list(have, want, records):
    selectors = {selector for fields in records for selector in fields if selector[:2] in ("k:", "v:")}
    if not selectors:
        return copy.deepcopy(want)
    if any(selector.startswith("v:") for selector in selectors):
        return have + [item for item in want if item not in have]
    keys = _merge_keys(selectors)
    result = [copy.deepcopy(item) for item in have]
    for item in want:
        place = next((i for i, one in enumerate(result) if _same(one, item, keys)), None)
        if place is None:
            result.append(copy.deepcopy(item))
        else:
            _set(result[place], item, [])
    return result


def _merge_keys(selectors):
    for selector in sorted(selectors):
        try:
            key = json.loads(selector[2:])
        except ValueError:
            continue
        if isinstance(key, dict):
            return tuple(key)
    return ()


def _same(one, other, keys):
    return (
        bool(keys)
        and isinstance(one, dict)
        and isinstance(other, dict)
        and all(one.get(k) == other.get(k) for k in keys)
    )
