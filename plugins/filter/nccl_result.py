# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_result
short_description: What NCCL jobs measured, beside the rails, with a verdict
version_added: 0.2.0
description:
  - Reads the launchers' logs, finds the rails of each channel, compares the bus bandwidth with the sum of the ports, and says which
    environment fits the pods.
author:
  - Railyard contributors (@railyard)
positional: runs, model, hostvars
options:
  _input:
    description:
      - The jobs, as returned by the filter P(railyard.rdma.nccl_jobs#filter).
    type: list
    elements: dict
    required: true
  runs:
    description:
      - What became of them, as returned by the module P(railyard.rdma.nccl_wait#module) as C(jobs).
    type: dict
    required: true
  model:
    description:
      - The rail model, as returned by the module P(railyard.rdma.rail_model#module).
    type: dict
    required: true
  hostvars:
    description:
      - The variable C(hostvars). The facts C(rdma) of each host are taken from it, for the rates of its ports.
    type: dict
    required: true
  expected_gbs:
    description:
      - Bus bandwidth in GB/s to compare with. The sum of the ports of a node when it is not given.
    type: float
  ratio:
    description:
      - Share of it below which a job's bandwidth is low.
    type: float
    default: 0.85
  environment:
    description:
      - Variables that were given to the jobs.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Judge the jobs
  ansible.builtin.set_fact:
    result: "{{ jobs | railyard.rdma.nccl_result(runs.jobs, rails_model, hostvars) }}"
"""

RETURN = r"""
_value:
  description:
    - C({schema, jobs, environment, text}). A job has C(verdict) (V(pass), V(low), V(failed), V(unknown)), C(reason), C(sizes),
      C(busbw_gbs), C(gdrdma), C(nics), C(channels), C(pods), C(errors), C(version), C(environment) and more. C(text) is a list of
      lines for a person.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue
from ansible_collections.railyard.rdma.plugins.plugin_utils.hosts import host_values
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl import result


def nccl_result(jobs, runs, model, hostvars, expected_gbs=None, ratio=result.RATIO, environment=None):
    """Return the result; see the documentation above."""
    facts, _addresses = host_values(model, hostvars)
    try:
        options = {"expected_gbs": float(expected_gbs or 0), "ratio": float(ratio), "environment": environment or {}}
    except (TypeError, ValueError) as error:
        raise AnsibleFilterError(f"nccl_result: expected_gbs and ratio must be numbers: {error}") from error
    found = result.build(jobs, runs, model, facts, catalogue.load(), options)
    return {**found, "text": result.text_lines(found)}


class FilterModule:
    """Result of NCCL jobs."""

    def filters(self):
        return {"nccl_result": nccl_result}
