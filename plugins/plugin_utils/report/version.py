# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The version of this collection, as its own files tell it."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]


def version(root: Path = ROOT) -> str | None:
    """Return the version from MANIFEST.json (installed) or galaxy.yml (a clone), None when neither tells it."""
    try:
        manifest = root / "MANIFEST.json"
        if manifest.exists():
            found = json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"]
        else:
            found = yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None
    return str(found)
