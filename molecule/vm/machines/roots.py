# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Root file systems and /boot of the machines, built once from this machine's own Debian sources and kept in
.cache/vm/DIGEST.

DIGEST is over everything that defines them: the files of this folder that the build reads, the list of packages and the
Debian release. The build needs root (mmdebstrap lays the files down with their owners).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CACHE = ROOT / ".cache" / "vm"
BYTECODE = ROOT / "rehearsal" / "machine" / "kept_zip_code.py"
MACHINES = ("vm-initramfs", "vm-dracut")  # as customize.sh makes them
PROGRAMS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "ssh-keygen": "openssh-client", "unshare": "util-linux"}
PACKAGES = (
    "systemd-sysv", "dbus", "udev", "kmod", "linux-image-amd64", "initramfs-tools", "openssh-server", "python3", "iproute2",
    "grub-pc-bin", "grub2-common", "rdma-core", "ibverbs-providers", "ibverbs-utils", "perftest", "iputils-ping",
    "tcpdump", "ethtool", "pciutils", "containernetworking-plugins",
)  # fmt: skip
_TMPFS = Path("/dev/shm")
_SPACE = 3 << 30


class BuildError(Exception):
    """The file systems cannot be built; the text says why."""


def sources() -> tuple[str, str]:
    """Return ``(release, sources.list lines)`` of Debian as this machine's apt knows it; BuildError without any."""
    lines = subprocess.run([HERE.parent / "debian-sources.sh"], capture_output=True, text=True, check=True).stdout
    # The plain release comes without a suffix such as -updates; the first word after the URI.
    releases = [line.partition("] ")[2].split()[1] for line in lines.splitlines() if "] " in line]
    plain = [release for release in releases if "-" not in release]
    if not plain:
        raise BuildError(
            "apt knows no Debian sources here: run apt-get update, or name a file of Debian sources in VM_DEBIAN_SOURCES"
        )
    return plain[0], lines


def digest(release: str) -> str:
    """Return the name of the cache folder for what would be built now."""
    total = hashlib.sha256(f"{release} {' '.join(PACKAGES)}".encode())
    for path in sorted([HERE / "customize.sh", BYTECODE, *(HERE / "guest").rglob("*")]):
        if path.is_file():
            total.update(f"\n{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return total.hexdigest()[:16]


def problem() -> str | None:
    """Return why nothing can be built here, None when it can."""
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if missing:
        return f"missing Debian packages: {' '.join(missing)}"
    if os.geteuid() != 0:
        return "the root file systems are built as root only"
    return None


def build(say: Callable[[str], None]) -> Path:
    """Return the folder with ``MACHINE.root.img``, ``MACHINE.boot.img``, ``grub.img``, ``known_hosts`` and
    ``id_ed25519``; build it unless it is there. Older ones are removed after a build.

    :raises BuildError: with the end of the build's log.
    """
    release, lines = sources()
    folder = CACHE / digest(release)
    if folder.is_dir():
        return folder
    reason = problem()
    if reason:
        raise BuildError(reason)
    say(f"building the root file systems from Debian {release} (once, about two minutes)")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():  # another run has built it meanwhile
            return folder
        for left in [path for path in CACHE.glob("building-*") if path.is_dir()]:
            shutil.rmtree(left)  # of a run that was killed
        out = Path(tempfile.mkdtemp(dir=CACHE, prefix="building-"))
        out.chmod(0o755)
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "vm", "-f", out / "id_ed25519"], check=True
        )
        (out / "sources.list").write_text(lines, encoding="utf-8")
        _run_mmdebstrap(release, out)
        old = [path for path in CACHE.iterdir() if re.fullmatch(r"[0-9a-f]{16}", path.name)]
        os.rename(out, folder)  # complete or not there
        for path in old:
            shutil.rmtree(path)
    return folder


def _run_mmdebstrap(release: str, out: Path) -> None:
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=null"]
    command += [f"--include={','.join(PACKAGES)}", f"--dpkgopt={HERE / 'guest' / 'dpkg.cfg'}"]
    command += ['--aptopt=Apt::Install-Recommends "false"', '--aptopt=Acquire::Languages "none"']
    # The kernel package builds a first image: small from the start.
    command += [f"--essential-hook=copy-in {HERE}/guest/initramfs-tools/etc/initramfs-tools /etc"]
    command += [f'--customize-hook="{HERE}/customize.sh" "$1" "{out}"', release, "/dev/null", str(out / "sources.list")]
    # In memory where there is room: unpacking packages is mostly waiting for the disk.
    roomy = _TMPFS.is_dir() and shutil.disk_usage(_TMPFS).free > _SPACE
    environment = {**os.environ, "TMPDIR": str(_TMPFS if roomy else out), "DEBIAN_FRONTEND": "noninteractive"}
    log = CACHE / "build.log"
    with open(log, "wb") as stream:
        # A session of its own: scripts of packages would stop at the terminal of a background job.
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
        try:
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    if code != 0:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        raise BuildError("mmdebstrap failed, see " + str(log) + ":\n" + "\n".join("    " + line for line in tail))
