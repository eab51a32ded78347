# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The note that a reboot for a netns mode leaves on the node: written before it, removed when it brought the mode.

An interrupted run leaves it for the next one, which then does not reboot again.
"""

from __future__ import annotations

import json

from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

PATH = "/var/lib/railyard/rdma_netns_reboot.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
KEYS = ("mode", "boot_id", "at")


def read(tree: Tree) -> dict | None:
    """Return ``{mode, boot_id, at, reason}``, None when there is no note.

    ``boot_id`` is that of the boot from which the node was sent down, ``at`` the time in UTC. A note that cannot be read
    or understood has None in all three, and ``reason`` says why.
    """
    found = tree.read(PATH)
    if found.absent:
        return None
    unknown = dict.fromkeys(KEYS)
    if found.value is None:
        return {**unknown, "reason": f"{PATH}: {found.reason}"}
    try:
        note = json.loads(found.value)
    except (ValueError, RecursionError):
        note = None
    if not isinstance(note, dict) or not all(isinstance(note.get(key), str) for key in KEYS):
        return {**unknown, "reason": f"{PATH} is not a note of a reboot: {found.value!r:.200}"}
    return {**{key: note[key] for key in KEYS}, "reason": None}


def text(mode: str, boot_id: str, at: str) -> str:
    """Return the content of the note."""
    return json.dumps({"mode": mode, "boot_id": boot_id, "at": at}) + "\n"
