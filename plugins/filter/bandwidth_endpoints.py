# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: bandwidth_endpoints
short_description: Which device, GID index and address a benchmark uses on each rail of each test pod
version_added: 0.2.0
description:
  - Finds for each test pod and rail the RDMA device, the GID index of the rail's address, and the rate of the port. A rail
    that cannot be used is listed with the reason.
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
      - The variable C(hostvars). The facts C(rdma) of each host are taken from it.
    type: dict
    required: true
  pods:
    description:
      - What the pods see, as returned by the module P(railyard.rdma.pod_rdma_facts#module).
    type: dict
    required: true
  test_pods:
    description:
      - The test pods, as returned by the filter P(railyard.rdma.verify_pods#filter).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Find what to test
  ansible.builtin.set_fact:
    found: "{{ rails_model | railyard.rdma.bandwidth_endpoints(hostvars, pods=seen.pods, test_pods=pods) }}"
"""

RETURN = r"""
_value:
  description:
    - C(endpoints), C(groups) and C(streams), for the options of the same names of the module
      P(railyard.rdma.rail_bandwidth#module).
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils.bandwidth import endpoints
from ansible_collections.railyard.rdma.plugins.plugin_utils.hosts import host_values


def bandwidth_endpoints(model, hostvars, pods, test_pods):
    """Return endpoints, groups and streams; see the documentation above."""
    facts, _addresses = host_values(model, hostvars)
    try:
        return endpoints(model, facts, pods, test_pods)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnsibleFilterError(f"bandwidth_endpoints: {error}") from error


class FilterModule:
    """Endpoints of a benchmark."""

    def filters(self):
        return {"bandwidth_endpoints": bandwidth_endpoints}
