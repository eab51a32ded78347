# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about what the cluster offers to pods and gives them."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import interfaces
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule


@rule("RESOURCE-001", "error", "A node offers fewer devices than the layout says", needs=("kubernetes",))
def too_few_devices(context: Context):
    """Symptom: pods stay Pending with "Insufficient nvidia.com/…".

    Cause: the SR-IOV device plugin found fewer VFs than the layout has: VFs are missing, the policy selects other PCI
    functions, or
    RDMA modules were not loaded when the plugin started.

    Evidence: the wanted and the allocatable number of each resource.

    Remedy: look at the SriovNetworkNodeState of the node; with VFs present restart the device plugin pod of the node.

    Source: k8snetworkplumbingwg/sriov-network-device-plugin#424.
    """
    allocatable = context.kubernetes.get("allocatable")
    if allocatable is None:
        yield Unknown("The node does not tell its allocatable resources")
        return
    for resource in context.layout.get("resources") or []:
        text = str(allocatable.get(resource["full_name"], "0"))
        evidence = {"resource": resource["full_name"], "allocatable": text, "wanted": resource["count"]}
        if not text.isdigit():
            yield Unknown(f"The count of {resource['full_name']} is not a number: {text!r:.40}", evidence)
        elif int(text) < resource["count"]:
            rails = resource.get("rails") or []
            yield Problem(
                f"The node offers {text} of {resource['count']} {resource['full_name']}",
                "Compare VFs and policies in the node's SriovNetworkNodeState; with all VFs present restart the node's "
                "sriov-device-plugin pod.",
                evidence,
                rails[0] if len(rails) == 1 else None,
            )


@rule("RESOURCE-002", "error", "A rail has no attachment", needs=("kubernetes", "pod"))
def attachment_missing(context: Context):
    """Symptom: the pod runs and lacks the interface of one or more rails, or waits because a network does not exist.

    Cause: the NetworkAttachmentDefinition of the rail does not exist in the namespace of the pod, or the pod's list
    of networks does not
    name it. The SR-IOV operator leaves a network out when an attachment of the same name belongs to somebody else.

    Evidence: the rail's network, the attachments in the namespace, the pod's interfaces and what Multus reports.

    Remedy: apply the networks again; look at the operator's log for the network's name.

    Source: k8snetworkplumbingwg/sriov-network-device-plugin#258.
    """
    pod, attachments = context.pod, context.kubernetes.get("attachments")
    if (context.layout.get("pod") or {}).get("host_network"):
        return
    namespace = context.layout["namespaces"]["networks"]
    found = interfaces(context.layout, pod) if pod["reachable"] else {}
    none_at_all = bool(found) and not any(found.values()) and bool(pod["devices"])
    for rail in context.layout["rails"]:
        network = rail.get("network")
        if network is None:
            continue
        evidence = {"network": f"{namespace}/{network}", "interfaces": sorted(pod.get("netdevs") or {})}
        if attachments is not None and f"{namespace}/{network}" not in attachments:
            yield Problem(
                f"The NetworkAttachmentDefinition {namespace}/{network} does not exist",
                "Apply the rail networks, then look at the operator's log for this network.",
                evidence,
                rail["rail"],
            )
        elif found and found[rail["rail"]] is None and not none_at_all:  # All missing is GID-001's case.
            yield Problem(
                f"The pod has no interface of {namespace}/{network}",
                "Check the pod's annotation k8s.v1.cni.cncf.io/networks and its network-status.",
                {**evidence, "network_status": pod.get("networks")},
                rail["rail"],
            )


@rule("RESOURCE-003", "error", "A pod with all rails does not run", needs=("pod",))
def pod_does_not_run(context: Context):
    """Symptom: the test pod stays Pending or in ContainerCreating, or its facts cannot be read.

    Cause: named by the pod's events: too few devices on the node, a CNI plugin that refuses, an image that cannot be
    pulled, a
    security level that forbids the pod. A pod that runs and cannot be read is unknown.

    Evidence: the reason that the cluster gives.

    Remedy: cure the reason. "RDMA subsystem namespace awareness mode is set to shared" means that the network has the
    rdma plugin and
    the node is not in exclusive mode.

    Source: Kubernetes pod life cycle; k8snetworkplumbingwg/rdma-cni.
    """
    pod = context.pod
    if pod["reachable"]:
        return
    reason = pod.get("reason") or "no reason given"
    if pod.get("running"):
        yield Unknown(f"The test pod runs and cannot be read: {reason}", {"reason": reason})
    else:
        remedy = "Cure the reason that the cluster gives, then verify again."
        if "namespace awareness mode" in reason:
            remedy = "Switch the node to exclusive mode, or take the rdma plugin out of the network."
        yield Problem(f"The test pod does not run: {reason}", remedy, {"reason": reason})
