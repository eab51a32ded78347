# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selectors, tolerations and quantities of the Kubernetes API, as pure functions over plain dicts."""

from __future__ import annotations

import re
from decimal import Decimal

from rehearsal.operators.kinds import labels_of, name_of

_SUFFIXES = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "m": -3, "u": -6, "n": -9}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?[0-9]+))")


def quantity(value: str | int | float | None) -> Decimal:
    """A resource quantity ("500m", "256Mi", 16, "1e3") as a number; None is 0.

    :raises ValueError: the text is no quantity.
    """
    if value is None:
        return Decimal(0)
    match = _QUANTITY.fullmatch(str(value))
    if not match:
        raise ValueError(f"not a quantity: {value!r}")
    number, binary, decimal, exponent = match.groups()
    if binary:
        return Decimal(number) * (2 ** _BINARY[binary])
    return Decimal(number).scaleb(int(exponent) if exponent else _SUFFIXES[decimal or ""])


def _expression(expression: dict, labels: dict[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    have = labels.get(key)
    if operator == "In":
        return have in values
    if operator == "NotIn":
        return have not in values
    if operator == "Exists":
        return have is not None
    if operator == "DoesNotExist":
        return have is None
    if operator in ("Gt", "Lt"):
        try:
            return int(have) > int(values[0]) if operator == "Gt" else int(have) < int(values[0])
        except (TypeError, ValueError, IndexError):
            return False
    return False


def label_selector_matches(selector: dict | None, labels: dict[str, str]) -> bool:
    """A metav1.LabelSelector against labels. None matches nothing, an empty selector everything (as in the API)."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return labels_match(wanted, labels) and all(
        _expression(item, labels) for item in selector.get("matchExpressions") or []
    )


def labels_match(wanted: dict[str, str] | None, labels: dict[str, str]) -> bool:
    """A plain map selector (nodeSelector): every entry must be there; an empty one matches all."""
    return all(labels.get(key) == value for key, value in (wanted or {}).items())


def node_selector_matches(selector: dict | None, node: dict) -> bool:
    """A core NodeSelector: its terms are ORed, the expressions of a term ANDed; a term without any matches nothing.

    None (no selector) matches every node.
    """
    if not selector:
        return True
    fields = {"metadata.name": name_of(node)}
    for term in selector.get("nodeSelectorTerms") or []:
        expressions, match_fields = term.get("matchExpressions") or [], term.get("matchFields") or []
        if not expressions and not match_fields:
            continue
        if all(_expression(item, labels_of(node)) for item in expressions) and all(
            _expression(item, fields) for item in match_fields
        ):
            return True
    return False


def tolerated(taint: dict, tolerations: list[dict]) -> bool:
    """Whether one of the tolerations matches the taint (corev1 Toleration.ToleratesTaint)."""
    for toleration in tolerations:
        if toleration.get("effect") and toleration["effect"] != taint["effect"]:
            continue
        if toleration.get("key") and toleration["key"] != taint["key"]:
            continue
        operator = toleration.get("operator") or "Equal"
        if operator == "Exists":
            return True
        if toleration.get("key") and operator == "Equal" and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def untolerated_taint(node: dict, tolerations: list[dict]) -> dict | None:
    """The first taint that keeps a pod with these tolerations off the node; PreferNoSchedule keeps nobody off."""
    for taint in node.get("spec", {}).get("taints") or []:
        if taint["effect"] != "PreferNoSchedule" and not tolerated(taint, tolerations):
            return taint
    return None


def pod_selects_node(pod_spec: dict, node: dict) -> bool:
    """The node selector and the required node affinity of a pod against a node."""
    affinity = ((pod_spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return labels_match(pod_spec.get("nodeSelector"), labels_of(node)) and node_selector_matches(affinity, node)


# A daemon set's pods tolerate these by themselves (kubernetes, AddOrUpdateDaemonPodTolerations).
DAEMON_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists"}
    for name in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
]


def place_of_daemons(node: dict) -> tuple:
    """What decides whether and since when daemons run on a node: its uid, labels, taints, readiness and boot."""
    meta, status = node["metadata"], node.get("status") or {}
    boot = (status.get("nodeInfo") or {}).get("bootID")
    return meta.get("uid"), meta.get("labels"), (node.get("spec") or {}).get("taints"), is_ready(node), boot


def daemon_runs_on(pod_spec: dict, node: dict) -> bool:
    """Whether a daemon set with this pod template wants a pod on the node."""
    tolerations = (pod_spec.get("tolerations") or []) + DAEMON_TOLERATIONS
    return pod_selects_node(pod_spec, node) and untolerated_taint(node, tolerations) is None


def pod_requests(pod_spec: dict) -> dict[str, Decimal]:
    """Resource requests of a pod: the sum over its containers; a limit without a request counts as the request."""
    total: dict[str, Decimal] = {}
    for container in pod_spec.get("containers") or []:
        resources = container.get("resources") or {}
        for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            total[name] = total.get(name, Decimal(0)) + quantity(value)
    return total


def is_ready(node: dict) -> bool:
    """Whether the node's Ready condition is True."""
    conditions = node.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
