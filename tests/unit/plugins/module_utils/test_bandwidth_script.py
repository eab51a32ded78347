# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The script of a pod in the shells of this machine: both sides of a pair, every way in which one can end early, and that
nothing is left of it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth import commands, perftest, script, session
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth.transcript import (
    Transcript,
    TranscriptError,
    read,
)
from hypothesis import given
from hypothesis import strategies as st

TOOL = Path(__file__).parent / "bandwidth_tools" / "ib_write_bw"
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]


def endpoint(host: str, count: int = 2) -> dict:
    rails = {rail: {"device": f"mlx5_{rail}", "gid_index": 3, "address": "127.0.0.1"} for rail in range(count)}
    return {"host": host, "rails": rails}


def settings(port: int, **more) -> dict:
    return commands.check({"tool": str(TOOL), "seconds": 2, "port": port, **more})


# Below those that the kernel gives to outgoing connections (net.ipv4.ip_local_port_range).
BASES = list(range(10000, 32000, 300))
PORTS = itertools.cycle(BASES[os.getpid() % len(BASES) :] + BASES[: os.getpid() % len(BASES)])


def is_free(port: int) -> bool:
    try:
        for one in range(port, port + 16):
            socket.create_server(("", one)).close()
    except OSError:
        return False
    return True


@pytest.fixture
def port() -> int:
    """The first of some ports that nobody has now."""
    return next(port for port in itertools.islice(PORTS, len(BASES)) if is_free(port))


def opener(shell: str, streams: list | None = None, **variables: str):
    """open_stream of session for a shell of this machine."""
    before = [shell, "sh"] if shell == "busybox" else [shell]

    def open_stream(_endpoint, argv):
        environment = [f"{name}={value}" for name, value in variables.items()]
        made = session.ProcessStream(["env", *environment, *before, *argv[1:]])
        if streams is not None:
            streams.append(made)
        return made

    return open_stream


def left(mark: str) -> list[str]:
    """Command lines of processes that have a text in them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line and "pytest" not in line:
            found.append(line)
    return found


def gone(mark: str) -> bool:
    """Whether no process with the text is there any more, some time after it was ended."""
    for _look in range(200):
        if not left(mark):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("together", [True, False], ids=["together", "one-by-one"])
def test_both_sides_of_a_pair(shell, together, port):
    made = session.run_leg(
        endpoint("a"), endpoint("b"), settings(port, together=together), opener(shell, FAKE_BW_SECONDS="0.05")
    )
    for side in (made["client"], made["server"]):
        assert (side.failure, side.said.ended, side.said.stopped) == (None, True, None)
        assert [one["code"] for _rail, one in sorted(side.said.rails.items())] == [0, 0]
    rates = [
        perftest.parse(one["text"], one["code"])["gbps"] for _rail, one in sorted(made["client"].said.rails.items())
    ]
    assert rates == [90.87 + (port + rail) % 10 for rail in range(2)]
    assert gone(f"-p {port} ")


@pytest.mark.parametrize("warnings", [0, 2000], ids=["in-short", "at-length"])
@pytest.mark.parametrize("shell", SHELLS)
def test_a_server_that_cannot_start_says_why(shell, warnings, port):
    """Also when the stop, which follows as soon as the last result begins, comes amid its output."""
    made = session.run_leg(
        endpoint("a"), endpoint("b"), settings(port), opener(shell, FAKE_BW="fail", FAKE_BW_WARNINGS=str(warnings))
    )
    assert made["client"].tests == []
    for one in made["server"].said.rails.values():
        assert perftest.parse(one["text"], one["code"])["failure"]["kind"] == "memlock", one["text"][-300:]


def test_a_port_that_is_in_use_is_told(port):
    held = subprocess.Popen([str(TOOL), "-p", str(port)], stdout=subprocess.DEVNULL)
    try:
        for _look in range(200):
            if f":{port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text():
                break
            time.sleep(0.05)
        else:
            pytest.fail("the port was not taken")
        made = session.run_leg(endpoint("a"), endpoint("b"), settings(port), opener("dash", FAKE_BW_SECONDS="0.05"))
    finally:
        held.kill()
        held.wait()
    assert made["server"].said.rails[0]["taken"] == port
    assert 0 not in made["client"].said.rails
    assert made["client"].said.rails[1]["code"] == 0


def test_a_tool_that_is_not_there(port):
    made = session.run_leg(
        endpoint("a", 1), endpoint("b", 1), settings(port, tool="/nonexistent/ib_write_bw"), opener("dash")
    )
    one = made["server"].said.rails[0]
    assert perftest.parse(one["text"], one["code"])["failure"]["kind"] == "no_tool"


def begin(shell: str, role: str, port: int, deadline: int = 60, **variables: str) -> subprocess.Popen:
    """A script with one test of which the tool hangs, up to the moment at which it runs."""
    server = None if role == "server" else "127.0.0.1"
    argv = commands.write_bw(settings(port), endpoint("a")["rails"][0], port, server)
    before = [shell, "sh"] if shell == "busybox" else [shell]
    # Under nohup the tests ignore SIGHUP, and a shell cannot trap what it got as ignored (POSIX, trap).
    given = ["env", "--default-signal=HUP", *[f"{key}={value}" for key, value in variables.items()]]
    process = subprocess.Popen(
        [*given, *before, *script.command(role, deadline)[1:]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write(script.order([{"rail": 0, "port": port, "device": "mlx5_0", "argv": argv}]) + script.start())
    process.stdin.flush()
    while process.stdout.readline() != b"@ before 0\n":
        pass
    for _look in range(400):
        if any("sh -c" not in line for line in left(f"-p {port} ")):
            return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the tool did not start")


ENDS = {
    "closed": lambda process: process.stdin.close(),
    "stop": lambda process: (process.stdin.write(script.STOP), process.stdin.flush()),
    "term": lambda process: process.send_signal(signal.SIGTERM),
    "hup": lambda process: process.send_signal(signal.SIGHUP),
}
REASONS = {"closed": "input", "stop": "input", "term": "signal", "hup": "signal"}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_of_a_script_that_is_ended(shell, end, port):
    process = begin(shell, "server", port)
    ENDS[end](process)
    output = process.stdout.read()
    assert process.wait(30) == 0
    said = read(b"@ hello server\n" + output)
    assert (said.stopped, said.ended, said.rails[0]["code"]) == (REASONS[end], True, None)
    assert gone(f"-p {port} ")
    process.stdout.close()


def test_the_deadline_ends_everything(port):
    process = begin("dash", "server", port, deadline=1)
    said = read(b"@ hello server\n" + process.stdout.read())
    assert (process.wait(30), said.stopped, said.ended) == (0, "deadline", True)
    assert gone(f"-p {port} ")
    process.stdin.close()
    process.stdout.close()


def test_a_reader_that_goes_away_ends_everything(port):
    process = begin("dash", "server", port)
    process.stdout.close()
    process.stdin.close()
    process.wait(30)
    assert gone(f"-p {port} ")


def test_input_that_ends_before_the_list_does():
    done = subprocess.run(
        ["dash", *script.command("client", 9)[1:]],
        input=b"0 18515 mlx5_0 true\n",
        capture_output=True,
        timeout=30,
        check=True,
    )
    said = read(done.stdout)
    assert (said.stopped, said.ended, said.rails) == ("input", True, {})


def test_no_temporary_folder_is_trouble(tmp_path):
    argv = [shutil.which("dash"), *script.command("client", 9)[1:]]
    done = subprocess.run(
        argv, input=b"together\n", capture_output=True, timeout=30, check=True, env={"PATH": str(tmp_path)}
    )
    assert read(done.stdout).trouble == "no writable temporary directory"


def test_the_script_is_clean_and_short():
    query = urllib.parse.urlencode([("command", word) for word in script.command("server", 1000)])
    assert len(query) < 7500  # proxies take 8 KB for the whole request line
    if shutil.which("shellcheck"):
        words = ["shellcheck", "-s", "sh", "-e", "SC2154", "-"]
        done = subprocess.run(words, input="#!/bin/sh\n" + script.SCRIPT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["", "mlx5_0 x", "a/b", "x;reboot", "$(id)", "a\nb"])
def test_a_device_must_be_one_word(name):
    with pytest.raises(ValueError, match="want the name of an RDMA device"):
        script.order([{"rail": 0, "port": 1, "device": name, "argv": ["true"]}])


def test_words_of_the_command_are_quoted(tmp_path, port):
    mark = tmp_path / "made by a word"
    tests = [{"rail": 0, "port": port, "device": "mlx5_0", "argv": ["echo", f"a 'b' $(touch {mark})"]}]
    stream = session.ProcessStream(["dash", *script.command("client", 30)[1:]])
    said = Transcript()
    try:
        stream.send(script.order(tests) + script.start())
        while not said.ended:
            said.feed(stream.receive(5) or b"")
    finally:
        stream.close()
    assert (said.rails[0]["text"], said.stopped) == (f"a 'b' $(touch {mark})\n", None)
    assert not mark.exists()


@given(st.lists(st.binary(max_size=40)))
def test_any_output_is_read_or_refused(parts):
    transcript = Transcript()
    try:
        for part in parts:
            transcript.feed(part)
    except TranscriptError as error:
        assert str(error)


def test_output_without_an_end_is_refused():
    with pytest.raises(TranscriptError, match="without an end"):
        Transcript().feed(b"x" * 10_000)


class Broken:
    """A stream of a pod that goes away after a while."""

    def __init__(self, output: list[bytes]) -> None:
        self.output = output

    def send(self, data):
        pass

    def receive(self, seconds):
        return self.output.pop(0) if self.output else None

    def close(self):
        pass


def test_a_pod_that_goes_away_is_told():
    made = session.run_leg(
        endpoint("a", 1), endpoint("b", 1), commands.check({}), lambda *_: Broken([b"@ hello server\n"])
    )
    assert made["server"].failure == "the stream ended early: the pod or the connection to it went away"
    assert not made["client"].said.rails


def test_an_exec_that_is_refused_is_told():
    def refused(_endpoint, _argv):
        raise session.StreamError("exec refused: 403 Forbidden")

    made = session.run_leg(endpoint("a", 1), endpoint("b", 1), commands.check({}), refused)
    assert made["server"].failure == "exec refused: 403 Forbidden"
