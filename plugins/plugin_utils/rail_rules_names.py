# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about names: what Kubernetes, the SR-IOV operator and the device plugins would refuse, mostly too late."""

from __future__ import annotations

from collections import Counter

from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_names as names
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_intent import Intent
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_mistakes import NOT_SET, Mistake, mistake


def resource(intent: Intent) -> list[Mistake]:
    """A resource name that the device plugin offers and a prefix that the kubelet takes.

    The CRD of SriovNetworkNodePolicy has no pattern, so a bad name passes the API server and no node ever offers it.
    """
    found = []
    if intent.usable("rails_resource_name"):
        full = max((intent.resource_of(rail) for rail in intent.rails), key=len, default=intent.resource_name)
        if not names.RESOURCE.fullmatch(intent.resource_name):
            found.append(mistake("rails_resource_name", intent.resource_name, names.RESOURCE_FORM))
        elif len(full) > 63:
            found.append(
                mistake("rails_resource_name", intent.resource_name, f"63 characters in all; {full} is longer")
            )
    prefix = intent.given["rails_resource_prefix"]
    if intent.usable("rails_resource_prefix"):
        if not names.SUBDOMAIN.fullmatch(prefix) or "." not in prefix:
            allowed = f"a domain: {names.SUBDOMAIN_FORM}"
            found.append(mistake("rails_resource_prefix", prefix, allowed))
        elif prefix == "kubernetes.io" or prefix.endswith(".kubernetes.io"):
            found.append(
                mistake("rails_resource_prefix", prefix, "a domain outside of kubernetes.io, which is reserved")
            )
    return found


def objects(intent: Intent) -> list[Mistake]:
    """Names and the namespace of the objects."""
    found = []
    for variable, name in (
        ("rails_group_name", intent.given["rails_group_name"]),
        ("rails_network_name", intent.network_name),
        ("rails_policy_name", intent.policy_name),
        ("rails_pool_config_name", intent.pool_config_name),
        ("rails_networks_namespace", intent.given["rails_networks_namespace"]),
    ):
        # A derived name can only be wrong when the name that it comes from is, and that one is reported on its own.
        if name is None or variable not in intent.explicit or not intent.usable(variable):
            continue
        if not names.LABEL.fullmatch(name):
            found.append(mistake(variable, name, names.LABEL_FORM))
        elif variable == "rails_group_name" and not names.RAIL_NAME.fullmatch(name):
            found.append(mistake(variable, name, "20 characters at most, since names of objects end with it"))
    return found


def rail_suffixes(intent: Intent) -> list[Mistake]:
    """Rail names that can end an object's name, each one once."""
    found = []
    for rail in intent.rails:
        if not names.RAIL_NAME.fullmatch(rail["name"]):
            allowed = "lower-case letters, digits and inner dashes, 20 at most"
            found.append(mistake(f"rails[{rail['rail']}].name", rail["name"], allowed))
    for name, times in Counter(rail["name"] for rail in intent.rails).items():
        if times > 1:
            numbers = ", ".join(str(rail["rail"]) for rail in intent.rails if rail["name"] == name)
            found.append(mistake("rails", name, f"every rail name once; rails {numbers} share it"))
    return found


def node_selector(intent: Intent) -> list[Mistake]:
    """Labels, at least one: an empty selector matches every node of the cluster."""
    if not intent.usable("rails_node_selector", "rails_shape") or intent.shape_fault:
        return []
    return labels("rails_node_selector", intent.node_selector)


def labels(variable: str, selector: dict | None) -> list[Mistake]:
    """Check a map of node labels; Kubernetes wants strings as values, so true and 1 need quotes."""
    if not selector:
        allowed = "at least one label that only these nodes have; an empty selector matches every node"
        return [mistake(variable, NOT_SET if selector is None else selector, allowed)]
    found = []
    for key, value in selector.items():
        if not isinstance(key, str) or not names.is_label_key(key):
            found.append(mistake(variable, key, "label keys such as node.kubernetes.io/instance-type"))
        if not isinstance(value, str) or not names.LABEL_VALUE.fullmatch(value):
            allowed = "label values as strings (quote numbers and true), 63 letters, digits, dots, dashes, underscores"
            found.append(mistake(f"{variable}['{key}']", value, allowed))
    return found


RULES = (resource, objects, rail_suffixes, node_selector)
