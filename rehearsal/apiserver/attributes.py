# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a request wants, in the words of RBAC: verb, group, resource, subresource, namespace, name.

Rules: k8s.io/apiserver pkg/endpoints/request/requestinfo.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
#: Words after a namespace's name that belong to the namespace itself.
OF_NAMESPACE = ("status", "finalize")


@dataclass(frozen=True)
class Attributes:
    """One right. `path` is set, and the rest empty, for requests that are about no resource (/version, /apis …)."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """The right that a request needs first. Server-side apply and exec may need a second one, see gate.py."""
    parts = [part for part in path.split("/") if part]
    if not parts or parts[0] not in ("api", "apis") or len(parts) < (3 if parts[0] == "api" else 4):
        return Attributes(method.lower(), path=path)
    group = "" if parts[0] == "api" else parts[1]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in OF_NAMESPACE:
            parts = parts[2:]
    resource, name, subresource = (*parts, "", "")[:3]
    verb = VERBS.get(method, method.lower())
    if verb == "get" and query.get("watch") in ("true", "1"):
        verb = "watch"
    elif verb == "get" and not name:
        verb = "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    if verb in ("list", "watch", "deletecollection"):
        name = _selected_name(query.get("fieldSelector", "")) or name
    return Attributes(verb, group, resource, subresource, namespace, name)


def _selected_name(selector: str) -> str:
    """The name in a field selector metadata.name=X: it counts as the name of the request."""
    for term in selector.split(","):
        key, equals, value = term.replace("==", "=").partition("=")
        if equals and key == "metadata.name" and not key.endswith("!"):
            return value
    return ""
