# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.railyard.rdma.plugins.modules import nccl_wait
from ansible_collections.railyard.rdma.plugins.plugin_utils.long_waits import answers, waited

SHOWN = 4


class ActionModule(ActionBase):
    """Shows what NCCL waits for; see the module's documentation."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        *_shown, last = answers(self, nccl_wait, task_vars, waited, progress_line)
        result.update(last)
        return result


def progress_line(step):
    """``waiting for NCCL, 60 s by now: …`` of the module's answer."""
    rows = [f"{row['pod']}: {row['reason']}" for row in step["waiting"][:SHOWN]]
    rows += [f"and {len(step['waiting']) - SHOWN} more"] if len(step["waiting"]) > SHOWN else []
    return f"waiting for NCCL, {step['waited']:.0f} s by now: {'; '.join(rows)}"
