# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watch streams: JSON lines of ADDED, MODIFIED, DELETED, BOOKMARK and ERROR.

Rules: "Kubernetes API concepts" (efficient detection of changes, watch bookmarks, streaming lists).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from . import errors, table
from .faults import PATH
from .kinds import Resource
from .rules import present
from .selectors import Predicate
from .store import Event, Store

BOOKMARK_SECONDS = 60.0


def transition(event: Event, selected: Predicate) -> str | None:
    """What a watcher with a selector sees of a change: entering the selection is ADDED, leaving it DELETED."""
    was = event.old is not None and selected(event.old)
    is_in = event.type != "DELETED" and selected(event.new)
    if was and is_in:
        return "MODIFIED"
    return "ADDED" if is_in else "DELETED" if was else None


def _shown(event: Event, seen: str) -> Any:
    """A DELETED event carries the last state that the watcher could see, at the version of the change."""
    if seen == "DELETED" and event.type != "DELETED" and event.old is not None:
        meta = {**event.old["metadata"], "resourceVersion": str(event.version)}
        return {**event.old, "metadata": meta}
    return event.new


def close_all(store: Store) -> int:
    """End every open stream, as a server that shuts down does. Returns how many there were."""
    queues = [queue for kind in store.kinds.values() for queue in kind.watchers]
    for queue in queues:
        queue.put_nowait(None)
    return len(queues)


async def stream(
    request: web.Request, store: Store, resource: Resource, selected: Predicate, faults: Any
) -> web.StreamResponse:
    query = request.query
    start = query.get("resourceVersion", "")
    if start and not start.isdigit():
        raise errors.ApiError(422, "Invalid", f'resourceVersion: Invalid value: "{start}": must be a number')
    initial = query.get("sendInitialEvents") in ("true", "1")
    if "sendInitialEvents" in query and query.get("resourceVersionMatch") != "NotOlderThan":
        text = "sendInitialEvents is only allowed together with resourceVersionMatch=NotOlderThan"
        raise errors.ApiError(
            422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: {text}'
        )
    bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
    kind = store.kind(resource.key)
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    kind.watchers.add(queue)
    faults.watches[queue] = request[PATH]
    version = store.version
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    if initial or start in ("", "0"):
        state = (
            [obj for obj in store.list(resource.key) if selected(obj)]
            if initial or "sendInitialEvents" not in query
            else []
        )
        backlog: Iterable[Event] = ()
    else:
        state = []
        backlog = [event for event in kind.history if event.version > int(start)]
    try:
        await response.prepare(request)
        if start not in ("", "0") and not initial and int(start) < kind.forgotten:
            text = f"too old resource version: {start} ({kind.forgotten})"
            await _send(response, {"type": "ERROR", "object": errors.gone(text).status})
            return response
        writer = _Writer(request, response, resource)
        for obj in state:
            await writer.event("ADDED", obj)
        if initial and bookmarks:
            await writer.bookmark(version, {"k8s.io/initial-events-end": "true"})
        for event in backlog:
            await _relay(writer, event, selected)
        await _follow(queue, writer, selected, store, float(query.get("timeoutSeconds") or 1800), bookmarks)
    except ConnectionError:
        pass  # the client went away
    finally:
        kind.watchers.discard(queue)
        faults.watches.pop(queue, None)
    return response


async def _relay(writer: _Writer, event: Event, selected: Predicate) -> None:
    seen = transition(event, selected)
    if seen:
        await writer.event(seen, _shown(event, seen))


async def _follow(
    queue: Any, writer: _Writer, selected: Predicate, store: Store, seconds: float, bookmarks: bool
) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (left := end - loop.time()) > 0:
        try:
            event = await asyncio.wait_for(queue.get(), min(left, BOOKMARK_SECONDS))
        except asyncio.TimeoutError:
            if bookmarks:
                await writer.bookmark(store.version)
            continue
        if event is None:
            return
        await _relay(writer, event, selected)


class _Writer:
    """Turns objects into lines of the form (object, Table, metadata only) that the request accepts."""

    def __init__(self, request: web.Request, response: web.StreamResponse, resource: Resource) -> None:
        self.request, self.response, self.resource = request, response, resource
        self.first = True

    async def event(self, kind: str, obj: Any) -> None:
        shown = table.convert(self.request, self.resource, present(self.resource, obj), columns=self.first)
        self.first = False
        await _send(self.response, {"type": kind, "object": shown})

    async def bookmark(self, version: int, annotations: dict[str, str] | None = None) -> None:
        meta: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        obj = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": meta}
        await _send(self.response, {"type": "BOOKMARK", "object": obj})


async def _send(response: web.StreamResponse, line: Any) -> None:
    await response.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
