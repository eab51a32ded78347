# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Subresources of pods: exec and logs through the node's kubelet, eviction, binding."""

from __future__ import annotations

import asyncio
import math
from typing import Any, NamedTuple

from aiohttp import ClientError, ClientSession, WSMsgType, WSServerHandshakeError, web

from . import errors
from .api import Api, now
from .errors import ApiError, Cause
from .selectors import object_selector_predicate
from .store import Object

PODS = ("", "pods")
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
#: How a client asks for a stream, and how the API server asks the kubelet for it (value 1).
STREAMS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
#: Order in which the API server looks for a node's address (kube-apiserver --kubelet-preferred-address-types).
ADDRESS_TYPES = ("ExternalDNS", "InternalIP", "Hostname", "InternalDNS", "ExternalIP")


def _pod(api: Api, namespace: str, name: str) -> Object:
    pod = api.store.get(PODS, namespace, name)
    if pod is None:
        raise errors.not_found("pods", "", name)
    return pod


def _container(pod: Object, asked: str | None) -> str:
    spec, name = pod["spec"], pod["metadata"]["name"]
    known = [
        row["name"] for role in ("initContainers", "containers", "ephemeralContainers") for row in spec.get(role) or []
    ]
    if asked:
        if asked not in known:
            raise errors.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if default in known:
        return default
    if len(spec["containers"]) == 1:
        return spec["containers"][0]["name"]
    choices = " ".join(row["name"] for row in spec["containers"])
    raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{choices}]")


def _kubelet(api: Api, pod: Object) -> str:
    """host:port of the kubelet of the pod's node."""
    node_name = pod["spec"].get("nodeName")
    if not node_name:
        raise errors.bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
    node = api.store.get(("", "nodes"), "", node_name)
    if node is None:
        raise errors.not_found("nodes", "", node_name)
    status = node.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 10250
    rows = {row["type"]: row["address"] for row in reversed(status.get("addresses") or [])}
    for kind in ADDRESS_TYPES:
        if kind in rows:
            host = rows[kind]
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    wanted = " ".join(ADDRESS_TYPES)
    raise ApiError(
        500, "InternalError", f"Internal error occurred: no preferred addresses found; known addresses: [{wanted}]"
    )


def _dial_error(error: Exception) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: error dialing backend: {error}")


class Kubelets(NamedTuple):
    """The client of the kubelets and the headers that they want."""

    session: ClientSession
    headers: dict[str, str]


async def stream(
    request: web.Request, api: Api, kubelets: Kubelets, namespace: str, name: str, verb: str
) -> web.StreamResponse:
    """exec (and attach) over WebSocket: frames go to and from the kubelet unchanged."""
    pod = _pod(api, namespace, name)
    container = _container(pod, request.query.get("container"))
    host = _kubelet(api, pod)
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise errors.bad_request("Upgrade request required")
    offered = [text.strip() for text in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    protocols = [protocol for protocol in offered if protocol in PROTOCOLS]
    if not protocols:
        raise errors.bad_request(
            f"unable to negotiate a protocol: client supports {offered}, server accepts {list(PROTOCOLS)}"
        )
    query = [("command", value) for value in request.query.getall("command", [])]
    query += [(theirs, "1") for ours, theirs in STREAMS.items() if request.query.get(ours) in ("true", "1")]
    url = f"http://{host}/{verb}/{namespace}/{name}/{container}"
    try:
        upstream = await kubelets.session.ws_connect(
            url, params=query, protocols=protocols, max_msg_size=0, autoping=True, headers=kubelets.headers
        )
    except WSServerHandshakeError as error:
        # The refusal's text is not in the error; the kubelet says it again to a request that asks for no upgrade.
        async with kubelets.session.get(url, params=query, headers=kubelets.headers) as refusal:
            text = (await refusal.text()).strip()
        code = error.status if error.status >= 400 else 500
        raise ApiError(code, reason_of(code), f"unable to upgrade connection: {text}") from error
    except (ClientError, OSError) as error:
        raise _dial_error(error) from error
    async with upstream:
        chosen = upstream.protocol or protocols[0]
        client = web.WebSocketResponse(protocols=(chosen,), max_msg_size=0)
        await client.prepare(request)
        ways = {asyncio.create_task(_pipe(client, upstream)), asyncio.create_task(_pipe(upstream, client))}
        _, rest = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in rest:
            way.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await client.close(code=upstream.close_code or 1000)
    return client


def reason_of(code: int) -> str:
    return {400: "BadRequest", 403: "Forbidden", 404: "NotFound"}.get(code, "InternalError")


async def _pipe(source: Any, sink: Any) -> None:
    async for message in source:
        if message.type == WSMsgType.BINARY:
            await sink.send_bytes(message.data)
        elif message.type == WSMsgType.TEXT:
            await sink.send_str(message.data)
        else:
            return


async def log(request: web.Request, api: Api, kubelets: Kubelets, namespace: str, name: str) -> web.StreamResponse:
    """A container's log, streamed from the kubelet's /containerLogs."""
    pod = _pod(api, namespace, name)
    container = _container(pod, request.query.get("container"))
    url = f"http://{_kubelet(api, pod)}/containerLogs/{namespace}/{name}/{container}"
    query = {key: value for key, value in request.query.items() if key != "container"}
    try:
        async with kubelets.session.get(url, params=query, headers=kubelets.headers) as upstream:
            if upstream.status >= 400:
                raise ApiError(upstream.status, reason_of(upstream.status), (await upstream.text()).strip())
            response = web.StreamResponse(headers={"Content-Type": "text/plain"})
            await response.prepare(request)
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
            return response
    except (ClientError, OSError) as error:
        raise _dial_error(error) from error


def bind(api: Api, namespace: str, name: str, body: Object) -> Object:
    """Give a pod its node, once."""
    target = (body.get("target") or {}).get("name")
    if not target:
        cause = Cause("target.name", "FieldValueRequired", "Required value")
        raise errors.invalid("Binding", "", name, [cause])
    pod = _pod(api, namespace, name)
    if pod["metadata"].get("deletionTimestamp"):
        raise errors.conflict("pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        assigned = pod["spec"]["nodeName"]
        raise errors.conflict("pods/binding", "", name, f'pod {name} is already assigned to node "{assigned}"')
    status = pod.get("status") or {}
    rows = [row for row in status.get("conditions") or [] if row["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now()}
    spec = {**pod["spec"], "nodeName": target}
    changed = {**pod, "spec": spec, "status": {**status, "conditions": [*rows, scheduled]}}
    api.change(PODS, namespace, name, lambda old: changed)
    return errors.success()


def evict(api: Api, namespace: str, name: str, body: Object, dry_run: bool) -> Object:
    """Delete a pod unless a PodDisruptionBudget forbids it: then 429 with the cause, as drains expect."""
    pod = _pod(api, namespace, name)
    options = body.get("deleteOptions") or {}
    dry_run = dry_run or "All" in (options.get("dryRun") or [])
    phase = (pod.get("status") or {}).get("phase")
    budgets = (
        []
        if phase in ("Succeeded", "Failed", "Pending") or pod["metadata"].get("deletionTimestamp")
        else _budgets(api, pod)
    )
    if len(budgets) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "InternalError", text)
    for budget in budgets:
        status = disruption_status(api, budget)
        budget = {**budget, "status": status}
        api.change(
            ("policy", "poddisruptionbudgets"), namespace, budget["metadata"]["name"], lambda old, new=budget: new
        )
        if status["disruptionsAllowed"] <= 0:
            need, have = status["desiredHealthy"], status["currentHealthy"]
            text = (
                f"The disruption budget {budget['metadata']['name']} needs {need} healthy pods and has {have} currently"
            )
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise errors.too_many_requests(message, 0, [Cause("", "DisruptionBudget", text)])
    resource = api.registry.get("", "v1", "pods")
    api.delete(resource, namespace, name, options, dry_run)
    return errors.success()


def _budgets(api: Api, pod: Object) -> list[Object]:
    labels, namespace = pod["metadata"].get("labels") or {}, pod["metadata"]["namespace"]
    found = api.store.list(("policy", "poddisruptionbudgets"), namespace)
    return [budget for budget in found if object_selector_predicate(budget["spec"].get("selector"))(labels)]


def disruption_status(api: Api, budget: Object) -> Object:
    """What the disruption controller writes into a budget's status, from the pods that there are now."""
    selected = object_selector_predicate(budget["spec"].get("selector"))
    namespace = budget["metadata"]["namespace"]
    pods = [pod for pod in api.store.list(PODS, namespace) if selected(pod["metadata"].get("labels") or {})]
    pods = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    healthy = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp") and _ready(pod)]
    spec = budget["spec"]
    wanted = spec.get("minAvailable", 1)
    status: Object = {**(budget.get("status") or {}), "observedGeneration": budget["metadata"].get("generation", 1)}
    status |= {"currentHealthy": len(healthy), "expectedPods": len(pods)}
    if spec.get("maxUnavailable") is not None or isinstance(wanted, str):
        # Shares and maxUnavailable count the replicas that the pods' controllers want, so each pod must have one.
        expected = _expected(api, pods)
        if expected is None:
            return {**status, "desiredHealthy": 0, "disruptionsAllowed": 0}
        status["expectedPods"] = expected
        if spec.get("maxUnavailable") is not None:
            wanted = max(0, expected - _amount(spec["maxUnavailable"], expected))
        else:
            wanted = _amount(wanted, expected)
    return {**status, "desiredHealthy": wanted, "disruptionsAllowed": max(0, len(healthy) - wanted)}


def _expected(api: Api, pods: list[Object]) -> int | None:
    """Sum of the replicas of the controllers of the pods; None when a pod has no controller with replicas."""
    replicas: dict[str, int] = {}
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or []
        controller = next((api.store.by_uid(owner["uid"]) for owner in owners if owner.get("controller")), None)
        count = ((controller or {}).get("spec") or {}).get("replicas")
        if count is None:
            return None
        replicas[controller["metadata"]["uid"]] = count
    return sum(replicas.values())


def _ready(pod: Object) -> bool:
    rows = (pod.get("status") or {}).get("conditions") or []
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def _amount(value: int | str, total: int) -> int:
    """A number, or a percentage of the pods rounded up (as the disruption controller does)."""
    return math.ceil(total * int(value[:-1]) / 100) if isinstance(value, str) and value.endswith("%") else int(value)
