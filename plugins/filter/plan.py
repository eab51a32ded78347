# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plan
short_description: What site.yml would do to cluster and nodes, as data, text and Markdown
version_added: 0.2.0
description:
  - Puts together what plays have seen in check mode, and says for each node whether it is rebooted, drained, or its device
    plugin restarted, why, which pods go, how many nodes at once, and about how many minutes that takes.
  - What cannot be told is V(unknown), with the reason.
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
      - The variable C(hostvars). The facts C(rdma), the address, and the facts C(rdma_netns_plan) and C(plan_reached) of each
        host are taken from it.
    type: dict
    required: true
  state:
    description:
      - What the module P(railyard.rdma.rail_state#module) returned as C(state).
    type: dict
  drains:
    description:
      - What the module P(railyard.rdma.rail_state#module) returned as C(drains).
    type: dict
  wanted:
    description:
      - The objects that are to be applied.
    type: list
    elements: dict
    default: []
  objects:
    description:
      - What the module P(railyard.rdma.rail_objects#module) returned in check mode.
    type: dict
  operator:
    description:
      - What the module P(railyard.rdma.operator_prepare#module) returned in check mode.
    type: dict
  failures:
    description:
      - Why something could not be seen, by its name. V(preflight), V(operator), V(cluster), V(objects).
    type: dict
    default: {}
  refused:
    description:
      - The names of O(failures) for which a right was missing. What they would have told is unknown then, and stops nothing.
    type: list
    elements: str
    default: []
  judgements:
    description:
      - What the filter P(railyard.rdma.findings#filter) returned, with the name of the playbook that it stops as C(playbook).
    type: list
    elements: dict
    default: []
  minutes:
    description:
      - Minutes that things take, other than usual. V(drain), V(vfs), V(reboot), V(boot_image), V(operator).
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Put the plan together
  ansible.builtin.set_fact:
    result: "{{ rails_model | railyard.rdma.plan(hostvars, state=state.state, drains=drains.drains, objects=objects) }}"
"""

RETURN = r"""
_value:
  description:
    - C(plan) is the content of plan.json, C(text) a list of lines for a terminal, C(markdown) one text.
  type: dict
"""

from dataclasses import fields

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import node_of
from ansible_collections.railyard.rdma.plugins.plugin_utils.hosts import host_values
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.build import Seen, build
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.estimate import Minutes
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.markdown import markdown
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.text import text_lines

PLACES = ("preflight", "operator", "cluster", "objects")


def minutes_of(given):
    """Minutes from a user's mapping. Raises AnsibleFilterError for other names and for what is no number from 0."""
    allowed = [f.name for f in fields(Minutes)]
    for name, value in given.items():
        if name not in allowed:
            raise AnsibleFilterError(f"plan: minutes: got {name!r}, allowed are {', '.join(allowed)}")
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = -1.0
        if isinstance(value, bool) or not 0 <= number < 100000:
            raise AnsibleFilterError(f"plan: minutes: {name}: got {value!r}, allowed is a number of minutes from 0")
    return Minutes(**{name: float(value) for name, value in given.items()})


def plan(
    model,
    hostvars,
    state=None,
    drains=None,
    wanted=(),
    objects=None,
    operator=None,
    failures=None,
    refused=(),
    judgements=(),
    minutes=None,
):
    """Return the plan as data, text and Markdown; see the documentation above."""
    failures = {name: str(text) for name, text in (failures or {}).items() if text}
    if set(failures) - set(PLACES):
        raise AnsibleFilterError(
            f"plan: failures: got {sorted(set(failures) - set(PLACES))}, allowed are {list(PLACES)}"
        )
    facts, addresses = host_values(model, hostvars)
    # Facts of a node that did not answer now are those of an earlier run.
    facts = {host: known if hostvars.get(host, {}).get("plan_reached", True) else None for host, known in facts.items()}
    nodes = (state or {}).get("nodes") or []
    names = {host: hostvars.get(host, {}).get("rdma_netns_node_name", None) or host for host in model["hosts"]}
    found = {host: node_of(names[host], addresses[host], nodes) for host in model["hosts"]}
    seen = Seen(
        model=model,
        facts=facts,
        looks={host: hostvars.get(host, {}).get("rdma_netns_plan", None) for host in model["hosts"]},
        nodes={host: (node or {}).get("metadata", {}).get("name") for host, node in found.items()},
        state=state,
        drains=drains,
        wanted=list(wanted),
        objects=objects,
        prepared=operator,
        failures=failures,
        refused=frozenset(refused),
        findings=[finding for one in judgements for finding in one["findings"]],
        failing=[{**finding, "playbook": one["playbook"]} for one in judgements for finding in one["failing"]],
    )
    result = build(seen, minutes_of(minutes or {}))
    return {"plan": result, "text": text_lines(result), "markdown": markdown(result)}


class FilterModule:
    """Plans."""

    def filters(self):
        return {"plan": plan}
