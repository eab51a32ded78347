# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rehearsal nodes as the operators reach them: their specification, whether they are up, commands."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from rehearsal.operators.inventory import SCRIPT, Function, parse


class MachineError(Exception):
    """A command on a node failed or the node is down; the message is the command's own error text."""


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


@dataclass
class Machine:
    """One node: ``directory`` is STATE/nodes/NAME with spec.json and, while it is up, boot.json."""

    name: str
    directory: Path

    @property
    def spec(self) -> dict:
        return json.loads((self.directory / "spec.json").read_text())

    def boot(self) -> dict | None:
        """boot.json of the running node, or None while it is down."""
        try:
            return json.loads((self.directory / "boot.json").read_text())
        except (OSError, json.JSONDecodeError):
            return None

    async def run(self, argv: list[str], netns: str | None = None, stdin: bytes = b"") -> tuple[int, str, str]:
        """Run a command on the node (and in a named network namespace of it).

        :raises MachineError: the node is down.
        """
        from rehearsal.machine import enter

        try:
            code, out, err = await enter.run(self.directory, argv, netns=netns, stdin=stdin)
        except (OSError, enter.NodeDown) as error:
            raise MachineError(f"node {self.name} is not reachable: {error}") from error
        return code, _text(out), _text(err)

    async def start(self, argv: list[str], netns: str | None, stdin: bool) -> asyncio.subprocess.Process:
        """Start a command whose streams the caller serves; it leads its own process group.

        :raises OSError: the node is down or the command cannot be started.
        """
        from rehearsal.machine import enter

        try:
            line = enter.command(self.directory, argv, netns)
        except enter.NodeDown as error:
            raise OSError(str(error)) from error
        pipe = asyncio.subprocess.PIPE
        source = pipe if stdin else asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            *line, stdin=source, stdout=pipe, stderr=pipe, env=enter.ENVIRONMENT, cwd="/", start_new_session=True
        )

    async def shell(self, script: str, *words: str, netns: str | None = None) -> str:
        """Run a shell script that stops at its first error; ``words`` are $1, $2, ...

        :raises MachineError: it failed; the message is the last line of what it wrote to standard error.
        """
        code, out, err = await self.run(["/bin/sh", "-ec", script, "sh", *words], netns=netns)
        if code != 0:
            lines = err.strip().splitlines()
            raise MachineError(lines[-1] if lines else f"command ended with code {code}")
        return out

    def boot_id(self) -> str | None:
        """The kernel's boot id as the node's own processes read it, or None while the node is down; it changes with
        each boot."""
        boot = self.boot()
        if boot is None:
            return None
        try:
            # The kernel resolves this in the node's mount namespace; a command on each node each second would cost more
            # than all else that the operators do.
            text = Path(f"/proc/{boot['init_pid']}/root/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        except OSError:
            return None
        return text.strip() or None

    async def functions(self) -> dict[str, Function]:
        """The network functions that the node's host namespace shows, by PCI address."""
        return parse(await self.shell(SCRIPT))

    # The operators' own notes on a node (kubelet checkpoints, CNI results) live beside the node, not in its disk:
    # they must outlive a restart of the operators, and a node that is down must still be readable.
    def load(self, name: str) -> dict:
        try:
            return json.loads((self.directory / f"{name}.json").read_text())
        except (OSError, json.JSONDecodeError):
            return {}

    def save(self, name: str, content: dict) -> None:
        path = self.directory / f"{name}.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(content, indent=1, sort_keys=True))
        draft.replace(path)


class Fleet:
    """All rehearsal nodes under STATE/nodes."""

    def __init__(self, state: Path):
        self.state = state
        self._machines: dict[str, Machine] = {}

    def machines(self) -> dict[str, Machine]:
        """Nodes by name; new folders are found at each call, removed ones are dropped."""
        found = {path.parent.name: path.parent for path in sorted((self.state / "nodes").glob("*/spec.json"))}
        self._machines = {
            name: self._machines.get(name) or Machine(name, directory) for name, directory in found.items()
        }
        return self._machines

    def get(self, name: str | None) -> Machine | None:
        return self._machines.get(name or "") or self.machines().get(name or "")
