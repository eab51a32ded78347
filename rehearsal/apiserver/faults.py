# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request log, error answers, and faults that a test orders at /rehearsal/faults.

A fault is `{"count": 2, "method": "PATCH", "path": "<regular expression>", "status": 429, "retryAfter": 1}`; every key
but `status` may be left out. Status 0 ends the connection without an answer, as a server that dies does.
`{"close_watches": "<regular expression>"}` ends the open watch streams whose path
matches.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from .errors import ApiError, NoSuchPath, bad_request

REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_KEYS = {"count", "method", "path", "user_agent", "status", "retryAfter", "message"}


#: The path as the Kubernetes API names it, without the secret prefix of the server URL.
PATH = web.RequestKey("path", str)
#: Who asks, at the guarded door.
USER = web.RequestKey("user", str)


class Faults:
    def __init__(self) -> None:
        self.pending: list[dict[str, Any]] = []
        self.watches: dict[Any, str] = {}

    async def handle(self, request: web.Request) -> web.Response:
        """GET lists the faults that wait, POST adds one, DELETE takes all away."""
        if request.method == "DELETE":
            self.pending.clear()
        elif request.method == "POST":
            fault = await request.json()
            if "close_watches" in fault:
                return web.json_response({"closed": self._close(fault["close_watches"])})
            unknown = set(fault) - _KEYS
            if unknown or fault.get("status") not in (0, *REASONS):
                text = f"a fault has keys {sorted(_KEYS)} and a status of {[0, *sorted(REASONS)]}, got {fault}"
                raise bad_request(text)
            self.pending.append({"count": 1, **fault})
        return web.json_response(self.pending)

    def _close(self, pattern: str) -> int:
        found = [queue for queue, path in self.watches.items() if re.search(pattern, path)]
        for queue in found:
            queue.put_nowait(None)
        return len(found)

    def strike(self, request: web.Request) -> None:
        """Raise the first fault that this request meets, and count it down."""
        for fault in self.pending:
            if fault.get("method", request.method) != request.method:
                continue
            agent = request.headers.get("User-Agent", "")
            if not re.search(fault.get("path", ""), f"{request[PATH]}?{request.query_string}") or not re.search(
                fault.get("user_agent", ""), agent
            ):
                continue
            fault["count"] -= 1
            if fault["count"] <= 0:
                self.pending.remove(fault)
            if fault["status"] == 0:
                if request.transport:
                    request.transport.abort()
                raise ConnectionResetError("a fault that the rehearsal ordered")
            after = fault.get("retryAfter")
            headers = {"Retry-After": str(after)} if after is not None else None
            text = fault.get("message", "a fault that the rehearsal ordered")
            raise ApiError(fault["status"], REASONS[fault["status"]], text, headers, retryAfterSeconds=after)


class RequestLog:
    def __init__(self, path: Path | None) -> None:
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1) if path else None

    def write(self, request: web.Request, status: int, started: float) -> None:
        if not self._file:
            return
        row = {
            "time": round(time.time(), 3),
            "method": request.method,
            "path": request[PATH],
            "query": request.query_string,
            "user_agent": request.headers.get("User-Agent", ""),
            "status": status,
            "ms": round((time.monotonic() - started) * 1000, 2),
        }
        if USER in request:
            row["user"] = request[USER]
        self._file.write(json.dumps(row) + "\n")

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None


def middleware(faults: Faults, log: RequestLog, prefix: str) -> Any:
    """Middleware of the API; handlers find the path without `prefix` at PATH."""

    @web.middleware
    async def handle(request: web.Request, handler: Any) -> web.StreamResponse:
        started = time.monotonic()
        status = 500
        request[PATH] = request.path.removeprefix(prefix)
        try:
            if request[PATH].startswith(("/api", "/openapi")):
                faults.strike(request)
            response = await handler(request)
            status = response.status
            return response
        except asyncio.CancelledError:
            status = 499  # the client went away
            raise
        except NoSuchPath as error:
            status = error.code
            return web.Response(text=f"{error}\n", status=status)
        except ApiError as error:
            status = error.code
            return web.json_response(error.status, status=status, headers=error.headers)
        except web.HTTPException as error:
            status = error.status
            if status == 404:
                return web.Response(text="404 page not found\n", status=status)
            reason = {405: "MethodNotAllowed", 413: "RequestEntityTooLarge"}.get(status, "")
            return web.json_response(ApiError(status, reason, error.reason).status, status=status)
        finally:
            log.write(request, status, started)

    return handle
