# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: bandwidth_counters
short_description: What a benchmark needs of the facts of a node
version_added: 0.2.0
description:
  - Keeps the counters and the QoS settings of the rails, and leaves out everything else, so that two readings of many nodes
    do not fill the controller's memory.
author:
  - Railyard contributors (@railyard)
options:
  _input:
    description:
      - The fact C(rdma) of a node, gathered with C(counters). V(null) gives V(null).
    type: dict
    required: true
  layout:
    description:
      - The node's layout of the rail model, as returned by the filter P(railyard.rdma.rails_layout#filter).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Keep the counters
  ansible.builtin.set_fact:
    before: "{{ ansible_facts['rdma'] | railyard.rdma.bandwidth_counters(layout) }}"
"""

RETURN = r"""
_value:
  description:
    - C(netdevs) and C(devices) of the rails, in the shape of the facts.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils.bandwidth import counters


def bandwidth_counters(facts, layout):
    """Return the part of the facts; see the documentation above."""
    try:
        return counters(facts, layout)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnsibleFilterError(f"bandwidth_counters: {type(error).__name__}: {error}") from error


class FilterModule:
    """Counters of a node."""

    def filters(self):
        return {"bandwidth_counters": bandwidth_counters}
