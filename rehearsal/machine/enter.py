# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a program on a node from outside, as its kubelet would: in all of its namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}


class NodeDown(OSError):
    """The node is not up (booting, panicked, powered off), so nothing can run on it."""


def command(node_dir: str | Path, argv: list[str], netns: str | None = None) -> list[str]:
    """The nsenter command line for ``argv`` on the node, in its network namespace NETNS (of ``ip netns``) when given.

    Raises NodeDown when the node has no boot.json. The kernel resolves /proc/PID/root in the node's mount namespace.
    """
    try:
        init_pid = json.loads((Path(node_dir) / "boot.json").read_text(encoding="utf-8"))["init_pid"]
    except FileNotFoundError:
        raise NodeDown(f"node {Path(node_dir).name} is not up") from None
    spaces = ["--mount", "--uts", "--ipc", "--pid"]
    spaces.append("--net" if netns is None else f"--net=/proc/{init_pid}/root/run/netns/{netns}")
    try:
        if os.stat(f"/proc/{init_pid}/ns/user").st_ino != os.stat("/proc/self/ns/user").st_ino:
            spaces.append("--user")  # a process cannot join the user namespace that it is in (setns(2))
    except FileNotFoundError:
        raise NodeDown(f"node {Path(node_dir).name} is going down") from None
    return ["nsenter", "--target", str(init_pid), *spaces, "--root", "--wd", "--", *argv]


async def run(
    node_dir: str | Path, argv: list[str], netns: str | None = None, stdin: bytes = b""
) -> tuple[int, bytes, bytes]:
    """(exit code, standard output, standard error) of ``argv`` run on the node; raises NodeDown.

    Cancelling the call ends the program too.
    """
    process = await asyncio.create_subprocess_exec(
        *command(node_dir, argv, netns),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )
    try:
        out, err = await process.communicate(stdin)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err
