# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: collection_version
short_description: Version of an installed collection
version_added: 0.1.0
description:
  - Returns the version of a collection on the controller, or nothing when it is not installed.
author:
  - Railyard contributors (@railyard)
options:
  _input:
    description:
      - Full name of the collection.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the version of kubernetes.core
  ansible.builtin.debug:
    msg: "{{ 'kubernetes.core' | railyard.rdma.collection_version }}"
"""

RETURN = r"""
_value:
  description: The version, null when the collection is not installed or does not tell.
  type: str
"""

import importlib
import json
from pathlib import Path

import yaml


def collection_version(name):
    """Return the version from MANIFEST.json (installed) or galaxy.yml (a checkout), None without either."""
    try:
        package = importlib.import_module(f"ansible_collections.{name}")
    except ImportError:
        return None
    for folder in map(Path, package.__path__):
        manifest, galaxy = folder / "MANIFEST.json", folder / "galaxy.yml"
        if manifest.is_file():
            return json.loads(manifest.read_text(encoding="utf-8")).get("collection_info", {}).get("version")
        if galaxy.is_file():
            return (yaml.safe_load(galaxy.read_text(encoding="utf-8")) or {}).get("version")
    return None


class FilterModule:
    """Versions of collections."""

    def filters(self):
        return {"collection_version": collection_version}
