# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
MODULE = "railyard.rdma.node_drain"
# Lines of one message: a node with a hundred protected pods must not fill the screen each half minute.
SHOWN = 5


class ActionModule(ActionBase):
    """Runs the module for a while, shows what it waits for, and runs it again; see the module's documentation.

    A module cannot show anything before it ends, and a drain may take an hour.
    """

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        earlier, changed, evicted, before = {}, False, [], None
        run = os.getppid()
        while True:
            arguments = {**self._task.args, "earlier": earlier}
            step = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
            changed = changed or bool(step.get("changed"))
            evicted += step.get("evicted") or []
            if step.get("diff"):
                before = before or step["diff"]["before"]
                result["diff"] = {"before": before, "after": step["diff"]["after"]}
            earlier = {key: step.get(key) for key in ("waited", "cordoned")}
            if step.get("failed") or step.get("finished") or self._task.check_mode or "waiting" not in step:
                # An answer without "waiting" is none of our module's: an interpreter that failed, say.
                break
            if os.getppid() != run:
                # The run was killed and this process outlived it. The next run carries on; two must not.
                break
            display.display(progress_line(step))
        kept = {key: value for key, value in step.items() if key != "diff"}
        result.update(kept, changed=changed)
        if "evicted" in step:
            result["evicted"] = list(dict.fromkeys(evicted))
        return result


def progress_line(step):
    """``gpu-1: waiting for 60 s: …`` of the module's answer."""
    waiting = step["waiting"]
    more = f"; and {len(waiting) - SHOWN} more" if len(waiting) > SHOWN else ""
    seconds = sum(step["waited"].values())
    return f"{step.get('node')}: waiting, {seconds:.0f} s by now: {'; '.join(waiting[:SHOWN])}{more}"
