# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kinds of selectors that our objects use, and which inventory host is which Kubernetes node."""

from __future__ import annotations


def labels_match(selector, labels):
    """True when a map of labels (SriovNetworkNodePolicy.spec.nodeSelector) is part of the node's labels."""
    return all((labels or {}).get(key) == value for key, value in (selector or {}).items())


def label_selector_matches(selector, labels):
    """LabelSelector (meta/v1) against labels. None selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for row in selector.get("matchExpressions") or []:
        key, operator, values = row.get("key"), row.get("operator"), row.get("values") or []
        met = {
            "In": key in labels and labels[key] in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }.get(operator, False)
        if not met:
            return False
    return True


def _requirement_met(requirement, values):
    key, operator = requirement.get("key"), requirement.get("operator")
    wanted, actual = requirement.get("values") or [], values.get(key)
    if operator == "In":
        return key in values and actual in wanted
    if operator == "NotIn":
        return actual not in wanted
    if operator == "Exists":
        return key in values
    if operator == "DoesNotExist":
        return key not in values
    if operator in ("Gt", "Lt"):
        try:
            left, right = int(actual), int(wanted[0])
        except (TypeError, ValueError, IndexError):
            return False
        return left > right if operator == "Gt" else left < right
    return False


def term_match(selector, node):
    """True when a core NodeSelector (nv-ipam pools) selects the node; no selector selects every node.

    Terms are alternatives, the requirements of one term must all be met, and an empty term selects nothing:
    k8s.io/api, core/v1, NodeSelector.
    """
    if not selector:
        return True
    metadata = node.get("metadata") or {}
    labels, fields = metadata.get("labels") or {}, {"metadata.name": metadata.get("name")}
    for term in selector.get("nodeSelectorTerms") or []:
        expressions, by_field = term.get("matchExpressions") or [], term.get("matchFields") or []
        if not expressions and not by_field:
            continue
        if all(_requirement_met(r, labels) for r in expressions) and all(_requirement_met(r, fields) for r in by_field):
            return True
    return False


def node_of(host, address, nodes):
    """The Node object of an inventory host, or None.

    A node belongs to a host by its name, by its label kubernetes.io/hostname, or by an address that equals the host's
    name or its ansible_host:
    clouds often name nodes by their address.
    """
    known = {host, address} - {None, ""}
    for node in nodes:
        if (node.get("metadata") or {}).get("name") == host:
            return node
    for node in nodes:
        if ((node.get("metadata") or {}).get("labels") or {}).get("kubernetes.io/hostname") == host:
            return node
    for node in nodes:
        if known & {a.get("address") for a in (node.get("status") or {}).get("addresses") or []}:
            return node
    return None


def find_node(names, nodes):
    """``(Node, None)`` of a host that is known by these names and addresses, or ``(None, reason)``.

    Tried in this order: the node's name, its label kubernetes.io/hostname, its addresses. Two nodes at one step are
    no answer: a wrong guess would drain somebody else's node.
    """
    known = {name for name in names if name}
    if not known:
        return None, "the host has no name or address to look for"
    steps = (
        lambda node: {(node.get("metadata") or {}).get("name")},
        lambda node: {((node.get("metadata") or {}).get("labels") or {}).get("kubernetes.io/hostname")},
        lambda node: {a.get("address") for a in (node.get("status") or {}).get("addresses") or []},
    )
    for keys_of in steps:
        found = [node for node in nodes if known & keys_of(node)]
        if len(found) == 1:
            return found[0], None
        if found:
            told = ", ".join(sorted(str((node.get("metadata") or {}).get("name")) for node in found))
            return None, f"{len(found)} nodes answer to {', '.join(sorted(known))}: {told}"
    return None, f"no node has the name, hostname label or address {', '.join(sorted(known))}"
