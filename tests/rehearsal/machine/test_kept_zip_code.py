# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bytecode of modules in archives: kept where there is a folder for it, and never that of another source."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

MACHINE = Path(__file__).parents[3] / "rehearsal/machine"
PROGRAM = "import kept_zip_code, sys; sys.path.insert(0, sys.argv[1]); import module; print(module.VALUE)"


@pytest.fixture
def value_of(tmp_path):
    """Function that imports a module with that source from an archive and returns its VALUE."""

    def call(source):
        archive = tmp_path / "archive.zip"
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr("module.py", source)
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONPATH": str(MACHINE)}
        run = [sys.executable, "-c", PROGRAM, str(archive)]
        return subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    return call


def kept(tmp_path):
    return list((tmp_path / "kept_zip_code").iterdir())


def test_nothing_is_kept_without_a_folder(value_of, tmp_path):
    assert value_of("VALUE = 1") == "1"
    assert not (tmp_path / "kept_zip_code").exists()


def test_the_second_time_takes_what_the_first_one_compiled(value_of, tmp_path):
    (tmp_path / "kept_zip_code").mkdir()
    assert value_of("VALUE = 1") == "1"
    (entry,) = kept(tmp_path)
    code = entry.read_bytes()
    entry.write_bytes(code.replace(b"VALUE", b"value"))  # a mark, to see that it is taken
    with pytest.raises(subprocess.CalledProcessError) as error:
        value_of("VALUE = 1")
    assert "has no attribute 'VALUE'" in error.value.stderr
    entry.write_bytes(code)
    assert value_of("VALUE = 1") == "1"


def test_another_source_is_compiled(value_of, tmp_path):
    (tmp_path / "kept_zip_code").mkdir()
    assert [value_of(f"VALUE = {number}") for number in (1, 2, 1)] == ["1", "2", "1"]
    assert len(kept(tmp_path)) == 2


@pytest.mark.parametrize("content", [b"", b"\xe3", b"not bytecode"], ids=["empty", "cut", "other"])
def test_a_damaged_entry_is_compiled_anew(value_of, tmp_path, content):
    (tmp_path / "kept_zip_code").mkdir()
    value_of("VALUE = 1")
    (entry,) = kept(tmp_path)
    good = entry.read_bytes()
    entry.write_bytes(content)
    assert value_of("VALUE = 1") == "1"
    assert entry.read_bytes() == good


def test_a_folder_that_cannot_be_written_costs_only_time(value_of, tmp_path):
    (tmp_path / "kept_zip_code").symlink_to("/proc/self")
    assert value_of("VALUE = 1") == "1"
