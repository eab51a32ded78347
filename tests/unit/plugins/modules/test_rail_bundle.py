# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundle of rendered files: written once, removed only when ours."""

from __future__ import annotations

import errno
import os

import pytest
from ansible_collections.railyard.rdma.plugins.modules import rail_bundle
from ansible_collections.railyard.rdma.tests.unit.plugins.modules import run_module

MARK = "# ours"


@pytest.fixture
def run(tmp_path, capsys):
    """Run the module; returns its result."""

    def call(files, check=False):
        path = str(tmp_path / "bundle")
        return run_module.run(rail_bundle, capsys, path=path, files=files, mark=MARK, _ansible_check_mode=check)

    return call


def actions(result):
    return {entry["path"].rsplit("/", 1)[1]: entry["action"] for entry in result["files"]}


def test_four_steps(run, tmp_path):
    files = {"10-a.yml": "a: 1\n", "20-ü.yml": "b: ü\n"}
    assert run(files, check=True)["changed"] and not (tmp_path / "bundle").exists()
    first = run(files)
    assert first["changed"] and set(actions(first).values()) == {"created"}
    assert (tmp_path / "bundle" / "20-ü.yml").read_text(encoding="utf-8") == "# ours\nb: ü\n"
    assert (tmp_path / "bundle" / "10-a.yml").stat().st_mode & 0o777 == 0o644
    assert not run(files, check=True)["changed"]
    assert not run(files)["changed"]


def test_change_is_written_and_shown(run, tmp_path):
    run({"10-a.yml": "a: 1\n", "20-b.yml": "b: 1\n"})
    result = run({"10-a.yml": "a: 2\n", "20-b.yml": "b: 1\n"})
    assert actions(result) == {"10-a.yml": "changed", "20-b.yml": "unchanged"}
    assert [(part["before"], part["after"]) for part in result["diff"]] == [("# ours\na: 1\n", "# ours\na: 2\n")]


def test_only_files_of_an_earlier_bundle_are_removed(run, tmp_path):
    run({"10-a.yml": "a: 1\n", "50-old.yml": "x: 1\n"})
    (tmp_path / "bundle" / "mine.yml").write_text("# mine\n# ours\n")
    (tmp_path / "bundle" / "binary").write_bytes(b"\xff\xfe\0")
    (tmp_path / "bundle" / "folder").mkdir()
    result = run({"10-a.yml": "a: 1\n"})
    assert actions(result) == {"10-a.yml": "unchanged", "50-old.yml": "removed"}
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == {"10-a.yml", "mine.yml", "binary", "folder"}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../up"])
def test_names_with_folders_are_refused(run, name):
    result = run({name: "x"})
    assert result["failed"] and repr(name) in result["msg"]


def test_values_must_be_text(run):
    result = run({"a.yml": {"x": 1}})
    assert result["failed"] and "a.yml" in result["msg"]


def test_a_file_in_the_way_is_named(run, tmp_path):
    (tmp_path / "bundle").write_text("in the way")
    result = run({"a.yml": "x"})
    assert result["failed"] and str(tmp_path / "bundle") in result["msg"]


def test_a_write_that_fails_leaves_the_old_file_alone(run, tmp_path, monkeypatch):
    run({"10-a.yml": "a: 1\n"})

    def full(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)

    monkeypatch.setattr(rail_bundle.os, "replace", full)
    result = run({"10-a.yml": "a: 2\n"})
    assert result["failed"] and "10-a.yml: No space left on device" in result["msg"]
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "bundle").iterdir()] == ["10-a.yml"]
    assert (tmp_path / "bundle" / "10-a.yml").read_text() == "# ours\na: 1\n"


def test_what_a_killed_run_left_half_written_goes(run, tmp_path):
    run({"10-a.yml": "a: 1\n"})
    (tmp_path / "bundle" / ".railyard-bundle-x").write_text("# ours\na: 2")
    assert actions(run({"10-a.yml": "a: 2\n"})) == {"10-a.yml": "changed", ".railyard-bundle-x": "removed"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_file_keeps_its_owner(run, tmp_path):
    run({"10-a.yml": "a: 1\n"})
    os.chown(tmp_path / "bundle" / "10-a.yml", 1234, 5678)
    assert run({"10-a.yml": "a: 2\n"})["changed"]
    there = (tmp_path / "bundle" / "10-a.yml").stat()
    assert (there.st_uid, there.st_gid, there.st_mode & 0o777) == (1234, 5678, 0o644)
