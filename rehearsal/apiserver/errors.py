# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""API errors as metav1.Status objects.

Reasons, codes and wording follow k8s.io/apimachinery pkg/api/errors, since clients branch on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class ApiError(Exception):
    """An answer other than success. `status` is the metav1.Status as data; `headers` go out with it."""

    def __init__(self, code: int, reason: str, message: str, headers: dict[str, str] | None = None, **details: Any):
        super().__init__(message)
        self.code = code
        self.headers = headers or {}
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        details = {key: value for key, value in details.items() if value not in (None, "", [])}
        if details:
            self.status["details"] = details


@dataclass(frozen=True)
class Cause:
    """One mistake in an object. `field` is a path like `spec.mtu`; `reason` a metav1.CauseType."""

    field: str
    reason: str
    message: str

    def data(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def success(**details: Any) -> dict[str, Any]:
    """The Status that a DELETE or a virtual create answers."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**status, "details": details} if details else status


def qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, group: str, name: str) -> ApiError:
    return ApiError(
        404, "NotFound", f'{qualified(plural, group)} "{name}" not found', name=name, group=group, kind=plural
    )


class NoSuchPath(ApiError):
    """A path or kind that is not served; answered as plain text, as net/http does."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def no_such_path() -> ApiError:
    return NoSuchPath()


def already_exists(plural: str, group: str, name: str) -> ApiError:
    message = f'{qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, name=name, group=group, kind=plural)


def conflict(plural: str, group: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, name=name, group=group, kind=plural)


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> ApiError:
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    body = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return ApiError(
        422,
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {body}',
        name=name,
        group=group,
        kind=kind,
        causes=[cause.data() for cause in causes],
    )


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def forbidden(plural: str, group: str, name: str, why: str, causes: list[Cause] | None = None) -> ApiError:
    return ApiError(
        403,
        "Forbidden",
        f'{qualified(plural, group)} "{name}" is forbidden: {why}',
        name=name,
        group=group,
        kind=plural,
        causes=[cause.data() for cause in causes or []],
    )


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def gone(message: str, reason: str = "Expired") -> ApiError:
    return ApiError(410, reason, message)


def too_many_requests(message: str, retry_after: int = 10, causes: list[Cause] | None = None) -> ApiError:
    return ApiError(
        429,
        "TooManyRequests",
        message,
        headers={"Retry-After": str(retry_after)} if retry_after else None,
        causes=[cause.data() for cause in causes or []],
        retryAfterSeconds=retry_after,
    )
