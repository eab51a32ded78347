# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the collections that this one depends on into collections/, from Galaxy or else cut from the `ansible` package.

The ranges stand in collections/requirements.yml. Where they are satisfied already nothing is asked of any server. Where Galaxy
cannot be reached, the same collections come out of the PyPI package `ansible`, which bundles them (51 MB to download, 16 MB kept).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
# The package only carries the files; none of it is installed, so it may be newer than the ansible-core in use.
ANSIBLE_PACKAGE = "ansible==14.5.0"


def galaxy(requirements: Path, target: Path) -> bool:
    """Install from Galaxy; True when the ranges are satisfied afterwards."""
    command = ["ansible-galaxy", "collection", "install", "-r", str(requirements), "-p", str(target), "--timeout", "30"]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(target)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        reason = (result.stderr.strip() or result.stdout.strip()).splitlines()[-1:]
        print(f"Galaxy did not serve the collections ({' '.join(reason)[:200]}).", file=sys.stderr)
    return result.returncode == 0


def cut_from_package(names: list[str], target: Path) -> None:
    """Unpack the collections `names` (namespace.name) of the `ansible` wheel below `target`/ansible_collections."""
    with tempfile.TemporaryDirectory() as folder:
        print(f"Cutting {', '.join(names)} from the PyPI package {ANSIBLE_PACKAGE}.")
        download = ["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.13"]
        subprocess.run([sys.executable, "-m", *download, "--dest", folder, ANSIBLE_PACKAGE], check=True)
        wheel = next(Path(folder).glob("ansible-*.whl"))
        prefixes = tuple(f"ansible_collections/{name.replace('.', '/')}/" for name in names)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target, [member for member in archive.namelist() if member.startswith(prefixes)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, default=ROOT / "collections")
    arguments = parser.parse_args()
    requirements = ROOT / "collections" / "requirements.yml"
    if galaxy(requirements, arguments.target):
        return 0
    wanted = yaml.safe_load(requirements.read_text(encoding="utf-8"))["collections"]
    cut_from_package([entry["name"] for entry in wanted], arguments.target)
    if galaxy(requirements, arguments.target):  # now a check of the ranges: nothing is left to download
        return 0
    print(f"{ANSIBLE_PACKAGE} does not satisfy {requirements}: raise the version named in {__file__}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
