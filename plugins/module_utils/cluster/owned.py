# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does an object in the cluster already hold exactly what we would apply?

Server-side apply records per manager which fields it set (``metadata.managedFields``, fieldsV1 of
structured-merge-diff). When our
own record names the same fields as the wanted object, and their values are equal, applying it again cannot change
anything, so
the request can be left out. Any doubt answers False: the server then decides.
"""

from __future__ import annotations

import json

# The server takes these as the object's identity, they are never in a manager's set.
IDENTITY = ("apiVersion", "kind")
IDENTITY_METADATA = ("name", "namespace")


def own_fields(live, manager, api_version=None):
    """fieldsV1 that this manager applied, or None when there is no single such record (for this version of the API)."""
    entries = [
        e
        for e in (live.get("metadata") or {}).get("managedFields") or []
        if e.get("manager") == manager and e.get("operation") == "Apply" and not e.get("subresource")
    ]
    if len(entries) != 1 or (api_version is not None and entries[0].get("apiVersion") != api_version):
        return None
    fields = entries[0].get("fieldsV1")
    return fields if isinstance(fields, dict) else None


def appliers(live):
    """Names of the managers that applied (parts of) an object, server side."""
    entries = (live.get("metadata") or {}).get("managedFields") or []
    return {e.get("manager") for e in entries if e.get("operation") == "Apply" and not e.get("subresource")}


def already_holds(live, wanted, manager):
    """True when applying ``wanted`` as ``manager`` would leave ``live`` as it is."""
    fields = own_fields(live, manager, wanted.get("apiVersion"))
    if fields is None:
        return False
    content = {k: v for k, v in wanted.items() if k not in IDENTITY}
    metadata = {k: v for k, v in (wanted.get("metadata") or {}).items() if k not in IDENTITY_METADATA}
    content.pop("metadata", None)
    if metadata:
        content["metadata"] = metadata
    return _equal(fields, content, live)


def _equal(fields, wanted, live):
    children = {k: v for k, v in fields.items() if k != "."}
    if not children:  # A leaf, or a list or map that is replaced as a whole.
        return wanted == live and type(wanted) is type(live)
    if isinstance(wanted, dict) and isinstance(live, dict):
        if set(children) != {"f:" + key for key in wanted}:
            return False
        return all(key in live and _equal(children["f:" + key], wanted[key], live[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(live, list):
        return len(children) == len(wanted) and all(_item_equal(k, v, wanted, live) for k, v in children.items())
    return False


def _item_equal(selector, fields, wanted, live):
    """One element of a list that is merged by key (``k:{"name":"x"}``) or as a set (``v:"x"``)."""
    try:
        value = json.loads(selector[2:])
    except ValueError:
        return False
    if selector.startswith("v:"):
        return value in wanted and value in live
    if not selector.startswith("k:") or not isinstance(value, dict):
        return False
    ours, theirs = _by_key(wanted, value), _by_key(live, value)
    return ours is not None and theirs is not None and _equal(fields, ours, theirs)


def _by_key(items, key):
    found = [i for i in items if isinstance(i, dict) and all(k in i and i[k] == v for k, v in key.items())]
    return found[0] if len(found) == 1 else None
