# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which right is missing when the API server answers 403, for whom, and which role of access/ holds it."""

from __future__ import annotations

import re
from urllib.parse import unquote

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.rights import HOLDERS, SUFFIXES

# k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go. Clouds append a sentence of their own.
CANNOT = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
CANNOT_PATH = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) path "(?P<path>[^"]*)"')
# The object that a refusal names: `pods "x" is forbidden: …`. A WebSocket client puts words of its own before it.
NAMED = re.compile(r'(?:^|: )\S+ "(?P<name>[^"]*)" is forbidden: User ')
NO_REASON = re.compile(r"is forbidden:\s*$")
GRANTS = "attempting to grant RBAC permissions not currently held"
OF_NAMESPACE = ("status", "finalize")
SHOWN = 3


def parts_of(path):
    """``{group, resource, namespace, name}`` of a path of the API; None when it is about no resource.

    The resource carries its subresource (``pods/exec``), as RBAC writes it.
    """
    parts = [unquote(part) for part in path.partition("?")[0].split("/") if part]
    if len(parts) < 3 or parts[0] not in ("api", "apis") or (parts[0] == "apis" and len(parts) < 4):
        return None
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = None
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in OF_NAMESPACE:
            parts = parts[2:]
    resource = "/".join([parts[0], *parts[2:3]])
    return {"group": group, "resource": resource, "namespace": namespace, "name": parts[1] if len(parts) > 1 else None}


def missing_right(message, method="", path=""):
    """``{user, verb, group, resource, namespace, name}`` of the right that a refusal is about, values None where it does
    not tell. None when RBAC has not refused: admission, quotas and pod security answer 403, too.
    """
    found = CANNOT.search(message)
    asked = parts_of(path) or {}
    if found:
        right = found.groupdict()
        named = NAMED.search(message)
        return {**right, "name": named.group("name") if named else None}
    # An apply that would create is refused without a word (handlers/create.go, withAuthorization).
    if method == "PATCH" and NO_REASON.search(message) and asked:
        return {"user": None, "verb": "create", **asked}
    return None


def holders(right):
    """[(ClusterRole, file)] of access/ that hold a right. A namespace that is none of ours may be any of theirs."""
    found = HOLDERS.get((right["group"] or "", right["resource"]), {}).get(right["verb"], [])
    rows = []
    for holder in found:
        playbook, _at, place = holder.partition("@")
        if place == "cluster" or right["namespace"]:
            rows.append((f"railyard-{playbook.replace('_', '-')}{SUFFIXES[place]}", f"access/roles/{playbook}.yml"))
    return rows


def advice(message, method="", path=""):
    """Which right is missing, by a text that holds a refusal, and where it is to be had; empty for another refusal."""
    if GRANTS in message:
        return (
            "An account that makes roles needs the verb escalate on them, one that binds them the verb bind; "
            "ClusterRole railyard-install-operator in access/roles/install_operator.yml has both."
        )
    if CANNOT_PATH.search(message):
        return (
            "Accounts that are logged in have this right by the ClusterRole system:discovery; somebody took "
            "its binding away, or nobody is logged in."
        )
    right = missing_right(message, method, path)
    return "" if right is None else sentence(right)


def explain(message, method="", path=""):
    """The message of a 403, followed by which right is missing and where it is to be had.

    A refusal that is not about rights comes back as it is.
    """
    found = advice(message, method, path)
    return f"{message.rstrip(': ')}. {found}" if found else message


def sentence(right):
    """One or two sentences: the missing right in RBAC's words, and the roles that hold it."""
    place = f"in namespace {right['namespace']}" if right["namespace"] else "in the whole cluster"
    name = f", name {right['name']}" if right["name"] else ""
    who = right["user"] or "this account"
    group = f"API group {right['group']}" if right["group"] else "the core API group"
    text = f"Missing right of {who}: {right['verb']} {right['resource']} ({group}) {place}{name}."
    found = holders(right)
    if not found:
        return f"{text} No role in access/ holds it; give it to the account, or see which playbook it was made for."
    told = " or ".join(f"ClusterRole {role} ({file})" for role, file in found[:SHOWN])
    how = f"a RoleBinding in namespace {right['namespace']}" if right["namespace"] else "a ClusterRoleBinding"
    return f"{text} It is in {told}: bind it to the account with {how}, see docs/access.md."
