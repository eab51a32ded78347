# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the variables of all hosts to the rail model, or to the list of everything that is wrong with them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from ansible_collections.railyard.rdma.plugins.plugin_utils import (
    rail_documents,
    rail_mistakes,
    rail_operator,
    rail_rules_cluster,
    rail_rules_names,
    rail_rules_network,
    rail_rules_pools,
    rail_rules_rails,
    rail_spec,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.catalogue import RAIL_VENDOR
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_intent import Intent, as_object_name, derive
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_mistakes import Mistake

NETWORKS_ANNOTATION = "k8s.v1.cni.cncf.io/networks"

RULES = (*rail_rules_rails.RULES, *rail_rules_network.RULES, *rail_rules_names.RULES, *rail_rules_pools.RULES)


def build(
    variables_of: dict[str, dict], failed: Iterable[tuple[str, Mistake]] = (), shapes: dict | None = None
) -> tuple[dict | None, list[Mistake]]:
    """Check the intent of all hosts and derive the model.

    :param variables_of: host to its variables C(rails_*) and C(network_operator_*) as plain data.
    :param failed: host and mistake for every variable that has no value at all, since its template failed.
    :param shapes: the catalogue; the collection's when not given.
    :returns: the model and no mistakes, or nothing and every mistake.
    """
    failed = list(failed)
    broken: dict[str, list[Mistake]] = {}
    for host, item in failed:
        broken.setdefault(host, []).append(item)
    intents, found = [], []
    for hosts, variables in _groups(variables_of, broken):
        item, mistakes, operator = _check(hosts, variables, broken.get(hosts[0], []), shapes)
        intents.append((item, operator))
        found.append((hosts, mistakes))
    cluster = rail_rules_cluster.check([item for item, _operator in intents], [op for _item, op in intents])
    mistakes = rail_mistakes.merge([*found, (list(variables_of), cluster)], variables_of)
    if not variables_of:
        mistakes = [rail_mistakes.mistake("hosts", [], "at least one host; the nodes belong in the group gpu_nodes")]
    if mistakes:
        return None, mistakes
    operator = intents[0][1]
    every_intent = [item for item, _operator in intents]
    model = _model(every_intent, operator)
    clashes = rail_rules_cluster.clashes(
        model["documents"],
        every_intent,
        lambda intent: rail_documents.of_intent(intent, operator["network_operator_namespace"]),
    )
    return (None, clashes) if clashes else (model, [])


def layout_of(model: dict, host: str) -> dict:
    """Return the layout of a host. :raises KeyError: the model does not know the host."""
    name = model["hosts"][host]
    return next(layout for layout in model["layouts"] if layout["name"] == name)


def _groups(variables_of: dict[str, dict], broken: dict[str, list[Mistake]]) -> list[tuple[list[str], dict]]:
    """Group hosts by equal variables, in the order in which the hosts are given."""
    groups: dict[str, tuple[list[str], dict]] = {}
    for host, variables in variables_of.items():
        key = json.dumps([variables, [str(item) for item in broken.get(host, [])]], sort_keys=True, default=repr)
        groups.setdefault(key, ([], variables))[0].append(host)
    return list(groups.values())


def _check(
    hosts: list[str], variables: dict, broken: list[Mistake], shapes: dict | None
) -> tuple[Intent, list[Mistake], dict]:
    operator, mistakes = rail_operator.check({k: v for k, v in variables.items() if k in rail_operator.VARIABLES})
    intent_variables = {k: v for k, v in variables.items() if k not in rail_operator.VARIABLES and v is not None}
    values, bad, type_mistakes = rail_spec.check(intent_variables)
    bad |= {item.variable for item in broken}
    item = derive(hosts, values, bad, set(intent_variables) | {entry.variable for entry in broken}, shapes)
    mistakes = [*broken, *mistakes, *type_mistakes]
    # A part with a wrong type has been reported; what the rules say about its absence would only repeat that.
    reported = {entry.variable for entry in mistakes}
    for rule in RULES:
        mistakes.extend(entry for entry in rule(item) if entry.variable not in reported)
    return item, mistakes, operator


def _model(intents: list[Intent], operator: dict) -> dict:
    layouts: list[dict] = []
    names: Counter = Counter()
    for item in intents:
        group = item.given["rails_group_name"]
        base = as_object_name(item.shape["name"]) if item.shape else item.policy_name
        base += f"-{group}" if group and item.shape else ""
        names[base] += 1
        layouts.append(_layout(item, base if names[base] == 1 else f"{base}-{names[base]}", operator))
    return {
        "layouts": layouts,
        "hosts": {host: layout["name"] for layout in layouts for host in layout["hosts"]},
        "operator": {
            "version": operator["network_operator_version"],
            "namespace": operator["network_operator_namespace"],
            "resource_prefix": intents[0].given["rails_resource_prefix"],
        },
        "documents": rail_documents.documents(intents, operator),
        "findings_tolerated": sorted({name for item in intents for name in item.given["rails_findings_tolerated"]}),
    }


def _layout(item: Intent, name: str, operator: dict) -> dict:
    resources = _resources(item)
    shape = item.shape or {}
    return {
        "name": name,
        "shape": shape.get("name"),
        "hosts": list(item.hosts),
        "network": item.network,
        "netns_mode": item.netns_mode,
        "rdma_cni": bool(item.rdma_cni),
        "vfs_per_pf": item.vfs_per_pf,
        "mtu": item.mtu,
        "traffic_class": item.traffic_class,
        "ip_family": item.ip_family,
        "resource_scope": item.resource_scope,
        "externally_managed": item.given["rails_externally_managed"],
        "max_unavailable": rail_rules_network.max_unavailable_value(item),
        "node_selector": item.node_selector,
        "namespaces": {
            "operator": operator["network_operator_namespace"],
            "networks": item.given["rails_networks_namespace"],
        },
        "vendor": RAIL_VENDOR,
        "nic": shape.get("nic"),
        "front_end_nics": shape.get("front_end_nics") or [],
        "rails": [
            {
                **rail,
                "resource": f"{item.given['rails_resource_prefix']}/{item.resource_of(rail)}",
                "network": item.network_of(rail),
            }
            for rail in item.rails
        ],
        "resources": resources,
        "pools": item.pools,
        "pod": _pod(item, resources),
    }


def _resources(item: Intent) -> list[dict]:
    """Return what each node must offer as allocatable."""
    each = item.vfs_per_pf if item.network == "sriov" else 1
    rows: dict[str, dict] = {}
    for rail in item.rails:
        name = item.resource_of(rail)
        full = f"{item.given['rails_resource_prefix']}/{name}"
        row = rows.setdefault(name, {"name": name, "full_name": full, "count": 0, "rails": []})
        row["count"] += each
        row["rails"].append(rail["rail"])
    return list(rows.values())


def _pod(item: Intent, resources: list[dict]) -> dict:
    """Return what a pod must carry that wants one interface, or one PF, on every rail."""
    networks = [item.network_of(rail) for rail in item.rails if item.network_name]
    return {
        "namespace": item.given["rails_networks_namespace"],
        "annotations": {NETWORKS_ANNOTATION: ",".join(networks)} if networks else {},
        "resources": {row["full_name"]: str(len(row["rails"])) for row in resources},
        "host_network": item.network == "host_network",
    }
