# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files by which a node tells its state: ``status.json`` always, ``boot.json`` only while the node is up."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_json(path: Path, data: Any) -> None:
    """Write so that a reader sees the old or the new content, never half of it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(data, stream, indent=1, sort_keys=True)
        stream.write("\n")
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """The content, or None when the file is not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


class NodeStatus:
    """state: ``booting``, ``up``, ``rebooting``, ``off`` or ``panic``; reason: text or None; boots: how often it was
    started.
    """

    def __init__(self, node_dir: Path) -> None:
        self.path = node_dir / "status.json"
        self.boot_path = node_dir / "boot.json"

    def set(self, state: str, reason: str | None = None, boots: int | None = None) -> None:
        """Record the state; ``boot.json`` goes away in every state but ``up``."""
        before = read_json(self.path) or {}
        if state != "up":
            self.boot_path.unlink(missing_ok=True)
        count = before.get("boots", 0) if boots is None else boots
        write_json(self.path, {"state": state, "reason": reason, "boots": count})

    def up(self, boot: dict[str, Any]) -> None:
        """Record the boot that is up now; boot.json appears last, so whoever sees it can enter the node."""
        self.set("up")
        write_json(self.boot_path, boot)
