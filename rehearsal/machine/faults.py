# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put a node's faults where real ones are: on its disk before the first boot, and into its sysfs after each boot.

The spec's ``inject`` is ``{files: [{path, content, when: before_image|after_image}], kernel_line: [word],
sysfs: [{path, value}]}``, each optional; ``rehearsal.fleet.faults`` has checked it.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

GRUB = "boot/grub/grub.cfg"


def put_on_disk(root: Path, spec: dict[str, Any], when: str, write: Callable[[Path, str], None]) -> None:
    """Write the files that were there when the boot image was built (``before_image``), or came later
    (``after_image``); with the former goes the kernel line.
    """
    inject = spec.get("inject") or {}
    for row in inject.get("files", []):
        if row["when"] == when:
            write(root / row["path"].lstrip("/"), row["content"])
    words = inject.get("kernel_line", [])
    if words and when == "before_image":
        text = (root / GRUB).read_text(encoding="utf-8")
        changed, count = re.subn(r"^(\s*linux\s.*)$", lambda m: f"{m[1]} {' '.join(words)}", text, flags=re.MULTILINE)
        if not count:
            raise OSError(f"fault: /{GRUB} has no kernel line to extend")
        (root / GRUB).write_text(changed, encoding="utf-8")


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
