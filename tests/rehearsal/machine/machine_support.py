# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Helpers of the machine's tests: is a fleet possible here, run the command line, look at what is left."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from rehearsal.fleet import checks

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "rehearsal" / "machine" / "tools"
ENVIRONMENT = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}


@pytest.fixture(scope="session")
def possible() -> None:
    """Skips the test, with the reason, where this machine cannot run nodes."""
    faults = checks.missing()
    if faults:
        pytest.skip("; ".join(faults))


@pytest.fixture(scope="session")
def boot_image() -> ModuleType:
    """The builders' common part as a module, for its pure functions."""
    loader = importlib.machinery.SourceFileLoader("rehearsal_boot_image", str(TOOLS / "lib/boot_image.py"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("rehearsal_boot_image", loader))
    loader.exec_module(module)
    return module


def command(*words: str | Path) -> list[str]:
    """python -m rehearsal …"""
    return [sys.executable, "-m", "rehearsal", *map(str, words)]


def rehearsal(*words: str | Path, code: int = 0, **environment: str) -> str:
    """Run the command line to its end; its output. Fails the test on another exit code."""
    done = subprocess.run(
        command(*words), cwd=ROOT, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def ansible(state: Path, *words: str, code: int = 0, program: str = "ansible") -> str:
    """Run ansible over the nodes of a fleet; its output."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), "-i", str(state / "inventory.yml"), *words],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def leftovers(state: Path) -> list[str]:
    """Processes and mounts, of whatever namespace, that name the fleet's folder."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            mounts = (folder / "mountinfo").read_text(errors="replace")
        except OSError:
            continue
        if f"--state {state}" in arguments:
            found.append(f"process {folder.name}: {arguments}")
        if str(state).replace(" ", "\\040") in mounts:
            found.append(f"mounts in process {folder.name}")
    return found


def assert_gone(state: Path) -> None:
    """Nothing of the fleet is left but its logs."""
    assert leftovers(state) == []
    assert sorted(entry.name for entry in state.iterdir()) in (["logs"], [])


def wait_for(condition, what: str, seconds: float = 60.0) -> None:
    """Poll until the condition holds; the limit only ends a test that would hang."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"never happened: {what}"
        time.sleep(0.05)
