# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects in memory, one resource version counter for all of them, and a bounded history for watches.

Stored objects are never changed in place: an update puts a new object in the old one's stead, so readers need no copy.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]
#: Events kept for each kind; a watch that starts before the oldest one is answered 410 Expired.
HISTORY = 4096


@dataclass(frozen=True)
class Event:
    """A committed change. `old` is None for ADDED; `new` is the last state for DELETED."""

    version: int
    type: str
    old: Object | None
    new: Object


class Kind:
    """Objects, history and watchers of one stored kind."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.history: deque[Event] = deque()
        self.forgotten = 0  # newest version that the history no longer holds
        self.watchers: set[asyncio.Queue[Event | None]] = set()


class Store:
    def __init__(self, history: int = HISTORY) -> None:
        self.version = 1
        self.kinds: dict[Key, Kind] = {}
        self.uids: dict[str, tuple[Key, str, str]] = {}
        self.dependents: dict[str, set[tuple[Key, str, str]]] = {}
        self.listeners: list[Any] = []
        self._history = history

    def kind(self, key: Key) -> Kind:
        return self.kinds.setdefault(key, Kind())

    def get(self, key: Key, namespace: str, name: str) -> Object | None:
        return self.kind(key).objects.get((namespace, name))

    def list(self, key: Key, namespace: str = "") -> Iterator[Object]:
        """Objects in the order of (namespace, name), as etcd keys are."""
        objects = self.kind(key).objects
        return (objects[place] for place in sorted(objects) if not namespace or place[0] == namespace)

    def by_uid(self, uid: str) -> Object | None:
        place = self.uids.get(uid)
        return self.get(*place) if place else None

    def put(self, key: Key, obj: Object) -> Object:
        """Commit `obj` (new or changed) under the next resource version; returns the stored object."""
        kind, meta = self.kind(key), obj["metadata"]
        place = (meta.get("namespace", ""), meta["name"])
        old = kind.objects.get(place)
        self.version += 1
        obj = {**obj, "metadata": {**meta, "resourceVersion": str(self.version)}}
        kind.objects[place] = obj
        self._index((key, *place), old, obj)
        self._publish(key, Event(self.version, "MODIFIED" if old else "ADDED", old, obj))
        return obj

    def remove(self, key: Key, namespace: str, name: str) -> Object:
        """Take an object out; its last state gets the version of the deletion, as etcd watchers see it."""
        old = self.kind(key).objects.pop((namespace, name))
        self.version += 1
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        self._index((key, namespace, name), old, None)
        self._publish(key, Event(self.version, "DELETED", old, last))
        return last

    def _index(self, place: tuple[Key, str, str], old: Object | None, new: Object | None) -> None:
        for obj, add in ((old, False), (new, True)):
            if obj is None:
                continue
            uid = obj["metadata"]["uid"]
            if add:
                self.uids[uid] = place
            else:
                self.uids.pop(uid, None)
            for owner in obj["metadata"].get("ownerReferences") or []:
                members = self.dependents.setdefault(owner["uid"], set())
                members.add(place) if add else members.discard(place)
                if not members:
                    del self.dependents[owner["uid"]]

    def _publish(self, key: Key, event: Event) -> None:
        kind = self.kind(key)
        kind.history.append(event)
        while len(kind.history) > self._history:
            kind.forgotten = kind.history.popleft().version
        for queue in kind.watchers:
            queue.put_nowait(event)
        for listener in self.listeners:
            listener(key, event)
