# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Background work that makes objects go away: owner references, namespaces and CRDs that are being deleted.

In a real cluster kube-controller-manager (garbage collector, namespace controller) and the API server's own CRD
finalizer do this. Sources: "Garbage Collection" and "Finalizers" in the Kubernetes documentation.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from . import crds
from .api import Api
from .errors import ApiError
from .store import Event, Object

Key = tuple[str, str]
Place = tuple[Key, str, str]
NAMESPACES: Key = ("", "namespaces")
log = logging.getLogger(__name__)


class Controllers:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.queue: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        api.store.listeners.append(self._notice)

    def _notice(self, key: Key, event: Event) -> None:
        """Queue what a change may set off. Work is done later, so the writer's transaction ends first."""
        meta = event.new["metadata"]
        place = (key, meta.get("namespace", ""), meta["name"])
        deleting = meta.get("deletionTimestamp")
        if event.type == "DELETED":
            for dependent in self.api.store.dependents.get(meta["uid"], ()):
                self.queue.put_nowait((self._collect, dependent))
            for owner in meta.get("ownerReferences") or []:
                if owner["uid"] in self.api.store.uids:
                    self.queue.put_nowait((self._finish_owner, self.api.store.uids[owner["uid"]]))
            if meta.get("namespace"):
                self.queue.put_nowait((self._empty_namespace, meta["namespace"]))
            self.queue.put_nowait((self._empty_crd, key))
        else:
            if meta.get("ownerReferences"):
                self.queue.put_nowait((self._collect, place))
            if deleting and {"foregroundDeletion", "orphan"} & set(meta.get("finalizers") or []):
                self.queue.put_nowait((self._finish_owner, place))
            if deleting and key == NAMESPACES:
                self.queue.put_nowait((self._empty_namespace, meta["name"]))
            if deleting and key == crds.KEY:
                self.queue.put_nowait(
                    (self._empty_crd, (event.new["spec"]["group"], event.new["spec"]["names"]["plural"]))
                )

    async def run(self) -> None:
        while True:
            work, argument = await self.queue.get()
            try:
                work(argument)
            except ApiError as error:
                log.info("%s %s: %s", work.__name__, argument, error)

    def _delete(self, place: Place, policy: str = "Background") -> None:
        key, namespace, name = place
        obj = self.api.store.get(key, namespace, name)
        resource = self.api.registry.by_kind(key[0], obj["kind"]) if obj else None
        if resource:
            self.api.delete(resource, namespace, name, {"propagationPolicy": policy})
        elif obj:
            self.api.remove_now(key, obj)

    def _collect(self, place: Place) -> None:
        """Delete an object whose owners are all gone; take away references to single ones that are gone."""
        obj = self.api.store.get(*place)
        owners = (obj["metadata"].get("ownerReferences") or []) if obj else []
        if not owners or obj["metadata"].get("deletionTimestamp"):
            return
        live = [owner for owner in owners if self._exists(owner, obj)]
        if not live:
            self._delete(place)
        elif len(live) < len(owners):
            self.api.change(*place, lambda old: _with_meta(old, ownerReferences=live))

    def _exists(self, owner: Object, obj: Object) -> bool:
        """An owner counts when it has the uid and lives in the object's namespace or in none."""
        found = self.api.store.by_uid(owner["uid"])
        return found is not None and found["metadata"].get("namespace", "") in (
            "",
            obj["metadata"].get("namespace", ""),
        )

    def _finish_owner(self, place: Place) -> None:
        """Orphan: free the dependents. Foreground: delete them, and the owner when no blocking one is left."""
        owner = self.api.store.get(*place)
        meta = owner["metadata"] if owner else {}
        finalizers = meta.get("finalizers") or []
        if not meta.get("deletionTimestamp") or not {"foregroundDeletion", "orphan"} & set(finalizers):
            return
        uid, waiting = meta["uid"], False
        for dependent in list(self.api.store.dependents.get(uid, ())):
            obj = self.api.store.get(*dependent)
            if obj is None:
                continue
            references = obj["metadata"]["ownerReferences"]
            if "orphan" in finalizers:
                kept = [reference for reference in references if reference["uid"] != uid]
                self.api.change(*dependent, lambda old, kept=kept: _with_meta(old, ownerReferences=kept))
                continue
            if not obj["metadata"].get("deletionTimestamp"):
                self._delete(dependent, "Foreground")
            blocks = any(reference["uid"] == uid and reference.get("blockOwnerDeletion") for reference in references)
            waiting = waiting or (blocks and self.api.store.get(*dependent) is not None)
        if not waiting:
            kept = [item for item in finalizers if item not in ("foregroundDeletion", "orphan")]
            self.api.change(*place, lambda old: _with_meta(old, finalizers=kept))

    def _empty_namespace(self, name: str) -> None:
        namespace = self.api.store.get(NAMESPACES, "", name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return
        left = False
        for key, kind in list(self.api.store.kinds.items()):
            for place in [place for place in kind.objects if place[0] == name]:
                if not kind.objects[place]["metadata"].get("deletionTimestamp"):
                    self._delete((key, *place))
                left = left or place in kind.objects
        if not left:
            self.api.change(
                NAMESPACES, "", name, lambda old: {**old, "spec": {**(old.get("spec") or {}), "finalizers": []}}
            )

    def _empty_crd(self, key: Key) -> None:
        name = f"{key[1]}.{key[0]}"
        crd = self.api.store.get(crds.KEY, "", name)
        if crd is None or not crd["metadata"].get("deletionTimestamp"):
            return
        objects = self.api.store.kind(key).objects
        for place in list(objects):
            if not objects[place]["metadata"].get("deletionTimestamp"):
                self._delete((key, *place))
        if not objects:
            kept = [item for item in crd["metadata"].get("finalizers") or [] if item != crds.FINALIZER]
            self.api.change(crds.KEY, "", name, lambda old: _with_meta(old, finalizers=kept))


def _with_meta(obj: Object, **changes: Any) -> Object:
    meta = {**obj["metadata"], **changes}
    return {**obj, "metadata": {key: value for key, value in meta.items() if value != []}}
