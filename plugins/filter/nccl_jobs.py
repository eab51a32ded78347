# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_jobs
short_description: The NCCL jobs of a rail model, as Kubernetes objects
version_added: 0.2.0
description:
  - Makes a job, or two at once, for the hosts of each layout. A job is an MPIJob, or a Service with pods where the cluster has no
    MPI operator.
  - A job that cannot be, such as one of a single host, has no objects and says why.
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
      - Image with nccl-tests, Open MPI, an ssh server and C(ssh-keygen).
    type: str
    required: true
  jobs_per_node:
    description:
      - V(1) for one job over all GPUs and rails of a node, V(2) for two jobs with half of the GPUs each.
    type: int
    default: 1
  gpus:
    description:
      - GPUs of a pod. What the nodes offer, divided by O(jobs_per_node), when it is not given.
    type: int
  gpu_resource:
    description:
      - Resource by which nodes offer GPUs.
    type: str
    default: nvidia.com/gpu
  min_bytes:
    description:
      - Smallest message.
    type: str
    default: 1G
  max_bytes:
    description:
      - Largest message.
    type: str
    default: 8G
  iterations:
    description:
      - How often each size is sent.
    type: int
    default: 20
  tolerations:
    description:
      - Tolerations of the pods.
    type: list
    elements: dict
    default: []
  ipc_lock:
    description:
      - Whether the workers get the capability IPC_LOCK, which the Pod Security level baseline forbids.
    type: bool
    default: false
  shared_memory:
    description:
      - Size of C(/dev/shm) in a worker.
    type: str
    default: 16Gi
  pull_secrets:
    description:
      - Names of Secrets with which the image is pulled.
    type: list
    elements: str
    default: []
  environment:
    description:
      - Variables for the ranks. They win over what is found out.
    type: dict
    default: {}
  mpi_arguments:
    description:
      - More arguments of mpirun.
    type: list
    elements: str
    default: [--bind-to, numa, --mca, coll, ^hcoll]
  programs:
    description:
      - Where all_reduce_perf may be in the image.
    type: list
    elements: str
    default: [all_reduce_perf, /workspace/nccl-tests/build/all_reduce_perf, /opt/nccl-tests/build/all_reduce_perf]
  deadline:
    description:
      - Seconds after which Kubernetes ends the pods by itself.
    type: int
    default: 1800
  ssh_wait:
    description:
      - Seconds in which the workers must answer the launcher.
    type: int
    default: 300
  address_wait:
    description:
      - Seconds in which every rail of a pod must have its address.
    type: int
    default: 60
  mpi_operator:
    description:
      - Whether the cluster serves MPIJob.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Start the jobs
  railyard.rdma.rail_objects:
    objects: "{{ jobs | map(attribute='objects') | flatten }}"
  vars:
    jobs: "{{ rails_model | railyard.rdma.nccl_jobs(hostvars, nodes, image='registry.example/nccl-tests') }}"
"""

RETURN = r"""
_value:
  description:
    - A list of C({name, namespace, layout, part, hosts, nodes, gpus_per_node, rails, rails_per_node, shares_ports, environment,
      objects, workers, reason}). C(workers) are pods that need the launcher's key, see the filter
      P(railyard.rdma.nccl_workers#filter). C(reason) says why there are no objects.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue
from ansible_collections.railyard.rdma.plugins.plugin_utils.hosts import host_values
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl import jobs


def nccl_jobs(model, hostvars, nodes, **options):
    """Return the jobs; see the documentation above."""
    _facts, addresses = host_values(model, hostvars)
    unknown = set(options) - {"image", *jobs.DEFAULTS}
    if unknown:
        raise AnsibleFilterError(f"nccl_jobs: {', '.join(sorted(unknown))}: no such option")
    try:
        return jobs.plan(model, nodes, addresses, catalogue.load(), options)
    except ValueError as error:
        raise AnsibleFilterError(f"nccl_jobs: {error}") from error


class FilterModule:
    """NCCL jobs of a rail model."""

    def filters(self):
        return {"nccl_jobs": nccl_jobs}
