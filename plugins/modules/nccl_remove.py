#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_remove
short_description: Remove what there is of NCCL jobs
version_added: 0.2.0
description:
  - Removes MPIJobs, pods and services with the label C(railyard.io/nccl), of this run and of any run that was killed, and waits
    until none is left.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
attributes:
  check_mode:
    support: full
    description: Tells what there is, and removes nothing.
  diff_mode:
    support: none
    description: The names of what was removed are in RV(removed).
options:
  namespaces:
    description: Where to look.
    type: list
    elements: str
    required: true
  mpi_operator:
    description:
      - Whether MPIJobs are removed. With V(false) none is asked for, and what belongs to one stays and is in RV(kept), since
        the operator would make it again.
    type: bool
    required: true
  timeout:
    description: Seconds until all must be gone; else the task fails.
    type: int
    default: 120
requirements:
  - kubernetes (Python library) 24.2 or newer
seealso:
  - module: railyard.rdma.nccl_wait
"""

EXAMPLES = r"""
- name: Remove the jobs of a run that was killed
  railyard.rdma.nccl_remove:
    namespaces: [default]
    mpi_operator: true
"""

RETURN = r"""
removed:
  description: What was removed, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["MPIJob default/railyard-nccl-bm-gpu-b4-8"]
kept:
  description: What belongs to an MPIJob and stays. It is empty when O(mpi_operator) is true.
  returned: success
  type: list
  elements: str
  sample: []
left:
  description: What is still there after O(timeout).
  returned: failure
  type: list
  elements: str
  sample: ["Pod default/railyard-nccl-bm-gpu-b4-8-worker-0"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import nccl_leftovers
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, answer_text
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import label
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import auth_argument_spec, connect


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        namespaces={"type": "list", "elements": "str", "required": True},
        mpi_operator={"type": "bool", "required": True},
        timeout={"type": "int", "default": 120},
    )
    return spec


def work(api, params, check_mode):
    """(removed, left, kept), labels each; nothing is left of a dry run. Raises ApiError."""
    namespaces, mpi_operator = sorted(set(params["namespaces"])), params["mpi_operator"]
    if not check_mode:
        return nccl_leftovers.remove(api, namespaces, mpi_operator, params["timeout"])
    ours, kept = nccl_leftovers.look(api, namespaces, mpi_operator)
    return list(map(label, ours)), [], list(map(label, kept))


def perform(module):
    params = module.params
    try:
        removed, left, kept = work(connect(module), params, module.check_mode)
    except ApiError as error:
        module.fail_json(msg=f"The NCCL jobs cannot be removed: {answer_text(error)}", removed=[], left=[])
    if left:
        module.fail_json(
            msg=f"Still there after {params['timeout']} s: {', '.join(left)}. A finalizer or a node that does not answer keeps "
            "a pod: kubectl get pod -o yaml tells the finalizers, kubectl get nodes the nodes.",
            changed=bool(removed),
            removed=removed,
            left=left,
        )
    module.exit_json(changed=bool(removed), removed=removed, kept=kept)


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
