# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about all hosts together: one cluster has one operator, one name for one object, one map of its addresses."""

from __future__ import annotations

import re
from collections import Counter

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.foreign import short
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_rules_pools
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_intent import Intent
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_mistakes import Mistake, mistake, shown

# Which variable names the objects of a kind.
NAMED_BY = {
    "IPPool": "rails_pools",
    "CIDRPool": "rails_pools",
    "SriovNetworkPoolConfig": "rails_pool_config_name",
    "SriovNetworkNodePolicy": "rails_policy_name",
    "SriovNetwork": "rails_network_name",
    "NetworkAttachmentDefinition": "rails_network_name",
}


def check(intents: list[Intent], operators: list[dict]) -> list[Mistake]:
    """Return what only shows when the intents of all hosts are seen together."""
    found = _one_operator(intents, operators)
    found.extend(_front_end_nics(intents))
    found.extend(_selectors_apart(intents))
    found.extend(_class_needs_release(intents, operators))
    for rule in rail_rules_pools.CLUSTER_RULES:
        found.extend(rule(intents))
    return found


def clashes(documents: list[dict], intents: list[Intent], of_intent) -> list[Mistake]:
    """Return the objects that two layouts want under one name in different forms.

    :param documents: of the model; an object that both layouts want in the same form is in there once.
    :param of_intent: function that gives the objects of one intent, {kind: [row]}.
    """
    doubled = [
        (document["kind"], name)
        for document in documents
        for name, times in Counter(row["name"] for row in document["objects"]).items()
        if times > 1
    ]
    wanted = [of_intent(intent) for intent in intents] if doubled else []
    found = []
    for kind, name in doubled:
        rows = [
            (intent, next((r for r in own.get(kind, []) if r["name"] == name), None))
            for intent, own in zip(intents, wanted)
        ]
        groups = [(intent.hosts, row) for intent, row in rows if row is not None]
        (first, one), (second, other) = groups[0], next(group for group in groups if group[1] != groups[0][1])
        variable = NAMED_BY[kind]
        if kind == "SriovNetworkNodePolicy" and name not in {i.policy_name for i in intents}:
            variable = "rails_network_name"
        fields = short(sorted(key for key in {*one, *other} if one.get(key) != other.get(key)))
        allowed = (
            f"another name for each group of hosts: {kind} {name} of {short(first)} and that of {short(second)} differ in "
            f"{fields}. Set rails_group_name in one of the groups, or this variable"
        )
        found.append(mistake(variable, name, allowed))
    return found


def _one_operator(intents: list[Intent], operators: list[dict]) -> list[Mistake]:
    """The operator's settings and the resource prefix belong to the cluster, so they are the same on all hosts."""
    found = []
    settings = [
        {**op, "rails_resource_prefix": it.given["rails_resource_prefix"]} for it, op in zip(intents, operators)
    ]
    for name in settings[0] if settings else ():
        values = sorted({shown(row[name]) for row in settings})
        if len(values) > 1:
            found.append(
                Mistake(name, " and ".join(values), "one value for all hosts: the operator serves the whole cluster")
            )
    return found


def _front_end_nics(intents: list[Intent]) -> list[Mistake]:
    """All nodes get the same list of PFs for the device plugin: a rail of one shape may be front-end NIC of another."""
    found = []
    offered = {
        rail["pci"]: intent for intent in intents if intent.network not in (None, "sriov") for rail in intent.rails
    }
    for intent in intents:
        for pci in (intent.shape or {}).get("front_end_nics") or []:
            if pci in offered and offered[pci] is not intent:
                other = (offered[pci].shape or {}).get("name", "other hosts")
                allowed = (
                    f"no PF that is a rail of {other} and a front-end NIC of {intent.shape['name']} in one cluster"
                )
                found.append(Mistake("rails_network", f"{offered[pci].network} with {pci}", allowed))
    return found


def _selectors_apart(intents: list[Intent]) -> list[Mistake]:
    """Two layouts of VFs select no node both: its PFs would be in two policies, and it in two pool configurations.

    Selectors that name different labels may still meet on a node; that only the cluster can tell (POL-001, POL-010).
    """
    found = []
    chosen = [it for it in intents if it.network == "sriov" and isinstance(it.node_selector, dict) and it.node_selector]
    for index, intent in enumerate(chosen):
        for other in chosen[:index]:
            names = [(i.policy_name, i.pool_config_name, i.network_name) for i in (intent, other)]
            if names[0] == names[1]:
                continue  # The same objects, or ones that differ under one name: clashes() tells.
            one, two = (set(map(str, item.node_selector.items())) for item in (intent, other))
            if one <= two or two <= one:
                allowed = (
                    f"labels of {short(intent.hosts)} that nodes of {short(other.hosts)} do not have: "
                    f"{shown(other.node_selector)} of theirs would select the same nodes, and a PF may be in one policy only"
                )
                found.append(mistake("rails_node_selector", intent.node_selector, allowed))
    return found


def _class_needs_release(intents: list[Intent], operators: list[dict]) -> list[Mistake]:
    """The traffic class of VFs in the exclusive mode is set by an option that the RDMA CNI has since 26.4.0 only."""
    found = []
    for intent, operator in zip(intents, operators):
        version = operator["network_operator_version"]
        parts = re.match(r"(\d+)\.(\d+)", version) if isinstance(version, str) else None
        if intent.rdma_cni and parts and (int(parts[1]), int(parts[2])) < (26, 4):
            allowed = (
                "26.4.0 or newer with the RDMA CNI: the images of older releases ignore rdmaQoS, and VFs do not get "
                "rails_traffic_class"
            )
            if (item := mistake("network_operator_version", version, allowed)) not in found:
                found.append(item)
    return found
