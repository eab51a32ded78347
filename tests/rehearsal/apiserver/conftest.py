# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server in this process (fixture `kube`) and as a process of its own for the real clients (`cluster`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from rehearsal.apiserver.server import API, build

REPO = Path(__file__).parents[3]
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Kube:
    """Short calls: each returns (HTTP status, body as data)."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.api = client.app[API]

    async def call(self, method: str, path: str, body: Any = None, media: str = "application/json", **query: Any):
        headers = {"Content-Type": media} if body is not None else {}
        data = None if body is None else json.dumps(body)
        async with self.client.request(method, path, data=data, headers=headers, params=query) as response:
            self.headers = response.headers
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text

    async def get(self, path: str, **query: Any):
        return await self.call("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any):
        return await self.call("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any):
        return await self.call("PUT", path, body, **query)

    async def delete(self, path: str, body: Any = None, **query: Any):
        return await self.call("DELETE", path, body, **query)

    async def patch(self, path: str, body: Any, media: str = "merge-patch", **query: Any):
        return await self.call("PATCH", path, body, f"application/{media}+json", **query)

    async def apply(self, path: str, body: Any, manager: str = "railyard", **query: Any):
        return await self.call("PATCH", path, body, "application/apply-patch+yaml", fieldManager=manager, **query)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **query: Any):
        """An open watch; `await next_event()` gives (type, object)."""
        async with self.client.get(path, params={"watch": "true", **query}) as response:
            assert response.status == 200, await response.text()

            async def next_event() -> tuple[str, dict]:
                line = await asyncio.wait_for(response.content.readline(), 10)
                event = json.loads(line) if line else {"type": "END", "object": {}}
                return event["type"], event["object"]

            yield next_event

    async def settle(self) -> None:
        """Let the background controllers finish what is queued."""
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.fixture
async def serve():
    """`await serve(app)` starts an application on a free loopback port and gives a client for it."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(app: web.Application) -> TestClient:
            return await stack.enter_async_context(TestClient(TestServer(app)))

        yield start


@pytest.fixture
async def kube(serve, tmp_path):
    return Kube(await serve(build(None, tmp_path / "apiserver.jsonl")))


def configmap(name: str = "a", **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str = "p", labels: dict | None = None, **spec: Any) -> dict:
    containers = [{"name": "c", "image": "busybox:1"}]
    meta = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}


def deployment(name: str = "web", **container: Any) -> dict:
    labels = {"app": name}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "nginx:1", **container}]},
        },
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def widget_crd(**root: Any) -> dict:
    """A CRD that has something of everything: defaults, enums, ranges, associative, set and atomic lists, free JSON."""
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "code": {"type": "string", "pattern": "^[a-z]+$"},
            "amount": {"x-kubernetes-int-or-string": True},
            "rows": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": {"type": "string"},
                        "value": {"type": "integer"},
                        "mode": {"type": "string"},
                    },
                },
            },
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "plain": {"type": "array", "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "nested": {"type": "object", "properties": {"deep": {"type": "boolean", "default": True}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
            **root,
        },
    }


def widget(name: str = "w", **spec: Any) -> dict:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": 1, **spec},
    }


@pytest.fixture
async def widgets(kube):
    """`kube` with the Widget kind."""
    status, body = await kube.post(CRDS, widget_crd())
    assert status == 201, body
    return kube


class Cluster:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.environment = {**os.environ, "KUBECONFIG": str(state / "kubeconfig"), "HOME": str(state / "home")}

    def run(self, *argv: str, text: str | None = None, code: int = 0) -> str:
        """Run a program against the server; returns what it printed."""
        done = subprocess.run(
            argv, input=text, env=self.environment, capture_output=True, text=True, timeout=120, check=False, cwd=REPO
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, f"{argv} ended with {done.returncode}:\n{output}"
        return output

    def requests(self) -> list[dict]:
        return [json.loads(line) for line in (self.state / "logs" / "apiserver.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    state = tmp_path_factory.mktemp("cluster")
    (state / "home").mkdir()
    process = subprocess.Popen([sys.executable, "-m", "rehearsal.apiserver", "--state", str(state)], cwd=REPO)
    try:
        deadline = time.monotonic() + 30
        while not (state / "kubeconfig").exists():
            assert process.poll() is None and time.monotonic() < deadline, "the API server did not start"
            time.sleep(0.05)
        yield Cluster(state)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0, "the API server did not end cleanly on SIGTERM"


def tool(name: str) -> str:
    """Path of a client program, as `make` puts it into the cache or as PATH has it; else the test is skipped."""
    cached = sorted((REPO / ".cache").glob(f"**/{name}"))
    found = shutil.which(name) or next((str(path) for path in cached if path.is_file()), None)
    if not found:
        pytest.skip(f"{name} is not installed")
    return found
