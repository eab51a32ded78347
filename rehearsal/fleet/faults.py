# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fault catalogue, rehearsal/faults/NAME.yml: what is broken on a node, and the finding that must then appear, or
what preparing the node must end in.

A fault goes the way that a real one goes: files on the node's disk, its kernel line, commands that somebody ran, writes
to its sysfs, a full file system, what its firmware, its slots and its distribution offer, objects in the API. Nothing of
it reaches the product otherwise. The content of ``inject`` is checked by rehearsal.fleet.injections.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_model, rail_operator
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import RULES

from rehearsal.fleet import injections, installed
from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.injections import INJECT, MODES, is_kind, keys, number, texts_only
from rehearsal.kernel.spec import OF_A_RAIL

FOLDER = Path(__file__).resolve().parents[1] / "faults"
REQUIRED = ("name", "about", "source", "inject")
OPTIONAL = ("finding", "outcome", "also", "rail", "mode", "intent", "verify")
OUTCOME = ("failed", "says", "boots")
# Rails of which the kubelet, and not the kernel, has the fault.
OF_A_POD = ("refused_device", "kept_vf")
# What a text may name, as <word>: of the node, of the fault's rail, and of the intent that the node's host has.
OF_NODE, OF_RAIL = ("node", "kernel"), ("pci",)
OF_MODE = ("wanted_value", "other_value", "wanted_mode", "other_mode")
OF_LAYOUT = ("network", "network_namespace", "resource", "pool", "pool_type")
OF_INTENT = (*OF_MODE, "mtu", *OF_LAYOUT)
_PLACEHOLDER = re.compile(r"<([a-z_]+)>")


@dataclass(frozen=True)
class Fault:
    """One file of the catalogue.

    :param about: what happens on a real node.
    :param source: public issues or documents that tell of it.
    :param finding: id that must appear for the node, and for ``rail`` when that is not None; None for a fault that
        no look finds, only the attempt to prepare the node.
    :param outcome: what prepare_nodes with rdma_netns_reboot_allowed must then end in, ``{failed, says, boots,
        variables}``: whether the host fails, a text that the output must have, how often the node has booted
        afterwards. None for a fault with a finding.
    :param also: ids that follow from it on the same node.
    :param mode: the netns mode that the node's intent must have, None when any will do.
    :param intent: other variables that the host must have.
    :param verify: variables with which the playbook verify must run to find it.
    :param inject: see docs/rehearsal.md.
    """

    name: str
    about: str
    source: tuple[str, ...]
    finding: str | None
    inject: dict[str, Any]
    outcome: dict[str, Any] | None = None
    also: tuple[str, ...] = ()
    rail: int | None = None
    mode: str | None = None
    intent: dict[str, Any] = field(default_factory=dict)
    verify: dict[str, Any] = field(default_factory=dict)

    @property
    def placeholders(self) -> set[str]:
        """The words in angle brackets of all its texts."""
        return {word for text in _texts(self.inject) for word in _PLACEHOLDER.findall(text)}

    @property
    def shows_in_a_benchmark(self) -> bool:
        """Whether only a benchmark finds it."""
        return self.finding is not None and "bandwidth" in RULES[self.finding].needs

    @property
    def shows_on_the_node(self) -> bool:
        """Whether it needs no cluster: neither to be there nor to be found."""
        if any(key in self.inject for key in injections.OF_CLUSTER):
            return False
        return self.finding is None or RULES[self.finding].needs == ("facts",)


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
    keys(data, where, REQUIRED, OPTIONAL)
    for key in ("name", "about"):
        is_kind(data[key], str, f"{where}: {key}", "a text")
    if data["name"] != name:
        raise FleetError(f"{where}: name: got {data['name']!r}, must be the file's, {name!r}")
    for key in ("source", "also"):
        texts_only(data.get(key, []), f"{where}: {key}")
    if not data["source"]:
        raise FleetError(f"{where}: source: got none, must name at least one public source")
    if ("finding" in data) == ("outcome" in data):
        raise FleetError(f"{where}: got {'both' if 'finding' in data else 'neither'}, must have finding or outcome")
    for finding in ([data["finding"]] if "finding" in data else []) + data.get("also", []):
        if finding not in RULES:
            raise FleetError(f"{where}: finding {finding!r} does not exist; known are {', '.join(sorted(RULES))}")
    if "outcome" in data:
        _check_outcome(data["outcome"], f"{where}: outcome")
    rail, mode = data.get("rail"), data.get("mode")
    if rail is not None:
        number(rail, f"{where}: rail")
    if mode is not None and mode not in MODES:
        raise FleetError(f"{where}: mode: got {mode!r}, allowed are {', '.join(MODES)}")
    is_kind(data.get("intent", {}), dict, f"{where}: intent", "a mapping")
    is_kind(data.get("verify", {}), dict, f"{where}: verify", "a mapping")
    injections.check(data["inject"], f"{where}: inject")
    fault = Fault(
        name, " ".join(data["about"].split()), tuple(data["source"]), data.get("finding"), data["inject"],
        data.get("outcome"), tuple(data.get("also", [])), rail, mode, data.get("intent", {}),
        data.get("verify", {}),
    )  # fmt: skip
    known = (*OF_NODE, *OF_RAIL, *OF_INTENT)
    for word in sorted(fault.placeholders - set(known)):
        raise FleetError(f"{where}: <{word}> is not known; allowed are {', '.join(f'<{k}>' for k in known)}")
    if rail is None and fault.placeholders & {*OF_RAIL, *OF_LAYOUT}:
        raise FleetError(f"{where}: rail is missing, since the texts speak of a rail's values")
    return fault


def _check_outcome(value: Any, where: str) -> None:
    keys(value, where, OUTCOME, ("variables",))
    is_kind(value["failed"], bool, f"{where}.failed", "true or false")
    is_kind(value["says"], str, f"{where}.says", "a text")
    number(value["boots"], f"{where}.boots")
    is_kind(value.get("variables", {}), dict, f"{where}.variables", "a mapping")


def apply(spec: dict[str, Any], faults: list[Fault], variables: dict[str, Any]) -> dict[str, Any]:
    """A node's spec with its faults: ``faults`` (names), changes of the hardware and of what is installed, and
    ``inject`` with all words replaced.

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
        changes = dict(fault.inject.get("spec", {}))
        if "absent_rail" in changes:
            _rail_of(spec, fault, changes["absent_rail"])
            absent.add(changes.pop("absent_rail"))
        for key in (*OF_A_RAIL, *OF_A_POD):
            if key in changes:
                _rail_of(spec, fault, changes[key])
        result = installed.with_choices(result, changes)
    result["rails"] = [row for number, row in enumerate(spec["rails"]) if number not in absent]
    if not result["rails"]:
        raise FleetError(f"host {spec['name']}: its faults leave it no rail, and a node must have one")
    return {**result, "inject": {key: rows for key, rows in inject.items() if rows}}


def _words(spec: dict[str, Any], fault: Fault, variables: dict[str, Any]) -> dict[str, str]:
    words = {"node": spec["name"], "kernel": os.uname().release}
    for key, wanted in fault.intent.items():
        if variables.get(key) != wanted:
            raise FleetError(
                f"host {spec['name']}: fault {fault.name} needs {key}: {wanted!r}, got {variables.get(key)!r}"
            )
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
    other = next(name for name in MODES if name != mode)
    words |= {"wanted_value": value[mode], "other_value": value[other], "wanted_mode": mode, "other_mode": other}
    words["mtu"] = str(layout["mtu"] or "")
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
