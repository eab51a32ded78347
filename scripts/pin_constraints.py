# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes constraints.txt from the versions installed in virtual environments of several Pythons.

Usage: pin_constraints.py VENV [VENV …], oldest Python first. Packages whose version differs get environment markers: each version
counts for the Pythons from its own on, below the next.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HEADER = "# Pinned versions of everything that make installs; written by scripts/pin_constraints.py.\n"
IGNORED = {"pip", "setuptools", "wheel"}


def installed(venv: Path) -> tuple[str, dict[str, str]]:
    """Return the Python version ("3.13") of a virtual environment and its packages as {name: version}."""
    python = venv / "bin" / "python"
    version = subprocess.check_output(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True
    ).strip()
    listing = json.loads(subprocess.check_output([python, "-m", "pip", "list", "--format=json"], text=True))
    return version, {
        entry["name"].lower(): entry["version"] for entry in listing if entry["name"].lower() not in IGNORED
    }


def lines(environments: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Return the constraint lines for environments sorted by Python version."""
    result = []
    for name in sorted(set().union(*(packages for _python, packages in environments))):
        # Runs of neighbouring Pythons with the same version share a line.
        runs: list[list[str | None]] = []
        for python, packages in environments:
            if not runs or packages.get(name) != runs[-1][1]:
                runs.append([python, packages.get(name)])
        for position, (python, version) in enumerate(runs):
            if version is None:
                continue
            markers = [f'python_version >= "{python}"'] if position else []
            if position + 1 < len(runs):
                markers.append(f'python_version < "{runs[position + 1][0]}"')
            result.append(f"{name}=={version}" + (f" ; {' and '.join(markers)}" if markers else ""))
    return result


def main() -> int:
    environments = [installed(Path(argument)) for argument in sys.argv[1:]]
    if not environments:
        print(__doc__, file=sys.stderr)
        return 2
    Path(__file__).resolve().parent.parent.joinpath("constraints.txt").write_text(
        HEADER + "\n".join(lines(environments)) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
