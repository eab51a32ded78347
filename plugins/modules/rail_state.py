#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rail_state
short_description: Read what the cluster holds about the rails
version_added: 0.2.0
description:
  - Reads every kind of object that decides about the rails with one list each, in one connection, and returns of large
    objects only what somebody looks at.
  - The filter P(railyard.rdma.findings#filter) judges what is returned, as its option C(cluster).
  - A part that the account may not read is null, and the reason says which right is missing; with O(required) the module
    fails instead. A kind that the server does not serve has no objects.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - railyard.rdma.attributes.reads
options:
  namespace:
    description: Namespace of the Network Operator.
    type: str
    required: true
  resource_prefixes:
    description: Prefixes of resources. Pods that ask for such a resource are returned, and pods with networks of Multus.
    type: list
    elements: str
    default: []
  parts:
    description: What to read. Everything when it is not given.
    type: list
    elements: str
    choices:
      - nodes
      - node_states
      - policies
      - pool_configs
      - operator_configs
      - nic_cluster_policies
      - attachments
      - ip_pools
      - cidr_pools
      - webhooks
      - namespaces
      - pods
      - events
      - nic_ids
  required:
    description: Whether the module fails where the account may not read one of the parts.
    type: bool
    default: false
  attachments_in:
    description:
      - Namespaces in which network attachments are looked for, for accounts that may not list them elsewhere.
      - In the whole cluster when it is not given.
    type: list
    elements: str
  kinds:
    description:
      - Kinds that the server may serve, each as C(GROUP/VERSION/KIND). RV(served) tells of each.
      - It needs no right but that of every account to see which kinds there are.
    type: list
    elements: str
    default: []
  drains:
    description:
      - Read also what drains would meet, from the same list of pods.
      - It costs two requests more, for the operator's Deployments and for PodDisruptionBudgets, and with O(parts) the list of pods.
    type: bool
    default: false
requirements:
  - kubernetes (Python library) 24.2 or newer
seealso:
  - plugin: railyard.rdma.findings
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read the cluster
  railyard.rdma.rail_state:
    namespace: nvidia-network-operator
    resource_prefixes: [nvidia.com]
  register: cluster

- name: Judge it before anything is applied
  ansible.builtin.debug:
    msg: "{{ (rails_model | railyard.rdma.findings(hostvars, inputs=['cluster'], cluster=cluster.state | combine(wanted))).text }}"
  vars:
    wanted:
      wanted: "{{ rail_networks_documents | map(attribute='objects') | flatten }}"
"""

RETURN = r"""
state:
  description:
    - The parts by name. Policies, pools, networks, node states and configurations are objects as the API gives them.
    - C(nodes) are Node objects with labels, taints, addresses, C(allocatable) and the condition Ready only.
    - C(pods) are C({namespace, name, node, phase, networks, asks_for, requests, controlled_by, empty_dir}), C(events) those
      of pods whose network failed, as C({node, object, message}), C(webhooks) and C(namespaces) names, C(nic_ids) the lines
      of the ConfigMap supported-nic-ids.
    - C(reasons) says for each part that is null why.
  returned: success
  type: dict
  sample:
    policies: []
    nic_ids: ["15b3 1019 101a"]
    pods: null
    reasons:
      pods: pods is forbidden
drains:
  description:
    - C(pods) that a drain may evict, C(resources) being the names of the extended resources that their containers request,
      C(grace) the seconds that they may take to end, C(blocked) the PodDisruptionBudget that lets none of them go now,
      C(unmanaged) whether no controller makes them anew, C(own) whether they are left over from this collection's own tests.
    - C(resource_prefix) is that of the running operator, V(null) when none runs.
    - C(unknown) says of each part that is missing why.
  returned: when O(drains) is true
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
served:
  description: Whether the server serves each of O(kinds).
  returned: success
  type: dict
  sample: {"kubeflow.org/v2beta1/MPIJob": true}
requests:
  description: Requests that were sent, repeats included.
  returned: success
  type: int
  sample: 20
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import plan_facts, state
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, answer_text
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import auth_argument_spec, connect


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        namespace={"type": "str", "required": True},
        resource_prefixes={"type": "list", "elements": "str", "default": []},
        parts={"type": "list", "elements": "str", "choices": [*state.PARTS, "nic_ids"]},
        required={"type": "bool", "default": False},
        attachments_in={"type": "list", "elements": "str"},
        kinds={"type": "list", "elements": "str", "default": []},
        drains={"type": "bool", "default": False},
    )
    return spec


def perform(module):
    params = module.params
    wrong = [name for name in params["kinds"] if name.count("/") != 2 or "" in name.split("/")]
    if wrong:
        module.fail_json(msg=f"kinds: got {', '.join(map(repr, wrong))}, must be GROUP/VERSION/KIND")
    api = connect(module)
    whole, more = {}, {}
    try:
        found = state.read(
            api,
            params["namespace"],
            params["resource_prefixes"],
            params["parts"],
            whole,
            params["attachments_in"],
            params["required"],
        )
        more["served"] = {name: api.serves(*name.rsplit("/", 1)) for name in params["kinds"]}
        if params["drains"]:
            reasons = found["reasons"]
            if "pods" not in found:
                reasons = state.read(api, params["namespace"], (), ["pods"], whole)["reasons"]
            more["drains"] = plan_facts.gather(api, params["namespace"], whole.get("pods"), reasons.get("pods"))
    except ApiError as error:
        module.fail_json(msg=f"The cluster cannot be read: {answer_text(error)}")
    module.exit_json(changed=False, state=found, requests=api.requests, **more)


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
