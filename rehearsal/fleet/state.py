# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""STATE/fleet.json: which processes belong to the fleet, so that they can be ended after any crash.

A process is known by its id and its start time (field 22 of /proc/PID/stat, proc(5)), since ids are used again. Each
child writes itself into the record before it becomes the part, so no crash of the command line leaves an unrecorded
process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from rehearsal.fleet.errors import FleetError
from rehearsal.machine.status import read_json, write_json

FILE = "fleet.json"
# What stays in STATE after ``down``.
KEPT = {"logs"}
STOP_SECONDS = 8.0


@dataclass(frozen=True)
class Process:
    """A recorded process: part name, kind (api, node, operators, play, cli), id and start time in clock ticks since
    boot.
    """

    name: str
    kind: str
    pid: int
    start: int

    def alive(self) -> bool:
        """Whether the very same process still runs; a zombie counts as ended."""
        found = stat_of(self.pid)
        return found is not None and found[1] == self.start and found[0] != "Z"


def stat_of(pid: int) -> tuple[str, int] | None:
    """(state letter, start time) of a process, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name in parentheses may hold anything
    return fields[0], int(fields[19])


def this_process(name: str, kind: str) -> Process:
    """The record of the calling process."""
    return Process(name, kind, os.getpid(), stat_of(os.getpid())[1])


class State:
    """A fleet's folder and its record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.path = self.folder / FILE
        self.logs = self.folder / "logs"

    def read(self) -> dict[str, Any] | None:
        """The record: {schema, phase: starting|up, owner: Process|None, cluster, nodes: [..], processes: [Process]};
        None without fleet.
        """
        return read_json(self.path)

    def create(self, nodes: list[str], cluster: bool, owner: Process) -> None:
        """Make the folder and a record in phase ``starting``; FleetError when the folder holds something that is not
        ours.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        foreign = sorted(entry.name for entry in self.folder.iterdir() if entry.name not in {*KEPT, "lock"})
        if foreign:
            raise FleetError(
                f"{self.folder} holds files that are no fleet's ({', '.join(foreign[:3])}): give --state a "
                "folder of its own"
            )
        self.logs.mkdir(exist_ok=True)
        for entry in self.logs.iterdir():
            entry.unlink()
        data = {
            "schema": 1,
            "phase": "starting",
            "owner": asdict(owner),
            "cluster": cluster,
            "nodes": nodes,
            "processes": [],
        }
        write_json(self.path, data)

    def update(self, **changes: Any) -> None:
        """Change fields of the record."""
        write_json(self.path, {**(self.read() or {}), **changes})

    def processes(self) -> list[Process]:
        """The recorded processes in order of their start."""
        return [Process(**row) for row in (self.read() or {}).get("processes", [])]

    def owner(self) -> Process | None:
        """The command line that takes the fleet down itself, None once the fleet stands alone."""
        row = (self.read() or {}).get("owner")
        return Process(**row) if row else None

    def record_self(self, name: str, kind: str) -> None:
        """Add the calling process to the record."""
        data = self.read() or {}
        data["processes"] = [*data.get("processes", []), asdict(this_process(name, kind))]
        write_json(self.path, data)

    def spawn(self, name: str, kind: str, argv: list[str], **options: Any) -> subprocess.Popen:
        """Start a part in a session of its own, recorded before it runs, its output in logs/NAME.log unless given
        otherwise.
        """
        with open(self.logs / f"{name}.log", "ab") as log:
            settings: dict[str, Any] = {
                "stdin": subprocess.DEVNULL,
                "stdout": log,
                "stderr": subprocess.STDOUT,
                **options,
            }
            return subprocess.Popen(
                argv, start_new_session=True, preexec_fn=lambda: self.record_self(name, kind), **settings
            )

    def fork(self, name: str, kind: str, work: Callable[[], int]) -> None:
        """Start a part as :meth:`spawn` does, but as a copy of this process that does ``work``, whose result is its exit code:
        what this process has imported need not be imported once for each part. FleetError when the copy ends before it is recorded.
        """
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork() == 0:
            self._be_part(name, kind, work, writer)
        os.close(writer)
        with open(reader, "rb") as recorded:
            if not recorded.read():
                raise FleetError(f"{name} did not start; the end of its log:\n{self.tail(name)}")

    def _be_part(self, name: str, kind: str, work: Callable[[], int], writer: int) -> NoReturn:
        code = 1
        try:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            with open(self.logs / f"{name}.log", "ab") as log, open(os.devnull, "rb") as nothing:
                for number, stream in enumerate((nothing, log, log)):
                    os.dup2(stream.fileno(), number)
            self.record_self(name, kind)
            os.write(writer, b"1")
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the lock of the folder, for one, is not for its parts to keep
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def tail(self, name: str, lines: int = 15) -> str:
        """The end of a part's log, indented; for error messages."""
        try:
            text = (self.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return "    (no log)"
        return "\n".join("    " + line for line in text.splitlines()[-lines:]) or "    (its log is empty)"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second up or down of the same folder out; FleetError when there is one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w", encoding="ascii") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FleetError(
                    f"another rehearsal command works on {self.folder} right now: wait for it or end it"
                ) from None
            yield


def end(processes: list[Process]) -> list[str]:
    """SIGTERM, then SIGKILL, to those of the processes that are still the recorded ones; names of those that had to
    be killed.
    """
    killed = []
    for process in processes:
        _signal(process, signal.SIGTERM)
    limit = time.monotonic() + STOP_SECONDS
    waiting = [process for process in processes if _still(process)]
    while waiting and time.monotonic() < limit:
        time.sleep(0.02)
        waiting = [process for process in waiting if _still(process)]
    for process in waiting:
        killed.append(process.name)
        _signal(process, signal.SIGKILL)
    while any(_still(process) for process in waiting):
        time.sleep(0.02)
    return killed


def _still(process: Process) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)  # our own child, if this command started it
    return process.alive()


def _signal(process: Process, number: int) -> None:
    # The descriptor pins the process: between the check and the signal its id cannot pass to another.
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if process.alive():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)
