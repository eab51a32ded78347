# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is installed on a node, by choice of its host's variables or of a fault: rehearsal_KEY for each KEY of CHOICES,
rehearsal_kernels, rehearsal_not_loaded.
"""

from __future__ import annotations

import os
import re
from typing import Any

from rehearsal.fleet.errors import FleetError
from rehearsal.machine import system

CHOICES = {
    "boot_loader": system.BOOT_LOADERS,
    "builder": system.BUILDERS,
    "compression": system.COMPRESSIONS,
    "runtime": system.RUNTIMES,
}
LISTS = ("kernels", "not_loaded")
UNLOADABLE = ("rdma_cm", "rdma_ucm", "ib_umad")
_KERNEL = re.compile(r"[0-9][A-Za-z0-9.+~_-]{0,62}")


def of_host(spec: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
    """The spec with the host's choices; FleetError for a value that is not allowed."""
    given = {key: variables[f"rehearsal_{key}"] for key in (*CHOICES, *LISTS) if f"rehearsal_{key}" in variables}
    check(given, f"host {spec['name']}: rehearsal_")
    return with_choices(spec, given)


def with_choices(spec: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The spec with checked choices; <kernel> in a version stands for this machine's own kernel."""
    given = dict(given)
    if "kernels" in given:
        given["kernels"] = [version.replace("<kernel>", os.uname().release) for version in given["kernels"]]
    return {**spec, **given}


def check(given: dict[str, Any], where: str) -> None:
    """FleetError names the key (behind ``where``), what it got and what is allowed."""
    for key, allowed in CHOICES.items():
        if key in given and given[key] not in allowed:
            raise FleetError(f"{where}{key}: got {given[key]!r}, allowed are {', '.join(allowed)}")
    for key in LISTS:
        value = given.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise FleetError(f"{where}{key}: got {value!r}, must be a list of texts")
    for version in given.get("kernels", []):
        if not _KERNEL.fullmatch(version.replace("<kernel>", "1")):
            raise FleetError(f"{where}kernels: got {version!r}, must be a kernel's version such as 6.8.0-1049-oracle")
    for module in given.get("not_loaded", []):
        if module not in UNLOADABLE:
            raise FleetError(f"{where}not_loaded: got {module!r}, allowed are {', '.join(UNLOADABLE)}")
