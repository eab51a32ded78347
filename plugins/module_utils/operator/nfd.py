# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which Node Feature Discovery (NFD) the cluster has, and whether the chart must bring it: exactly one may run.

Pure functions over objects. Two NFDs take each other's labels away, and with the label of the NIC goes the SR-IOV
daemon of the node.
"""

from __future__ import annotations

import re

RULE_CRD = "nodefeaturerules.nfd.k8s-sigs.io"
NAME = "node-feature-discovery"
PREFIX = "feature.node.kubernetes.io/"
# The class of the device may be part of the label (NVIDIA/gpu-operator#114, Mellanox/network-operator#211).
NIC_LABEL = re.compile(r"feature\.node\.kubernetes\.io/pci-(?:[0-9a-f]{4}_)?15b3\.present")
EXACT_LABEL = "feature.node.kubernetes.io/pci-15b3.present"


def is_worker(daemon_set):
    """Whether a DaemonSet is an NFD worker: by its image, or by the labels of NFD's chart and its component."""
    meta = daemon_set.get("metadata") or {}
    labels = meta.get("labels") or {}
    pod = ((daemon_set.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = pod.get("containers") or []
    commands = " ".join(str(word) for c in containers for word in (c.get("command") or []) + (c.get("args") or []))
    if "topology-updater" in commands:  # Another daemon of NFD that sets no labels.
        return False
    # nvcr.io/nvidia/node-feature-discovery, registry.k8s.io/nfd/node-feature-discovery
    images = [str(c.get("image") or "").rpartition("/")[2].partition(":")[0].partition("@")[0] for c in containers]
    component = labels.get("app.kubernetes.io/component") or labels.get("role") or ""
    ours = labels.get("app.kubernetes.io/name") == NAME and component in ("", "worker")
    return NAME in images or ours or str(meta.get("name")).endswith("nfd-worker")


def instances(daemon_sets):
    """``[{namespace, name, release}]`` of the NFD workers, release ``namespace/name`` of Helm or None."""
    found = []
    for item in daemon_sets:
        if is_worker(item):
            meta = item["metadata"]
            notes = meta.get("annotations") or {}
            release = notes.get("meta.helm.sh/release-name")
            if release:
                release = f"{notes.get('meta.helm.sh/release-namespace') or meta.get('namespace')}/{release}"
            found.append({"namespace": meta.get("namespace"), "name": meta.get("name"), "release": release})
    return sorted(found, key=lambda row: (row["namespace"] or "", row["name"] or ""))


def nic_labels(labels):
    """The labels of a node that say that a NIC of the vendor is there, with their values."""
    return {key: value for key, value in sorted((labels or {}).items()) if NIC_LABEL.fullmatch(key)}


def label_owners(nodes):
    """``{manager: number of nodes}``: who wrote labels of features, by the nodes' managedFields."""
    found = {}
    for node in nodes:
        writers = set()
        for entry in (node.get("metadata") or {}).get("managedFields") or []:
            fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
            if any(key.startswith("f:" + PREFIX) for key in fields):
                writers.add(str(entry.get("manager")))
        for writer in writers:
            found[writer] = found.get(writer, 0) + 1
    return found


def look(daemon_sets, crds, nodes, release):
    """What is there: ``{instances, own, others, rule_crd, labelled, label_owners}``.

    :param crds: names of the CustomResourceDefinitions that exist.
    :param release: ``namespace/name`` of our release.
    """
    found = instances(daemon_sets)
    return {
        "instances": found,
        "own": [row for row in found if row["release"] == release],
        "others": [row for row in found if row["release"] != release],
        "rule_crd": RULE_CRD in crds,
        "labelled": sum(
            any(key.startswith(PREFIX) for key in (n.get("metadata") or {}).get("labels") or {}) for n in nodes
        ),
        "label_owners": label_owners(nodes),
    }


def names(rows):
    return ", ".join(f"{row['namespace']}/{row['name']}" for row in rows)


def decide(wanted, found):
    """(whether the chart brings NFD, mistakes, warnings).

    :param wanted: ``auto``, True or False.
    :param found: look().
    """
    others, remedy = found["others"], "set network_operator_nfd_enabled=false, or remove the other one"
    mistakes, warnings = [], []
    if len(others) > 1:
        mistakes.append(
            f"{len(others)} Node Feature Discoveries run: {names(others)}. They take each other's labels away; remove all "
            "but one"
        )
    if wanted is True and others:
        mistakes.append(f"network_operator_nfd_enabled is true and {names(others)} runs already; {remedy}")
    if wanted != "auto":
        if wanted is False and not others and not found["labelled"]:
            warnings.append(
                "network_operator_nfd_enabled is false, and neither a Node Feature Discovery nor one of its labels is in the "
                "cluster: without the label of the NIC no daemon of the operator comes to a node"
            )
        return wanted, mistakes, warnings
    if found["own"] and others:
        warnings.append(
            f"{names(found['own'])} and {names(others)} are two Node Feature Discoveries; that of this release is taken away"
        )
    # Ours stays ours while it is alone; labels without a visible NFD come from one that runs elsewhere or from the provider.
    return not others and (bool(found["own"]) or not found["labelled"]), mistakes, warnings


def rules(wanted, enabled, found):
    """(value of nfd.deployNodeFeatureRules or None to leave the default, mistakes).

    The chart renders a NodeFeatureRule also with NFD off, and Helm then fails without that kind
    (Mellanox/network-operator#833).
    """
    if enabled or found["rule_crd"]:
        return None, []
    if wanted is True:
        return None, [
            f"network_operator_values: nfd.deployNodeFeatureRules is true, and the cluster has no {RULE_CRD}; leave it out, or "
            "set network_operator_nfd_enabled=true"
        ]
    return False, []
