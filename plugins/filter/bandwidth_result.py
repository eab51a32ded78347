# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: bandwidth_result
short_description: The result of a benchmark with the priorities that its packets took
version_added: 0.2.0
description:
  - Puts together what was measured and what the PFs counted before and after.
author:
  - Railyard contributors (@railyard)
positional: hostvars
options:
  _input:
    description:
      - The rail model, as returned by the module P(railyard.rdma.rail_model#module).
    type: dict
    required: true
  hostvars:
    description:
      - The variable C(hostvars). C(rdma_bandwidth_before) and C(rdma_bandwidth_after) of each host are taken from it.
    type: dict
    required: true
  measured:
    description:
      - What the module P(railyard.rdma.rail_bandwidth#module) returned.
    type: dict
    required: true
  found:
    description:
      - What the filter P(railyard.rdma.bandwidth_endpoints#filter) returned.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Judge what was measured
  ansible.builtin.set_fact:
    rdma_bandwidth_result: "{{ rails_model | railyard.rdma.bandwidth_result(hostvars, measured=measured, found=found) }}"
"""

RETURN = r"""
_value:
  description:
    - C({schema, settings, rounds, results, priorities, slow_hosts, text}). C(text) is the same as lines of a table.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils.bandwidth import lines, result


def bandwidth_result(model, hostvars, measured, found):
    """Return the result; see the documentation above."""
    before = {host: hostvars.get(host, {}).get("rdma_bandwidth_before") for host in model["hosts"]}
    after = {host: hostvars.get(host, {}).get("rdma_bandwidth_after") for host in model["hosts"]}
    try:
        made = result(model, measured, found, before, after)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnsibleFilterError(f"bandwidth_result: {type(error).__name__}: {error}") from error
    return {**made, "text": lines(made)}


class FilterModule:
    """Result of a benchmark."""

    def filters(self):
        return {"bandwidth_result": bandwidth_result}
