# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a machine must offer before a fleet can start, each as one sentence with its remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from rehearsal.fleet.errors import FleetError
from rehearsal.machine import userns

# Program -> the Debian or Ubuntu package that has it.
PROGRAMS = {
    "sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client",
    "modprobe": "kmod", "ip": "iproute2",
    "nsenter": "util-linux", "chroot": "coreutils",
}  # fmt: skip
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
NODE_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")


def search_path() -> str:
    """PATH with the sbin folders, which ordinary users often lack."""
    return os.environ.get("PATH", os.defpath) + os.pathsep + SBIN


def node_python() -> str | None:
    """The interpreter for Ansible's modules on the nodes: this machine's own, 3.9 or newer; never a shim or one in a
    home folder.
    """
    for path in NODE_PYTHONS:
        if not Path(path).exists():
            continue
        code = "import sys; sys.exit(sys.version_info < (3, 9))"
        if subprocess.run([path, "-I", "-c", code], check=False, capture_output=True).returncode == 0:
            return os.path.realpath(path) if path.startswith("/usr/bin") else path
    return None


def missing() -> list[str]:
    """Sentences, one per thing that is missing; empty when a fleet can start."""
    faults = []
    packages = sorted(
        {package for program, package in PROGRAMS.items() if shutil.which(program, path=search_path()) is None}
    )
    if packages:
        lacking = [program for program in PROGRAMS if shutil.which(program, path=search_path()) is None]
        faults.append(f"{', '.join(lacking)} missing: apt install {' '.join(packages)}")
    if not os.path.exists("/dev/fuse"):
        faults.append(
            "/dev/fuse is missing, which the nodes' /sys needs: modprobe fuse (in a container: run it "
            "with --device /dev/fuse)"
        )
    elif not os.access("/dev/fuse", os.R_OK | os.W_OK):
        faults.append("/dev/fuse cannot be opened by this user: chmod 666 /dev/fuse or run as root")
    if node_python() is None:
        faults.append(f"no Python 3.9 or newer at {' or '.join(NODE_PYTHONS)} for the nodes: apt install python3")
    if not os.path.islink("/lib") or not os.path.islink("/sbin"):
        faults.append("/lib and /sbin are not links into /usr, as on Debian 12 or Ubuntu 22.04: apt install usrmerge")
    if os.geteuid() != 0 and (fault := userns.what_is_missing()):
        faults.append(fault)
    if not faults and (fault := _namespaces()):
        faults.append(fault)
    return faults


def _namespaces() -> str | None:
    # Tried, not deduced: capabilities, seccomp and security modules can each forbid it.
    options = ["--mount", "--net", "--uts", "--ipc", "--pid", "--fork"]
    if os.geteuid() != 0:
        options = ["--user", "--map-root-user", *options]
    script = "mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w /mnt/r && mount -t proc proc /proc"
    done = subprocess.run(["unshare", *options, "sh", "-c", script], check=False, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return (
        f"this machine does not let us make namespaces and mounts ({reason}): run as root, in a "
        "container with --privileged"
    )


def require() -> None:
    """Raise FleetError with one sentence that lists what is missing."""
    faults = missing()
    if faults:
        raise FleetError("this machine cannot run a rehearsal: " + "; ".join(faults))
