# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disk of a node: what differs from this machine's root, made once, kept over reboots, gone with the supervisor.

The root is a tmpfs in the supervisor's mount namespace; the folders with programs and configuration are overlays of
this machine's, one each: in a user namespace a folder that has mounts below it, as / has, cannot be a lower layer.
/boot is a small file system of its own, so that it can be full. The machine's own module options, boot files, home
folders and ssh keys are not there, so that a node starts as a clean Ubuntu-like host.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from pathlib import Path
from typing import Any

from rehearsal.machine import faults, linux, system

DISK_SIZE, BOOT_SIZE = "1g", "64m"

# Overlays of this machine's folders of the same name; other top-level folders are made empty.
LAYERED = ("usr", "etc", "var", "opt")
EMPTY = {"root": 0o700, "home": 0o755, "boot": 0o755, "tmp": 0o1777, "run": 0o755, "srv": 0o755, "mnt": 0o755,
         "media": 0o755, "proc": 0o555, "sys": 0o555, "dev": 0o755}  # fmt: skip
# Folders of this machine's layers that a node must not see; the mode is what the node's own, empty one gets.
HIDDEN = {
    "var/tmp": 0o1777, "var/log": 0o755, "etc/ssh": 0o755, "etc/modprobe.d": 0o755, "usr/lib/modprobe.d": 0o755,
    "usr/lib/modules": 0o755, "usr/local/lib/modprobe.d": 0o755, "etc/initramfs-tools": 0o755,
    "var/lib/initramfs-tools": 0o755, "etc/ansible": 0o755, "etc/sysctl.d": 0o755, "etc/cni": 0o755,
    "etc/default/grub.d": 0o755, "etc/dracut.conf.d": 0o755, "usr/lib/dracut": 0o755, "etc/initramfs": 0o755,
    "etc/kernel": 0o755, "etc/containerd": 0o755, "etc/crio": 0o755, "etc/systemd/system": 0o755,
}  # fmt: skip
PYTHON_PACKAGES = "usr/lib/python3/dist-packages"  # of Debian's and Ubuntu's own Python (Debian Python policy)
BYTECODE = "var/cache/kept_zip_code"
# In a user namespace only folders made by us can be written to, so these are made in the upper layer.
WRITABLE = (
    *("usr/bin", "usr/sbin", "usr/lib", "usr/local", "usr/local/bin", "usr/local/sbin", "var/lib"),
    *(PYTHON_PACKAGES, BYTECODE),
)

SSHD_CONFIG = """\
Port 22
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin prohibit-password
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes yes
MaxSessions 512
MaxStartups 512
PrintMotd no
Subsystem sftp internal-sftp
"""
BLACKLIST = """\
# Drivers that must not be loaded by hot-plug.
blacklist evbug
install usbmouse /bin/true
"""


def mount_disk(node_dir: Path) -> Path:
    """Mount the disk in this (private) mount namespace; the node's root folder. Called once per supervisor."""
    disk, root = node_dir / "disk", node_dir / "root"
    for folder in (disk, root):
        folder.mkdir(exist_ok=True)
    linux.mount("railyard-disk", str(disk), "tmpfs", linux.MS_NODEV, f"size={DISK_SIZE},mode=755")
    tree = disk / "tree"
    tree.mkdir(mode=0o755)
    linux.bind(str(tree), str(root))
    for name, mode in EMPTY.items():
        (root / name).mkdir()
        (root / name).chmod(mode)
    for link in Path("/").iterdir():  # bin, sbin, lib of a merged /usr
        if link.is_symlink() and str(link.readlink()).lstrip("/").startswith("usr/"):
            (root / link.name).symlink_to(link.readlink())
    # In a user namespace overlayfs keeps its marks in user.* attributes (kernel 5.11, tmpfs 6.6).
    private = Path("/proc/self/uid_map").read_text(encoding="ascii").split() != ["0", "0", "4294967295"]
    for name in LAYERED:
        _mount_layer(disk, root, name, private)
    linux.mount("railyard-boot", str(root / "boot"), "tmpfs", linux.MS_NODEV, f"size={BOOT_SIZE},mode=755")
    return root


def _mount_layer(disk: Path, root: Path, name: str, private: bool) -> None:
    upper, work = disk / "layers" / name / "upper", disk / "layers" / name / "work"
    work.mkdir(parents=True)
    upper.mkdir()
    os.chmod(upper, 0o755)
    (root / name).mkdir()
    wanted = [entry for entry in (*WRITABLE, *_etc_folders()) if entry.startswith(f"{name}/")]
    for entry in wanted:
        _folder(upper, entry)
    for entry, mode in HIDDEN.items():
        if entry.startswith(f"{name}/"):
            folder = _folder(upper, entry)
            folder.chmod(mode)
            os.setxattr(folder, f"{'user' if private else 'trusted'}.overlay.opaque", b"y")
    # Relative names: a comma or colon in the path of the checkout would end an option.
    here = os.getcwd()
    os.chdir(upper.parent)
    try:
        options = f"lowerdir=/{name},upperdir=upper,workdir=work" + (",userxattr" if private else "")
        linux.mount("railyard-root", str(root / name), "overlay", 0, options)
    finally:
        os.chdir(here)


def _etc_folders() -> list[str]:
    found = []
    for place, folders, _files in os.walk("/etc"):
        found += [f"{place[1:]}/{name}" for name in folders if not os.path.islink(f"{place}/{name}")]
    return found


def _folder(upper: Path, name: str) -> Path:
    """The folder of the upper layer for a path of the machine, made with the modes that the machine's have."""
    folder, below = upper, Path("/") / Path(name).parts[0]
    for part in Path(name).parts[1:]:
        folder, below = folder / part, below / part
        if not folder.exists():
            folder.mkdir()
            folder.chmod(below.stat().st_mode & 0o7777 if below.is_dir() else 0o755)
    return folder


def prepare(root: Path, spec: dict[str, Any], public_key: str, kernel: str) -> None:
    """The first boot's files: name, ssh, module options for ``spec["initial_mode"]``, and what is installed."""
    name = spec["name"]
    _write(root / "etc/hostname", f"{name}\n")
    _write(
        root / "etc/hosts",
        f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{spec.get('address') or '127.0.1.1'} {name}\n",
    )
    _write(root / "etc/machine-id", f"{random.Random(name).getrandbits(128):032x}\n", 0o444)
    # No password opens the node, and "*" is not the "!" that sshd takes for a locked account.
    _write(root / "etc/shadow", "root:*:19700:0:99999:7:::\n", 0o600)
    _ssh(root, public_key)
    _write(root / PYTHON_PACKAGES / "kept_zip_code.py", Path(__file__).with_name("kept_zip_code.py").read_bytes())
    _write(root / PYTHON_PACKAGES / "kept_zip_code.pth", "import kept_zip_code\n")
    for path in ("etc/rc.local", "etc/sysctl.conf"):
        (root / path).unlink(missing_ok=True)
    _write(root / "etc/modprobe.d/blacklist.conf", BLACKLIST)
    if spec.get("initial_mode") == "exclusive":
        _write(root / "etc/modprobe.d/ib_core.conf", "options ib_core netns_mode=0\n")
    system.install(root, spec, kernel, _write)
    faults.put_on_disk(root, spec, "before_image", _write)
    system.finish(root, spec, kernel)
    faults.put_on_disk(root, spec, "after_image", _write)


def _write(path: Path, text: str | bytes, mode: int = 0o644) -> None:
    # A new file takes the place of the machine's: in a user namespace the machine's own cannot be opened for writing.
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)


def _ssh(root: Path, public_key: str) -> None:
    key = root / "etc/ssh/ssh_host_ed25519_key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rehearsal", "-f", str(key)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    _write(root / "etc/ssh/sshd_config", SSHD_CONFIG)
    (root / "root/.ssh").mkdir(mode=0o700)
    _write(root / "root/.ssh/authorized_keys", public_key, 0o600)
