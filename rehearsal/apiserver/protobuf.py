# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request bodies in Kubernetes' protobuf form, for the few kinds that Go clients with typed objects send to us.

Helm 4 stores releases and kubectl deletes and asks for permissions that way; answers may be JSON. Other kinds are
refused with 415. Field numbers: generated.proto of the API groups; envelope: runtime.Unknown behind the magic `k8s\\0`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from .errors import ApiError, bad_request

MAGIC = b"k8s\x00"
_ATTRIBUTES = "1 namespace; 2 verb; 3 group; 4 version; 5 resource; 6 subresource; 7 name"
#: Message: "number field type", type being string when left out; * repeated, {} a map to that type.
_MESSAGES = {
    "Time": "1 seconds int; 2 nanos int",
    "FieldsV1": "1 raw bytes",
    "OwnerReference": "1 kind; 3 name; 4 uid; 5 apiVersion; 6 controller bool; 7 blockOwnerDeletion bool",
    "ManagedFieldsEntry": "1 manager; 2 operation; 3 apiVersion; 4 time Time; 6 fieldsType; "
    "7 fieldsV1 FieldsV1; 8 subresource",
    "ObjectMeta": "1 name; 2 generateName; 3 namespace; 5 uid; 6 resourceVersion; 8 creationTimestamp Time; "
    "11 labels string{}; 12 annotations string{}; 13 ownerReferences OwnerReference*; 14 finalizers string*; "
    "17 managedFields ManagedFieldsEntry*",
    "Secret": "1 metadata ObjectMeta; 2 data bytes{}; 3 type; 4 stringData string{}; 5 immutable bool",
    "ConfigMap": "1 metadata ObjectMeta; 2 data string{}; 3 binaryData bytes{}; 4 immutable bool",
    "NamespaceSpec": "1 finalizers string*",
    "Namespace": "1 metadata ObjectMeta; 2 spec NamespaceSpec",
    "LocalObjectReference": "1 name",
    "ServiceAccount": "1 metadata ObjectMeta; 3 imagePullSecrets LocalObjectReference*; "
    "4 automountServiceAccountToken bool",
    "Preconditions": "1 uid; 2 resourceVersion",
    "DeleteOptions": "1 gracePeriodSeconds int; 2 preconditions Preconditions; 3 orphanDependents bool; "
    "4 propagationPolicy; 5 dryRun string*",
    "Eviction": "1 metadata ObjectMeta; 2 deleteOptions DeleteOptions",
    "ResourceAttributes": _ATTRIBUTES,
    "NonResourceAttributes": "1 path; 2 verb",
    "AccessSpec": "1 resourceAttributes ResourceAttributes; 2 nonResourceAttributes NonResourceAttributes",
    "SelfSubjectAccessReview": "1 metadata ObjectMeta; 2 spec AccessSpec",
    "SelfSubjectReview": "1 metadata ObjectMeta",
    "RulesSpec": "1 namespace",
    "SelfSubjectRulesReview": "1 metadata ObjectMeta; 2 spec RulesSpec",
    "TokenRequestSpec": "1 audiences string*; 4 expirationSeconds int",
    "TokenRequest": "1 metadata ObjectMeta; 2 spec TokenRequestSpec",
    "PolicyRule": "1 verbs string*; 2 apiGroups string*; 3 resources string*; 4 resourceNames string*; "
    "5 nonResourceURLs string*",
    "Role": "1 metadata ObjectMeta; 2 rules PolicyRule*",
    "ClusterRole": "1 metadata ObjectMeta; 2 rules PolicyRule*",
    "RoleRef": "1 apiGroup; 2 kind; 3 name",
    "Subject": "1 kind; 2 apiGroup; 3 name; 4 namespace",
    "RoleBinding": "1 metadata ObjectMeta; 2 subjects Subject*; 3 roleRef RoleRef",
    "ClusterRoleBinding": "1 metadata ObjectMeta; 2 subjects Subject*; 3 roleRef RoleRef",
    "TypeMeta": "1 apiVersion; 2 kind",
    "Unknown": "1 typeMeta TypeMeta; 2 raw bytes",
}


def _table(text: str) -> dict[int, tuple[str, str]]:
    rows = (entry.split() for entry in text.split(";"))
    return {int(row[0]): (row[1], row[2] if len(row) > 2 else "string") for row in rows}


_TABLES = {name: _table(text) for name, text in _MESSAGES.items()}
_ENTRY = {kind: {1: ("key", "string"), 2: ("value", kind)} for kind in ("string", "bytes")}


def decode(body: bytes) -> dict[str, Any]:
    """The object in a protobuf body. Raises ApiError: 415 for an unknown kind, 400 for a broken body."""
    if not body.startswith(MAGIC):
        raise bad_request("the object provided is unrecognized: protobuf bodies start with k8s\\x00")
    try:
        envelope = _message(body[len(MAGIC) :], _TABLES["Unknown"])
        meta = envelope["typeMeta"]
        if meta["kind"] not in _TABLES:
            text = f"protobuf bodies of kind {meta['kind']} are not supported by the rehearsal; "
            text += "accepted media types include: application/json, application/yaml"
            raise ApiError(415, "UnsupportedMediaType", text)
        return {**meta, **_message(base64.b64decode(envelope.get("raw", "")), _TABLES[meta["kind"]])}
    except (IndexError, KeyError, ValueError) as error:
        raise bad_request(f"the object provided is unrecognized: broken protobuf: {error!r}") from error


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return (value - 2**64 if value >= 2**63 else value), at


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("a field ends past the message")
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {wire}")
        yield tag >> 3, value


def _message(data: bytes, table: dict[int, tuple[str, str]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in table:
            continue
        name, kind = table[number]
        if kind.endswith("*"):
            result.setdefault(name, []).append(_value(value, kind[:-1]))
        elif kind.endswith("{}"):
            entry = _message(value, _ENTRY[kind[:-2]])
            result.setdefault(name, {})[entry.get("key", "")] = entry.get("value", "")
        else:
            decoded = _value(value, kind)
            if decoded not in ("", None, {}) or table is _ENTRY.get(
                kind
            ):  # Go writes empty strings of unset fields too
                result[name] = decoded
    return result


def _value(value: Any, kind: str) -> Any:
    if kind == "string":
        return value.decode()
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind in ("int", "bool"):
        return bool(value) if kind == "bool" else value
    decoded = _message(value, _TABLES[kind])
    if kind == "Time":
        seconds = decoded.get("seconds")
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else None
    if kind == "FieldsV1":
        return json.loads(base64.b64decode(decoded.get("raw", "e30=")))
    return decoded
