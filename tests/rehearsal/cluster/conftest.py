# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An API server as a process, a kubelet that runs commands on this machine, and our modules run as Ansible runs
them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from aiohttp import web
from ansible.module_utils.testing import patch_module_args
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import auth
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api

REPO = Path(__file__).parents[3]
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rails.railyard.io"},
    "spec": {
        "group": "railyard.io",
        "scope": "Namespaced",
        "names": {"kind": "Rail", "plural": "rails", "singular": "rail", "listKind": "RailList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "mtu": {"type": "integer"},
                                    "priority": {"type": "integer", "default": 99},
                                    "devices": {"type": "array", "items": {"type": "string"}},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


class Cluster:
    """A running API server: its kubeconfig, its request log, and module runs against it."""

    def __init__(self, state):
        self.kubeconfig = str(state / "kubeconfig")
        self._log = state / "logs" / "apiserver.jsonl"

    def api(self):
        return Api(auth.transport_for({"kubeconfig": self.kubeconfig}))

    def run(self, capsys, module, check=False, diff=False, **arguments):
        """What a module returns for these arguments (its JSON)."""
        arguments.update(kubeconfig=self.kubeconfig, _ansible_check_mode=check, _ansible_diff=diff)
        with patch_module_args(arguments), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    @contextlib.contextmanager
    def requests(self):
        """The requests that are made inside of the block: a list of (method, path), filled when it ends."""
        before = len(self._log.read_text().splitlines())
        seen = []
        yield seen
        time.sleep(0.05)  # The log line of a request follows its answer.
        for line in self._log.read_text().splitlines()[before:]:
            entry = json.loads(line)
            seen.append((entry["method"], entry["path"]))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    state = tmp_path_factory.mktemp("cluster")
    process = subprocess.Popen([sys.executable, "-m", "rehearsal.apiserver", "--state", str(state)], cwd=REPO)
    try:
        deadline = time.monotonic() + 60
        while not (state / "kubeconfig").exists():
            assert process.poll() is None and time.monotonic() < deadline, "the API server did not start"
            time.sleep(0.05)
        found = Cluster(state)
        api = found.api()
        api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=CRD)
        while "railyard.io" not in str(api.get("/apis")):
            assert time.monotonic() < deadline, "the kind is not served"
            time.sleep(0.05)
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def execute(request):
    """The exec endpoint of a kubelet: runs the command here and answers on the channels of v5.channel.k8s.io."""
    socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"))
    await socket.prepare(request)
    if request.match_info["pod"].startswith("broken"):
        await socket.close()
        return socket
    process = await asyncio.create_subprocess_exec(
        *request.query.getall("command"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, complaint = await process.communicate()
    for channel, data in ((1, output), (2, complaint)):
        for start in range(0, len(data), 1000):  # Small frames: a record may be cut anywhere.
            await socket.send_bytes(bytes([channel]) + data[start : start + 1000])
    await socket.send_bytes(b"\x03" + json.dumps({"status": "Success"}).encode())
    await socket.close()
    return socket


@pytest.fixture(scope="module")
def kubelet():
    """The port of a kubelet in a thread of its own, since the client blocks."""
    loop, started, port = asyncio.new_event_loop(), threading.Event(), []

    async def serve():
        app = web.Application()
        app.router.add_get("/exec/{namespace}/{pod}/{container}", execute)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port.append(runner.addresses[0][1])
        started.set()

    def work():
        loop.run_until_complete(serve())
        loop.run_forever()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert started.wait(30)
    yield port[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


@pytest.fixture(scope="module")
def node(cluster, kubelet):
    """A Node whose kubelet is ours."""
    api = cluster.api()
    api.request("POST", "/api/v1/nodes", body={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}},
    }
    api.request(
        "PATCH", "/api/v1/nodes/gpu-1/status", body={"status": status}, content_type="application/merge-patch+json"
    )
    return "gpu-1"
