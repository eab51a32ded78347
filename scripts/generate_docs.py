# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes what is generated from other sources: a README.md in each role from its argument specs, docs/findings.md from the rules.

With --check nothing is written; a file that differs from its source is named and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import jinja2
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings import documentation


def flatten(options: dict, prefix: str = "") -> list[dict]:
    """Return one row an option, suboptions after their parent with a dotted (list: `[]`) name."""
    rows = []
    for name, option in (options or {}).items():
        rows.append({"name": prefix + name, **option})
        below = f"{prefix}{name}{'[]' if option.get('type') == 'list' else ''}."
        rows.extend(flatten(option.get("options"), below))
    return rows


def plain(text: str) -> str:
    """Return text with Ansible's semantic markup, such as V(keep) or P(a.b.c#role), as Markdown code."""
    return re.sub(r"\b(?:RV|[BCEIMOPV])\(([^)#]*)[^)]*\)", r"`\1`", text)


def cell(value: object) -> str:
    """Return text that fits into one cell of a Markdown table."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = " ".join(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split()).replace("|", "\\|")


def code(value: object) -> str:
    """Return a default as it would stand in YAML flow style, for a cell."""
    return cell(value if isinstance(value, str) and value else json.dumps(value))


def role_readme(role: Path) -> str:
    """Return the README of a role as Markdown."""
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(cell=cell, code=code, plain=plain)
    template = environment.get_template("role_readme.md.j2")
    entries = [{"name": name, **spec, "rows": flatten(spec.get("options"))} for name, spec in specs.items()]
    return template.render(role=role.name, entries=entries).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = {role / "README.md": role_readme(role) for role in sorted((ROOT / "roles").iterdir()) if role.is_dir()}
    wanted[ROOT / "docs" / "findings.md"] = documentation.markdown()
    outdated = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in outdated:
        if check:
            print(f"{path.relative_to(ROOT)} differs from its source: run `make docs`.", file=sys.stderr)
        else:
            path.write_text(wanted[path], encoding="utf-8")
            print(f"Wrote {path.relative_to(ROOT)}")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
