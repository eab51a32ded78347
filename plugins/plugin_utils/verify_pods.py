# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Test pods: one for each node, carrying what a pod needs to get every rail of the node's layout."""

from __future__ import annotations

import hashlib
import re

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import node_of

LABEL = "railyard.io/verify"


def pod_name(host: str, prefix: str = "railyard-verify") -> str:
    """Name of the test pod of a host: a DNS label that stays the same from run to run and differs between hosts."""
    name = f"{prefix}-{re.sub(r'[^a-z0-9-]+', '-', host.lower())}".strip("-")
    if len(name) <= 63 and name == f"{prefix}-{host}":
        return name
    # Names that had to be changed get a mark, so that two hosts cannot end up with one pod.
    return f"{name[:54].rstrip('-')}-{hashlib.sha256(host.encode()).hexdigest()[:8]}"


def pod(host: str, layout: dict, node: str | None, options: dict) -> dict:
    """The test pod of one host.

    :param node: name of the Kubernetes node; None when no node was found, then the pod asks for the host's name and
    stays Pending with
        the scheduler's reason.
    :param options: ``{image, tolerations, namespace, command, ipc_lock}``.

    The pod is bound by its affinity, not by nodeName: the scheduler must agree that the node offers the devices.
    """
    wants = layout["pod"]
    metadata = {
        "name": pod_name(host),
        "namespace": options["namespace"],
        "labels": {LABEL: "pod"},
        "annotations": dict(wants.get("annotations") or {}),
    }
    container = {
        "name": "probe",
        "image": options["image"],
        "command": list(options["command"]),
        "resources": {"requests": dict(wants["resources"]), "limits": dict(wants["resources"])},
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    if options.get("ipc_lock"):
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "tolerations": list(options["tolerations"]),
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node or host]}]}
                    ]
                }
            }
        },
        "containers": [container],
    }
    if wants.get("host_network"):
        spec["hostNetwork"] = True
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pods(model: dict, nodes: list[dict], addresses: dict[str, str], options: dict) -> list[dict]:
    """[{host, node, pod}] for every host of the model. options as for pod(), without the namespace: it is the
    networks' one."""
    made = []
    for layout in model["layouts"]:
        for host in layout["hosts"]:
            node = node_of(host, addresses.get(host), nodes)
            name = (node or {}).get("metadata", {}).get("name")
            given = {**options, "namespace": layout["pod"].get("namespace") or layout["namespaces"]["networks"]}
            made.append({"host": host, "node": name, "pod": pod(host, layout, name, given)})
    return made
