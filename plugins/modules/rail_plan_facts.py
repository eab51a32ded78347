#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rail_plan_facts
short_description: Read what a drain of nodes would meet
version_added: 0.2.0
description:
  - Reads pods, PodDisruptionBudgets and the resource prefix of the SR-IOV operator with one list each, and returns of each
    pod only what decides whether a drain evicts it and how long that may take.
  - Pods that no drain evicts are left out; these are the pods of DaemonSets, static pods, finished ones, and those that are
    leaving already.
  - Only reads. What cannot be read is null, with the reason.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
attributes:
  check_mode:
    support: full
    description: The module only reads.
  diff_mode:
    support: none
    description: Nothing changes.
options:
  namespace:
    description: Namespace of the Network Operator.
    type: str
    required: true
requirements:
  - kubernetes (Python library) 24.2 or newer
seealso:
  - module: railyard.rdma.rail_state
  - plugin: railyard.rdma.plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read what a drain would meet
  railyard.rdma.rail_plan_facts:
    namespace: nvidia-network-operator
  register: drains
"""

RETURN = r"""
drains:
  description:
    - C(pods) that a drain may evict, C(resources) being the names of the extended resources that their containers request,
      C(grace) the seconds that they may take to end, C(blocked) the PodDisruptionBudget that lets none of them go now,
      C(unmanaged) whether no controller makes them anew, C(own) whether they are left over from this collection's own tests.
    - C(resource_prefix) is that of the running operator, V(null) when none runs.
    - C(unknown) says of each part that is missing why.
  returned: success
  type: dict
  sample:
    pods:
      - namespace: jobs
        name: trainer-0
        node: gpu-1
        resources: [nvidia.com/gpu]
        empty_dirs: [scratch]
        grace: 30
        unmanaged: false
        own: false
        blocked: null
    resource_prefix: nvidia.com
    unknown: {}
requests:
  description: Requests that were sent, repeats included.
  returned: success
  type: int
  sample: 7
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import plan_facts
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import auth_argument_spec, connect


def main():
    spec = auth_argument_spec()
    spec.update(namespace={"type": "str", "required": True})
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        found = plan_facts.gather(connect(module), module.params["namespace"])
    except ApiError as error:
        module.fail_json(msg=f"The cluster cannot be read: HTTP status {error.status}: {error.message}")
    requests = found.pop("requests")
    module.exit_json(changed=False, drains=found, requests=requests)


if __name__ == "__main__":
    main()
