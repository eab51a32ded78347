# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the cluster holds about the rails: every list once, and of each object only what somebody looks at.

A part that the account may not read is None, with the reason in ``reasons``; a kind that is not served has no objects.
"""

from __future__ import annotations

import json

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError

SRIOV, CNI, IPAM = "sriovnetwork.openshift.io/v1", "k8s.cni.cncf.io/v1", "nv-ipam.nvidia.com/v1alpha1"
# part: (API version, kind, whether it is looked for in the operator's namespace only)
PARTS = {
    "nodes": ("v1", "Node", False),
    "node_states": (SRIOV, "SriovNetworkNodeState", True),
    "policies": (SRIOV, "SriovNetworkNodePolicy", True),
    "pool_configs": (SRIOV, "SriovNetworkPoolConfig", True),
    "operator_configs": (SRIOV, "SriovOperatorConfig", False),
    "nic_cluster_policies": ("mellanox.com/v1alpha1", "NicClusterPolicy", False),
    "attachments": (CNI, "NetworkAttachmentDefinition", False),
    "ip_pools": (IPAM, "IPPool", True),
    "cidr_pools": (IPAM, "CIDRPool", True),
    "webhooks": ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", False),
    "namespaces": ("v1", "Namespace", False),
    "pods": ("v1", "Pod", False),
    "events": ("v1", "Event", False),
}
NIC_IDS = "supported-nic-ids"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
SANDBOX_EVENTS = [("fieldSelector", "reason=FailedCreatePodSandBox")]


def metadata(obj):
    return (obj or {}).get("metadata") or {}


def trimmed(obj, kind=None):
    """An object without its history."""
    meta = {k: v for k, v in metadata(obj).items() if k not in ("uid", "selfLink")}
    return {**({"kind": kind} if kind else {}), **obj, "metadata": meta}


def node(obj):
    """Of a Node what selectors, drains and resources need: a thousand whole Nodes are tens of megabytes."""
    meta, spec, status = metadata(obj), obj.get("spec") or {}, obj.get("status") or {}
    keys = ("sriovnetwork.openshift.io/state", "railyard.rdma/cordoned")
    notes = {k: v for k, v in (meta.get("annotations") or {}).items() if k in keys}
    ready = [c for c in status.get("conditions") or [] if c.get("type") == "Ready"]
    return {
        "kind": "Node",
        "metadata": {"name": meta.get("name"), "labels": meta.get("labels") or {}, "annotations": notes},
        "spec": {"unschedulable": bool(spec.get("unschedulable")), "taints": spec.get("taints") or []},
        "status": {
            "addresses": status.get("addresses") or [],
            "allocatable": status.get("allocatable"),
            "conditions": [{"type": "Ready", "status": c.get("status")} for c in ready],
        },
    }


def requests(pod, prefixes=()):
    """{resource: count} of a pod's containers for resources that start with a prefix."""
    found = {}
    for container in (pod.get("spec") or {}).get("containers") or []:
        for name, count in ((container.get("resources") or {}).get("requests") or {}).items():
            if any(name.startswith(f"{prefix}/") for prefix in prefixes) and str(count).isdigit():
                found[name] = found.get(name, 0) + int(count)
    return found


def network_status(text):
    """Rows of Multus' network-status annotation; none where it is not readable."""
    try:
        rows = json.loads(text or "[]")
    except (TypeError, ValueError):
        return []
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def pod(obj, prefixes=()):
    """Of a pod on a node with networks or resources of ours: ``{namespace, name, node, phase, networks, requests,
    asks_for, controlled_by, empty_dir}``; None for all others."""
    meta, spec = metadata(obj), obj.get("spec") or {}
    notes, asked = meta.get("annotations") or {}, requests(obj, prefixes)
    if not spec.get("nodeName") or not (asked or notes.get(NETWORKS)):
        return None
    owner = next((o.get("kind") for o in meta.get("ownerReferences") or [] if o.get("controller")), None)
    return {
        "namespace": meta.get("namespace"),
        "name": meta.get("name"),
        "node": spec["nodeName"],
        "phase": (obj.get("status") or {}).get("phase"),
        "networks": network_status(notes.get(NETWORK_STATUS)),
        "asks_for": notes.get(NETWORKS),
        "requests": asked,
        "controlled_by": owner,
        "empty_dir": any("emptyDir" in volume for volume in spec.get("volumes") or []),
    }


def event(obj):
    """``{node, object, message}`` of an event; the node is known only from the event's source."""
    place = obj.get("involvedObject") or {}
    host = (obj.get("source") or {}).get("host") or obj.get("reportingInstance")
    return {"node": host, "object": f"{place.get('namespace')}/{place.get('name')}", "message": obj.get("message")}


def _part(name, rows, prefixes):
    kind = PARTS[name][1]
    if name == "nodes":
        return [node(row) for row in rows]
    if name in ("webhooks", "namespaces"):
        return [metadata(row).get("name") for row in rows]
    if name == "pods":
        return [found for found in (pod(row, prefixes) for row in rows) if found]
    if name == "events":
        return [event(row) for row in rows]
    return [trimmed(row, kind) for row in rows]


def _listed(api, name, namespace, attachments_in):
    version, kind, ours = PARTS[name]
    if name == "attachments" and attachments_in is not None:
        return [row for where in sorted(set(attachments_in)) for row in api.list_kind(version, kind, where)]
    return api.list_kind(version, kind, namespace if ours else None, SANDBOX_EVENTS if name == "events" else ())


def _nic_ids(api, namespace):
    """The lines of ConfigMap supported-nic-ids: ``vendor PF VF``, ids in hexadecimal. None when it is not there."""
    found = api.find(api.path("v1", "ConfigMap", namespace, NIC_IDS))
    return None if found is None else sorted((found.get("data") or {}).values())


def read(api, namespace, prefixes=(), parts=None, whole=None, attachments_in=None, required=False):
    """All parts, or the named ones. Raises ApiError for everything but a missing right, and for that with
    ``required``.

    :param namespace: of the operator.
    :param prefixes: of the resources by which pods are chosen.
    :param whole: a dict that gets the pods as the API gives them, under ``pods``, for another look at them.
    :param attachments_in: namespaces in which network attachments are looked for; None for all.
    """
    found, reasons = {}, {}
    for name in [*PARTS, "nic_ids"] if parts is None else parts:
        try:
            if name == "nic_ids":
                found[name] = _nic_ids(api, namespace)
                if found[name] is None:
                    reasons[name] = f"there is no ConfigMap {NIC_IDS} in {namespace}"
            else:
                listed = _listed(api, name, namespace, attachments_in)
                found[name] = _part(name, listed, prefixes)
                if name == "pods" and whole is not None:
                    whole[name] = listed
        except ApiError as error:
            if error.status != 403 or required:
                raise
            found[name], reasons[name] = None, error.message
    return {**found, "reasons": reasons}
