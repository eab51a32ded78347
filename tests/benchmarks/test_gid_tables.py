# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The benchmark compares like with like. How long anything takes is not tested."""

from __future__ import annotations

import gid_tables
import pytest
from node_with_tables import Node


@pytest.fixture
def root(tmp_path):
    Node(tmp_path, devices=4, rows=8, addresses=3)
    return str(tmp_path)


def test_all_ways_see_the_same_rows(root):
    facts = gid_tables.gather(gid_tables.Tree(root), read_images=False)
    rows = gid_tables.rows_of_facts(facts)
    assert len(rows) == 4 * 3 * 2
    assert (
        rows == gid_tables.rows_of_shell(gid_tables.SHOW_GIDS, root) == gid_tables.rows_of_shell(gid_tables.CAT, root)
    )


def test_the_list_of_files_holds_every_row_once(root):
    places = [place for place in gid_tables.files_read(root) if "/gids/" in place]
    assert len(places) == len(set(places)) == 4 * 8


def test_a_way_that_sees_other_rows_stops_the_benchmark(root, monkeypatch):
    monkeypatch.setattr(gid_tables, "SHOW_GIDS", "echo mlx5_0 1 0")
    with pytest.raises(RuntimeError, match="other rows"):
        gid_tables.run(root, 1, 1)


def test_the_figures_are_complete(root):
    told = gid_tables.run(root, 2, 1)
    assert (told["devices"], told["rows"], told["filled_rows"]) == (4, 32, 24)
    assert told["rounds"] == {"facts": 2, "files": 2, "show_gids": 1, "cat": 1}
    assert len(gid_tables.table(told).splitlines()) == 6
