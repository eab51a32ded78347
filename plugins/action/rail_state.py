# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.modules import rail_state
from ansible_collections.railyard.rdma.plugins.plugin_utils.in_process import InProcessAction


class ActionModule(InProcessAction):
    """Reads the cluster in the process of the task; see the module's documentation."""

    MODULE = rail_state
