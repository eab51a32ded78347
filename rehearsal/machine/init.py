# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PID 1 of a node: mounts, sshd, reaping, and the way down.

It takes systemd's signals (systemd(1), SIGNALS): SIGRTMIN+5 or SIGINT reboots, SIGRTMIN+4 or SIGRTMIN+3 powers off.
Its exit code tells the boot process which of the two it was; the kernel then kills whatever is left in the PID
namespace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from rehearsal.machine import linux, services

REBOOT, OFF, PANIC = 10, 11, 12
_REBOOT_SIGNALS = {signal.SIGINT, signal.SIGRTMIN + 5}
_OFF_SIGNALS = {signal.SIGRTMIN + 3, signal.SIGRTMIN + 4}
_HANDLED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, *_REBOOT_SIGNALS, *_OFF_SIGNALS}
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "container": "railyard-rehearsal",
}
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_DEV_LINKS = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
GRACE_SECONDS, STOP_SECONDS = 0.2, 1.0
SSHD_STARTS = 3


def mount_early(root: Path) -> None:
    """/run and /dev of this boot, before the kernel simulation starts and puts its socket into /run."""
    linux.mount("tmpfs", str(root / "run"), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=64m")
    for name in ("sshd", "lock", "netns", "rehearsal"):
        (root / "run" / name).mkdir(mode=0o755)
    linux.mount("tmpfs", str(root / "dev"), "tmpfs", linux.MS_NOSUID, "mode=755,size=16m")
    for name in _DEVICES:
        (root / "dev" / name).touch()
        linux.bind(f"/dev/{name}", str(root / "dev" / name))
    for name, target in _DEV_LINKS.items():
        (root / "dev" / name).symlink_to(target)
    (root / "dev/pts").mkdir()
    linux.mount(
        "devpts",
        str(root / "dev/pts"),
        "devpts",
        linux.MS_NOSUID | linux.MS_NOEXEC,
        "newinstance,ptmxmode=0666,mode=620",
    )
    (root / "dev/shm").mkdir()
    linux.mount("tmpfs", str(root / "dev/shm"), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=1777,size=256m")
    (root / "dev/infiniband").mkdir()


def run(root: Path, boot_id: str, cmdline: str, symbols: str) -> NoReturn:
    """Never returns: ends the process with REBOOT, OFF or PANIC.

    :param symbols: content of the node's /proc/kallsyms.
    """
    code = PANIC
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        _enter(root, boot_id, cmdline, symbols)
        services.start_all()
        code = _live()
    except Exception as error:  # the console of the node is the log of its supervisor
        print(f"init: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(code)


def _enter(root: Path, boot_id: str, cmdline: str, symbols: str) -> None:
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("proc", str(root / "proc"), "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    for name, text in (("cmdline", cmdline), ("sys/kernel/random/boot_id", boot_id), ("kallsyms", symbols)):
        source = root / "run/rehearsal" / Path(name).name
        source.write_text(text.rstrip("\n") + "\n", encoding="ascii")
        source.chmod(0o444)
        linux.bind(str(source), str(root / "proc" / name))
    linux.pivot_root(str(root))
    os.environ.clear()
    os.environ.update(_ENVIRONMENT)
    os.setsid()
    os.umask(0o022)
    Path("/proc/self/comm").write_text("init", encoding="ascii")
    # The node's memory of its boots, where a real one has its journal.
    journal = Path("/var/lib/rehearsal/boots")
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a", encoding="ascii") as lines:
        lines.write(f"{boot_id}\n")


def _spawn_sshd() -> subprocess.Popen[bytes]:
    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)

    return subprocess.Popen(["/usr/sbin/sshd", "-D", "-e"], stdin=subprocess.DEVNULL, preexec_fn=unblock)


def _live() -> int:
    sshd = _spawn_sshd()
    starts = 1
    while True:
        number = signal.sigwaitinfo(_HANDLED).si_signo
        if number in _REBOOT_SIGNALS:
            return _stop(REBOOT)
        if number in _OFF_SIGNALS:
            return _stop(OFF)
        for pid, status in _reap():
            if pid != sshd.pid:
                continue
            sshd.returncode = os.waitstatus_to_exitcode(status)
            print(f"init: sshd ended with {sshd.returncode}", file=sys.stderr, flush=True)
            if starts >= SSHD_STARTS:
                return PANIC
            starts += 1
            sshd = _spawn_sshd()


def _reap() -> list[tuple[int, int]]:
    ended = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended.append((pid, status))
    return ended


def _stop(code: int) -> int:
    # The command that asked for it shall still be able to report to its ssh client, as on a real host.
    time.sleep(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGTERM)
    end = time.monotonic() + STOP_SECONDS
    while time.monotonic() < end:
        _reap()
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)
            continue
        break
    os.sync()
    return code
