# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies the tracked files into BUILD/ansible_collections/railyard/rdma, where ansible-test wants them.

ansible-test follows the symlink of a plain clone to its real path and then refuses it. Dependencies are linked beside the copy.
Files that git does not track yet are left out, as they would be in a release.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    collections = parser.parse_args().build.resolve() / "ansible_collections"
    staged = collections / "railyard" / "rdma"
    shutil.rmtree(collections, ignore_errors=True)
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listing.stdout.split("\0")):
        source = ROOT / name
        # The symlink of the plain clone would make the copy hold itself.
        if name.startswith("collections/ansible_collections/") or not source.exists():
            continue
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, staged / name, follow_symlinks=False)
    for dependency in (ROOT / "collections" / "ansible_collections").iterdir():
        if dependency.is_dir() and dependency.name != "railyard":
            (collections / dependency.name).symlink_to(dependency)
    # ansible-test lists files through git, so the copy is a repository of its own.
    for arguments in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *arguments], cwd=staged, check=True)
    print(staged)
    return 0


if __name__ == "__main__":
    sys.exit(main())
