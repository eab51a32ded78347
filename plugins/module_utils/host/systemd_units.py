# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of systemd services as their files give them: unit file, drop-ins, and the manager's defaults.

Rules: systemd.unit(5) and systemd.syntax(7). Of files with one name in several directories the first counts; drop-ins are
applied in order of their names whatever their directory; the last setting wins and an empty one resets it.
"""

from __future__ import annotations

import re

from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

_UNIT_DIRECTORIES = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
_MANAGER_DIRECTORIES = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd")
_SIZE = re.compile(r"([0-9]{1,19})([KMGTPE]?)B?")
_SUFFIXES = " KMGTPE"
_UNLIMITED = "unlimited"
_MOST = 2**64 - 1


def parse_settings(text: str, section: str, key: str) -> list[str]:
    """Return the values of all lines ``key=value`` in a section, in order; an empty string is a reset.

    A backslash at the end continues a line, with a blank in its place; comment lines in between are skipped.
    """
    values = []
    here = ""
    kept = ""
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped.startswith(("#", ";")) or (not stripped and not kept):
            continue
        if stripped.endswith("\\"):
            kept += stripped[:-1] + " "
            continue
        stripped, kept = (kept + stripped).strip(), ""
        if stripped.startswith("[") and stripped.endswith("]"):
            here = stripped[1:-1]
            continue
        name, equals, value = stripped.partition("=")
        if equals and here == section and name.strip() == key:
            values.append(value.strip())
    return values


def parse_memory_limit(text: str) -> tuple[int | str, int | str] | None:
    """Return soft and hard limit of a ``LimitMEMLOCK=`` value: bytes or ``unlimited``; None when systemd would ignore it.

    ``infinity``, ``64M``, ``8M:infinity``; one value is both limits. Suffixes are powers of 1024 (systemd.exec(5)).
    """
    soft_text, colon, hard_text = text.partition(":")
    soft = _bytes(soft_text.strip())
    hard = _bytes(hard_text.strip()) if colon else soft
    if soft is None or hard is None or _order(soft) > _order(hard):
        return None
    return soft, hard


def _bytes(text: str) -> int | str | None:
    if text == "infinity":
        return _UNLIMITED
    match = _SIZE.fullmatch(text)
    if not match:
        return None
    number = int(match.group(1)) * 1024 ** _SUFFIXES.index(match.group(2) or " ")
    return number if number < _MOST else None


def _order(limit: int | str) -> int:
    return limit if isinstance(limit, int) else _MOST


def has_unit(tree: Tree, unit: str) -> bool:
    """Tell whether there is a unit file (drop-ins alone, as this collection may leave them, are no unit)."""
    return any(tree.exists(f"{place}/{unit}") for place in _UNIT_DIRECTORIES)


def unit_files(tree: Tree, unit: str) -> list[str]:
    """Return the unit file and its drop-ins in order of application.

    :param unit: name with its type, ``crio.service``.
    """
    fragment = next((f"{place}/{unit}" for place in _UNIT_DIRECTORIES if tree.exists(f"{place}/{unit}")), None)
    stem, _dot, kind = unit.rpartition(".")
    parts = stem.split("-")
    # foo-bar.service takes foo-bar.service.d, foo-.service.d and service.d; the more special one goes first.
    owners = [unit, *("-".join(parts[:count]) + f"-.{kind}" for count in range(len(parts) - 1, 0, -1)), kind]
    folders = [f"{place}/{owner}.d" for owner in owners for place in _UNIT_DIRECTORIES]
    drop_ins = _by_name(tree, folders)
    return ([fragment] if fragment else []) + drop_ins


def manager_files(tree: Tree) -> list[str]:
    """Return the files of the system manager's own settings (systemd-system.conf(5)) in order of application."""
    main = next((f"{place}/system.conf" for place in _MANAGER_DIRECTORIES if tree.exists(f"{place}/system.conf")), None)
    return ([main] if main else []) + _by_name(tree, [f"{place}/system.conf.d" for place in _MANAGER_DIRECTORIES])


def _by_name(tree: Tree, folders: list[str]) -> list[str]:
    found: dict[str, str] = {}
    for folder in folders:
        for name in tree.names(folder):
            if name.endswith(".conf"):
                found.setdefault(name, f"{folder}/{name}")
    return [found[name] for name in sorted(found)]


def read_memory_limit(tree: Tree, unit: str) -> dict:
    """Return what the files say about a service's limit for locked memory: ``{soft, hard, path, files, reason}``.

    soft and hard are bytes or ``unlimited``, None with a reason when no file sets them; path is the file that does;
    files are all that were looked at.
    """
    files = unit_files(tree, unit)
    result: dict = {"soft": None, "hard": None, "path": None, "files": files, "reason": None}
    if not has_unit(tree, unit):
        result["reason"] = f"there is no unit {unit}"
        return result
    unreadable = _last(tree, files, "Service", "LimitMEMLOCK", result)
    if result["path"] is None and not unreadable:
        managers = manager_files(tree)
        result["files"] = files + managers
        unreadable = _last(tree, managers, "Manager", "DefaultLimitMEMLOCK", result)
    if unreadable:
        result.update({"soft": None, "hard": None, "path": None, "reason": unreadable})
    elif result["path"] is None:
        result["reason"] = "no file sets LimitMEMLOCK: the default of systemd or of the kernel counts (8 MiB or less)"
    return result


def _last(tree: Tree, files: list[str], section: str, key: str, result: dict) -> str | None:
    for path in files:
        reading = tree.read(path)
        if reading.value is None:
            return f"{path}: {reading.reason}"
        for value in parse_settings(reading.value, section, key):
            limits = parse_memory_limit(value)
            if not value:
                result.update({"soft": None, "hard": None, "path": None})
            elif limits:
                result.update({"soft": limits[0], "hard": limits[1], "path": path})
    return None
