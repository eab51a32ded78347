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

import contextlib
import gc
import sys

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


def load_jinja_plugins():
    """Have Ansible load filters and tests here. To find one it loads all that it brings itself, and all files of the
    collection's folder: 60 ms in each process of a task that has a template.

    Nothing depends on it: what cannot be loaded now is looked for, and complained about, where it is used.
    """
    from ansible.plugins.loader import filter_loader, test_loader

    for loader, name in ((filter_loader, "railyard.rdma.rails_layout"), (test_loader, "ansible.builtin.defined")):
        with contextlib.suppress(Exception):
            loader.get(name)


# Only where a play runs: documentation and tests import plugins, too.
if "ansible.plugins.strategy" in sys.modules:
    load_jinja_plugins()
    # What is loaded stays. Else the garbage collector of each task's process walks over all of it, and so copies the
    # memory that it shares with this one (gc.freeze in the Python documentation).
    gc.freeze()

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
