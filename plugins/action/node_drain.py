# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.railyard.rdma.plugins.modules import node_drain
from ansible_collections.railyard.rdma.plugins.plugin_utils.long_waits import answers

# Lines of one message: a node with a hundred protected pods must not fill the screen each half minute.
SHOWN = 5


class ActionModule(ActionBase):
    """Shows what a drain waits for, which may take an hour; see the module's documentation."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        step, changed, evicted, before = {}, False, [], None
        for step in answers(self, node_drain, task_vars, reached, progress_line):
            changed = changed or bool(step.get("changed"))
            evicted += step.get("evicted") or []
            if step.get("diff"):
                before = before or step["diff"]["before"]
                result["diff"] = {"before": before, "after": step["diff"]["after"]}
        kept = {key: value for key, value in step.items() if key != "diff"}
        result.update(kept, changed=changed)
        if "evicted" in step:
            result["evicted"] = list(dict.fromkeys(evicted))
        return result


def reached(step):
    """What the next call has to know of the one before; nothing before the first."""
    return {key: step.get(key) for key in ("waited", "cordoned")} if step else {}


def progress_line(step):
    """``gpu-1: waiting, 60 s by now: …`` of the module's answer."""
    waiting = step["waiting"]
    more = f"; and {len(waiting) - SHOWN} more" if len(waiting) > SHOWN else ""
    seconds = sum(step["waited"].values())
    return f"{step.get('node')}: waiting, {seconds:.0f} s by now: {'; '.join(waiting[:SHOWN])}{more}"
