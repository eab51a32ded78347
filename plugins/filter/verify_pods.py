# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: verify_pods
short_description: Test pods that ask for every rail of their node
version_added: 0.1.0
description:
  - Returns a pod for each host of a rail model. It carries the annotations and resources with which a pod gets every
    rail.
author:
  - Railyard contributors (@railyard)
positional: hostvars, nodes
options:
  _input:
    description:
      - The rail model, as returned by the module P(railyard.rdma.rail_model#module).
    type: dict
    required: true
  hostvars:
    description:
      - The variable C(hostvars). The address of each host is taken from it, to find nodes that have another name.
    type: dict
    required: true
  nodes:
    description:
      - The Node objects of the cluster.
    type: list
    elements: dict
    required: true
  image:
    description:
      - Image of the pods. It needs a POSIX shell and C(sleep).
    type: str
    required: true
  command:
    description:
      - Command that keeps the pod running.
    type: list
    elements: str
    default: [sleep, "3600"]
  tolerations:
    description:
      - Tolerations of the pods.
    type: list
    elements: dict
    default: []
  ipc_lock:
    description:
      - Whether the pods get the capability IPC_LOCK, which the Pod Security level baseline forbids.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Make the test pods
  railyard.rdma.rail_objects:
    objects: "{{ rails_model | railyard.rdma.verify_pods(hostvars, nodes, image='busybox') | map(attribute='pod') }}"
"""

RETURN = r"""
_value:
  description: A list of C({host, node, pod}). C(node) is null when the cluster has no node of this host.
  type: list
  elements: dict
"""

from ansible_collections.railyard.rdma.plugins.plugin_utils.hosts import host_values
from ansible_collections.railyard.rdma.plugins.plugin_utils.verify_pods import pods


def verify_pods(model, hostvars, nodes, image, command=("sleep", "3600"), tolerations=(), ipc_lock=False):
    """Return the test pods; see the documentation above."""
    _facts, addresses = host_values(model, hostvars)
    options = {"image": image, "command": command, "tolerations": tolerations, "ipc_lock": ipc_lock}
    return pods(model, nodes, addresses, options)


class FilterModule:
    """Test pods of a rail model."""

    def filters(self):
        return {"verify_pods": verify_pods}
