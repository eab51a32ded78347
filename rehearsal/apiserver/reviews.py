# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds that are answered and never stored. Everything is allowed: the rehearsal has one user."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta, timezone
from typing import Any

from .kinds import Resource

USER = {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}


def review(resource: Resource, body: dict[str, Any] | None) -> dict[str, Any]:
    """The review with its status filled in."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, **(body or {})}
    status: dict[str, Any] = {"allowed": True, "reason": "the rehearsal allows everything"}
    if resource.kind == "SelfSubjectReview":
        status = {"userInfo": USER}
    elif resource.kind == "TokenReview":
        status = {"authenticated": True, "user": USER}
    elif resource.kind == "SelfSubjectRulesReview":
        every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        status = {
            "resourceRules": [every],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    return {**body, "status": status}


def token(name: str, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    """A TokenRequest's answer; the token opens nothing, since nothing asks for one."""
    end = datetime.now(timezone.utc) + timedelta(seconds=(body.get("spec") or {}).get("expirationSeconds") or 3600)
    status = {"token": secrets.token_urlsafe(24), "expirationTimestamp": end.strftime("%Y-%m-%dT%H:%M:%SZ")}
    meta = {"name": name, "namespace": namespace}
    return {
        **body,
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": meta,
        "status": status,
    }
