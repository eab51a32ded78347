# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A long wait is one module run again and again: until when, with what, and what is shown between."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import long_waits


class Action:
    """An action plugin whose module gives the answers of a list."""

    def __init__(self, *rows, check_mode=False):
        self._task = SimpleNamespace(args={"name": "x"}, check_mode=check_mode)
        self._rows, self.calls = list(rows), []

    def execute(self, _module, arguments, _task_vars):
        self.calls.append(arguments)
        return self._rows[len(self.calls) - 1]


@pytest.fixture
def shown(monkeypatch):
    lines = []
    monkeypatch.setattr(long_waits, "display", SimpleNamespace(display=lines.append))
    monkeypatch.setattr(long_waits, "execute", Action.execute)
    return lines


def run(action):
    return list(long_waits.answers(action, None, {}, long_waits.waited, lambda row: f"{row['waited']} s"))


UNDERWAY = [{"finished": False, "waited": seconds} for seconds in (30.0, 60.0)]


@pytest.mark.parametrize(
    "last",
    [{"finished": True, "waited": 70.0}, {"failed": True, "finished": False, "msg": "no"}, {"msg": "no interpreter"}],
    ids=["finished", "failed", "none-of-the-module"],
)
def test_it_goes_on_where_it_was_until_an_answer_is_the_last(shown, last):
    action = Action(*UNDERWAY, last)
    assert run(action) == [*UNDERWAY, last]
    assert action.calls == [{"name": "x", "earlier": seconds} for seconds in (0.0, 30.0, 60.0)]
    assert shown == ["30.0 s", "60.0 s"]


def test_a_dry_run_looks_once(shown):
    assert run(Action(*UNDERWAY, check_mode=True)) == UNDERWAY[:1]
    assert shown == []


def test_a_worker_that_outlived_its_run_ends(shown, monkeypatch):
    parents = iter([10, 10, 1])
    monkeypatch.setattr(long_waits.os, "getppid", lambda: next(parents))
    assert run(Action(*UNDERWAY, {})) == UNDERWAY
    assert shown == ["30.0 s"]
