# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.readiness import in_short
from ansible_collections.railyard.rdma.plugins.modules import rail_wait
from ansible_collections.railyard.rdma.plugins.plugin_utils.long_waits import answers, waited


class ActionModule(ActionBase):
    """Shows what is missing while it waits; see the module's documentation."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result, step, progress = super().run(tmp, task_vars), {}, []
        for step in answers(self, rail_wait, task_vars, waited, progress_line):
            for row in step.get("progress") or []:
                if not progress or progress[-1]["missing"] != row["missing"]:
                    progress.append(row)
        result.update(step)
        if "progress" in step:
            result["progress"] = progress
        return result


def progress_line(step):
    """``waiting, 60 s by now, 2 missing: …`` of the module's answer."""
    return f"waiting, {step['waited']:.0f} s by now, {len(step['pending'])} missing: {in_short(step['pending'])}"
