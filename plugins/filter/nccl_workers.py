# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_workers
short_description: The workers of an NCCL job without MPI operator, with the launcher's key
version_added: 0.2.0
description:
  - Adds the public key of the job's launcher to its workers, so that they let it in. The private key never leaves the launcher.
author:
  - Railyard contributors (@railyard)
positional: key
options:
  _input:
    description:
      - A job, as returned by the filter P(railyard.rdma.nccl_jobs#filter).
    type: dict
    required: true
  key:
    description:
      - The key, as returned by the module P(railyard.rdma.nccl_wait#module).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Start the workers
  railyard.rdma.rail_objects:
    objects: "{{ job | railyard.rdma.nccl_workers(launchers.jobs[job.name].key) }}"
"""

RETURN = r"""
_value:
  description: Pods.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl import jobs


def nccl_workers(job, key):
    """Return the pods; see the documentation above."""
    if not isinstance(key, str) or not key.startswith("ssh-"):
        raise AnsibleFilterError(f"nccl_workers: key: got {key!r}, must be the public key of a launcher")
    return jobs.with_key(job["workers"], key)


class FilterModule:
    """Workers of an NCCL job."""

    def filters(self):
        return {"nccl_workers": nccl_workers}
