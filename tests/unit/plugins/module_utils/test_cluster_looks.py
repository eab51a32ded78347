# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When one looks again: soon at first, then less often, and once more when the time is over."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.looks import looks


class Time:
    def __init__(self):
        self.now = 100.0

    def pause(self, seconds):
        assert seconds >= 0
        self.now += seconds

    def moments(self, timeout, **options):
        return [self.now - 100 for _look in looks(timeout, clock=lambda: self.now, pause=self.pause, **options)]


def test_pauses_grow_up_to_the_longest_and_the_last_look_is_at_the_end():
    assert Time().moments(10, first=1, longest=3) == pytest.approx([0, 1, 2.5, 4.75, 7.75, 10])


@pytest.mark.parametrize("timeout", [0, -1])
def test_without_time_there_is_one_look(timeout):
    assert Time().moments(timeout) == [0]


def test_a_look_that_takes_longer_than_the_time_is_the_last_one():
    time, seen = Time(), 0
    for _look in looks(5, clock=lambda: time.now, pause=time.pause):
        seen += 1
        time.now += 6
    assert seen == 1
