# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pods import in_short
from ansible_collections.railyard.rdma.plugins.modules import pod_rdma_facts
from ansible_collections.railyard.rdma.plugins.plugin_utils.long_waits import answers, waited


class ActionModule(ActionBase):
    """Shows which pods do not run and why, since an image may take minutes to come; see the module's documentation."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        *_shown, last = answers(self, pod_rdma_facts, task_vars, waited, progress_line)
        result.update(last)
        for key in ("finished", "pending"):
            result.pop(key, None)
        return result


def progress_line(step):
    """``waiting for pods, 60 s by now, 2 do not run: …`` of the module's answer."""
    pending = step["pending"]
    return f"waiting for pods, {step['waited']:.0f} s by now, {len(pending)} do not run: {in_short(pending)}"
