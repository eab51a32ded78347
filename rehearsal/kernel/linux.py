# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The few namespace and mount calls that the standard library lacks before Python 3.12."""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, kind: int) -> None:
    _check(_libc.setns(fd, kind), "setns")


def mount(source: str, target: str, fstype: str | None, flags: int = 0, data: str = "") -> None:
    encoded = fstype.encode() if fstype else None
    result = _libc.mount(source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), data.encode())
    _check(result, f"mount {fstype or source} on {target}")


def umount(target: str) -> None:
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def own_netns_fd() -> int:
    """A descriptor of the calling thread's network namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def new_netns():
    """Be in a new network namespace; yields its descriptor, which keeps it alive, and goes back at the end."""
    home = own_netns_fd()
    try:
        unshare(CLONE_NEWNET)
        try:
            yield own_netns_fd()
        finally:
            setns(home, CLONE_NEWNET)
    finally:
        os.close(home)


def leave_mounts_behind(*mounts: str) -> None:
    """Give this process its own copy of the mount namespace, without ``mounts``.

    The process that answers a file system must not walk into it: a library that reads /sys (glibc asks there for the
    number of processors) would wait for itself. Nothing mounted later in the old namespace shows up in the copy.
    """
    unshare(CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    for target in mounts:
        umount(target)


def ensure_own_proc() -> None:
    """Make /proc show the PID namespace of this process, so that callers' process ids can be looked up.

    Raises OSError when /proc belongs to another PID namespace and a new one may not be mounted (user namespaces).
    """
    try:
        if os.readlink("/proc/self") == str(os.getpid()):
            return
    except OSError:
        pass
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
