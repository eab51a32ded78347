# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
MODULE = "railyard.rdma.nccl_wait"
SHOWN = 4


class ActionModule(ActionBase):
    """Runs the module for a while, shows what is waited for, and runs it again; see the module's documentation."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        earlier, run = 0.0, os.getppid()
        while True:
            arguments = {**self._task.args, "earlier": earlier}
            step = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
            # An answer without "finished" is none of our module's: an interpreter that failed, say.
            if step.get("failed") or step.get("finished", True) or self._task.check_mode or os.getppid() != run:
                break
            earlier = step["waited"]
            rows = [f"{row['pod']}: {row['reason']}" for row in step["waiting"][:SHOWN]]
            rows += [f"and {len(step['waiting']) - SHOWN} more"] if len(step["waiting"]) > SHOWN else []
            display.display(f"waiting for NCCL, {earlier:.0f} s by now: {'; '.join(rows)}")
        result.update(step)
        return result
