# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which netns mode a booting node's ib_core gets, found as the real boot finds it.

ib_core is loaded from the boot image when the image holds it, so the image's modprobe.d decides and a later change of
/etc/modprobe.d on the root file system is without effect until the image is built again; only when the image lacks the
module does the root file system decide (initramfs-tools(7), modprobe.d(5)). The real kmod reads the files. Its answer
ends with the options on /proc/cmdline, and the kernel lets the last value win (kernel/params.c). The default is shared
(drivers/infiniband/core/device.c).
"""

from __future__ import annotations

import re
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rehearsal.machine.bootloader import Entry, file_of
from rehearsal.machine.cpio import BrokenImage, members

# modprobe.d(5): of two files with one name the one in the earlier folder hides the other.
MODPROBE_DIRS = ("etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")
_MODULE = re.compile(r"(?:^|/)lib/modules/([^/]+)/.*/ib_core\.ko(?:\.(?:xz|zst|gz))?$")
_OPTION = re.compile(r"netns_mode=(\S+)")


class BootFailure(Exception):
    """The node cannot boot; the text says why, as a console would."""


@dataclass(frozen=True)
class BootMode:
    """mode: ``shared`` or ``exclusive``; source: ``image``, ``root`` (file system) or ``default``; value: the
    option's text or None.
    """

    mode: str
    source: str
    value: str | None


def boot_mode(root: Path, entry: Entry) -> BootMode:
    """The mode for a boot of ``entry`` from the file system at ``root``; /proc/cmdline must be the node's.

    Raises BootFailure when the kernel or the boot image is missing or unreadable, or when ib_core refuses its option.
    """
    if not file_of(root, entry.linux).exists():
        raise BootFailure(f"grub: file '{entry.linux}' not found")
    if entry.initrd is None:
        raise BootFailure(f"no boot image for {entry.linux}: the kernel finds no root file system")
    try:
        data = file_of(root, entry.initrd).read_bytes()
    except FileNotFoundError:
        raise BootFailure(f"no boot image {entry.initrd}: the kernel finds no root file system") from None
    files, holds_module = {}, False
    try:
        for name, mode, content in members(data):
            found = _MODULE.search(name)
            holds_module = holds_module or (found is not None and found[1] == entry.kernel)
            if stat.S_ISREG(mode) and str(Path(name).parent) in MODPROBE_DIRS:
                files[name] = content
    except BrokenImage as error:
        raise BootFailure(f"boot image {entry.initrd} is broken: {error}") from None
    if not holds_module:
        files = _tree_files(root)
    value = _last_value(files)
    source = "default" if value is None else "image" if holds_module else "root"
    return BootMode(_as_mode(value), source, value)


def _tree_files(root: Path) -> dict[str, bytes]:
    found = {}
    for folder in MODPROBE_DIRS:
        for path in sorted((root / folder).glob("*.conf")) if (root / folder).is_dir() else []:
            found[f"{folder}/{path.name}"] = path.read_bytes()
    return found


def _last_value(files: dict[str, bytes]) -> str | None:
    chosen: dict[str, bytes] = {}
    for folder in MODPROBE_DIRS:
        for name, content in files.items():
            if str(Path(name).parent) == folder:
                chosen.setdefault(Path(name).name, content)
    with tempfile.TemporaryDirectory(prefix="railyard-modprobe-") as folder:
        for name, content in chosen.items():
            (Path(folder) / name).write_bytes(content)
        done = subprocess.run(["modprobe", "-c", "-C", folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BootFailure(f"modprobe cannot read the configuration: {done.stderr.strip()}")
    values: list[str] = []
    for line in done.stdout.splitlines():
        words = line.split(maxsplit=2)
        if len(words) == 3 and words[0] == "options" and words[1].replace("-", "_") == "ib_core":
            values += _OPTION.findall(words[2])
    return values[-1] if values else None


def _as_mode(value: str | None) -> str:
    """kstrtobool() of lib/kstrtox.c: y, t, 1, on are true (shared); n, f, 0, off are false (exclusive)."""
    text = "y" if value is None else value.strip('"').lower()
    if text[:1] in ("y", "t", "1") or text[:2] == "on":
        return "shared"
    if text[:1] in ("n", "f", "0") or text[:2] == "of":
        return "exclusive"
    raise BootFailure(
        f"ib_core: '{value}' invalid for parameter 'netns_mode': the module does not load, so no RDMA device appears"
    )
