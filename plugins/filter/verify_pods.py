# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: verify_pods
short_description: Test pods that ask for every rail of their node
version_added: 0.1.0
description:
  - Returns pods for each host of a rail model. They carry the annotations and resources with which a pod gets its
    rails.
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
  prefix:
    description:
      - What the names of the pods start with, and the value of their label C(railyard.io/verify).
    type: str
    default: railyard-verify
    version_added: 0.2.0
  pods_per_node:
    description:
      - Number of pods for each node. Several get every rail each where the node has devices enough, else each gets its part
        of the rails.
    type: int
    default: 1
    version_added: 0.2.0
  extra_resources:
    description:
      - More resources that each pod asks for, such as GPUs, by name.
    type: dict
    default: {}
    version_added: 0.2.0
  priority_class:
    description:
      - PriorityClass of the pods.
    type: str
    default: ""
    version_added: 0.2.0
  pull_secrets:
    description:
      - Names of secrets of the pods' namespace with which the image is pulled.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  namespace:
    description:
      - Namespace of the pods. It is that of the networks when empty.
    type: str
    default: ""
    version_added: 0.2.0
  run_as_user:
    description:
      - User id of the pods' process. V(0) leaves it to the image. With another one the Pod Security level restricted is
        enough.
    type: int
    default: 0
    version_added: 0.2.0
  deadline:
    description:
      - Seconds after which Kubernetes ends a pod that nobody removed.
    type: int
    default: 3600
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Make the test pods
  railyard.rdma.rail_objects:
    objects: "{{ rails_model | railyard.rdma.verify_pods(hostvars, nodes, image='busybox') | map(attribute='pod') }}"
"""

RETURN = r"""
_value:
  description:
    - A list of C({host, node, part, rails, count, pod}). C(node) is null when the cluster has no node of this host.
    - C(part) is V(a), V(b) and so on where a host has several pods. C(rails) are the rails that the pod asks for; it is null
      when it asks for any C(count) of them.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils.hosts import host_values
from ansible_collections.railyard.rdma.plugins.plugin_utils.verify_pods import pods


def verify_pods(model, hostvars, nodes, image, **options):
    """Return the test pods; see the documentation above."""
    _facts, addresses = host_values(model, hostvars)
    try:
        return pods(model, nodes, addresses, {"image": image, **options})
    except (ValueError, TypeError, AttributeError) as error:
        raise AnsibleFilterError(f"verify_pods: {error}") from error


class FilterModule:
    """Test pods of a rail model."""

    def filters(self):
        return {"verify_pods": verify_pods}
