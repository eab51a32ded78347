# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth.judge import in_short
from ansible_collections.railyard.rdma.plugins.modules import rail_bandwidth
from ansible_collections.railyard.rdma.plugins.plugin_utils.in_process import execute

display = Display()


class ActionModule(ActionBase):
    """Runs the module once a round, and shows what came of each; see the module's documentation.

    A module cannot show anything before it ends, and a round of many rails takes minutes.
    """

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        run = os.getppid()
        results, number = [], self._task.args.get("only_round") or 0
        while True:
            arguments = {**self._task.args, "only_round": number}
            step = execute(self, rail_bandwidth, arguments, task_vars)
            # An answer without rounds is none of our module's: an interpreter that failed, say.
            rounds = step.get("rounds") or []
            results += step.get("results") or []
            number += 1
            if step.get("failed") or self._task.check_mode or "only_round" in self._task.args or number > len(rounds):
                break
            pairs = len(rounds[number - 1]["pairs"])
            display.display(
                f"round {number} of {len(rounds)}, {pairs} pairs of nodes: {in_short(step['results'])}"
                + (f"; {len(rounds) - number} more rounds take about {step['seconds'] * (len(rounds) - number) // len(rounds)} s"
                   if number < len(rounds) else "")
            )  # fmt: skip
            if number == len(rounds) or os.getppid() != run:
                break
        result.update(step)
        if "results" in step:
            result["results"] = results
        return result
