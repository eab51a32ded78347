# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the manifests out of the text of an article, and compares objects as data."""

from __future__ import annotations

import json
import re

import yaml

# A line that can belong to a manifest: indented, a top-level key, a comment, a separator, nothing.
INSIDE = re.compile(r"(\s+\S.*|(apiVersion|kind|metadata|spec):.*|#.*|---|)$")


def manifests(text: str) -> list[dict]:
    """Return every Kubernetes object that an article shows, in its order."""
    objects, lines, index = [], text.splitlines(), 0
    while index < len(lines):
        if not lines[index].startswith("apiVersion: "):
            index += 1
            continue
        end = index + 1
        while end < len(lines) and INSIDE.match(lines[end]) and lines[end] != "---" and not _starts(lines[end]):
            end += 1
        objects.append(yaml.safe_load("\n".join(lines[index:end])))
        index = end
    return objects


def values(text: str) -> dict:
    """Return the values.yaml that an article shows."""
    lines = text.splitlines()
    start = lines.index("values.yaml") + 1
    end = start
    while re.match(r"(\s+\S.*|[a-zA-Z-]+:|#.*|)$", lines[end]):
        end += 1
    return yaml.safe_load("\n".join(lines[start:end]))


def plain(obj: dict) -> dict:
    """Return an object with its JSON texts parsed, so that white space in them does not count."""
    spec = dict(obj.get("spec", {}))
    for name in ("ipam", "config"):
        if name in spec:
            spec[name] = json.loads(spec[name])
    if "metaPlugins" in spec:
        # The operator pastes the text between the brackets of a list.
        spec["metaPlugins"] = json.loads(f"[{spec['metaPlugins']}]")
    return {**obj, "spec": spec}


def differences(ours, theirs, path: str = "") -> dict[str, tuple]:
    """Return path to (ours, theirs) for everything that differs; C(None) stands for absent.

    Lists are compared as wholes, except chains of the same plugins: those are compared plugin by plugin.
    """
    if _types(ours) is not None and _types(ours) == _types(theirs):
        pairs = zip(ours, theirs, strict=True)
        return {k: v for a, b in pairs for k, v in differences(a, b, f"{path}[{a['type']}]").items()}
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = {}
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            found.update(differences(ours.get(key), theirs.get(key), f"{path}.{key}"))
        return found
    return {} if ours == theirs else {path: (ours, theirs)}


def _types(chain) -> list[str] | None:
    """Return the plugin types of a chain, or nothing when it is no chain."""
    if isinstance(chain, list) and chain and all(isinstance(item, dict) and "type" in item for item in chain):
        return [item["type"] for item in chain]
    return None


def _starts(line: str) -> bool:
    return line.startswith("apiVersion: ")
