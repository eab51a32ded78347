# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Talk to the Kubernetes API: one request function with bounded retries, and the discovery of kinds.

The connection itself is made by kubernetes.core, so kubeconfig, context and every ``K8S_AUTH_*`` variable work as its
users
know them. Nothing here imports Ansible or kubernetes at load time: the callers' tests pass a plain function as
transport.
"""

from __future__ import annotations

import json
import random
import time

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import forbidden, trouble

# 409 is in the list because a lost optimistic lock is answered with it; a field ownership conflict is told apart below.
RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})
ATTEMPTS = 6
LONGEST_PAUSE = 8.0
# Key of a plain text in what a transport gives back.
TEXT = "text/plain"
# Seconds to get a connection, and to get an answer over it.
CONNECT_TIMEOUT, REQUEST_TIMEOUT = 10, 60


class ApiError(Exception):
    """An answer of the API server that is not a success, or no answer at all (``status`` 0).

    Attributes: status (int), reason (str), message (str), causes (list of ``{reason, field, message}``), retry_after
    (float or None), hopeless (bool: no later try can end otherwise, as with a certificate that is not trusted).
    """

    def __init__(self, status, message, reason="", causes=None, retry_after=None, hopeless=False):
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.causes = causes or []
        self.retry_after = retry_after
        self.hopeless = hopeless

    def __str__(self):
        # The message grows on its way: how often it was tried, which right is missing.
        return self.message

    @property
    def field_conflict(self):
        """True when another field manager owns a field that server-side apply wanted to set (not worth a retry)."""
        return self.status == 409 and any(c.get("reason") == "FieldManagerConflict" for c in self.causes)

    @property
    def refused(self):
        """True when the object itself is wrong. An unknown field in a server-side apply is answered with 500, because
        the typed conversion fails before any validation (structured-merge-diff)."""
        return self.status in (400, 422) or (self.status == 500 and "typed patch object" in self.message)

    @property
    def retriable(self):
        if self.field_conflict or self.refused or self.hopeless or self.reason == "AlreadyExists":
            return False
        return self.status == 0 or self.status in RETRIED


# How an error without an answer begins; transports write it.
NO_ANSWER = "the API server does not answer"


def answer_text(error):
    """An ApiError in a message: ``HTTP status 403: nodes is forbidden…``, or ``no answer: …`` where nobody answered."""
    if error.status:
        return f"HTTP status {error.status}: {error.message}"
    return f"no answer: {error.message.removeprefix(NO_ANSWER).removeprefix(': ') or NO_ANSWER}"


class KindNotServed(Exception):
    """The API server does not serve this kind: its CustomResourceDefinition is not installed."""

    def __init__(self, api_version, kind):
        super().__init__(f"{kind} of {api_version}")
        self.api_version = api_version
        self.kind = kind


def error_from_body(status, body, reason="", headers=None):
    """ApiError from the body of a failed answer: a Status object as JSON, or any text.

    The shape of Status, details and causes: k8s.io/apimachinery, meta/v1, types.go.
    """
    message, causes, retry_after = "", [], None
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    try:
        parsed = json.loads(body) if body else {}
    except ValueError:
        parsed = {"message": str(body)[:500]}
    if isinstance(parsed, dict):
        message = str(parsed.get("message") or "")
        reason = str(parsed.get("reason") or reason or "")
        details = parsed.get("details")
        if isinstance(details, dict):
            causes = [c for c in details.get("causes") or [] if isinstance(c, dict)]
            retry_after = details.get("retryAfterSeconds")
    if retry_after is None and headers is not None:
        retry_after = headers.get("Retry-After")
    try:
        retry_after = None if retry_after is None else float(retry_after)
    except (TypeError, ValueError):
        retry_after = None  # The header may also be a date; our own backoff serves then.
    return ApiError(status, message or reason or f"HTTP status {status}", reason, causes, retry_after)


class Api:
    """Requests with retries over a transport.

    transport: function ``(method, path, query, body, content_type) -> dict`` that raises ApiError; query is a list of
    pairs.
    pause, clock: functions that sleep and tell seconds (tests replace them); attempts: tries per request, all pauses
    together stay under half a minute.
    """

    def __init__(self, transport, pause=time.sleep, attempts=ATTEMPTS, clock=time.monotonic):
        self._transport = transport
        self._pause = pause
        self._clock = clock
        self._attempts = attempts
        self._served = {}
        self.requests = 0
        self.retries = 0

    def request(self, method, path, query=(), body=None, content_type="application/json", attempts=None):
        """One request; repeats it while the error is worth it. All our requests may be repeated: reads, apply,
        delete. ``attempts`` 1: the caller looks again itself, since the same request would fail again."""
        attempts = attempts or self._attempts
        attempt, started = 0, self._clock()
        while True:
            attempt += 1
            self.requests += 1
            try:
                return self._transport(method, path, list(query), body, content_type)
            except ApiError as error:
                if not error.retriable or attempt >= attempts:
                    if attempt > 1:
                        seconds = self._clock() - started
                        error.message += f" (tried {int(attempt)} times in {seconds:.0f} s)"
                    if error.status == 403:
                        error.message = forbidden.explain(error.message, method, path)
                    raise
                self.retries += 1
                pause = error.retry_after if error.retry_after is not None else 0.2 * 2 ** (attempt - 1)
                # Jitter keeps many controllers from coming back in the same moment.
                self._pause(min(pause, LONGEST_PAUSE) * random.uniform(0.8, 1.0))

    def get(self, path, query=()):
        return self.request("GET", path, query)

    def text(self, path, query=()):
        """What is no JSON: the log of a container."""
        return self.get(path, query).get(TEXT, "")

    def list_items(self, path, query=()):
        """All items of a collection, page by page. A page holds 500 objects, as kubectl asks."""
        items, token = [], None
        while True:
            page = [*query, ("limit", "500")] + ([("continue", token)] if token else [])
            answer = self.get(path, page)
            items.extend(answer.get("items") or [])
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return items

    def find(self, path, attempts=None):
        """The object at a path, None when it is not there."""
        try:
            return self.request("GET", path, attempts=attempts)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def delete(self, path, uid, propagation=None):
        """Delete the object at a path if it is still the one with that uid; that it is gone (404) or another has taken its
        name (409) is as good.

        propagation: ``Background``, ``Foreground`` or ``Orphan``; None for the kind's own default.
        """
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if propagation:
            body["propagationPolicy"] = propagation
        try:
            self.request("DELETE", path, body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def find_named(self, api_version, kind, namespace, name):
        """An object, None when it is not there or its kind is not served (yet)."""
        try:
            return self.find(self.path(api_version, kind, namespace, name))
        except KindNotServed:
            return None

    def serves(self, api_version, kind):
        """Whether the server serves a kind (yet)."""
        return kind in self._resources(api_version)

    def list_kind(self, api_version, kind, namespace=None, query=()):
        """All objects of a kind; none when the kind is not served (yet)."""
        try:
            path = self.path(api_version, kind, namespace)
        except KindNotServed:
            return []
        return self.list_items(path, query)

    def _resources(self, api_version):
        if api_version not in self._served:
            root = "/api/" if "/" not in api_version else "/apis/"
            answer = self.find(root + api_version) or {}
            self._served[api_version] = {
                r["kind"]: r for r in answer.get("resources") or [] if "/" not in r.get("name", "/")
            }
        return self._served[api_version]

    def forget_kinds(self):
        """Ask the server again which kinds it has (after a CustomResourceDefinition was installed)."""
        self._served.clear()

    def kind(self, api_version, kind):
        """Resource description ``{name, namespaced, …}`` of a kind. Raises KindNotServed."""
        resource = self._resources(api_version).get(kind)
        if resource is None:
            raise KindNotServed(api_version, kind)
        return resource

    def path(self, api_version, kind, namespace=None, name=None):
        """Path of an object or of a collection; the namespace counts only for namespaced kinds."""
        resource = self.kind(api_version, kind)
        parts = ["/api" if "/" not in api_version else "/apis", api_version]
        if resource.get("namespaced") and namespace:
            parts += ["namespaces", namespace]
        parts.append(resource["name"])
        if name:
            parts.append(name)
        return "/".join(parts)


def decoded(answer):
    """The body of an answer: JSON, or ``{TEXT: text}`` for what is plain text, such as a log."""
    kind = (getattr(answer, "headers", None) or {}).get("Content-Type") or ""
    if kind.startswith("text/plain"):
        return {TEXT: answer.data.decode("utf-8", "replace")}
    try:
        return json.loads(answer.data)
    except ValueError as error:
        text = "the answer is no JSON. Is this the URL of an API server, or of something in front of it?"
        raise ApiError(0, f"{text} It begins with {answer.data[:80]!r}", hopeless=True) from error


def dynamic_transport(client):
    """Transport over a kubernetes DynamicClient (its ``request`` has kept its signature over all releases).

    Its attribute ``railyard_source``, where it is set, says in an error where the connection comes from
    (trouble.source_text).
    """
    from kubernetes.client.rest import ApiException

    configuration = client.configuration
    source = getattr(client, "railyard_source", "this task")

    def unanswered(error):
        text, hopeless = trouble.connection_text(error, configuration.host)
        text += f" The connection is that of {source}." if hopeless else ""
        return ApiError(0, f"{NO_ANSWER}: {text}", hopeless=hopeless)

    def send(method, path, query, body, content_type):
        try:
            answer = client.request(
                method,
                path,
                body=body,
                query_params=query,
                content_type=content_type,
                serialize=False,
                _request_timeout=(CONNECT_TIMEOUT, REQUEST_TIMEOUT),
            )
        except ApiException as error:
            if error.status in (None, 0):  # How the client tells of a broken TLS connection.
                raise unanswered(error) from error
            found = error_from_body(error.status, error.body, error.reason or "", error.headers)
            if found.status == 401:
                found.message = trouble.unauthorized_text(source, trouble.token_of(configuration))
            raise found from error
        except OSError as error:
            raise unanswered(error) from error
        except Exception as error:
            # urllib3 wraps resets, time-outs and broken bodies in its own exceptions.
            if type(error).__module__.startswith("urllib3"):
                raise unanswered(error) from error
            raise
        return decoded(answer)

    send.host = configuration.host
    return send
