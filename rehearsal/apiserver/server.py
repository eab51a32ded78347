# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP side: paths and verbs of the Kubernetes API over rehearsal.apiserver.api."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientSession, web

from . import VERSION, discovery, errors, gate, openapi, pods, protobuf, rbac, reviews, scale, table, watch
from .api import Api, Options
from .controllers import Controllers
from .errors import ApiError
from .faults import Faults, RequestLog, middleware
from .gate import GUARD
from .kinds import Resource
from .rules import present
from .selectors import predicate
from .store import Object
from .tokens import Tokens

API = web.AppKey("api", Api)
TOKENS = web.AppKey("tokens", Tokens)
AUTHORIZER = web.AppKey("authorizer", rbac.Authorizer)
REQUEST_LOG = web.AppKey("request_log", RequestLog)
SESSION = web.AppKey("session", ClientSession)
FAULTS = web.AppKey("faults", Faults)
KUBELET_TOKEN = web.AppKey("kubelet_token", Path)

PATCH_MEDIA = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, "
PATCH_MEDIA += "application/apply-patch+yaml"


def build(
    crd_folder: Path | None = None,
    log: Path | None = None,
    prefix: str = "",
    kubelet_token: Path | None = None,
    admin_token: str = "",
    certificate: str = "",
) -> web.Application:
    """The application without a guard: whoever knows its URL may do everything.

    :param log: file that gets one JSON line a request.
    :param prefix: path below which the application is mounted, to be left out of the log.
    :param kubelet_token: file with the token that the kubelets want, written by them.
    :param admin_token: the administrator's token at the guarded door (see `build_guarded`).
    :param certificate: PEM of the authority of that door.
    """
    app = web.Application(client_max_size=16 * 2**20)
    if kubelet_token:
        app[KUBELET_TOKEN] = kubelet_token
    app[API] = api = Api(crd_folder)
    rbac.bootstrap(api)
    app[AUTHORIZER], app[TOKENS] = (
        rbac.Authorizer(api),
        Tokens(api, admin_token or secrets.token_urlsafe(24), certificate),
    )
    app[FAULTS], app[REQUEST_LOG] = Faults(), RequestLog(log)
    app.middlewares.append(middleware(app[FAULTS], app[REQUEST_LOG], prefix))
    _add_routes(app)
    app.router.add_route("*", "/rehearsal/faults", app[FAULTS].handle)

    async def background(app: web.Application):
        controllers = Controllers(app[API])
        task = asyncio.create_task(controllers.run())
        async with ClientSession() as session:
            app[SESSION] = session
            yield
        task.cancel()
        app[REQUEST_LOG].close()

    async def end_watches(app: web.Application) -> None:
        watch.close_all(app[API].store)

    app.cleanup_ctx.append(background)
    app.on_shutdown.append(end_watches)
    return app


def build_guarded(app: web.Application) -> web.Application:
    """The guarded door to the same objects: it wants a bearer token and asks RBAC."""
    guarded = web.Application(client_max_size=16 * 2**20)
    for key in (API, FAULTS, AUTHORIZER, TOKENS, REQUEST_LOG, *((KUBELET_TOKEN,) if KUBELET_TOKEN in app else ())):
        guarded[key] = app[key]
    guarded.middlewares.append(middleware(app[FAULTS], app[REQUEST_LOG], ""))
    guarded.middlewares.append(gate.middleware(app[AUTHORIZER], app[TOKENS]))
    _add_routes(guarded)

    async def session(guarded: web.Application):
        async with ClientSession() as found:
            guarded[SESSION] = found
            yield

    guarded.cleanup_ctx.append(session)
    return guarded


def _add_routes(app: web.Application) -> None:
    for path in ("/readyz", "/livez", "/healthz"):
        app.router.add_get(path, _ok)
    app.router.add_get("/version", _version)
    app.router.add_get("/openapi/{tail:.*}", _openapi)
    app.router.add_route("*", "/api{tail:/?}", _api_root)
    app.router.add_route("*", "/apis{tail:/?}", _apis_root)
    app.router.add_route("*", "/api/{version}{tail:.*}", _resource)
    app.router.add_route("*", "/apis/{group}/{version}{tail:.*}", _resource)
    app.router.add_get("/apis/{group}", _group)
    app.router.add_get("/", _paths)


def answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    body = json.dumps(data, separators=(",", ":")).encode()
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def _kubelets(request: web.Request) -> pods.Kubelets:
    """How to reach kubelets. The token is read at each request: the kubelets may have started again."""
    path = request.app.get(KUBELET_TOKEN)
    headers = {"Authorization": f"Bearer {path.read_text()}"} if path and path.exists() else {}
    return pods.Kubelets(request.app[SESSION], headers)


async def _ok(request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _version(request: web.Request) -> web.Response:
    major, minor, _ = VERSION.removeprefix("v").split(".")
    data = {"major": major, "minor": minor, "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "clean"}
    return answer(
        {**data, "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64"}
    )


async def _paths(request: web.Request) -> web.Response:
    groups = request.app[API].registry.groups()
    named = [f"/apis/{group}" for group in groups] + [
        f"/apis/{g}/{v}" for g, versions in groups.items() for v in versions
    ]
    return answer(
        {"paths": ["/api", "/api/v1", "/apis", *named, "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/version"]}
    )


async def _openapi(request: web.Request) -> web.Response:
    return answer(openapi.document(request.app[API].registry, request.match_info["tail"]))


async def _api_root(request: web.Request) -> web.Response:
    return discovery.root(request, request.app[API].registry, core=True)


async def _apis_root(request: web.Request) -> web.Response:
    return discovery.root(request, request.app[API].registry, core=False)


async def _group(request: web.Request) -> web.Response:
    return answer(discovery.group(request.app[API].registry, request.match_info["group"]))


async def _body(request: web.Request) -> Any:
    raw = await request.read()
    if not raw:
        return None
    if "protobuf" in request.content_type:
        return protobuf.decode(raw)
    if "cbor" in request.content_type:
        accepted = "application/json, application/yaml"
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise ApiError(415, "UnsupportedMediaType", text)
    try:
        if "yaml" in request.content_type and raw[:1] not in b"{[":
            return yaml.load(raw, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return json.loads(raw)
    except (ValueError, yaml.YAMLError) as error:
        raise errors.bad_request(f"the object provided is unrecognized: {error}") from error


def _options(request: web.Request, subresource: str) -> Options:
    query = request.query
    validation = query.get("fieldValidation") or "Warn"
    if validation not in ("Strict", "Warn", "Ignore"):
        text = f'fieldValidation: Unsupported value: "{validation}": supported values: "Ignore", "Strict", "Warn"'
        raise ApiError(422, "Invalid", text)
    agent = request.headers.get("User-Agent", "unknown").partition("/")[0]
    return Options(
        manager=query.get("fieldManager") or agent,
        dry_run=query.get("dryRun") == "All",
        field_validation=validation,
        force=query.get("force") in ("true", "1", "True"),
        subresource=subresource,
    )


def _split(request: web.Request) -> tuple[Resource, str, str, str]:
    """(resource, namespace, name, subresource) of a path below /api/V or /apis/G/V."""
    info = request.match_info
    parts = [part for part in info["tail"].split("/") if part]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces" and parts[2] not in ("status", "finalize"):
        namespace, parts = parts[1], parts[2:]
    if not parts or len(parts) > 3:
        raise errors.no_such_path()
    registry = request.app[API].registry
    resource = registry.get(info.get("group", ""), info["version"], parts[0])
    if resource is None or bool(namespace) and not resource.namespaced:
        raise errors.no_such_path()
    name, subresource = (*parts[1:], "", "")[:2]
    if subresource and subresource not in resource.subresources:
        raise errors.no_such_path()
    if name and resource.namespaced and not namespace:
        raise errors.no_such_path()
    return resource, namespace, name, subresource


async def _resource(request: web.Request) -> web.StreamResponse:
    api = request.app[API]
    if not request.match_info["tail"].strip("/"):
        return answer(
            discovery.group_version(api.registry, request.match_info.get("group", ""), request.match_info["version"])
        )
    resource, namespace, name, subresource = _split(request)
    if subresource and subresource not in ("status", "finalize", "ephemeralcontainers", "resize"):
        return await _subresource(request, api, resource, namespace, name, subresource)
    method = request.method
    if "list" not in resource.verbs and method == "POST":
        body = await _body(request)
        if resource.plural == "bindings":
            return answer(pods.bind(api, namespace, body["metadata"]["name"], body), 201)
        guard = request.get(GUARD)
        user = guard.user if guard else rbac.ADMIN
        return answer(
            reviews.review(resource, namespace, body, user, request.app[AUTHORIZER], request.app[TOKENS]), 201
        )
    if method in ("GET", "HEAD"):
        if not name or request.query.get("watch") in ("true", "1"):
            return await _read_many(request, api, resource, namespace, name)
        return answer(table.convert(request, resource, present(resource, api.get(resource, namespace, name))))
    if {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "-") not in resource.verbs:
        raise errors.method_not_allowed()
    if method == "DELETE":
        return await _delete(request, api, resource, namespace, name)
    if (method == "POST") == bool(name):
        raise errors.method_not_allowed()
    body = await _body(request)
    options = _options(request, subresource)
    if method == "POST" and resource.namespaced and not namespace:
        raise errors.method_not_allowed()
    live = api.store.get(resource.key, namespace, name) if name else None
    media = request.content_type
    if method == "PATCH" and media == "application/apply-patch+yaml" and "fieldManager" not in request.query:
        text = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
        raise ApiError(422, "Invalid", text)

    def write(options: Options) -> Object:
        if method == "POST":
            return api.create(resource, namespace, body, options)
        if method == "PUT":
            return api.update(resource, namespace, name, body, options)
        return api.patch(resource, namespace, name, body, media, options)

    guard = request.get(GUARD)
    if guard:
        if method == "PATCH" and live is None and media == "application/apply-patch+yaml":
            guard.may_create(resource, name)
        if resource.group == rbac.GROUP:
            guard.may_grant(resource, namespace, write(replace(options, dry_run=True)), live)
    created = method == "POST" or method == "PATCH" and live is None
    return _written(request, resource, write(options), options, 201 if created else 200)


def _written(
    request: web.Request, resource: Resource, obj: Object, options: Options, status: int = 200
) -> web.Response:
    response = answer(table.convert(request, resource, present(resource, obj)), status)
    for text in options.warnings:
        response.headers.add("Warning", '299 - "{}"'.format(text.replace('"', '\\"')))
    return response


async def _read_many(
    request: web.Request, api: Api, resource: Resource, namespace: str, name: str
) -> web.StreamResponse:
    selected = predicate(request.query, resource.key, namespace, name)
    if request.query.get("watch") in ("true", "1"):
        return await watch.stream(request, api.store, resource, selected, request.app[FAULTS])
    start = _continue_from(request)
    version = api.store.version
    found = [present(resource, obj) for obj in api.store.list(resource.key, namespace) if selected(obj)]
    if start:
        found = [obj for obj in found if _place(obj) > start]
    meta: Object = {"resourceVersion": str(version)}
    limit = int(request.query.get("limit") or 0)
    if limit and len(found) > limit:
        last = json.dumps(_place(found[limit - 1])).encode()
        meta |= {"continue": base64.urlsafe_b64encode(last).decode(), "remainingItemCount": len(found) - limit}
        found = found[:limit]
    return answer(table.convert(request, resource, _list_of(resource, found, meta)))


def _list_of(resource: Resource, items: list[Object], meta: Object) -> Object:
    return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta, "items": items}


def _place(obj: Object) -> list[str]:
    return [obj["metadata"].get("namespace", ""), obj["metadata"]["name"]]


def _continue_from(request: web.Request) -> list[str] | None:
    token = request.query.get("continue")
    if not token:
        return None
    try:
        return json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise errors.bad_request(f"continue key is not valid: {error}") from error


async def _delete(request: web.Request, api: Api, resource: Resource, namespace: str, name: str) -> web.Response:
    options = {**request.query, **(await _body(request) or {})}
    if isinstance(options.get("gracePeriodSeconds"), str):
        options["gracePeriodSeconds"] = int(options["gracePeriodSeconds"])
    dry_run = request.query.get("dryRun") == "All" or "All" in (options.get("dryRun") or [])
    if not name:
        selected = predicate(request.query, resource.key, namespace)
        found = [obj for obj in api.store.list(resource.key, namespace) if selected(obj)]
        for obj in found:
            api.delete(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], options, dry_run)
        meta = {"resourceVersion": str(api.store.version)}
        items = [present(resource, obj) for obj in found]
        return answer(table.convert(request, resource, _list_of(resource, items, meta)))
    obj, gone = api.delete(resource, namespace, name, options, dry_run)
    if gone and resource.key != ("", "pods"):
        meta = obj["metadata"]
        return answer(errors.success(name=meta["name"], group=resource.group, kind=resource.plural, uid=meta["uid"]))
    return answer(present(resource, obj))


async def _subresource(
    request: web.Request, api: Api, resource: Resource, namespace: str, name: str, subresource: str
) -> web.StreamResponse:
    if subresource == "scale":
        body = None if request.method == "GET" else await _body(request)
        options = _options(request, "scale")
        return answer(scale.handle(api, resource, namespace, name, request.method, request.content_type, body, options))
    if resource.key == ("", "pods"):
        if subresource in ("exec", "attach", "portforward"):
            return await pods.stream(request, api, _kubelets(request), namespace, name, subresource)
        if subresource == "log":
            return await pods.log(request, api, _kubelets(request), namespace, name)
        if request.method == "POST":
            body = await _body(request) or {}
            if subresource == "binding":
                return answer(pods.bind(api, namespace, name, body), 201)
            if subresource == "eviction":
                dry_run = request.query.get("dryRun") == "All"
                return answer(pods.evict(api, namespace, name, body, dry_run), 201)
    if resource.plural == "serviceaccounts" and request.method == "POST":
        account = api.get(resource, namespace, name)
        return answer(request.app[TOKENS].request(account, await _body(request) or {}), 201)
    raise errors.method_not_allowed()
