# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's exec endpoint, with commands that run on this machine instead of a node."""

from __future__ import annotations

import asyncio
import json
import os

import aiohttp
import pytest
from operators_fakes import FakeFleet, FakeMachine

from rehearsal.operators.exec_server import ExecServer, exit_status, shell_code

POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u"},
    "spec": {"nodeName": "a", "containers": [{"name": "c"}]},
}


class LocalMachine(FakeMachine):
    async def start(self, argv, netns, stdin):
        assert netns == "pod-u"
        pipe = asyncio.subprocess.PIPE
        source = pipe if stdin else asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            *argv, stdin=source, stdout=pipe, stderr=pipe, start_new_session=True
        )


@pytest.fixture
async def session(tmp_path, monkeypatch):
    # A container's own view of its node is another test's.
    monkeypatch.setattr("rehearsal.operators.exec_server.inside", lambda command, *_: command)
    (tmp_path / "spec.json").write_text("{}")
    fleet = FakeFleet(tmp_path, ("a",))
    fleet._machines["a"] = LocalMachine("a", tmp_path)
    server = ExecServer(fleet, [POD], lambda node, uid: {"ready": uid == "u", "netns": "pod-u"})
    port = await server.start("a")
    headers = {"Authorization": f"Bearer {(tmp_path / 'kubelet-token').read_text()}"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as found:
        yield found
    await server.close()


async def run(session, query: list[tuple[str, str]], stdin: bytes | None = None, protocol: str = "v5.channel.k8s.io"):
    channels: dict[int, bytes] = {}
    async with session.ws_connect("/exec/default/p/c", params=query, protocols=[protocol]) as socket:
        assert socket.protocol == protocol
        if stdin is not None:
            await socket.send_bytes(b"\x00" + stdin)
            await socket.send_bytes(b"\xff\x00")
        async for message in socket:
            channels[message.data[0]] = channels.get(message.data[0], b"") + message.data[1:]
    return channels


def words(*command: str) -> list[tuple[str, str]]:
    return [("command", word) for word in command]


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong"])
async def test_nobody_runs_commands_without_the_token(session, tmp_path, authorization):
    assert (tmp_path / "kubelet-token").stat().st_mode & 0o777 == 0o600
    async with session.get("/exec/default/p/c", params=words("id"), headers={"Authorization": authorization}) as answer:
        assert answer.status == 401


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
async def test_streams_and_exit_code(session, protocol):
    query = words("sh", "-c", "echo out; echo err >&2; exit 3") + [("output", "1"), ("error", "1")]
    channels = await run(session, query, protocol=protocol)
    assert (channels[1], channels[2]) == (b"out\n", b"err\n")
    status = json.loads(channels[3])
    assert status["reason"] == "NonZeroExitCode" and status["details"]["causes"][0]["message"] == "3"


async def test_stdin_ends_when_the_client_closes_it(session):
    channels = await run(session, [*words("cat"), ("input", "1")], b"x" * 200_000)
    assert len(channels[1]) == 200_000 and json.loads(channels[3])["status"] == "Success"


async def test_a_command_that_does_not_exist(session):
    channels = await run(session, words("no-such-command-here"))
    assert json.loads(channels[3])["reason"] == "InternalError"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("default/other/c", 404),
        ("default/p/other", 404),
        ("team/p/c", 404),
        ("default/p/c", 400),
    ],
)
async def test_what_is_refused(session, path, code):
    async with session.get(f"/exec/{path}") as answer:
        assert answer.status == code


async def test_a_command_ends_with_its_client(session):
    async with session.ws_connect("/exec/default/p/c", params=words("sh", "-c", "echo $$; exec sleep 600")) as socket:
        pid = None
        while pid is None:
            data = (await socket.receive_bytes())[1:].strip()
            pid = int(data) if data else None
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"sleep" not in file.read():
                    return
        except OSError:
            return
        await asyncio.sleep(0.05)
    pytest.fail("the command outlived its client")


async def until_gone(pid: int) -> bool:
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.parametrize("stays", [False, True], ids=["ends", "stays"])
async def test_a_command_with_input_only_loses_it_with_its_client(session, monkeypatch, caplog, stays):
    """As in a container runtime; what does not end by that is killed here, and the log tells."""
    monkeypatch.setattr("rehearsal.operators.exec_server.LEAVE", 0.2 if stays else 30.0)
    line = "echo $$; exec sleep 600" if stays else "echo $$; while read -r l; do :; done"
    async with session.ws_connect("/exec/default/p/c", params=[("stdin", "true"), *words("sh", "-c", line)]) as socket:
        pid = None
        while pid is None:
            data = (await socket.receive_bytes())[1:].strip()
            pid = int(data) if data else None
    assert await until_gone(pid)
    for _ in range(100):
        if ("did not end with its client" in caplog.text) is stays:
            break
        await asyncio.sleep(0.05)
    assert ("did not end with its client" in caplog.text) is stays


def test_codes():
    assert shell_code(-9) == 137 and shell_code(2) == 2
    assert exit_status(0)["status"] == "Success"
