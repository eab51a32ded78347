# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Renders the example inventories as a user does, with ansible-playbook in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "inventories" / "examples"


def playbook(name: str, *arguments: str) -> subprocess.CompletedProcess:
    """Run a playbook of the collection and return its end, output included."""
    beside = Path(sys.executable).with_name("ansible-playbook")
    program = str(beside) if beside.exists() else shutil.which("ansible-playbook")
    assert program, "ansible-playbook was not found; install ansible-core beside pytest"
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
    command = [program, str(ROOT / "playbooks" / name), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def bundle(folder: Path) -> dict[str, list[dict]]:
    """Return the objects of a rendered folder by file name, in the order of the files."""
    return {path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted(folder.iterdir())}


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """Render an example once: C(rendered("a100-ipvlan", "rails_x=y")) returns the folder."""
    done: dict[tuple, Path] = {}

    def render(example: str, *extra: str) -> Path:
        key = (example, *extra)
        if key not in done:
            folder = tmp_path_factory.mktemp(example)
            variables = [part for item in extra for part in ("-e", item)]
            end = playbook("render.yml", "-i", str(EXAMPLES / example), "-e", f"render_dir={folder}", *variables)
            assert end.returncode == 0, end.stdout + end.stderr
            done[key] = folder
        return done[key]

    return render


@pytest.fixture(scope="session")
def reference() -> Path:
    """Return the folder with the reference material (articles, CRDs), which is no part of the product."""
    folder = Path(os.environ.get("RAILYARD_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"the reference material is not at {folder}; set RAILYARD_SHARED to its folder")
    return folder
