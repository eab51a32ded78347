# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The benchmark compares like with like, and an unchanged run writes nothing. How long anything takes is not tested."""

from __future__ import annotations

import apply_objects
import pytest


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """One rail, so three objects; without kubectl, which not every machine has."""
    return apply_objects.run(tmp_path_factory.mktemp("bench"), rails=1, rounds=1, loop_rounds=1, kubectl=None)


def test_sixteen_rails_are_forty_eight_objects():
    assert len(apply_objects.wanted(16)) == 48


def test_every_way_wrote_each_object_once_and_ours_nothing_the_second_time(told):
    assert told["objects"] == 3
    assert told["ways"]["rail_objects"]["first"]["writes"] == 3
    assert told["ways"]["loop"]["first"]["writes"] >= 3
    assert told["ways"]["rail_objects"]["again"]["writes"] == 0
    assert told["ways"]["loop"]["again"]["requests"] > told["ways"]["rail_objects"]["again"]["requests"]


def test_the_table_has_a_row_for_each_way_and_run(told):
    assert len(apply_objects.table(told).splitlines()) == 2 + 2 * 2
    assert told["kubectl_left_out"]


def test_a_way_that_makes_other_objects_stops_the_benchmark(tmp_path, monkeypatch):
    answers = iter([{"IPPool/rail-0": {"x": 1}}, {"IPPool/rail-0": {"x": 2}}])
    row = {"cpu": 1.0, "elapsed": 1.0, "requests": 1, "writes": 1}
    monkeypatch.setattr(apply_objects, "measured", lambda server, command: row)
    monkeypatch.setattr(apply_objects, "specs", lambda server, objects: next(answers))
    with pytest.raises(RuntimeError, match="loop made other objects than rail_objects"):
        apply_objects.run(tmp_path, 1, 1, 1, None)
