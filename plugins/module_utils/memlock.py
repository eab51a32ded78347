# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much memory containers may lock, which RDMA memory registration needs (ibv_reg_mr fails with 8 MB)."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

# Container processes start with the limits of their runtime, unless the runtime sets others.
_SERVICES = {"containerd": ("containerd", "k3s", "rke2-server", "rke2-agent"), "crio": ("crio",)}
_CGROUPS = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")


def parse_limit(limits: str) -> tuple[str | None, str | None]:
    """Return the soft and hard "Max locked memory" of a /proc/PID/limits text: decimal bytes or ``unlimited``, None
    when missing."""
    for line in limits.split("\n"):
        if line.startswith("Max locked memory"):
            words = line[len("Max locked memory") :].split()
            return (words[0], words[1]) if len(words) >= 2 else (None, None)
    return None, None


def read_memlock(tree: Tree) -> dict:
    """Return ``{runtimes: {name: {pid, soft, hard}}, reason}`` of the running container runtimes, bytes as an int or
    ``unlimited``.

    The process is found by the cgroup of its systemd service, so no process list is searched. Settings that a runtime
    applies to its containers on top (``default_ulimits`` of CRI-O) are not part of this.
    """
    runtimes = {}
    for name, services in _SERVICES.items():
        for path in (f"{place}/{service}.service/cgroup.procs" for service in services for place in _CGROUPS):
            pid = (tree.text(path) or "").split("\n", 1)[0]
            if not (pid.isascii() and pid.isdigit()):
                continue
            soft, hard = parse_limit(tree.read(f"/proc/{pid}/limits").value or "")
            if soft:
                runtimes[name] = {"pid": int(pid), "soft": _number(soft), "hard": _number(hard)}
                break
    reason = None if runtimes else "no containerd or CRI-O service is running under systemd"
    return {"runtimes": runtimes, "reason": reason}


def _number(text: str | None):
    return int(text) if text and text.isascii() and text.isdigit() else text
