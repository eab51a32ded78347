# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which other network namespaces exist: what keeps the kernel from switching the RDMA mode.

``rdma system set netns`` is refused with EBUSY while any network namespace beside the first one exists
(``rdma_compatdev_set`` in drivers/infiniband/core/device.c, k8snetworkplumbingwg/rdma-cni#37). A namespace lives as
long as a process or thread is in it, or something holds it: a bind mount (``ip netns``, container runtimes), an open
descriptor, a socket. The last two leave no trace that could be listed.
"""

from __future__ import annotations

import os
import re

from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

_ROOT = re.compile(r"/?net:\[(\d+)\]")


def read(tree: Tree) -> tuple[list[dict] | None, str | None]:
    """List the network namespaces other than ours: ``(namespaces, reason)``.

    :returns: namespaces as ``{inode, name}``, sorted by name, which is the path of a bind mount or a process like
        ``process 4711 (systemd-hostnam)``. None with a reason when we may not look at every process: an empty list
        means that there is none.
    """
    proc = tree.path("/proc")
    try:
        own = os.stat(f"{proc}/self/ns/net").st_ino
        processes = sorted((name for name in os.listdir(proc) if name.isdigit()), key=int)
        mounts = tree.read("/proc/self/mountinfo")
        if mounts.value is None:
            return None, f"/proc/self/mountinfo: {mounts.reason}"
        found = {inode: path for inode, path in parse_mounts(mounts.value).items() if inode != own}
        for process in processes:
            for task in _tasks(f"{proc}/{process}"):
                inode = _inode(task)
                if inode is not None and inode != own and inode not in found:
                    found[inode] = f"process {process} ({_command(task)})"
    except OSError as error:
        return None, f"{error.filename or proc}: {error.strerror}"
    namespaces = [{"inode": inode, "name": name} for inode, name in found.items()]
    return sorted(namespaces, key=lambda namespace: namespace["name"]), None


def fact(tree: Tree) -> tuple[dict | None, str | None]:
    """Return ``{count, names}``, or None with a reason."""
    namespaces, reason = read(tree)
    if namespaces is None:
        return None, reason
    return {"count": len(namespaces), "names": [namespace["name"] for namespace in namespaces]}, None


def parse_mounts(text: str) -> dict[int, str]:
    """Return the bind mounts of network namespaces in a mountinfo: path by inode (the first one of each)."""
    found: dict[int, str] = {}
    for line in text.split("\n"):
        fields = line.split(" ")
        match = _ROOT.fullmatch(fields[3]) if len(fields) > 4 else None
        if match and len(match[1]) < 20:
            path = re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), fields[4])
            found.setdefault(int(match[1]), path)
    return found


def _tasks(process: str) -> list[str]:
    """Return the threads of a process: each may be in another namespace. None when it ended."""
    try:
        return [f"{process}/task/{name}" for name in sorted(os.listdir(f"{process}/task"), key=int)]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _inode(task: str) -> int | None:
    try:
        return os.stat(f"{task}/ns/net").st_ino
    except (FileNotFoundError, ProcessLookupError):
        return None  # it ended meanwhile, or is a zombie, which is in no namespace any more


def _command(task: str) -> str:
    try:
        with open(f"{task}/comm", encoding="utf-8", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return "ended"
