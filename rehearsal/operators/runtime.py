# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Informers and work queues: a controller names what it watches and reconciles a key at a time, from what it sees.

Nothing here keeps events: a key that changes ten times while it is worked on is worked on once more. That makes
controllers level-triggered, so lost watches, restarts of the API server and repeated deliveries do no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

import aiohttp

from rehearsal.operators.client import Api, ApiError
from rehearsal.operators.kinds import Kind, name_of, namespace_of

LOG = logging.getLogger("operators")
ABSENT_KIND_POLL = 0.5  # seconds between looks for a kind whose CRD is not there yet
SETTLE = 0.02  # seconds in which a burst of changes becomes one reconcile


class Cache:
    """All objects of one kind, kept current by list and watch. A kind that the API does not serve is an empty cache."""

    def __init__(self, api: Api, kind: Kind):
        self._api = api
        self.kind = kind
        self.served = False
        self._objects: dict[tuple[str | None, str], dict] = {}
        self._handlers: list[Callable[[Kind, dict], None]] = []
        self.synced = asyncio.Event()

    def on_change(self, handler: Callable[[Kind, dict], None]) -> None:
        self._handlers.append(handler)

    def get(self, name: str, namespace: str | None = None) -> dict | None:
        return self._objects.get((namespace, name))

    def __iter__(self) -> Iterator[dict]:
        return iter(list(self._objects.values()))

    async def run(self) -> None:
        pause = 0.1
        while True:
            try:
                objects, version = await self._api.list(self.kind)
                self.served = True
                self._replace(objects)
                self.synced.set()
                pause = 0.1
                async for event, obj in self._api.watch(self.kind, version):
                    self._apply(event, obj)
            except ApiError as error:
                if error.code == 404:
                    self.served = False
                    self._replace([])
                    self.synced.set()
                    pause = ABSENT_KIND_POLL
                elif error.code != 410:
                    LOG.warning("%s: %s", self.kind.plural, error)
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as problem:
                LOG.info("watch of %s ended: %r", self.kind.plural, problem)
                self._api.forget_server()
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _replace(self, objects: list[dict]) -> None:
        fresh = {(namespace_of(obj), name_of(obj)): obj for obj in objects}
        gone = [obj for key, obj in self._objects.items() if key not in fresh]
        changed = [obj for key, obj in fresh.items() if self._objects.get(key) != obj]
        self._objects = fresh
        for obj in gone + changed:
            self._notify(obj)

    def _apply(self, event: str, obj: dict) -> None:
        if event == "BOOKMARK":
            return
        key = (namespace_of(obj), name_of(obj))
        if event == "DELETED":
            self._objects.pop(key, None)
        else:
            self._objects[key] = obj
        self._notify(obj)

    def _notify(self, obj: dict) -> None:
        for handler in self._handlers:
            handler(self.kind, obj)


class Controller:
    """Base of all controllers: subclasses set ``watches`` and implement ``keys`` and ``reconcile``."""

    watches: tuple[Kind, ...] = ()
    resync = 30.0  # seconds
    workers = 16

    def __init__(self, manager: Manager):
        self.manager = manager
        self.api = manager.api
        self.log = logging.getLogger(f"operators.{type(self).__name__}")
        for kind in self.watches:
            manager.cache(kind).on_change(self._changed)
        self._running: dict[str, asyncio.Task] = {}
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._slots = asyncio.Semaphore(self.workers)
        self._read: dict[tuple, object] = {}  # what a key was last told of an object

    def cache(self, kind: Kind) -> Cache:
        return self.manager.cache(kind)

    def keys(self, kind: Kind, obj: dict) -> Iterable[str]:
        """The keys to reconcile when ``obj`` changed. The default has one key for the whole cluster."""
        return ("cluster",)

    def read_of(self, kind: Kind, obj: dict, key: str) -> object:
        """What a reconcile of ``key`` reads of ``obj``: it follows only a change of this, so one that looks at a whole
        node need not follow each heartbeat. The default differs each time: every change is news."""
        return object()

    async def reconcile(self, key: str) -> float | None:
        """Bring the world one step nearer to what is wanted; a number asks to be called again after so many seconds."""
        raise NotImplementedError

    def enqueue(self, key: str) -> None:
        # A key has one timer at most: without this each resync would start a row of retries of its own.
        timer = self._timers.pop(key, None)
        if timer:
            timer.cancel()
        if key in self._running:
            self._again.add(key)
        else:
            self._running[key] = asyncio.get_running_loop().create_task(self._work(key))

    def _changed(self, kind: Kind, obj: dict) -> None:
        gone = self.cache(kind).get(name_of(obj), namespace_of(obj)) is None
        for key in self.keys(kind, obj):
            place = (kind, namespace_of(obj), name_of(obj), key)
            read = None if gone else self.read_of(kind, obj, key)
            if gone or place not in self._read or self._read[place] != read:
                self.enqueue(key)
            if gone:
                self._read.pop(place, None)
            else:
                self._read[place] = read

    def known_keys(self) -> set[str]:
        return {key for kind in self.watches for obj in self.cache(kind) for key in self.keys(kind, obj)}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.resync)
            for key in self.known_keys():
                self.enqueue(key)

    async def stop(self) -> None:
        """End what is being worked on; a controller that starts again finds the world as it was left."""
        for timer in self._timers.values():
            timer.cancel()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, key: str) -> None:
        after: float | None = None
        try:
            for kind in self.watches:
                await self.cache(kind).synced.wait()
            while True:
                await asyncio.sleep(SETTLE)
                self._again.discard(key)
                async with self._slots:
                    after = await self._attempt(key)
                if key not in self._again:
                    break
        finally:
            self._running.pop(key, None)
        if after is not None:
            self._timers[key] = asyncio.get_running_loop().call_later(after, self.enqueue, key)

    async def _attempt(self, key: str) -> float | None:
        try:
            after = await self.reconcile(key)
        except ApiError as error:
            self.log.warning("%s: %s", key, error)
        except Exception:
            # A controller outlives a faulty object: it logs and tries the key again, as controller-runtime does.
            self.log.exception("%s: reconcile failed", key)
        else:
            self._failures.pop(key, None)
            return after
        count = self._failures[key] = self._failures.get(key, 0) + 1
        return min(0.2 * 2**count, 15.0)


class Manager:
    """Owns the shared caches and runs controllers until cancelled."""

    def __init__(self, api: Api):
        self.api = api
        self._caches: dict[Kind, Cache] = {}
        self.controllers: list[Controller] = []

    def cache(self, kind: Kind) -> Cache:
        if kind not in self._caches:
            self._caches[kind] = Cache(self.api, kind)
        return self._caches[kind]

    def add(self, *controllers: Controller) -> None:
        self.controllers += controllers

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for runner in [*self._caches.values(), *self.controllers]:
                    group.create_task(runner.run())
        finally:
            for controller in self.controllers:
                await controller.stop()
