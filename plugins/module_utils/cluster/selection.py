# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two kinds of node selectors that our objects use, and which inventory host is which Kubernetes node."""

from __future__ import annotations


def labels_match(selector, labels):
    """True when a map of labels (SriovNetworkNodePolicy.spec.nodeSelector) is part of the node's labels."""
    return all((labels or {}).get(key) == value for key, value in (selector or {}).items())


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
