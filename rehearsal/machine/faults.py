# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put a node's faults where real ones are: on its disk before the first boot, and into its sysfs after each boot.

The spec's ``inject`` is ``{files: [{path, content, when, mode}], kernel_line: [word], commands: [{argv, when}],
fill: [{path, leave_kib}], read_only: [path], sysfs: [{path, value}]}``, each optional; ``rehearsal.fleet.faults`` has
checked it.
"""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rehearsal.machine import linux, system


def put_on_disk(root: Path, spec: dict[str, Any], when: str, write: Callable[..., None]) -> None:
    """What was there when the boot image was built (``before_image``), or came later (``after_image``): files, then
    commands. The kernel line goes with the former; commands of every boot (/etc/rc.local), and a full or a read-only file
    system end the latter.
    """
    inject = spec.get("inject") or {}
    for row in inject.get("files", []):
        if row["when"] == when:
            write(root / row["path"].lstrip("/"), row["content"], int(row.get("mode", "0644"), 8))
    if inject.get("kernel_line") and when == "before_image":
        system.add_to_kernel_line(root, spec, inject["kernel_line"], write)
    for row in inject.get("commands", []):
        if row["when"] == when:
            system.run(root, row["argv"])
    if when == "after_image":
        at_boot = [shlex.join(row["argv"]) for row in inject.get("commands", []) if row["when"] == "boot"]
        if at_boot:
            write(root / "etc/rc.local", "\n".join(["#!/bin/sh -e", *at_boot, ""]), 0o755)
        for row in inject.get("fill", []):
            fill(root / row["path"].lstrip("/"), row["leave_kib"])
        for path in inject.get("read_only", []):
            place = str(root / path.lstrip("/"))
            linux.mount("none", place, flags=linux.MS_REMOUNT | linux.MS_RDONLY | linux.MS_NODEV)


def fill(path: Path, leave_kib: int) -> None:
    """Make a file that leaves so much of its file system free. OSError when less is free already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        status = os.fstatvfs(stream.fileno())
        size = status.f_bavail * status.f_frsize - (leave_kib << 10)
        if size <= 0:
            raise OSError(f"fault: {path.parent} has less than {leave_kib} KiB free already")
        os.posix_fallocate(stream.fileno(), 0, size)


def write_sysfs(root: Path, spec: dict[str, Any]) -> None:
    """The writes of a service that the node starts at boot, in their order; names in a path may be patterns.

    OSError when a pattern matches no file, or when the kernel refuses a value: a fault that is not there proves
    nothing.
    """
    for row in (spec.get("inject") or {}).get("sysfs", []):
        found = sorted(glob.glob(str(root) + row["path"]))
        if not found:
            raise OSError(f"fault: no file {row['path']} to write {row['value']!r} to")
        for path in found:
            try:
                with open(path, "w", encoding="ascii") as file:
                    file.write(f"{row['value']}\n")
            except OSError as error:
                raise OSError(f"fault: {row['value']!r} to {path.removeprefix(str(root))}: {error.strerror}") from None
