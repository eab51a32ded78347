# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's exec endpoint: runs commands for real on the node, in the pod's network namespace, over a WebSocket.

Subprotocols v5.channel.k8s.io and v4.channel.k8s.io: the first byte of a message is its channel (0 stdin, 1 stdout,
2 stderr, 3 the final Status as JSON, 4 terminal size; in v5 255 closes the channel named by the next byte).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path

from aiohttp import WSMsgType, web

from rehearsal.operators.containers import inside
from rehearsal.operators.kinds import name_of, namespace_of
from rehearsal.operators.launchers import log_path
from rehearsal.operators.machines import Fleet, Machine
from rehearsal.operators.runtime import Cache

LOG = logging.getLogger("operators.exec")
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
CHUNK = 32 * 1024
# A container runtime closes the standard input of a command whose client went away, and leaves the command alone. Here it
# has so many seconds to end by itself; then it is killed and the log says so, so that a rehearsal leaves nothing.
LEAVE = 15.0


def exit_status(code: int) -> dict:
    """The Status on channel 3 for a command that ended with ``code``, as the kubelet writes it."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def shell_code(code: int) -> int:
    """A return code of asyncio as a container runtime reports it: a signal is 128 plus its number."""
    return 128 - code if code < 0 else code


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    draft.replace(path)


class ExecServer:
    """One HTTP server a node, on 127.0.0.1; the port is chosen by the kernel and told in the Node's status."""

    def __init__(self, fleet: Fleet, pods: Cache, sandbox_of: Callable[[str, str], dict]):
        """
        :param sandbox_of: (node name, pod uid) -> the kubelet's checkpoint of the sandbox, empty when there is none; its
            ``netns`` is the name of the network namespace, None with hostNetwork.
        """
        self._fleet = fleet
        self._pods = pods
        self._sandbox_of = sandbox_of
        self._runners: list[web.AppRunner] = []
        self._token = secrets.token_urlsafe(24)
        _write_private(fleet.state / "kubelet-token", self._token)

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Callable) -> web.StreamResponse:
        # Commands run as root, and every user of the machine reaches its loopback.
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            raise web.HTTPUnauthorized(text="Unauthorized")
        return await handler(request)

    async def start(self, node: str) -> int:
        """Serve a node and return the port."""
        app = web.Application(middlewares=[self._authenticate])
        for pattern in ("/exec/{namespace}/{pod}/{container}", "/exec/{namespace}/{pod}/{uid}/{container}"):
            app.router.add_get(pattern, functools.partial(self._exec, node))
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", functools.partial(self._log, node))
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return site._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()

    def _find(self, node: str, request: web.Request) -> tuple[Machine, dict, dict]:
        namespace, name, container = (request.match_info[key] for key in ("namespace", "pod", "container"))
        pod = next((item for item in self._pods if (namespace_of(item), name_of(item)) == (namespace, name)), None)
        if pod is None or pod["spec"].get("nodeName") != node:
            raise web.HTTPNotFound(text=f'pod does not exist: "{name}_{namespace}"')
        if container not in {item["name"] for item in pod["spec"]["containers"]}:
            raise web.HTTPNotFound(text=f'container not found ("{container}")')
        sandbox = self._sandbox_of(node, pod["metadata"]["uid"])
        machine = self._fleet.get(node)
        if machine is None or machine.boot() is None or not sandbox.get("ready"):
            raise web.HTTPInternalServerError(text=f'container "{container}" of pod {namespace}/{name} is not running')
        return machine, pod, sandbox

    async def _log(self, node: str, request: web.Request) -> web.StreamResponse:
        """The log of a container that is a process here (launchers); others say nothing."""
        namespace, name, container = (request.match_info[key] for key in ("namespace", "pod", "container"))
        pod = next((item for item in self._pods if (namespace_of(item), name_of(item)) == (namespace, name)), None)
        if pod is None or pod["spec"].get("nodeName") != node:
            raise web.HTTPNotFound(text=f'pod does not exist: "{name}_{namespace}"')
        if (pod.get("status") or {}).get("phase") in (None, "Pending"):
            text = f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            raise web.HTTPBadRequest(text=text)
        try:
            data = log_path(self._fleet.state, pod["metadata"]["uid"]).read_bytes()
        except FileNotFoundError:
            data = b""
        if request.query.get("tailLines", "").isdigit():
            lines = data.splitlines(keepends=True)
            data = b"".join(lines[len(lines) - min(len(lines), int(request.query["tailLines"])) :])
        if request.query.get("limitBytes", "").isdigit():
            data = data[: int(request.query["limitBytes"])]
        return web.Response(body=data, content_type="text/plain")

    async def _exec(self, node: str, request: web.Request) -> web.StreamResponse:
        machine, pod, sandbox = self._find(node, request)
        command = request.query.getall("command", [])
        if not command:
            raise web.HTTPBadRequest(text="you must specify at least 1 command")
        command = inside(command, pod, request.match_info["container"], sandbox, machine.spec)

        def flag(*names: str) -> bool:
            return any(request.query.get(name) in ("1", "true") for name in names)

        socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=0)
        await socket.prepare(request)
        # An empty frame on the first writable channel tells the client that the streams are up.
        await socket.send_bytes(bytes([STDOUT]))
        await self._serve(socket, machine, command, sandbox.get("netns"), flag("stdin", "input"))
        await socket.close()
        return socket

    async def _serve(
        self, socket: web.WebSocketResponse, machine: Machine, command: list[str], netns: str | None, stdin: bool
    ) -> None:
        try:
            process = await machine.start(command, netns, stdin)
        except OSError as error:
            failure = {
                "metadata": {},
                "status": "Failure",
                "reason": "InternalError",
                "message": f"error executing command in container: {error}",
            }
            await socket.send_bytes(bytes([ERROR]) + json.dumps(failure).encode())
            return

        async def pump(stream: asyncio.StreamReader, channel: int) -> None:
            while data := await stream.read(CHUNK):
                await socket.send_bytes(bytes([channel]) + data)

        # Ends when the client is gone.
        feeder = asyncio.create_task(self._feed(socket, process))
        pumps = asyncio.gather(pump(process.stdout, STDOUT), pump(process.stderr, STDERR))
        try:
            await asyncio.wait({feeder, pumps}, return_when=asyncio.FIRST_COMPLETED)
            if not pumps.done():
                raise ConnectionError("it closed the stream")
            await pumps
            code = shell_code(await process.wait())
            await socket.send_bytes(bytes([ERROR]) + json.dumps(exit_status(code)).encode())
        except ConnectionError as error:
            LOG.info("exec on %s: client went away: %r", machine.name, error)
        finally:
            for task in (feeder, pumps):
                task.cancel()
            await asyncio.gather(feeder, pumps, return_exceptions=True)
            await self._end(machine, process)

    @staticmethod
    async def _end(machine: Machine, process: asyncio.subprocess.Process) -> None:
        """Wait for a command whose client is not there any more, and kill it when it stays."""
        if process.stdin is not None and process.returncode is None:
            process.stdin.close()
            with contextlib.suppress(asyncio.TimeoutError):
                # What it still says goes nowhere; a full pipe would keep it from ending.
                said = asyncio.gather(
                    process.stdout.read(), process.stderr.read(), process.wait(), return_exceptions=True
                )
                await asyncio.wait_for(said, LEAVE)
        if process.returncode is None:
            if process.stdin is not None:
                LOG.warning(
                    "exec on %s: process %d did not end with its client, and was killed", machine.name, process.pid
                )
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _feed(self, socket: web.WebSocketResponse, process: asyncio.subprocess.Process) -> None:
        """Client messages to the command's standard input, until the client closes the channel or goes away."""
        async for message in socket:
            if message.type is not WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == STDIN and process.stdin:
                process.stdin.write(data)
                with contextlib.suppress(ConnectionError):
                    await process.stdin.drain()
            elif channel == CLOSE and data[:1] == bytes([STDIN]) and process.stdin:
                process.stdin.close()
