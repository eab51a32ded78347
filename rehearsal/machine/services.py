# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node's init starts besides sshd, from the node's own files: sysctl.d, the container runtime, /etc/rc.local.

The runtime is a process of its name with the memory lock limit that its unit gives it; it does nothing. Its cgroup is
told to the kernel simulation, which shows it in /sys/fs/cgroup.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from rehearsal.machine import linux

RUNTIMES = ("containerd", "crio")
UNITS = ("usr/lib/systemd/system", "etc/systemd/system")
SOCKET = "/run/rehearsal/rdma.sock"
DEFAULT_MEMLOCK = "8M"  # systemd's DefaultLimitMEMLOCK= since release 246
RC_LOCAL_SECONDS = 30
_SUFFIX = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Settings of a network namespace: only these are the node's own, the rest would be this machine's.
_OWN_SYSCTL = re.compile(r"net[./]ipv[46][./].+")


def start_all(root: Path = Path("/")) -> None:
    """All of it, in the order of a boot; called by init in the node, before sshd. A fault of one is told on the
    console and does not stop the boot.
    """
    for step in (apply_sysctl, start_runtimes, run_rc_local):
        try:
            step(root)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"init: {step.__name__}: {error}", file=sys.stderr, flush=True)


def apply_sysctl(root: Path) -> None:
    """net.ipv4 and net.ipv6 settings of /etc/sysctl.d/*.conf and /etc/sysctl.conf, as systemd-sysctl applies them."""
    paths = [*sorted((root / "etc/sysctl.d").glob("*.conf")), root / "etc/sysctl.conf"]
    for path in paths:
        if not path.is_file():
            continue
        for key, value in settings(path.read_text(encoding="utf-8")):
            try:
                file_of(key).write_text(f"{value}\n", encoding="ascii")
            except OSError as error:
                print(f"init: {path}: {key} = {value}: {error.strerror}", file=sys.stderr, flush=True)


def settings(text: str) -> list[tuple[str, str]]:
    """(key, value) rows of a sysctl.d file that are a node's own (sysctl.d(5))."""
    rows = []
    for line in text.splitlines():
        key, mark, value = line.strip().lstrip("-").partition("=")
        if mark and not line.strip().startswith(("#", ";")) and _OWN_SYSCTL.fullmatch(key.strip()):
            rows.append((key.strip(), value.strip()))
    return rows


def file_of(key: str) -> Path:
    """sysctl(8): dots are slashes unless the first separator is a slash; a dot of a name is then written as a slash."""
    first = re.search(r"[./]", key)
    if first and first[0] == "/":
        return Path("/proc/sys") / key
    return Path("/proc/sys") / key.translate(str.maketrans("./", "/."))


def start_runtimes(root: Path) -> None:
    """A process for each runtime that has a unit."""
    for name in RUNTIMES:
        if (root / UNITS[0] / f"{name}.service").exists():
            pid = _start(name, memlock_of(root, name))
            tell_kernel({"op": "service_started", "service": name, "pid": pid})


def memlock_of(root: Path, name: str) -> tuple[int, int]:
    """(soft, hard) in bytes that LimitMEMLOCK= of a unit and its drop-ins gives, RLIM_INFINITY for none
    (systemd.exec(5)); ValueError for a value that systemd refuses.
    """
    paths = [root / UNITS[0] / f"{name}.service"]
    paths += sorted((path for place in UNITS for path in (root / place / f"{name}.service.d").glob("*.conf")),
                    key=lambda path: path.name)  # fmt: skip
    value = DEFAULT_MEMLOCK
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            key, mark, given = line.partition("=")
            if mark and key.strip() == "LimitMEMLOCK":
                value = given.strip() or DEFAULT_MEMLOCK
    soft, _, hard = value.partition(":")
    return _bytes(soft), _bytes(hard or soft)


def _bytes(text: str) -> int:
    if text == "infinity":
        return resource.RLIM_INFINITY
    match = re.fullmatch(r"([0-9]+)([KMGT]?)", text)
    if match is None:
        raise ValueError(f"LimitMEMLOCK={text!r}: want bytes with K, M, G or T, or infinity")
    return int(match[1]) * _SUFFIX[match[2]]


def _start(name: str, limit: tuple[int, int]) -> int:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be(name, writer)
    os.close(writer)
    with open(reader, "rb") as named:
        named.read()
    try:
        resource.prlimit(pid, resource.RLIMIT_MEMLOCK, limit)
    except PermissionError:
        _show_limit(pid, limit)
    return pid


def _be(name: str, writer: int) -> NoReturn:
    try:
        Path("/proc/self/comm").write_text(name, encoding="ascii")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.close(writer)
        while True:
            signal.pause()
    finally:
        os._exit(1)


def _show_limit(pid: int, limit: tuple[int, int]) -> None:
    """Where nobody may raise a limit (CAP_SYS_RESOURCE of the machine's own user namespace), at least let the node's
    /proc show it.
    """
    words = ["unlimited" if value == resource.RLIM_INFINITY else str(value) for value in limit]
    path = Path(f"/proc/{pid}/limits")
    row = f"Max locked memory         {words[0]:<20} {words[1]:<20} bytes     "
    text = re.sub(r"^Max locked memory .*$", row, path.read_text(encoding="ascii"), flags=re.MULTILINE)
    shown = Path(f"/run/rehearsal/limits.{pid}")
    shown.write_text(text, encoding="ascii")
    shown.chmod(0o444)
    linux.bind(str(shown), str(path))


def tell_kernel(request: dict) -> None:
    """One request to the kernel simulation; OSError when it refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(SOCKET)
        client.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(client.makefile().readline())
    if not answer["ok"]:
        raise OSError(f"{request['op']}: {answer['error']}")


def run_rc_local(root: Path) -> None:
    """/etc/rc.local when it may be run, as systemd's generator for it does."""
    script = root / "etc/rc.local"
    if os.access(script, os.X_OK):
        subprocess.run(
            [str(script), "start"],
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=RC_LOCAL_SECONDS,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, set()),
        )
