# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The supervisor of a node: keeps its disk and boots it again and again, like a hypervisor.

Everything of the node lives in this process and its children: when it ends, mounts, namespaces and disk are gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from rehearsal.machine import disk, linux
from rehearsal.machine.boot import Serve, boot, load_spec, log
from rehearsal.machine.init import REBOOT
from rehearsal.machine.status import NodeStatus

_PR_SET_CHILD_SUBREAPER = 36


def supervise(state: Path, name: str, serve: Serve) -> NoReturn:
    """Prepare the disk and boot until SIGTERM; a node that panics or is powered off stays down, and its status says
    so.
    """
    node_dir = state / "nodes" / name
    status = NodeStatus(node_dir)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, _end)
    # Orphans of a killed boot come here, so that the end of this process means the end of all of them.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        spec = load_spec(node_dir)
        status.set("booting", boots=0)
        linux.unshare(linux.CLONE_NEWNS)
        linux.private_mounts()
        root = disk.mount_disk(node_dir)
        disk.prepare(root, spec, (state / "id_ed25519.pub").read_text(encoding="utf-8"), os.uname().release)
    except Exception as error:
        log(f"the disk could not be prepared: {type(error).__name__}: {error}")
        status.set("panic", f"the disk could not be prepared: {error}", boots=0)
        raise
    boots, code = 0, REBOOT
    while code == REBOOT:
        boots += 1
        status.set("booting", boots=boots)
        code = _boot_once(node_dir, root, spec, serve)
    while True:
        signal.pause()


def _boot_once(node_dir: Path, root: Path, spec: dict, serve: Serve) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            linux.die_with_parent()
            for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(signum, signal.SIG_DFL)
            code = boot(node_dir, root, spec, serve)
        except BaseException as error:
            import traceback

            traceback.print_exc()
            NodeStatus(node_dir).set("panic", f"{type(error).__name__}: {error}")
        finally:
            sys.stderr.flush()
            os._exit(code)
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _end(*_: object) -> NoReturn:
    """Kill the boot; its children die with it (PR_SET_PDEATHSIG) and are waited for, so that nothing is left when we
    end.
    """
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    for pid in _children():
        os.kill(pid, signal.SIGKILL)
    try:
        while True:
            os.wait()
    except ChildProcessError:
        os._exit(0)


def _children() -> list[int]:
    own = os.getpid()
    return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]
