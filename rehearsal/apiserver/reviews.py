# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds that are answered and never stored: who am I, may I do this, whose token is this."""

from __future__ import annotations

from typing import Any

from .attributes import Attributes
from .kinds import Resource
from .rbac import MASTERS, Authorizer, User
from .tokens import Tokens

Object = dict[str, Any]


def review(
    resource: Resource, namespace: str, body: Object | None, user: User, authorizer: Authorizer, tokens: Tokens
) -> Object:
    """The review with its status filled in, for the user who asks."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, **(body or {})}
    spec = body.get("spec") or {}
    if resource.kind == "SelfSubjectReview":
        status: Object = {"userInfo": user.data}
    elif resource.kind == "TokenReview":
        found = tokens.user(spec.get("token") or "")
        status = {"authenticated": True, "user": found.data} if found else {"authenticated": False, "user": {}}
    elif resource.kind == "SelfSubjectRulesReview":
        status = _rules(authorizer, user, spec.get("namespace") or "")
    else:
        if resource.kind != "SelfSubjectAccessReview":
            user = User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "")
        why = authorizer.why(user, _wanted(spec, namespace))
        status = {"allowed": why is not None, **({"reason": why} if why else {})}
    return {**body, "status": status}


def _wanted(spec: Object, namespace: str) -> Attributes:
    if spec.get("nonResourceAttributes"):
        asked = spec["nonResourceAttributes"]
        return Attributes(asked.get("verb", ""), path=asked.get("path", ""))
    asked = spec.get("resourceAttributes") or {}
    words = ("verb", "group", "resource", "subresource", "namespace", "name")
    given = {word: asked.get(word) or "" for word in words}
    return Attributes(**{**given, "namespace": given["namespace"] or namespace})


def _rules(authorizer: Authorizer, user: User, namespace: str) -> Object:
    if MASTERS in user.groups:
        rules: list[Any] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        rules.append({"nonResourceURLs": ["*"], "verbs": ["*"]})
    else:
        rules = [rule for rule, _why in authorizer.rules(user, namespace)]
    return {
        "resourceRules": [rule for rule in rules if rule.get("resources")],
        "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
