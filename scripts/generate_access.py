# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes what follows from access/rights.yml: the roles and bindings of each playbook, the table that error messages read,
and the table in docs/access.md.

With --check nothing is written; a file that differs from its source is named and the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
ACCESS = ROOT / "access"
TABLE = ROOT / "plugins" / "module_utils" / "cluster" / "rights.py"
DOCUMENT = ROOT / "docs" / "access.md"
ACCOUNT = "railyard"
GROUP = "rbac.authorization.k8s.io"
KEYS = {"why", "in", "group", "resources", "names", "verbs", "without", "unseen"}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "escalate", "bind")
MARKS = ("<!-- generated: begin -->", "<!-- generated: end -->")

Right = dict[str, Any]


def read(path: Path = ACCESS / "rights.yml") -> dict[str, Any]:
    """The source, checked. Raises ValueError that names each mistake."""
    source = yaml.safe_load(path.read_text(encoding="utf-8"))
    places, playbooks, mistakes = source["places"], source["playbooks"], []
    for name, playbook in playbooks.items():
        for other in playbook.get("includes") or []:
            if "rights" not in playbooks.get(other, {}):
                mistakes.append(f"{name}: includes {other}, which has no rights of its own here")
        for number, right in enumerate(playbook.get("rights") or [], 1):
            where = f"{name}, right {number}"
            for key in sorted(set(right) - KEYS):
                mistakes.append(f"{where}: unknown key {key}; allowed are {', '.join(sorted(KEYS))}")
            for key in ("why", "in", "resources", "verbs"):
                if not right.get(key):
                    mistakes.append(f"{where}: {key} is missing")
            if right.get("in") not in places:
                mistakes.append(f"{where}: in is {right.get('in')}; allowed are {', '.join(places)}")
            unseen = right.get("unseen")
            if isinstance(unseen, dict) and not set(unseen) & set(right.get("verbs") or []):
                mistakes.append(f"{where}: unseen names none of its verbs")
            for verb in right.get("verbs") or []:
                if verb not in VERBS:
                    mistakes.append(
                        f"{where}: verb {verb}; allowed are {', '.join(VERBS)}. A star is more than anybody needs"
                    )
            for word in [*(right.get("resources") or []), right.get("group", "")]:
                if "*" in word:
                    mistakes.append(f"{where}: {word} is more than anybody needs; name what is used")
    if mistakes:
        raise ValueError("access/rights.yml:\n" + "\n".join(mistakes))
    return source


def rights_of(source: dict[str, Any], name: str) -> list[Right]:
    """The rights of a playbook and of those that it includes, in their order, without repetitions."""
    playbook, found = source["playbooks"][name], []
    for right in [
        *(playbook.get("rights") or []),
        *(right for other in playbook.get("includes") or [] for right in rights_of(source, other)),
    ]:
        if right not in found:
            found.append(right)
    return found


def role_name(source: dict[str, Any], name: str, place: str) -> str:
    """`railyard-apply-rails-operator`."""
    return f"{ACCOUNT}-{name.replace('_', '-')}{source['places'][place]['suffix']}"


def by_place(source: dict[str, Any], name: str) -> dict[str, list[Right]]:
    """The rights of a playbook by place, in the order of the places."""
    rights = rights_of(source, name)
    found = {place: [right for right in rights if right["in"] == place] for place in source["places"]}
    return {place: rows for place, rows in found.items() if rows}


def rule(right: Right) -> dict[str, Any]:
    """A right as a rule of a ClusterRole."""
    found = {"apiGroups": [right.get("group", "")], "resources": right["resources"]}
    if right.get("names"):
        found["resourceNames"] = right["names"]
    return {**found, "verbs": right["verbs"]}


def comment(text: str, indent: str = "") -> str:
    return "".join(f"{indent}# {line}\n" for line in textwrap.wrap(text, 116 - len(indent)))


def _lines(rule: dict[str, Any]) -> str:
    """A rule, each key on a line, lists in flow style."""
    lines = [f"{key}: [{', '.join(_quoted(value) for value in values)}]" for key, values in rule.items()]
    return "  - " + "\n    ".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[a-z][a-z0-9./-]*", text) else f'"{text}"'


HEAD = "---\n# Generated from access/rights.yml by scripts/generate_access.py; change it there.\n"


def role_file(source: dict[str, Any], name: str) -> str:
    """The ClusterRoles of a playbook, one a place."""
    text = HEAD + comment(f"What playbooks/{name}.yml needs: {source['playbooks'][name]['about'].strip()}")
    for number, (place, rights) in enumerate(by_place(source, name).items()):
        text += "---\n" if number else ""
        text += comment(f"In {source['places'][place]['about']}.")
        text += (
            f"apiVersion: {GROUP}/v1\nkind: ClusterRole\nmetadata:\n  name: {role_name(source, name, place)}\nrules:\n"
        )
        for right in rights:
            more = f". Without it, {right['without']}" if right.get("without") else ""
            text += comment(right["why"][0].upper() + right["why"][1:] + more, "  ") + _lines(rule(right))
    return text


def binding_file(source: dict[str, Any], name: str) -> str:
    """An account for a playbook, bound to its roles. The namespaces are the defaults."""
    account = role_name(source, name, "cluster")
    text = HEAD + comment(
        f"An account for playbooks/{name}.yml. The account and the namespaces are what a site may want to change: those "
        "below are the defaults of the collection. They must exist."
    )
    text += f"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {account}\n  namespace: {ACCOUNT}\n"
    for place in by_place(source, name):
        namespace = source["places"][place].get("namespace")
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        role = role_name(source, name, place)
        text += f"---\napiVersion: {GROUP}/v1\nkind: {kind}\nmetadata:\n  name: {role}\n"
        text += f"  namespace: {namespace}\n" if namespace else ""
        text += f"roleRef:\n  apiGroup: {GROUP}\n  kind: ClusterRole\n  name: {role}\n"
        text += f"subjects:\n  - kind: ServiceAccount\n    name: {account}\n    namespace: {ACCOUNT}\n"
    return text


def table_file(source: dict[str, Any]) -> str:
    """The table that error messages read, as a Python file. Playbooks that only include others are left out."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for name, playbook in source["playbooks"].items():
        for right in playbook.get("rights") or []:
            for resource in right["resources"]:
                for verb in right["verbs"]:
                    holders = found.setdefault((right.get("group", ""), resource), {}).setdefault(verb, [])
                    holder = f"{name}@{right['in']}"
                    holders += [] if holder in holders else [holder]
    text = Path(__file__).read_text(encoding="utf-8").partition('"""')[0]
    text += (
        '\n"""Which role of access/ holds a right.\n\nGenerated from access/rights.yml by scripts/generate_access.py; '
    )
    text += 'change it there.\n"""\n\nfrom __future__ import annotations\n\n'
    suffixes = ", ".join(f'"{place}": "{entry["suffix"]}"' for place, entry in source["places"].items())
    text += f"# End of a ClusterRole's name, by the place where it is bound.\nSUFFIXES = {{{suffixes}}}\n"
    text += "# (API group, resource): {verb: [playbook@place]}.\nHOLDERS = {\n"
    for (group, resource), verbs in sorted(found.items()):
        text += f'    ("{group}", "{resource}"): {{\n'
        for verb, holders in sorted(verbs.items()):
            quoted = [f'"{holder}"' for holder in holders]
            line = f'        "{verb}": [{", ".join(quoted)}],\n'
            if len(line) > 110:
                line = f'        "{verb}": [\n' + "".join(f"            {word},\n" for word in quoted) + "        ],\n"
            text += line
        text += "    },\n"
    return text + "}\n"


def document(source: dict[str, Any], text: str) -> str:
    """docs/access.md with the table of playbooks between its marks."""
    lines = [
        "| playbook | file in `access/roles` | ClusterRoles, and where they are bound | what it does |",
        "|---|---|---|---|",
    ]
    for name, playbook in source["playbooks"].items():
        about = " ".join(playbook["about"].split())
        roles = "<br>".join(
            f"`{role_name(source, name, place)}`: {_bound(source, place)}" for place in by_place(source, name)
        )
        file = f"`{name}.yml`" if roles else "none"
        lines.append(f"| `{name}.yml` | {file} | {roles or 'none'} | {about} |")
    before, mark, rest = text.partition(MARKS[0])
    _old, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        raise ValueError(f"{DOCUMENT.relative_to(ROOT)}: the marks {MARKS[0]} and {MARKS[1]} are missing")
    return before + mark + "\n\n" + "\n".join(lines) + "\n\n" + end + after


def _bound(source: dict[str, Any], place: str) -> str:
    namespace = source["places"][place].get("namespace")
    return f"namespace `{namespace}`" if namespace else "cluster"


def wanted(source: dict[str, Any]) -> dict[Path, str]:
    """All generated files and their content."""
    found = {TABLE: table_file(source), DOCUMENT: document(source, DOCUMENT.read_text(encoding="utf-8"))}
    for name in source["playbooks"]:
        if by_place(source, name):
            found[ACCESS / "roles" / f"{name}.yml"] = role_file(source, name)
            found[ACCESS / "bindings" / f"{name}.yml"] = binding_file(source, name)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    try:
        files = wanted(read())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    there = {path for folder in ("roles", "bindings") for path in (ACCESS / folder).glob("*.yml")}
    outdated = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in [*outdated, *sorted(there - set(files))]:
        if check:
            print(f"{path.relative_to(ROOT)} differs from access/rights.yml: run `make docs`.", file=sys.stderr)
        elif path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8")
            print(f"Wrote {path.relative_to(ROOT)}")
        else:
            path.unlink()
            print(f"Removed {path.relative_to(ROOT)}")
    return 1 if check and (outdated or there - set(files)) else 0


if __name__ == "__main__":
    sys.exit(main())
