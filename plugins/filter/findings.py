# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: findings
short_description: What is wrong with the rails, from the intent, the facts and the cluster
version_added: 0.1.0
description:
  - Runs the rules of this collection and returns their findings, the rows of the verdict table, and both as text.
  - A check that could not be made gives a finding of the severity V(unknown).
  - The rules are described in C(docs/findings.md).
author:
  - Railyard contributors (@railyard)
positional: hostvars
options:
  _input:
    description:
      - The rail model, as returned by the module P(railyard.rdma.rail_model#module).
    type: dict
    required: true
  hostvars:
    description:
      - The variable C(hostvars). The facts C(rdma) and the address of each host are taken from it.
    type: dict
    required: true
  inputs:
    description:
      - What was gathered. Rules that need more are left out.
    type: list
    elements: str
    choices: [facts, kubernetes, pod, cluster, operator, returned, nccl, bandwidth]
    default: [facts, kubernetes, pod]
  nodes:
    description:
      - The Node objects of the cluster.
    type: list
    elements: dict
  attachments:
    description:
      - The NetworkAttachmentDefinitions of the cluster, as objects.
    type: list
    elements: dict
  pods:
    description:
      - What the pods see, as returned by the module P(railyard.rdma.pod_rdma_facts#module).
    type: dict
  test_pods:
    description:
      - The test pods, as returned by the filter P(railyard.rdma.verify_pods#filter).
    type: list
    elements: dict
  tolerated:
    description:
      - Ids of findings that do not count as failures.
    type: list
    elements: str
    default: []
  pool_configs:
    description:
      - The SriovNetworkPoolConfigs of the cluster, as objects.
    type: list
    elements: dict
    version_added: 0.2.0
  earlier:
    description:
      - The facts C(rdma) of an earlier run by host, to find what changed since. Hosts without them are not compared.
    type: dict
    version_added: 0.2.0
  cluster:
    description:
      - What the module P(railyard.rdma.rail_state#module) returned as C(state), with the objects that are to be applied as
        C(wanted) and the largest number or share of a pool's nodes that may be drained at once as C(drain_limit).
    type: dict
    version_added: 0.2.0
  only:
    description:
      - Ids of the rules that are asked. All rules when it is not given.
    type: list
    elements: str
    version_added: 0.2.0
  operator:
    description:
      - What the module P(railyard.rdma.operator_ready#module) returned as C(operator).
    type: dict
    version_added: 0.2.0
  returned:
    description:
      - The facts C(rdma) of each host, gathered after its test pods went.
    type: dict
    version_added: 0.2.0
  other_pods:
    description:
      - Pods of nodes on which something that a test pod had did not come back, as objects. One that asks for the same
        resources may have it.
    type: list
    elements: dict
    version_added: 0.2.0
  nccl:
    description:
      - What the filter P(railyard.rdma.nccl_result#filter) returned.
    type: dict
    version_added: 0.2.0
  cures:
    description:
      - Playbooks that run afterwards. Errors that they cure, or refuse with a reason of their own, are not in C(failing).
    type: list
    elements: str
    choices: [prepare_nodes]
    default: []
    version_added: 0.2.0
  bandwidth:
    description:
      - What the filter P(railyard.rdma.bandwidth_result#filter) returned.
    type: dict
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Judge the nodes by their facts alone
  ansible.builtin.set_fact:
    judgement: "{{ rails_model | railyard.rdma.findings(hostvars, inputs=['facts']) }}"
"""

RETURN = r"""
_value:
  description:
    - With O(cluster) C(drains) says for each pool of the SR-IOV operator how many nodes it lets go at once.
    - C(findings) is a list of C({id, severity, node, pod, rail, summary, evidence, remedy, tolerated}), C(failing)
      the part of it that must fail a
      play, C(rows) the verdict table as data, C(table) and C(text) the table and the findings as lines of text. Without
      pods among the inputs the table is that of nodes, with the four values of the netns mode.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.attachments import types_of_plugins
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.collect import contexts
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate, failing
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pool_config import drain_lines
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import CURES
from ansible_collections.railyard.rdma.plugins.plugin_utils.hosts import host_values
from ansible_collections.railyard.rdma.plugins.plugin_utils.node_table import node_lines, node_row
from ansible_collections.railyard.rdma.plugins.plugin_utils.report_table import finding_lines, lines, row


def findings(
    model,
    hostvars,
    inputs=("facts", "kubernetes", "pod"),
    nodes=None,
    attachments=None,
    pods=None,
    test_pods=None,
    tolerated=(),
    pool_configs=None,
    earlier=None,
    cures=(),
    cluster=None,
    only=None,
    operator=None,
    nccl=None,
    bandwidth=None,
    returned=None,
    other_pods=None,
):
    """Return findings, failing ones, rows and texts; see the documentation above."""
    facts, addresses = host_values(model, hostvars)
    chains = None if attachments is None else types_of_plugins(attachments)
    names = None if chains is None else list(chains)
    pod_hosts: dict = {}
    for entry in test_pods or []:
        asked = {"name": entry["pod"]["metadata"]["name"], "rails": entry.get("rails"), "count": entry.get("count")}
        pod_hosts.setdefault(entry["host"], []).append(asked)
    known = contexts(
        model,
        facts,
        nodes,
        names,
        pods,
        pod_hosts,
        addresses,
        pool_configs,
        earlier,
        cluster,
        chains,
        operator,
        nccl=nccl,
        bandwidth=bandwidth,
        returned=returned,
        other_pods=other_pods,
    )
    if set(cures) - set(CURES):
        raise AnsibleFilterError(f"findings: cures: got {sorted(set(cures) - set(CURES))}, allowed are {list(CURES)}")
    try:
        found = evaluate(known, inputs, tolerated, only)
    except ValueError as error:
        raise AnsibleFilterError(f"findings: {error}") from error
    with_pods = "pod" in inputs
    rows = [(row if with_pods else node_row)(context, found) for context in known]
    return {
        "findings": found,
        "failing": failing(found, cures),
        "rows": rows,
        "table": lines(rows) if with_pods else node_lines(rows),
        "text": finding_lines(found),
        "drains": drain_lines(known) if cluster is not None else [],
    }


class FilterModule:
    """Judge the rails."""

    def filters(self):
        return {"findings": findings}
