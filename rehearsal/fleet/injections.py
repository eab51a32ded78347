# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways by which a fault gets into a node or its cluster, ``inject`` of a fault's file: what may stand there."""

from __future__ import annotations

import re
from typing import Any

from rehearsal.fleet import installed
from rehearsal.fleet.errors import FleetError

MODES = ("shared", "exclusive")
BEFORE, AFTER, BOOT = "before_image", "after_image", "boot"
OF_CLUSTER = ("objects", "patches")
INJECT = ("files", "kernel_line", "commands", "fill", "read_only", "sysfs", "spec", *OF_CLUSTER)
FILE_KEYS, WRITE_KEYS, COMMAND_KEYS, FILL_KEYS = (
    ("path", "content", "when"), ("path", "value"), ("argv", "when"), ("path", "leave_kib"),
)  # fmt: skip
NUMBERS, LOCKDOWN = (
    (
        "num_vfs_max",
        "absent_rail",
        "silent_router",
        "dies_at_boot",
        "slow_rail",
        "cut_rail",
        "filtered_rail",
        "refused_device",
        "kept_vf",
        "gpus_far",
    ),
    ("none", "integrity", "confidentiality"),
)
SPEC = (*NUMBERS, "lockdown", *installed.CHOICES, *installed.LISTS)
PATCH_KEYS = ("apiVersion", "kind", "name", "namespace", "patch")


def check(inject: Any, where: str) -> None:
    """FleetError names the key, what it got and what is allowed."""
    keys(inject, where, (), INJECT)
    if not inject:
        raise FleetError(f"{where}: got nothing, allowed are {', '.join(INJECT)}")
    for key, value in inject.items():
        _CHECKS[key](value, f"{where}.{key}")


def keys(value: Any, where: str, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    is_kind(value, dict, where, "a mapping")
    for key in value:
        if key not in (*required, *optional):
            raise FleetError(f"{where}: key {key!r} is not known; allowed are {', '.join((*required, *optional))}")
    for key in required:
        if key not in value:
            raise FleetError(f"{where}: key {key!r} is missing; needed are {', '.join(required)}")


def is_kind(value: Any, kind: type, where: str, allowed: str) -> None:
    if not isinstance(value, kind):
        raise FleetError(f"{where}: got {value!r}, must be {allowed}")


def number(value: Any, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FleetError(f"{where}: got {value!r}, must be a number from 0")


def texts_only(value: Any, where: str) -> None:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise FleetError(f"{where}: got {value!r}, must be a list of texts")


def _rows(value: Any, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    is_kind(value, list, where, "a list")
    for place, row in enumerate(value):
        keys(row, f"{where}[{place}]", required, optional)


def _files(value: Any, where: str) -> None:
    _rows(value, where, FILE_KEYS, ("mode",))
    for place, row in enumerate(value):
        _absolute(row["path"], f"{where}[{place}].path", "/")
        is_kind(row["content"], str, f"{where}[{place}].content", "a text")
        _when(row["when"], f"{where}[{place}].when", (BEFORE, AFTER))
        if not re.fullmatch(r"0[0-7]{3}", str(row.get("mode", "0644"))):
            raise FleetError(f"{where}[{place}].mode: got {row['mode']!r}, must be a text such as '0755'")


def _commands(value: Any, where: str) -> None:
    _rows(value, where, COMMAND_KEYS)
    for place, row in enumerate(value):
        texts_only(row["argv"], f"{where}[{place}].argv")
        _absolute(row["argv"][0] if row["argv"] else None, f"{where}[{place}].argv[0]", "/")
        _when(row["when"], f"{where}[{place}].when", (BEFORE, AFTER, BOOT))


def _when(value: Any, where: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise FleetError(f"{where}: got {value!r}, allowed are {', '.join(allowed)}")


def _fill(value: Any, where: str) -> None:
    _rows(value, where, FILL_KEYS)
    for place, row in enumerate(value):
        _absolute(row["path"], f"{where}[{place}].path", "/boot/")
        number(row["leave_kib"], f"{where}[{place}].leave_kib")


def _read_only(value: Any, where: str) -> None:
    if value != ["/boot"]:
        raise FleetError(f"{where}: got {value!r}, allowed is ['/boot'], the only file system of a node that can be so")


def _sysfs(value: Any, where: str) -> None:
    _rows(value, where, WRITE_KEYS)
    for place, row in enumerate(value):
        _absolute(row["path"], f"{where}[{place}].path", "/sys/")
        is_kind(row["value"], str, f"{where}[{place}].value", "a text in quotes")


def _absolute(value: Any, where: str, start: str) -> None:
    if not isinstance(value, str) or not value.startswith(start) or ".." in value.split("/"):
        raise FleetError(f"{where}: got {value!r}, must be a path that starts with {start}, without '..'")


def _spec(value: Any, where: str) -> None:
    keys(value, where, (), SPEC)
    for key in NUMBERS:
        if key in value:
            number(value[key], f"{where}.{key}")
    if value.get("lockdown", "none") not in LOCKDOWN:
        raise FleetError(f"{where}.lockdown: got {value['lockdown']!r}, allowed are {', '.join(LOCKDOWN)}")
    installed.check(value, f"{where}.")


def _objects(value: Any, where: str) -> None:
    is_kind(value, list, where, "a list")
    for place, row in enumerate(value):
        is_kind(row, dict, f"{where}[{place}]", "an object of the API")
        for key in ("apiVersion", "kind"):
            is_kind(row.get(key), str, f"{where}[{place}].{key}", "a text")
        name = (row.get("metadata") or {}).get("name")
        is_kind(name, str, f"{where}[{place}].metadata.name", "a text")


def _patches(value: Any, where: str) -> None:
    _rows(value, where, tuple(key for key in PATCH_KEYS if key != "namespace"), ("namespace",))
    for place, row in enumerate(value):
        for key in PATCH_KEYS[:-1]:
            if key in row:
                is_kind(row[key], str, f"{where}[{place}].{key}", "a text")
        is_kind(row["patch"], dict, f"{where}[{place}].patch", "a mapping")


_CHECKS = {
    "files": _files,
    "kernel_line": texts_only,
    "commands": _commands,
    "fill": _fill,
    "read_only": _read_only,
    "sysfs": _sysfs,
    "spec": _spec,
    "objects": _objects,
    "patches": _patches,
}
