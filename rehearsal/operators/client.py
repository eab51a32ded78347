# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small Kubernetes API client over aiohttp: kubeconfig, retries, and one call a verb. Objects are plain dicts."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator
from datetime import datetime, timezone
from pathlib import Path

import aiohttp
import yaml

from rehearsal.operators.kinds import EVENT, Kind, name_of, namespace_of

LOG = logging.getLogger("operators.api")
# Retried because the server did not act, or the action is safe to repeat in a level-triggered controller.
RETRIED = frozenset({429, 500, 502, 503, 504})
ATTEMPTS = 8
MERGE_PATCH = "application/merge-patch+json"


class ApiError(Exception):
    """The API answered with a Status: ``code`` is the HTTP code, ``reason`` its machine-readable word."""

    def __init__(self, code: int, reason: str, message: str):
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason


def now() -> str:
    """The present time as metav1.Time writes it: UTC, whole seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _material(source: dict, key: str) -> str | None:
    """A file path for a kubeconfig entry that is given as a path (``key``) or inline (``key-data``)."""
    if source.get(key):
        return source[key]
    data = source.get(f"{key}-data")
    if not data:
        return None
    with tempfile.NamedTemporaryFile(delete=False, prefix="operators-") as file:
        file.write(base64.b64decode(data))
    return file.name


def read_kubeconfig(path: Path) -> tuple[str, dict[str, str], ssl.SSLContext | None]:
    """Server URL, request headers and TLS context of the current context of a kubeconfig.

    :raises OSError: the file cannot be read.
    :raises KeyError: the file has no such context, cluster or user.
    """
    config = yaml.safe_load(path.read_text())
    named = {
        section: {entry["name"]: entry for entry in config.get(section) or []}
        for section in ("contexts", "clusters", "users")
    }
    context = named["contexts"][config["current-context"]]["context"]
    cluster = named["clusters"][context["cluster"]]["cluster"]
    user = (named["users"].get(context.get("user")) or {}).get("user") or {}
    headers = {"Authorization": f"Bearer {user['token']}"} if user.get("token") else {}
    server = cluster["server"].rstrip("/")
    if not server.startswith("https"):
        return server, headers, None
    tls = ssl.create_default_context(cafile=_material(cluster, "certificate-authority"))
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate = _material(user, "client-certificate")
    if certificate:
        tls.load_cert_chain(certificate, _material(user, "client-key"))
    return server, headers, tls


class Api:
    """Calls to one API server; the kubeconfig is read again when the server went away, since its port may change."""

    def __init__(self, kubeconfig: Path):
        self._kubeconfig = kubeconfig
        self._session: aiohttp.ClientSession | None = None
        self._target: tuple[str, dict[str, str], ssl.SSLContext | None] | None = None

    async def __aenter__(self) -> Api:
        # Node states of 16 rails are long lines in a watch, so the reader's buffer must hold them.
        self._session = aiohttp.ClientSession(read_bufsize=2**24, connector=aiohttp.TCPConnector(limit=0))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._session:
            await self._session.close()

    def _request(self, method: str, path: str, **kwargs) -> aiohttp.client._RequestContextManager:
        if self._target is None:
            self._target = read_kubeconfig(self._kubeconfig)
        server, headers, tls = self._target
        headers = {**headers, **kwargs.pop("headers", {})}
        return self._session.request(method, server + path, headers=headers, ssl=tls if tls else True, **kwargs)

    async def call(
        self,
        method: str,
        path: str,
        body: dict | None = None,
        params: dict | None = None,
        content_type: str = "application/json",
    ) -> dict:
        """One request, repeated with growing pauses while the server is away, busy or failing.

        :raises ApiError: the answer was an error that a repetition does not cure, or it did not end.
        """
        pause = 0.1
        data = None if body is None else json.dumps(body)
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                timeout = aiohttp.ClientTimeout(total=30)
                headers = {"Content-Type": content_type, "Accept": "application/json"}
                async with self._request(
                    method, path, data=data, params=params, headers=headers, timeout=timeout
                ) as answer:
                    text = await answer.text()
                    if answer.status < 400:
                        return json.loads(text) if text else {}
                    error = _error(answer.status, text)
                    if answer.status not in RETRIED or last:
                        raise error
                    pause = max(pause, float(answer.headers.get("Retry-After") or 0))
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError, KeyError, yaml.YAMLError) as problem:
                self._target = None
                if last:
                    raise ApiError(0, "Unreachable", f"{method} {path}: {problem!r}") from problem
            await asyncio.sleep(pause)
            pause = min(pause * 2, 3.0)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def get(self, kind: Kind, namespace: str | None, name: str) -> dict | None:
        """The object, or None when it (or its kind) does not exist."""
        try:
            return await self.call("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def create(self, kind: Kind, obj: dict) -> bool:
        """Create ``obj``; False when it was there already."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        try:
            await self.call("POST", kind.path(namespace_of(obj)), body)
        except ApiError as error:
            if error.code == 409:
                return False
            raise
        return True

    async def patch(self, kind: Kind, obj: dict, change: dict, subresource: str | None = None) -> None:
        """Merge-patch ``obj`` (RFC 7386: null removes a key, lists are replaced). A missing object is no error."""
        try:
            await self.call(
                "PATCH", kind.path(namespace_of(obj), name_of(obj), subresource), change, content_type=MERGE_PATCH
            )
        except ApiError as error:
            if error.code != 404:
                raise

    async def delete(self, kind: Kind, obj: dict, grace_seconds: int | None = None, policy: str | None = None) -> None:
        """Delete ``obj`` (only that very one: its uid is a precondition). A missing object is no error."""
        options: dict = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if obj["metadata"].get("uid"):
            options["preconditions"] = {"uid": obj["metadata"]["uid"]}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if policy is not None:
            options["propagationPolicy"] = policy
        try:
            await self.call("DELETE", kind.path(namespace_of(obj), name_of(obj)), options)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def list(self, kind: Kind) -> tuple[list[dict], str]:
        """All objects of a kind in all namespaces, and the resource version to watch from."""
        answer = await self.call("GET", kind.path())
        return answer.get("items") or [], answer.get("metadata", {}).get("resourceVersion", "")

    async def watch(self, kind: Kind, resource_version: str) -> AsyncIterator[tuple[str, dict]]:
        """Watch events (type, object) until the server ends the stream.

        :raises ApiError: the watch was refused or ended by an ERROR event (410 means: list again).
        """
        params = {
            "watch": "1",
            "resourceVersion": resource_version,
            "timeoutSeconds": "300",
            "allowWatchBookmarks": "true",
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_read=330)
        async with self._request("GET", kind.path(), params=params, timeout=timeout) as answer:
            if answer.status >= 400:
                raise _error(answer.status, await answer.text())
            async for line in answer.content:
                if not line.strip():
                    continue
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(status.get("code", 500), status.get("reason", ""), status.get("message", ""))
                yield event["type"], event["object"]

    def forget_server(self) -> None:
        """Read the kubeconfig again at the next request."""
        self._target = None

    async def event(self, kind: Kind, obj: dict, reason: str, message: str, source: str, warning: bool = True) -> None:
        """Record an event about ``obj``; a repeated one raises the count of the first, as client-go's recorder does."""
        namespace = namespace_of(obj) or "default"
        # Repetitions must meet the same event, so the name follows from what is said about which object.
        digest = abs(hash((obj["metadata"].get("uid"), reason, message)))
        name = f"{name_of(obj)}.{digest:016x}"
        stamp = now()
        fresh = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": name_of(obj),
                "namespace": namespace_of(obj),
                "uid": obj["metadata"].get("uid"),
            },
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": source},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        try:
            if not await self.create(EVENT, fresh):
                seen = await self.get(EVENT, namespace, name)
                if seen:
                    await self.patch(EVENT, seen, {"count": seen.get("count", 1) + 1, "lastTimestamp": stamp})
        except ApiError as error:
            LOG.warning("event %s about %s not recorded: %s", reason, name_of(obj), error)


def _error(code: int, text: str) -> ApiError:
    try:
        status = json.loads(text)
        return ApiError(code, status.get("reason", ""), status.get("message", text))
    except (json.JSONDecodeError, AttributeError):
        return ApiError(code, "", text[:300])
