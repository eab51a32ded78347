# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The few Linux calls that the standard library does not have (Python 3.11): mount, unshare, setns, pivot_root.

Every function raises OSError with the call and its target in the message, since "Invalid argument" alone helps nobody.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 0x1000, 0x2000, 0x4000, 0x40000
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG = 1
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """mount(2). ``kind`` and ``data`` may be None, as for a bind."""
    result = _libc.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data))
    _check(result, f"mount {kind or source} on {target}" + (f" ({data})" if data else ""))


def bind(source: str, target: str, recursive: bool = False) -> None:
    """Make ``source`` visible at ``target`` too."""
    mount(source, target, flags=MS_BIND | (MS_REC if recursive else 0))


def umount(target: str, flags: int = MNT_DETACH) -> None:
    """umount2(2), lazily by default: what still uses the mount keeps it until it ends."""
    _check(_libc.umount2(_bytes(target), flags), f"umount {target}")


def private_mounts() -> None:
    """Keep this mount namespace's mounts from reaching any other."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


def unshare(flags: int) -> None:
    """unshare(2) of the calling process."""
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def setns(fd: int, kind: int = 0) -> None:
    """setns(2): join the namespace of an open /proc/PID/ns/* file."""
    _check(_libc.setns(fd, kind), "setns")


def pivot_root(new_root: str) -> None:
    """Make ``new_root`` (a mount point) the root of this mount namespace and let the old root go (pivot_root(2),
    notes).
    """
    number = _SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root: no system call number known for {os.uname().machine}")
    os.chdir(new_root)
    _check(_libc.syscall(ctypes.c_long(number), b".", b"."), f"pivot_root {new_root}")
    umount(".")
    os.chdir("/")


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the kernel for a signal when the parent ends (prctl(2)), so that no part of a node outlives its
    supervisor.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0), "prctl PR_SET_PDEATHSIG")


def sethostname(name: str) -> None:
    """Set the host name of this UTS namespace."""
    socket.sethostname(name)


def link_up(name: str) -> None:
    """Set a network interface of this namespace up (netdevice(7)), without any program."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", name.encode(), 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", name.encode(), flags | _IFF_UP))
