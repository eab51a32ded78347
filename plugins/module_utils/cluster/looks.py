# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looking again and again at what others change, with pauses that grow."""

from __future__ import annotations

import time


def looks(timeout, first=0.2, longest=3.0, clock=time.monotonic, pause=time.sleep):
    """Yield for each look until ``timeout`` seconds are over; the last one is at their end. Who has seen enough leaves.

    :param first, longest: seconds between two looks, at the beginning and at most.
    :param clock, pause: functions that tell seconds and sleep (tests replace them).
    """
    deadline, interval = clock() + timeout, first
    while True:
        yield
        if clock() >= deadline:
            return
        pause(max(0.0, min(interval, deadline - clock())))
        interval = min(interval * 1.5, longest)
