# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Charts that a killed run has fetched go with a later one; nothing else does."""

from __future__ import annotations

import os
import time

from ansible_collections.railyard.rdma.plugins.module_utils.operator import fetching


def made(folder, name, age):
    path = folder / name
    path.mkdir()
    (path / "chart.tgz").write_text("x")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_only_abandoned_folders_of_ours_go(tmp_path):
    old = made(tmp_path, "railyard-chart-old", 2 * fetching.ABANDONED)
    kept = [
        made(tmp_path, "railyard-chart-new", 10),
        made(tmp_path, "railyard-other", 2 * fetching.ABANDONED),
        made(tmp_path, "target", 2 * fetching.ABANDONED),
    ]
    link, file = tmp_path / "railyard-chart-link", tmp_path / "railyard-chart-file"
    link.symlink_to(tmp_path / "target")
    file.write_text("x")
    later = time.time() + fetching.ABANDONED / 2
    assert fetching.remove_abandoned(tmp_path, lambda: later) == [str(old)]
    assert not old.exists() and all((path / "chart.tgz").exists() for path in kept)
    assert link.is_symlink() and file.exists()
    assert fetching.remove_abandoned(tmp_path, lambda: later) == []


def test_those_of_others_stay(tmp_path, monkeypatch):
    path = made(tmp_path, "railyard-chart-theirs", 2 * fetching.ABANDONED)
    monkeypatch.setattr(fetching.os, "geteuid", lambda: os.getuid() + 1)
    assert fetching.remove_abandoned(tmp_path) == [] and path.exists()


def test_a_folder_that_is_not_there_has_nothing(tmp_path):
    assert fetching.remove_abandoned(tmp_path / "none") == []
