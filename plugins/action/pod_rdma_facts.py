# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pods import in_short

display = Display()
MODULE = "railyard.rdma.pod_rdma_facts"


class ActionModule(ActionBase):
    """Runs the module for a while, shows which pods do not run and why, and runs it again; see its documentation.

    A module cannot show anything before it ends, and an image may take minutes to come.
    """

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        earlier = 0.0
        run = os.getppid()
        while True:
            arguments = {**self._task.args, "earlier": earlier}
            step = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
            # An answer without "finished" is none of our module's: an interpreter that failed, say.
            if step.get("failed") or step.get("finished", True) or os.getppid() != run:
                break
            earlier = step["waited"]
            display.display(
                f"waiting for pods, {earlier:.0f} s by now, {len(step['pending'])} do not run: {in_short(step['pending'])}"
            )
        result.update(step)
        for key in ("finished", "pending"):
            result.pop(key, None)
        return result
