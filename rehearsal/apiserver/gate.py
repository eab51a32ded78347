# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guarded door of the API: who asks (401) and whether RBAC allows it (403).

Requests that come in by the secret path have no guard; handlers then find nothing at GUARD and nothing is checked.
Texts and order: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go and pkg/endpoints/filters. The right is
checked before anything else, so a path that does not exist is a 403, too, for whom it is not allowed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aiohttp import web

from . import errors
from .attributes import Attributes, attributes_of
from .errors import ApiError
from .faults import PATH, USER
from .kinds import Resource
from .rbac import ANONYMOUS, Authorizer, User
from .store import Object
from .tokens import Tokens


def refusal(user: User, wanted: Attributes) -> ApiError:
    """403 as the authorization filter answers it."""
    if wanted.path:
        return ApiError(403, "Forbidden", f'forbidden: User "{user.name}" cannot {wanted.verb} path "{wanted.path}"')
    place = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {wanted.verb} resource "{wanted.full_resource}" in API group "{wanted.group}" {place}'
    if wanted.name:
        return errors.forbidden(wanted.resource, wanted.group, wanted.name, why)
    text = f"{errors.qualified(wanted.resource, wanted.group)} is forbidden: {why}"
    return ApiError(403, "Forbidden", text, group=wanted.group, kind=wanted.resource)


class Guard:
    """The user of one request and what it asks for."""

    def __init__(self, authorizer: Authorizer, user: User, wanted: Attributes) -> None:
        self.authorizer, self.user, self.wanted = authorizer, user, wanted

    def demand(self, **other: str) -> None:
        """Raise 403 unless the user may do what the request asks for, with `other` in place of its own attributes."""
        wanted = replace(self.wanted, **other)
        if self.authorizer.why(self.user, wanted) is None:
            raise refusal(self.user, wanted)

    def may_create(self, resource: Resource, name: str) -> None:
        """Raise 403 unless the user may create what his apply names and what is not there yet. This is asked where the
        object would be created, and RBAC gives no reason to tell (pkg/endpoints/handlers/create.go, withAuthorization).
        """
        if self.authorizer.why(self.user, replace(self.wanted, verb="create")) is None:
            raise errors.forbidden(resource.plural, resource.group, name, "")

    def may_grant(self, resource: Resource, namespace: str, obj: Object, old: Object | None) -> None:
        """Raise 403 when a role or binding would hand out rights that its writer does not have."""
        why = self.authorizer.refusal_to_grant(self.user, resource.plural, namespace, obj, old)
        if why:
            raise errors.forbidden(resource.plural, resource.group, obj["metadata"]["name"], why)


GUARD = web.RequestKey("guard", Guard)


def middleware(authorizer: Authorizer, tokens: Tokens) -> Any:
    """Middleware of the guarded door."""

    @web.middleware
    async def handle(request: web.Request, handler: Any) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        scheme, _, token = header.partition(" ")
        user = tokens.user(token.strip()) if scheme.lower() == "bearer" else None if header else ANONYMOUS
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        request[USER] = user.name
        wanted = attributes_of(request.method, request[PATH], request.query)
        request[GUARD] = guard = Guard(authorizer, user, wanted)
        guard.demand()
        if wanted.subresource in ("exec", "attach", "portforward") and wanted.resource == "pods":
            # A WebSocket begins with GET; since 1.35 it needs create as SPDY's POST does (feature gate
            # AuthorizePodWebsocketUpgradeCreatePermission).
            guard.demand(verb="create")
        return await handler(request)

    return handle
