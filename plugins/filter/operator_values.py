# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: operator_values
short_description: Values of the chart network-operator for a rail model
version_added: 0.1.0
description:
  - Returns the values with which Helm installs the NVIDIA Network Operator for the rails of a rail model.
  - The SR-IOV operator is turned on when VFs are used, with its mellanox plugin off, so that it neither changes
    firmware nor reboots nodes.
author:
  - Railyard contributors (@railyard)
options:
  _input:
    description:
      - The rail model, as returned by the module P(railyard.rdma.rail_model#module).
    type: dict
    required: true
  nfd_enabled:
    description:
      - Whether the chart brings Node Feature Discovery. Only one may run in a cluster. V(auto) is left to the module
        P(railyard.rdma.operator_prepare#module), which looks at the cluster; here it is the same as V(false).
    type: str
    default: auto
  resources:
    description:
      - Requests and limits of the operator's container. Values that were measured to be enough when not set.
    type: dict
  disable_drain:
    description:
      - Whether the SR-IOV operator changes VFs without draining the node first.
    type: bool
    default: false
  pull_secrets:
    description:
      - Names of secrets for the images.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Install the operator
  kubernetes.core.helm:
    name: network-operator
    chart_ref: nvidia/network-operator
    release_namespace: "{{ rails_model.operator.namespace }}"
    values: "{{ rails_model | railyard.rdma.operator_values }}"
"""

RETURN = r"""
_value:
  description: The values.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_operator import helm_values


def operator_values(model, nfd_enabled="auto", resources=None, disable_drain=False, pull_secrets=()):
    """Return the values; see the documentation above."""
    try:
        return helm_values(model, nfd_enabled, resources, disable_drain, pull_secrets)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Values of the operator's chart."""

    def filters(self):
        return {"operator_values": operator_values}
