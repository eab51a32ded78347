# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Network namespaces and mounts as the kernel simulation needs them, over the system calls of rehearsal.machine.linux."""

from __future__ import annotations

import os
from contextlib import contextmanager

from rehearsal.machine.linux import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    mount,
    setns,
    umount,
    unshare,
)


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
