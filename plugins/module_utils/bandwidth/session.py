# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the two sides of a pair through streams, and keep what they said. Standard library only.

A *stream* is one run of the script in one pod: an object with ``send(bytes)``, ``receive(seconds) -> bytes | None`` (None
at its end, empty when nothing came in time) and ``close()``, which ends the script. ``open_stream(endpoint, argv)`` starts one
and raises StreamError when it cannot.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Callable

from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth import commands, script
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth.transcript import Transcript, TranscriptError

READY_SECONDS = 60  # a server's port listens some 0.1 s after its start; drivers of a loaded node take seconds
LEAVE_SECONDS = 10  # a server ends by itself after its client; then its input is closed, and it has that long again
STEP = 0.5


class StreamError(Exception):
    """The stream could not be opened or broke; the text says why."""


class ProcessStream:
    """A stream of a process on this machine, which may be an ssh to another one."""

    def __init__(self, argv: list[str]) -> None:
        try:
            # run_command waits for the end; a stream is talked to while it runs.
            self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise StreamError(f"{argv[0]} cannot be started: {error.strerror}") from error
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def send(self, data: bytes) -> None:
        """Write to its standard input. StreamError when it has ended."""
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise StreamError(f"the process has ended: {error}") from error

    def receive(self, seconds: float) -> bytes | None:
        """What came within so many seconds; empty when nothing did, None at the end."""
        if not self._selector.select(seconds):
            return b""
        return os.read(self._process.stdout.fileno(), 65536) or None

    def close(self) -> None:
        """Close its input, and wait until the process has ended; it is killed when it does not end by itself."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._selector.close()
        self._process.stdout.close()


class Side:
    """One side of a leg: a stream and what it has said."""

    def __init__(self, role: str, endpoint: dict, tests: list[dict]) -> None:
        self.role, self.endpoint, self.tests = role, endpoint, tests
        self.said = Transcript()
        self.failure: str | None = None
        self._stream = None

    @property
    def rails(self) -> list[int]:
        """Numbers of the rails that are tested."""
        return [test["rail"] for test in self.tests]

    def open(self, open_stream: Callable, limit: int) -> None:
        """Start the script and tell it the tests. A failure is kept, not raised."""
        try:
            self._stream = open_stream(self.endpoint, script.command(self.role, limit))
            self._stream.send(script.order(self.tests))
        except StreamError as error:
            self.failure = str(error)

    def send(self, data: bytes) -> None:
        """Send, unless it has failed."""
        if self.failure is None:
            try:
                self._stream.send(data)
            except StreamError as error:
                self.failure = str(error)

    def read_until(self, done: Callable[[], bool], until: float, clock: Callable[[], float]) -> bool:
        """Read until ``done()``; False when the time is over before, or the stream ends."""
        while self.failure is None and not done():
            left = until - clock()
            if left <= 0:
                return False
            try:
                data = self._stream.receive(min(STEP, left))
                if data is None:
                    if not self.said.ended:
                        self.failure = "the stream ended early: " + (
                            self.said.trouble or self.said.stopped or "the pod or the connection to it went away"
                        )
                    return done()
                self.said.feed(data)
            except (StreamError, TranscriptError) as error:
                self.failure = str(error)
        return self.failure is None

    def stop(self) -> None:
        """Tell the script to end. One that ends at the same moment does not hear it, and that is no failure."""
        if self._stream is not None:
            with contextlib.suppress(StreamError):
                self._stream.send(script.STOP)

    def close(self) -> None:
        """Close the stream; the script ends with it."""
        if self._stream is not None:
            with contextlib.suppress(StreamError):
                self._stream.close()
            self._stream = None


def run_legs(
    legs: list[dict],
    settings: dict,
    open_stream: Callable,
    clock: Callable[[], float] = time.monotonic,
    ready_seconds: float = READY_SECONDS,
) -> list[dict]:
    """Run pairs that must run at the same time (one, or with ``share`` two on the same ports) and return what they said.

    :param legs: ``[{client: endpoint, server: endpoint, stream: N}]``.
    :param settings: as :func:`commands.check` gives them.
    :returns: for each leg ``{leg, client: Side, server: Side, left_out: {rail: reason}}``; nothing runs any more.
    """
    sides, made = [], []
    for leg in legs:
        servers, clients, left_out = commands.leg(settings, leg["client"], leg["server"], leg.get("stream", 0))
        server, client = Side(script.SERVER, leg["server"], servers), Side(script.CLIENT, leg["client"], clients)
        made.append({"leg": leg, "client": client, "server": server, "left_out": left_out})
        sides += [server, client] if clients else []
    limit = commands.deadline(settings, max((len(side.rails) for side in sides), default=0))
    servers = [side for side in sides if side.role == script.SERVER]
    clients = [side for side in sides if side.role == script.CLIENT]
    try:
        for side in servers:
            side.open(open_stream, limit + int(ready_seconds))
            side.send(script.start())
        for side in servers:
            side.read_until(lambda side=side: side.said.settled(side.rails), clock() + ready_seconds, clock)
        for side, server in zip(clients, servers):
            if server.failure is None:
                side.tests = [test for test in side.tests if (server.said.rails.get(test["rail"]) or {}).get("ready")]
                if side.tests:
                    side.open(open_stream, limit)
        for side, server in zip(clients, servers):
            if server.failure is None and side.tests:
                side.send(script.start(each=not settings["together"]))
        for side, server in zip(clients, servers):
            # The script ends itself at its deadline; the time beyond is for the way here.
            until = clock() + limit + LEAVE_SECONDS
            asked = server.failure is None and side.tests
            if asked and not side.read_until(lambda side=side: side.said.ended, until, clock):
                side.failure = side.failure or f"no end within {limit} s"
        _end(servers, clock)
    finally:
        for side in sides:
            side.close()
    return made


def _end(servers: list[Side], clock: Callable[[], float]) -> None:
    """Let servers end by themselves, then make them."""
    until = clock() + LEAVE_SECONDS
    waiting = [s for s in servers if all((s.said.rails.get(rail) or {}).get("ready") for rail in s.rails)]
    for side in waiting:
        side.read_until(lambda side=side: side.said.ended, until, clock)
    for side in servers:
        if not side.said.ended:
            side.stop()
    until = clock() + LEAVE_SECONDS
    for side in servers:
        side.read_until(lambda side=side: side.said.ended, until, clock)


def run_leg(client: dict, server: dict, settings: dict, open_stream: Callable, stream: int = 0) -> dict:
    """Run one pair; see :func:`run_legs`."""
    return run_legs([{"client": client, "server": server, "stream": stream}], settings, open_stream)[0]
