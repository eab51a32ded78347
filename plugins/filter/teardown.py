# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: teardown
short_description: What taking the rails away would do
version_added: 0.2.0
description:
  - Says which objects go, what nodes and pods lose with them, and what speaks against it.
author:
  - Railyard contributors (@railyard)
positional: state
options:
  _input:
    description:
      - The rail model, as returned by the module P(railyard.rdma.rail_model#module).
    type: dict
    required: true
  state:
    description:
      - What the module P(railyard.rdma.rail_state#module) returned as C(state).
    type: dict
    required: true
  drains:
    description:
      - What the module P(railyard.rdma.rail_state#module) returned as C(drains).
    type: dict
    default: {}
  going:
    description:
      - What the module P(railyard.rdma.rail_objects#module) returned as C(objects) in check mode.
    type: list
    elements: dict
    default: []
  keep:
    description:
      - What is kept. A kept part keeps what it needs, so a list with C(networks) has C(policies), C(pools) and
        C(nic_cluster_policy), too.
    type: list
    elements: str
    choices: [networks, policies, pool_configs, pools, nic_cluster_policy]
    default: []
"""

EXAMPLES = r"""
- name: Say what would be lost
  ansible.builtin.debug:
    msg: "{{ (rails_model | railyard.rdma.teardown(found.state, going=seen.objects)).lines }}"
"""

RETURN = r"""
_value:
  description:
    - C(lines) is what a person must know before, C(users) the running pods that use what goes, C(refusals) what only a
      confirmation overrules, C(going) the objects that go, C(keep) what is kept, C(nic_cluster_policy) whether the
      NicClusterPolicy goes, C(nothing)
      whether there is nothing to do.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils.teardown import KeepError, consequences


def teardown(model, state, drains=None, going=(), keep=()):
    """Return what a removal would do; see the documentation above."""
    try:
        return consequences(model, state, drains or {}, list(going), keep if isinstance(keep, str) else list(keep))
    except KeepError as error:
        raise AnsibleFilterError(f"teardown_keep: {error}") from error


class FilterModule:
    """Teardown."""

    def filters(self):
        return {"teardown": teardown}
