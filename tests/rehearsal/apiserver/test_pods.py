# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pod subresources: exec and logs through a kubelet, eviction under disruption budgets, binding."""

from __future__ import annotations

import asyncio
import os

import aiohttp
import pytest
import yaml
from aiohttp import web

from rehearsal.apiserver.__main__ import kubeconfig as kubeconfig_of

from .conftest import pod, tool

PODS = "/api/v1/namespaces/default/pods"
EXEC = f"{PODS}/p/exec"


@pytest.fixture
async def kubelet(serve):
    """A kubelet that echoes what comes on stdin, tells the query on stdout, and answers logs."""

    async def execute(request: web.Request) -> web.StreamResponse:
        if request.match_info["container"] == "broken":
            raise web.HTTPNotFound(text="container not found")
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"))
        await socket.prepare(request)
        told = "&".join(f"{key}={value}" for key, value in request.query.items() if key in ("command", "output"))
        await socket.send_bytes(b"\x01" + f"{request.path} {told} {socket.ws_protocol}".encode())
        if request.query.get("input") == "1":
            async for message in socket:
                if message.data[:1] == b"\xff":  # v5: the client closes stdin
                    break
                await socket.send_bytes(b"\x01" + message.data[1:])
        await socket.send_bytes(b"\x03" + b'{"metadata":{},"status":"Success"}')
        await socket.close()
        return socket

    async def logs(request: web.Request) -> web.Response:
        return web.Response(text=f"log of {request.match_info['container']} tail={request.query.get('tailLines')}\n")

    app = web.Application()
    app.router.add_route("*", "/exec/{namespace}/{pod}/{container}", execute)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    return await serve(app)


@pytest.fixture
async def node(kube, kubelet):
    status = {
        "addresses": [
            {"type": "InternalIP", "address": "203.0.113.1"},
            {"type": "ExternalDNS", "address": "127.0.0.1"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }
    await kube.post("/api/v1/nodes", {"metadata": {"name": "n"}, "status": status})
    return kube


async def frames(kube, *, protocols=("v5.channel.k8s.io",), send=(), **query) -> tuple[str | None, list[bytes]]:
    async with kube.client.ws_connect(
        EXEC + "?" + "&".join(f"{k}={v}" for k, v in query.items()), protocols=protocols
    ) as socket:
        for frame in send:
            await socket.send_bytes(frame)
        return socket.protocol, [message.data async for message in socket]


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_exec_reaches_the_container(node, protocol):
    await node.post(PODS, pod(nodeName="n"))
    chosen, got = await frames(node, protocols=(protocol,), command="cat&command=/x%20y", stdout="true")
    assert chosen == protocol
    assert got == [
        f"\x01/exec/default/p/c command=cat&command=/x y&output=1 {protocol}".encode(),
        b'\x03{"metadata":{},"status":"Success"}',
    ]


async def test_exec_carries_stdin_and_its_end(node):
    await node.post(PODS, pod(nodeName="n"))
    _, got = await frames(node, send=(b"\x00abc", b"\x00def", b"\xff\x00"), command="cat", stdin="true", stdout="true")
    assert got[1:] == [b"\x01abc", b"\x01def", b'\x03{"metadata":{},"status":"Success"}']


def two_containers(**spec) -> dict:
    body = pod(**spec)
    body["spec"]["containers"].append({"name": "d", "image": "x:1"})
    return body


@pytest.mark.parametrize(
    ("body", "query", "code", "message"),
    [
        (None, {}, 404, 'pods "p" not found'),
        (pod(), {}, 400, "pod p does not have a host assigned"),
        (pod(nodeName="n"), {"container": "x"}, 400, "container x is not valid for pod p"),
        (two_containers(nodeName="n"), {}, 400, "a container name must be specified for pod p, choose one of: [c d]"),
        (pod(nodeName="gone"), {}, 404, 'nodes "gone" not found'),
    ],
)
async def test_exec_refusals(node, body, query, code, message):
    if body:
        await node.post(PODS, body)
    status, answer = await node.get(EXEC, command="true", **query)
    assert (status, answer["kind"], answer["message"]) == (code, "Status", message)


async def test_exec_without_upgrade(node):
    await node.post(PODS, pod(nodeName="n"))
    assert (await node.get(EXEC, command="true"))[1]["message"] == "Upgrade request required"


async def test_exec_when_the_kubelet_is_down_or_refuses(node, kubelet):
    body = pod(nodeName="n")
    body["spec"]["containers"][0]["name"] = "broken"
    await node.post(PODS, body)
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        await frames(node, command="true")
    assert error.value.status == 404
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}
    async with node.client.get(EXEC, headers=headers) as response:
        assert (await response.json())["message"] == "unable to upgrade connection: container not found"
    await kubelet.close()
    async with node.client.get(EXEC, headers=headers) as response:
        answer = await response.json()
    assert response.status == 500 and "error dialing backend" in answer["message"]


@pytest.fixture
def kubeconfig(node, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig_of(str(node.client.make_url("/")).rstrip("/"))))
    return path


async def test_kubectl_exec(node, kubeconfig):
    await node.post(PODS, pod(nodeName="n"))
    kubectl = tool("kubectl")
    process = await asyncio.create_subprocess_exec(
        *(kubectl, "exec", "-i", "p", "--", "cat", "-"),
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(b" hello"), 30)
    assert process.returncode == 0, err
    told, _, echoed = out.decode().partition(" v5.channel.k8s.io")
    assert told == "/exec/default/p/c command=cat&command=-&output=1" and echoed == " hello"


async def test_python_client_exec(node, kubeconfig):
    kubernetes = pytest.importorskip("kubernetes")
    from kubernetes.stream import stream

    await node.post(PODS, pod(nodeName="n"))
    api = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(kubeconfig)))
    out = await asyncio.to_thread(
        stream, api.connect_get_namespaced_pod_exec, "p", "default", command=["id", "-u"], stdout=True, stderr=True
    )
    assert out.startswith("/exec/default/p/c command=id&command=-u&output=1 ") and out.endswith(".channel.k8s.io")


async def test_log(node):
    await node.post(PODS, pod(nodeName="n"))
    async with node.client.get(f"{PODS}/p/log", params={"tailLines": "5"}) as response:
        assert await response.text() == "log of c tail=5\n"


def budget(**spec) -> dict:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec},
    }


async def ready_pods(kube, count: int) -> None:
    """Ready pods of one ReplicaSet."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod()["spec"]}
    spec = {"replicas": count, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs"}, "spec": spec}
    meta = (await kube.post("/apis/apps/v1/namespaces/default/replicasets", body))[1]["metadata"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": meta["uid"], "controller": True}
    for index in range(count):
        body = pod(f"p{index}", {"app": "x"})
        body["metadata"]["ownerReferences"] = [owner]
        await kube.post(PODS, body)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await kube.patch(f"{PODS}/p{index}/status", {"status": status})


async def evict(kube, name: str, **options):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **options}
    return await kube.post(f"{PODS}/{name}/eviction", body)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [({"minAvailable": 2}, 1), ({"maxUnavailable": 1}, 1), ({"minAvailable": "50%"}, 1), ({"minAvailable": 3}, 0)],
)
async def test_eviction_under_a_budget(kube, spec, allowed):
    await ready_pods(kube, 3)
    await kube.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget(**spec))
    answers = [await evict(kube, f"p{index}") for index in range(3)]
    assert [status for status, _ in answers] == [201] * allowed + [429] * (3 - allowed)
    refused = answers[-1][1]
    assert refused["reason"] == "TooManyRequests"
    assert refused["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = refused["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget" and "The disruption budget b needs" in cause["message"]
    assert len((await kube.get(PODS))[1]["items"]) == 3 - allowed


async def test_a_share_of_pods_without_controller_allows_nothing(kube):
    await kube.post(PODS, pod("bare", {"app": "x"}))
    await kube.patch(f"{PODS}/bare/status", {"status": {"phase": "Running"}})
    await kube.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget(maxUnavailable=1))
    assert (await evict(kube, "bare"))[0] == 429


async def test_eviction_without_budget_is_a_delete(kube):
    await kube.post(PODS, pod("p", nodeName="n"))
    assert (await evict(kube, "p", deleteOptions={"gracePeriodSeconds": 5}))[0] == 201
    assert (await kube.get(f"{PODS}/p"))[1]["metadata"]["deletionGracePeriodSeconds"] == 5
    assert (await evict(kube, "nope"))[0] == 404


async def test_eviction_dry_run(kube):
    await kube.post(PODS, pod())
    assert (await evict(kube, "p", deleteOptions={"dryRun": ["All"]}))[0] == 201
    assert (await kube.get(f"{PODS}/p"))[0] == 200


async def test_two_budgets_are_an_error(kube):
    await ready_pods(kube, 1)
    for name in ("b", "c"):
        body = budget(minAvailable=0)
        body["metadata"]["name"] = name
        await kube.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", body)
    status, body = await evict(kube, "p0")
    assert status == 500 and "more than one PodDisruptionBudget" in body["message"]


async def test_binding_once(kube):
    await kube.post(PODS, pod())
    target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert (await kube.post("/api/v1/namespaces/default/bindings", target))[0] == 201
    bound = (await kube.get(f"{PODS}/p"))[1]
    assert bound["spec"]["nodeName"] == "n"
    assert [row["type"] for row in bound["status"]["conditions"] if row["status"] == "True"] == ["PodScheduled"]
    status, body = await kube.post(f"{PODS}/p/binding", target)
    assert (status, body["reason"]) == (409, "Conflict") and 'already assigned to node "n"' in body["message"]
