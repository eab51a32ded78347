# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: preflight_mistakes
short_description: What the controller and the cluster lack
version_added: 0.1.0
description:
  - Compares collections, Python libraries, Helm and the cluster's version with what this collection needs.
author:
  - Railyard contributors (@railyard)
positional: operator
options:
  _input:
    description:
      - What the module P(railyard.rdma.cluster_facts#module) returned.
    type: dict
    required: true
  operator:
    description:
      - Version of the Network Operator. It decides which Kubernetes is new enough.
    type: str
    required: true
  helm:
    description:
      - Whether Helm is needed.
    type: bool
    default: true
  cluster:
    description:
      - Whether the cluster must be reachable.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Look at the controller and the cluster
  railyard.rdma.cluster_facts:
  register: found

- name: Show what is missing
  ansible.builtin.debug:
    msg: "{{ found | railyard.rdma.preflight_mistakes('26.7.1') }}"
"""

RETURN = r"""
_value:
  description: A sentence for each mistake, with its remedy. Empty when all fits.
  type: list
  elements: str
"""

from ansible_collections.railyard.rdma.plugins.plugin_utils.preflight import mistakes


def preflight_mistakes(found, operator, helm=True, cluster=True):
    """Return what does not fit; see the documentation above."""
    return mistakes(found, operator, helm, cluster)


class FilterModule:
    """Preflight checks."""

    def filters(self):
        return {"preflight_mistakes": preflight_mistakes}
