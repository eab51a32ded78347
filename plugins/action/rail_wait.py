# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.readiness import in_short

display = Display()
MODULE = "railyard.rdma.rail_wait"


class ActionModule(ActionBase):
    """Runs the module for a while, shows what is missing, and runs it again; see the module's documentation.

    A module cannot show anything before it ends, and the drains of a fleet take hours.
    """

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        earlier, progress = 0.0, []
        run = os.getppid()
        while True:
            arguments = {**self._task.args, "earlier": earlier}
            step = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
            for row in step.get("progress") or []:
                if not progress or progress[-1]["missing"] != row["missing"]:
                    progress.append(row)
            # An answer without "finished" is none of our module's: an interpreter that failed, say.
            if step.get("failed") or step.get("finished", True) or self._task.check_mode or os.getppid() != run:
                break
            earlier = step["waited"]
            display.display(
                f"waiting, {earlier:.0f} s by now, {len(step['pending'])} missing: {in_short(step['pending'])}"
            )
        result.update(step)
        if "progress" in step:
            result["progress"] = progress
        return result
