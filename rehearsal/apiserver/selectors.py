# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Label and field selectors of list, watch and deletecollection."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .errors import bad_request

Predicate = Callable[[dict[str, Any]], bool]

_REQUIREMENT = re.compile(
    r"""\s*(?:(?P<absent>!)\s*(?P<absent_key>[\w./-]+)
      | (?P<set_key>[\w./-]+)\s+(?P<set_op>in|notin)\s*\((?P<values>[^()]*)\)
      | (?P<key>[\w./-]+)\s*(?P<op>==|!=|=|<|>)\s*(?P<value>[\w.-]*)
      | (?P<exists>[\w./-]+))\s*(?:,|$)""",
    re.VERBOSE,
)
#: Fields that may be selected on beyond metadata.name and metadata.namespace, by storage key.
#: Source: the field label conversions of pkg/apis/core/v1 and the strategies of the registries.
SELECTABLE = {
    ("", "pods"): "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
    "status.phase status.podIP status.nominatedNodeName",
    ("", "nodes"): "spec.unschedulable",
    ("", "namespaces"): "status.phase",
    ("", "secrets"): "type",
    ("", "events"): "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
    "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason "
    "reportingComponent source type",
    ("batch", "jobs"): "status.successful",
    ("apps", "replicasets"): "status.replicas",
}


def label_predicate(selector: str) -> Predicate:
    """Predicate over label maps for a selector text like `a=b,c in (d,e),!f`."""
    checks: list[Predicate] = []
    position = 0
    while position < len(selector.rstrip()):
        found = _REQUIREMENT.match(selector, position)
        if not found:
            raise bad_request(
                f"unable to parse requirement: {selector!r} is not a label selector at position {position}"
            )
        checks.append(_label_check(found.groupdict()))
        position = found.end()
    return lambda labels: all(check(labels) for check in checks)


def _label_check(part: dict[str, str | None]) -> Predicate:
    if part["absent"]:
        return lambda labels, key=part["absent_key"]: key not in labels
    if part["set_key"]:
        values = {value.strip() for value in (part["values"] or "").split(",")}
        key = part["set_key"]
        if part["set_op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if part["exists"]:
        return lambda labels, key=part["exists"]: key in labels
    key, operator, value = part["key"], part["op"], part["value"]
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if operator in ("<", ">"):
        if not (value or "").isdigit():
            raise bad_request(f"for 'Gt', 'Lt' operators, the value must be an integer, got {value!r}")
        sign = 1 if operator == ">" else -1
        return lambda labels: str(labels.get(key, "")).isdigit() and sign * (int(labels[key]) - int(value)) > 0
    return lambda labels: labels.get(key) == value


def object_selector_predicate(selector: dict[str, Any] | None) -> Predicate:
    """Predicate over label maps for a metav1.LabelSelector object; None selects nothing, an empty one everything."""
    if selector is None:
        return lambda labels: False
    wanted = selector.get("matchLabels") or {}
    parts = []
    for row in selector.get("matchExpressions") or []:
        values = set(row.get("values") or [])
        key, operator = row["key"], row["operator"]
        parts.append(
            {
                "In": lambda labels, k=key, v=values: labels.get(k) in v,
                "NotIn": lambda labels, k=key, v=values: labels.get(k) not in v,
                "Exists": lambda labels, k=key: k in labels,
                "DoesNotExist": lambda labels, k=key: k not in labels,
            }[operator]
        )
    return lambda labels: all(labels.get(k) == v for k, v in wanted.items()) and all(part(labels) for part in parts)


def field_predicate(selector: str, key: tuple[str, str]) -> Predicate:
    """Predicate over objects for a field selector; fields that the kind does not offer are a bad request."""
    checks = []
    for term in filter(None, (piece.strip() for piece in selector.split(","))):
        path, operator, value = re.match(r"([^=!]*)(!=|==|=)?(.*)", term).groups()  # type: ignore[union-attr]
        if not operator:
            raise bad_request(f"invalid field selector: invalid selector: '{selector}'; can't understand '{term}'")
        if path not in ("metadata.name", "metadata.namespace") and path not in SELECTABLE.get(key, "").split():
            raise bad_request(f'Unable to find "{key[1]}" that match field selector: field label not supported: {path}')
        checks.append((path.split("."), operator != "!=", value))

    def matches(obj: dict[str, Any]) -> bool:
        return all((_field_text(obj, path) == value) is equal for path, equal, value in checks)

    return matches


def _field_text(obj: Any, path: list[str]) -> str:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    if isinstance(obj, bool):
        return str(obj).lower()
    if obj is None:
        return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    return str(obj)


def predicate(query: Any, key: tuple[str, str], namespace: str = "", name: str = "") -> Predicate:
    """What a list or watch request selects: namespace, one name, labels and fields together."""
    labels = label_predicate(query.get("labelSelector", "")) if query.get("labelSelector") else None
    fields = field_predicate(query.get("fieldSelector", ""), key) if query.get("fieldSelector") else None

    def selected(obj: dict[str, Any]) -> bool:
        meta = obj["metadata"]
        if namespace and meta.get("namespace") != namespace or name and meta["name"] != name:
            return False
        return (labels is None or labels(meta.get("labels") or {})) and (fields is None or fields(obj))

    return selected
