# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long it takes, in minutes: a few figures and where they come from, never more exact than they are."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Minutes:
    """What one thing takes on one node, or for the cluster (operator); a site that knows better sets its own."""

    drain: float = 2
    vfs: float = 1
    reboot: float = 15
    boot_image: float = 3
    operator: float = 5


SOURCES = {
    "drain": "a drained node gets its new VFs and is given back: about 2 minutes, measured with 16 PFs going from 1 to 2 VFs; the "
    "time that pods take to end is not in it",
    "vfs": "VFs on PFs that have none, all nodes at the same time: under a minute, measured with 16 PFs on each of two nodes",
    "reboot": "a bare-metal GPU server from reboot to Ready: an assumption, not measured; most of it is firmware and memory tests",
    "boot_image": "the images of all installed kernels: an assumption, not measured",
    "operator": "a Helm installation or upgrade, and the DaemonSets that follow: an assumption; pulling images decides",
}


def assumptions(minutes):
    """``[{name, minutes, source}]``; the variables are plan_minutes_NAME."""
    return [{"name": name, "minutes": getattr(minutes, name), "source": text} for name, text in SOURCES.items()]


def batches(count, at_once):
    """In how many rounds ``count`` nodes are through; None when none ever starts."""
    if not count:
        return 0
    return math.ceil(count / at_once) if at_once and at_once > 0 else None


def of_pools(rows):
    """Minutes until the operator is through with the nodes; pools work side by side. None when a node is not known, or
    never starts."""
    pools, aside = {}, 0
    for row in rows:
        if row["minutes"] is None:
            return None
        if row["effect"] in ("drain", "reboot"):
            pools.setdefault((row["pool"], row["at_once"]), []).append(row["minutes"])
        else:
            aside = max(aside, row["minutes"])
    longest = aside
    for (_pool, at_once), minutes in pools.items():
        rounds = batches(len(minutes), at_once)
        if rounds is None:
            return None
        longest = max(longest, rounds * max(minutes))
    return longest


def of_batches(minutes, at_once):
    """Minutes until Ansible is through with nodes that each take that long, so many at a time."""
    rounds = batches(len(minutes), at_once)
    return 0 if not minutes else None if rounds is None else rounds * max(minutes)
