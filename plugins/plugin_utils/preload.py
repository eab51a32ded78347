# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the rules and the plan need, loaded once for a run instead of once for each task.

Ansible loads filters in the process of a task, which ends with it, and its loader of collections compiles the source
of whatever they import each time. Action plugins are loaded in the process that all others are forked from
(``StrategyModule.run`` in ansible/plugins/strategy/linear.py looks at their class first), and what they import is
inherited. ``rail_model``, with which every playbook begins, imports this.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import forbidden
from ansible_collections.railyard.rdma.plugins.plugin_utils import (
    hosts,
    node_table,
    preflight,
    report_table,
    teardown,
    verify_pods,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings import collect, evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan import build, markdown

LOADED = (
    build,
    collect,
    evaluate,
    forbidden,
    hosts,
    markdown,
    node_table,
    preflight,
    report_table,
    teardown,
    verify_pods,
)
