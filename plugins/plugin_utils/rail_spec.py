# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names, types and choices of the intent, taken from the argument specification of the role C(rails).

The specification is the only source, so the documentation and the validation cannot disagree. Ansible's own check of
it stops at the variables of one host and coerces numbers to strings, which hides an unquoted PCI address.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import yaml
from ansible_collections.railyard.rdma.plugins.plugin_utils.catalogue import did_you_mean
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_mistakes import NOT_SET, Mistake, mistake

SPEC_FILE = Path(__file__).resolve().parents[2] / "roles" / "rails" / "meta" / "argument_specs.yml"

# Set by the role itself, so they may stand on localhost without being intent.
OWN_FACTS = frozenset({"rails_model", "rails_hosts"})

QUOTE_ADVICE = (
    'a PCI address in quotes, such as "0000:0c:00.0" (without quotes YAML 1.1 reads 0000:47:00.0 as the number 2820.0)'
)
TYPE_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a dictionary",
}
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@lru_cache(maxsize=2)
def options(path: Path | str = SPEC_FILE) -> dict[str, dict]:
    """Return the options of the role as in its argument specification, without those that are not intent."""
    with open(path, encoding="utf-8") as stream:
        spec = yaml.safe_load(stream)["argument_specs"]["main"]["options"]
    return {name: option for name, option in spec.items() if name not in OWN_FACTS}


def is_intent(name: str) -> bool:
    """Return whether a variable belongs to the intent, known or not."""
    return (name == "rails" or name.startswith("rails_")) and name not in OWN_FACTS


def check(variables: dict, spec: dict[str, dict] | None = None) -> tuple[dict, set[str], list[Mistake]]:
    """Check names, types and choices.

    :param variables: intent variables of one host as plain data; C(None) counts as not set.
    :returns: the values with defaults filled in (C(None) where there is none), the names of the variables with a value
        that could not be used, and the mistakes. Parts that could not be used are C(None) in the values.
    """
    spec = options() if spec is None else spec
    mistakes = [_unknown(name, value, spec) for name, value in variables.items() if name not in spec]
    values: dict = {}
    bad: set[str] = set()
    for name, option in spec.items():
        value = variables.get(name)
        if value is None:
            values[name] = option.get("default")
            continue
        values[name], found = _checked(name, value, option)
        if found:
            mistakes.extend(found)
            bad.add(name)
    return values, bad, mistakes


def _unknown(name: str, value, known, path: str = "") -> Mistake:
    allowed = "no such variable" if not path else "one of " + ", ".join(known)
    return mistake(path + name, value, allowed + did_you_mean(name, known))


def _checked(path: str, value, option: dict) -> tuple[object, list[Mistake]]:
    kind = option.get("type", "str")
    converted = _converted(value, kind)
    if converted is NOT_SET:
        return None, [mistake(path, value, _type_name(path.rpartition(".")[2], kind))]
    if option.get("choices") and converted not in option["choices"]:
        choices = ", ".join(option["choices"])
        return None, [mistake(path, converted, f"one of {choices}{did_you_mean(converted, option['choices'])}")]
    if kind == "list" and "elements" in option:
        element = {**option, "type": option["elements"]}
        pairs = [_checked(f"{path}[{index}]", item, element) for index, item in enumerate(converted)]
        return [item for item, _found in pairs], [found for _item, some in pairs for found in some]
    if kind == "dict" and "options" in option:
        return _checked_dict(path, converted, option["options"])
    return converted, []


def _type_name(name: str, kind: str) -> str:
    return QUOTE_ADVICE if name in ("pci", "gpu_pci") else TYPE_NAMES[kind]


def _checked_dict(path: str, value: dict, spec: dict[str, dict]) -> tuple[dict, list[Mistake]]:
    result: dict = {}
    found = [_unknown(str(name), item, spec, f"{path}.") for name, item in value.items() if name not in spec]
    for name, option in spec.items():
        item = value.get(name)
        if item is not None:
            result[name], some = _checked(f"{path}.{name}", item, option)
            found.extend(some)
        elif option.get("required"):
            found.append(mistake(f"{path}.{name}", NOT_SET, _type_name(name, option.get("type", "str"))))
            result[name] = None
        else:
            result[name] = option.get("default")
    return result, found


def _converted(value, kind: str):
    """Return the value in the wanted type, or C(NOT_SET) when it has another one.

    Text is taken for numbers and truth values because C(-e name=value) on the command line always gives text. A number
    is never taken for text: that is how an unquoted PCI address would pass.
    """
    if kind == "raw":
        return value
    if kind == "int":
        if isinstance(value, bool):
            return NOT_SET
        if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
            return int(value)
        return value if isinstance(value, int) else NOT_SET
    if kind == "bool":
        return BOOLEANS.get(value.strip().lower(), NOT_SET) if isinstance(value, str) else _only(value, bool)
    return _only(value, {"str": str, "list": list, "dict": dict}[kind])


def _only(value, kind):
    return value if isinstance(value, kind) else NOT_SET
