# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fault catalogue, rehearsal/faults/NAME.yml: what is broken on a node, and the finding that must then appear.

A fault goes the way that a real one goes: files on the node's disk, its kernel line, writes to its sysfs, what its
firmware and its slots offer, objects in the API. Nothing of it reaches the product otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_model, rail_operator
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import RULES

from rehearsal.fleet.errors import FleetError

FOLDER = Path(__file__).resolve().parents[1] / "faults"
MODES = ("shared", "exclusive")
BEFORE, AFTER = "before_image", "after_image"
REQUIRED = ("name", "about", "source", "finding", "inject")
OPTIONAL = ("also", "rail", "mode")
INJECT = ("files", "kernel_line", "sysfs", "spec", "objects", "patches")
FILE_KEYS, WRITE_KEYS = ("path", "content", "when"), ("path", "value")
SPEC = ("num_vfs_max", "absent_rail")
PATCH_KEYS = ("apiVersion", "kind", "name", "namespace", "patch")
# What a text may name, as <word>: of the node, of the fault's rail, and of the intent that the node's host has.
OF_NODE, OF_RAIL = ("node",), ("pci",)
OF_INTENT = ("wanted_value", "other_value", "mtu", "network", "network_namespace", "resource", "pool", "pool_type")
_PLACEHOLDER = re.compile(r"<([a-z_]+)>")


@dataclass(frozen=True)
class Fault:
    """One file of the catalogue.

    :param about: what happens on a real node.
    :param source: public issues or documents that tell of it.
    :param finding: id that must appear for the node, and for ``rail`` when that is not None.
    :param also: ids that follow from it on the same node.
    :param mode: the netns mode that the node's intent must have, None when any will do.
    :param inject: ``{files, kernel_line, sysfs, spec, objects, patches}``, each optional, see docs/rehearsal.md.
    """

    name: str
    about: str
    source: tuple[str, ...]
    finding: str
    inject: dict[str, Any]
    also: tuple[str, ...] = ()
    rail: int | None = None
    mode: str | None = None

    @property
    def placeholders(self) -> set[str]:
        """The words in angle brackets of all its texts."""
        return {word for text in _texts(self.inject) for word in _PLACEHOLDER.findall(text)}


class Catalogue:
    """The faults of a folder, each read when it is asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(path.stem for path in self.folder.glob("*.yml"))

    def get(self, name: str) -> Fault:
        """One fault. FleetError names the file, the key, what it got and what is allowed."""
        if not isinstance(name, str) or name not in self.names():
            raise FleetError(f"there is no fault {name!r}; known are {', '.join(self.names())}")
        path = self.folder / f"{name}.yml"
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise FleetError(f"{path}: not YAML: {error}") from None
        return parse(data, str(path), name)


def parse(data: Any, where: str, name: str) -> Fault:
    """Check the content of a fault's file. FleetError."""
    _keys(data, where, REQUIRED, OPTIONAL)
    for key in ("name", "about"):
        _is(data[key], str, f"{where}: {key}", "a text")
    if data["name"] != name:
        raise FleetError(f"{where}: name: got {data['name']!r}, must be the file's, {name!r}")
    for key in ("source", "also"):
        _texts_only(data.get(key, []), f"{where}: {key}")
    if not data["source"]:
        raise FleetError(f"{where}: source: got none, must name at least one public source")
    for finding in (data["finding"], *data.get("also", [])):
        if finding not in RULES:
            raise FleetError(f"{where}: finding {finding!r} does not exist; known are {', '.join(sorted(RULES))}")
    rail, mode = data.get("rail"), data.get("mode")
    if rail is not None:
        _number(rail, f"{where}: rail")
    if mode is not None and mode not in MODES:
        raise FleetError(f"{where}: mode: got {mode!r}, allowed are {', '.join(MODES)}")
    inject = data["inject"]
    _keys(inject, f"{where}: inject", (), INJECT)
    if not inject:
        raise FleetError(f"{where}: inject: got nothing, allowed are {', '.join(INJECT)}")
    for key, value in inject.items():
        _CHECKS[key](value, f"{where}: inject.{key}")
    fault = Fault(
        name, " ".join(data["about"].split()), tuple(data["source"]), data["finding"], inject,
        tuple(data.get("also", [])), rail, mode,
    )  # fmt: skip
    known = (*OF_NODE, *OF_RAIL, *OF_INTENT)
    for word in sorted(fault.placeholders - set(known)):
        raise FleetError(f"{where}: <{word}> is not known; allowed are {', '.join(f'<{k}>' for k in known)}")
    if rail is None and fault.placeholders - set(OF_NODE) - {"wanted_value", "other_value", "mtu"}:
        raise FleetError(f"{where}: rail is missing, since the texts speak of a rail's values")
    return fault


def apply(spec: dict[str, Any], faults: list[Fault], variables: dict[str, Any]) -> dict[str, Any]:
    """A node's spec with its faults: ``faults`` (names) and ``inject``, ``{files, kernel_line, sysfs, objects,
    patches}`` with all words replaced.

    :param variables: the host's inventory variables; read only for what a fault needs of the intent. FleetError when
        they do not give it.
    """
    result = {**spec, "faults": [fault.name for fault in faults]}
    inject: dict[str, list[Any]] = {key: [] for key in INJECT if key != "spec"}
    absent = set()
    for fault in faults:
        words = _words(spec, fault, variables)
        for key, rows in inject.items():
            rows += _filled(fault.inject.get(key, []), words)
        changes = fault.inject.get("spec", {})
        if "num_vfs_max" in changes:
            result["num_vfs_max"] = changes["num_vfs_max"]
        if "absent_rail" in changes:
            _rail_of(spec, fault, changes["absent_rail"])
            absent.add(changes["absent_rail"])
    result["rails"] = [row for number, row in enumerate(spec["rails"]) if number not in absent]
    if not result["rails"]:
        raise FleetError(f"host {spec['name']}: its faults leave it no rail, and a node must have one")
    return {**result, "inject": {key: rows for key, rows in inject.items() if rows}}


def _words(spec: dict[str, Any], fault: Fault, variables: dict[str, Any]) -> dict[str, str]:
    words = {"node": spec["name"]}
    if fault.rail is not None:
        words["pci"] = _rail_of(spec, fault, fault.rail)["pci"]
    if fault.mode is None and not fault.placeholders & set(OF_INTENT):
        return words
    layout = _layout(spec["name"], fault, variables)
    mode = layout["netns_mode"]
    if mode not in MODES or (fault.mode is not None and mode != fault.mode):
        wanted = fault.mode or " or ".join(MODES)
        raise FleetError(
            f"host {spec['name']}: fault {fault.name} needs rails_netns_mode {wanted}, the intent has {mode}"
        )
    value = {"shared": "1", "exclusive": "0"}  # ib_core: netns_mode is the boolean "shared"
    words |= {"wanted_value": value.pop(mode), "other_value": value.popitem()[1], "mtu": str(layout["mtu"] or "")}
    if fault.rail is not None:
        rail = layout["rails"][fault.rail]
        pool = next((p for p in layout["pools"] or [] if not p.get("rails") or fault.rail in p["rails"]), {})
        words |= {
            "network": rail["network"] or "",
            "network_namespace": layout["namespaces"]["networks"],
            "resource": rail["resource"] or "",
            "pool": pool.get("name", ""),
            "pool_type": (pool.get("kind") or "").lower(),
        }
    for word in sorted(fault.placeholders):
        if not words.get(word):
            raise FleetError(f"host {spec['name']}: fault {fault.name} needs <{word}>, which the intent does not give")
    return words


def _layout(host: str, fault: Fault, variables: dict[str, Any]) -> dict[str, Any]:
    intent = {k: v for k, v in variables.items() if k.startswith("rails") or k in rail_operator.VARIABLES}
    intent.pop("rails_hosts", None)
    model, mistakes = rail_model.build({host: intent})
    if model is None:
        text = "; ".join(str(mistake) for mistake in mistakes)
        raise FleetError(f"host {host}: fault {fault.name} needs the intent, which cannot be derived: {text}")
    return rail_model.layout_of(model, host)


def _rail_of(spec: dict[str, Any], fault: Fault, number: int) -> dict[str, Any]:
    if number >= len(spec["rails"]):
        raise FleetError(
            f"host {spec['name']}: fault {fault.name} is about rail {number}, the node has rails 0 to "
            f"{len(spec['rails']) - 1}"
        )
    return spec["rails"][number]


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.items() for part in item for text in _texts(part)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _filled(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {_filled(key, words): _filled(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, words) for item in value]
    return _PLACEHOLDER.sub(lambda match: words[match[1]], value) if isinstance(value, str) else value


def _keys(value: Any, where: str, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    _is(value, dict, where, "a mapping")
    for key in value:
        if key not in (*required, *optional):
            raise FleetError(f"{where}: key {key!r} is not known; allowed are {', '.join((*required, *optional))}")
    for key in required:
        if key not in value:
            raise FleetError(f"{where}: key {key!r} is missing; needed are {', '.join(required)}")


def _is(value: Any, kind: type, where: str, allowed: str) -> None:
    if not isinstance(value, kind):
        raise FleetError(f"{where}: got {value!r}, must be {allowed}")


def _number(value: Any, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FleetError(f"{where}: got {value!r}, must be a number from 0")


def _texts_only(value: Any, where: str) -> None:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise FleetError(f"{where}: got {value!r}, must be a list of texts")


def _rows(value: Any, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    _is(value, list, where, "a list")
    for number, row in enumerate(value):
        _keys(row, f"{where}[{number}]", required, optional)


def _files(value: Any, where: str) -> None:
    _rows(value, where, FILE_KEYS)
    for number, row in enumerate(value):
        _absolute(row["path"], f"{where}[{number}].path", "/")
        _is(row["content"], str, f"{where}[{number}].content", "a text")
        if row["when"] not in (BEFORE, AFTER):
            raise FleetError(f"{where}[{number}].when: got {row['when']!r}, allowed are {BEFORE}, {AFTER}")


def _sysfs(value: Any, where: str) -> None:
    _rows(value, where, WRITE_KEYS)
    for number, row in enumerate(value):
        _absolute(row["path"], f"{where}[{number}].path", "/sys/")
        _is(row["value"], str, f"{where}[{number}].value", "a text in quotes")


def _absolute(value: Any, where: str, start: str) -> None:
    if not isinstance(value, str) or not value.startswith(start) or ".." in value.split("/"):
        raise FleetError(f"{where}: got {value!r}, must be a path that starts with {start}, without '..'")


def _spec(value: Any, where: str) -> None:
    _keys(value, where, (), SPEC)
    for key, number in value.items():
        _number(number, f"{where}.{key}")


def _objects(value: Any, where: str) -> None:
    _is(value, list, where, "a list")
    for number, row in enumerate(value):
        _is(row, dict, f"{where}[{number}]", "an object of the API")
        for key in ("apiVersion", "kind"):
            _is(row.get(key), str, f"{where}[{number}].{key}", "a text")
        name = (row.get("metadata") or {}).get("name")
        _is(name, str, f"{where}[{number}].metadata.name", "a text")


def _patches(value: Any, where: str) -> None:
    _rows(value, where, tuple(key for key in PATCH_KEYS if key != "namespace"), ("namespace",))
    for number, row in enumerate(value):
        for key in PATCH_KEYS[:-1]:
            if key in row:
                _is(row[key], str, f"{where}[{number}].{key}", "a text")
        _is(row["patch"], dict, f"{where}[{number}].patch", "a mapping")


_CHECKS = {
    "files": _files,
    "kernel_line": _texts_only,
    "sysfs": _sysfs,
    "spec": _spec,
    "objects": _objects,
    "patches": _patches,
}
