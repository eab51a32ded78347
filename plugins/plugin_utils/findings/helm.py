# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the Network Operator itself: its release, kinds, configuration and daemons, as operator_ready has read them."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.operator import operands, releases
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.cluster_objects import API_ONLY, together
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import (
    FLEET,
    Context,
    Problem,
    Unreadable,
    rule,
)

# At this limit, the operator's default, Multus was seen to be killed.
SMALL_MULTUS = "50Mi"
UNSET = object()


def part(context: Context, name: str):
    """A part of what operator_ready read. Raises Unreadable with the reason when it could not be read."""
    value = context.operator.get(name, UNSET)
    reasons = context.operator.get("reasons") or {}
    if value is UNSET or name in reasons:
        raise Unreadable(name.replace("_", " "), reasons.get(name) or "it was not asked for")
    return value


def sriov(contexts: list[Context]) -> bool:
    return any(context.layout.get("network") == "sriov" for context in contexts)


@rule("HELM-001", "error", "Helm has left the release pending", needs=("operator",), scope=FLEET, unrehearsed=API_ONLY)
def pending_release(contexts: list[Context]):
    """Symptom: helm upgrade says "another operation (install/upgrade/rollback) is in progress", for ever.

    Cause: a Helm process was killed, or lost its connection, in the middle; nobody takes the mark away.

    Evidence: the newest record of the release, and the one in force.

    Remedy: when no Helm is at work any more, helm rollback to the revision in force; without one, delete the record.

    Source: Helm, pkg/action/upgrade.go.
    """
    if "release" not in contexts[0].operator:  # It takes the right to list secrets, which verify has not.
        return
    release = part(contexts[0], "release") or {"latest": None, "deployed": None}
    text = releases.obstacle(release, contexts[0].operator["release_name"], contexts[0].operator["namespace"])
    if text:
        what, _dot, remedy = text.rpartition(". ")
        rows = {key: row and {k: v for k, v in row.items() if k != "values"} for key, row in release.items()}
        yield Problem(what, remedy, rows)


@rule(
    "HELM-002",
    "error",
    "The SR-IOV operator is not configured as it must be",
    needs=("operator",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def wrong_configuration(contexts: list[Context]):
    """Symptom: nodes reboot after a policy is applied, the number of VFs in the firmware changes, or nothing is ever
    configured.

    Cause: SriovOperatorConfig default does not have disablePlugins [mellanox], is in the systemd mode, or is missing. The
    chart has no schema, so a misspelled value (disablePlugin) changes nothing and nobody says so.

    Evidence: the live object's spec.

    Remedy: run install_operator again; look for another program that writes this object, and for a typo in the values.

    Source: Mellanox/sriov-network-operator, pkg/plugins/mellanox and api/v1/sriovoperatorconfig_types.go.
    """
    if not sriov(contexts):
        return
    config = part(contexts[0], "config")
    drain = bool(((config or {}).get("spec") or {}).get("disableDrain"))
    wanted = {"disablePlugins": ["mellanox"], "configurationMode": "daemon", "disableDrain": drain}
    for row in operands.config_pending(config, wanted):
        evidence = {"namespace": contexts[0].operator["namespace"], "spec": (config or {}).get("spec")}
        yield Problem(
            f"{row['object']}: {row['reason']}", "Run install_operator again, and find who else writes it.", evidence
        )


@rule("HELM-003", "error", "Two Node Feature Discoveries run", needs=("operator",), scope=FLEET, unrehearsed=API_ONLY)
def two_nfds(contexts: list[Context]):
    """Symptom: labels of nodes come and go, and with them the daemons that select by them; node states are deleted.

    Cause: the GPU Operator, the Network Operator and the cluster may each bring Node Feature Discovery; two of them take
    each other's labels away.

    Evidence: the workers and the releases that they belong to.

    Remedy: keep one: network_operator_nfd_enabled=false takes away that of this operator, nfd.enabled=false that of the
    GPU Operator.

    Source: NVIDIA Network Operator documentation, "Deploy alongside the GPU Operator".
    """
    found = part(contexts[0], "nfd")
    if len(found) > 1:
        names = ", ".join(f"{row['namespace']}/{row['name']}" for row in found)
        remedy = "Keep one of them: network_operator_nfd_enabled=false takes away that of this operator."
        yield Problem(f"{len(found)} Node Feature Discoveries run: {names}", remedy, {"workers": found})


@rule(
    "HELM-004", "error", "A kind of the operator is not served", needs=("operator",), scope=FLEET, unrehearsed=API_ONLY
)
def kind_not_served(contexts: list[Context]):
    """Symptom: "no matches for kind" or "resource mapping not found" at the first apply; the second one works.

    Cause: the CustomResourceDefinition does not exist, or is not established yet: Helm installs kinds once, never upgrades
    them, and does not wait for them.

    Evidence: the names of the kinds.

    Remedy: run install_operator, which brings the kinds up to date before an upgrade and waits until they are served.

    Source: Mellanox/network-operator#833; oracle-quickstart/oci-hpc-oke, add-on job.
    """
    late = sorted(name for name, good in part(contexts[0], "crds").items() if not good)
    if late:
        yield Problem(f"Not served: {', '.join(late)}", "Run install_operator.", {"kinds": late})


@rule(
    "HELM-005",
    "error",
    "The operator has no ready NicClusterPolicy",
    needs=("operator",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def no_policy(contexts: list[Context]):
    """Symptom: the chart is installed and nothing else happens: no Multus, no CNI plugins, no address pools.

    Cause: since 24.10 the chart brings no NicClusterPolicy, or a part of it does not become ready; its states tell which.

    Evidence: the policy's state and the states of its parts.

    Remedy: run apply_rails, which applies it and waits; look at the DaemonSet of the part that is not ready.

    Source: NVIDIA/cloud-native-stack#95.
    """
    policies = part(contexts[0], "policies")
    wanted = {"kind": "NicClusterPolicy", "metadata": {"name": operands.POLICY}}
    for row in operands.policy_pending(policies, wanted):
        status = (policies[0].get("status") or {}) if policies else None
        yield Problem(
            f"{row['object']}: {row['reason']}",
            "Run apply_rails and look at the part that is not ready.",
            {"status": status},
        )


def away(contexts: list[Context], kind: str):
    """(context, daemons and reasons of this kind) of every host whose node is known."""
    daemons = part(contexts[0], "daemon_sets")
    hosts = part(contexts[0], "hosts")
    for context in contexts:
        node = hosts.get(context.node)
        if node is not None:
            rows = [row for row in operands.daemons_away(daemons, node) if row["kind"] == kind]
            if rows:
                yield context, rows


@rule("HELM-006", "error", "A label keeps a daemon of the operator from a node", needs=("operator",), scope=FLEET)
def label_keeps_daemons_away(contexts: list[Context]):
    """Symptom: a node with the right NICs has no VFs; the daemon has no pod there, and the node no state.

    Cause: a chain of labels: Node Feature Discovery and the rule nvidia-nics-rules set
    feature.node.kubernetes.io/pci-15b3.present, the Network Operator then sets network.nvidia.com/operator.mofed.wait=false,
    and the daemon selects by that. Node Feature Discovery may be away, or write the form with the device class in it,
    pci-0200_15b3.present, which the operator does not read.

    Evidence: the daemons, the label, its value, and the forms of the label that the node has.

    Remedy: let Node Feature Discovery run on the node with the chart's rule; with a configuration of its own, set
    deviceLabelFields to [vendor].

    Source: NVIDIA/gpu-operator#114; Mellanox/network-operator#211 and pkg/state/state_ofed.go.
    """
    hits = []
    for context, rows in away(contexts, "label"):
        for text in operands.away_text(rows):
            evidence = {
                "daemon_sets": sorted({row["daemon_set"] for row in rows}),
                "labels": [row["key"] for row in rows],
            }
            remedy = "Let Node Feature Discovery with the rule nvidia-nics-rules label the node (deviceLabelFields: [vendor])."
            hits.append((context.node, f"{text} ({{where}})", remedy, evidence, None))
    yield from together(hits)


@rule(
    "RESOURCE-012",
    "error",
    "A taint keeps a daemon of the operator from a node",
    needs=("operator",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def taint_keeps_daemons_away(contexts: list[Context]):
    """Symptom: pods fail with "failed to find plugin", or have no secondary network, on some nodes only.

    Cause: the DaemonSets of the NicClusterPolicy tolerate nvidia.com/gpu only, and the node has another taint.

    Evidence: the daemons and the taints.

    Remedy: add the taint to network_operator_tolerations and apply the rails.

    Source: oracle-quickstart/oci-hpc-oke, values of the Network Operator.
    """
    hits = []
    for context, rows in away(contexts, "taint"):
        taints = sorted({row["key"] for row in rows})
        evidence = {"daemon_sets": sorted({row["daemon_set"] for row in rows}), "taints": taints}
        remedy = "Add the taint to network_operator_tolerations and apply the rails."
        hits += [(context.node, f"{text} of {{where}}", remedy, evidence, None) for text in operands.away_text(rows)]
    yield from together(hits)


@rule(
    "RESOURCE-013",
    "error",
    "A container of the operator is killed for memory",
    needs=("operator",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def killed_for_memory(contexts: list[Context]):
    """Symptom: pods hang in ContainerCreating; the pods of a DaemonSet of the CNI chain restart. An error while it is down, a
    warning when it has come back.

    Cause: a memory limit that does not suffice. Multus has 50Mi by default.

    Evidence: pod, container, restarts and limit.

    Remedy: raise the limit: network_operator_multus_resources for Multus, containerResources of the NicClusterPolicy for others.

    Source: k8snetworkplumbingwg/multus-cni#1160 and #1346.
    """
    by_node = {}
    hosts = {(node or {}).get("metadata", {}).get("name"): host for host, node in part(contexts[0], "hosts").items()}
    for row in part(contexts[0], "killed"):
        by_node.setdefault(hosts.get(row["node"]), []).append(row)
    known = {context.node for context in contexts}
    for host, rows in by_node.items():
        if host in known:
            text = "; ".join(operands.killed_text(row) for row in rows[:3])
            remedy = (
                "Raise its memory: network_operator_multus_resources for Multus, containerResources for the others."
            )
            severity = "error" if any(row["now"] for row in rows) else "warning"
            yield Problem(text[:1].upper() + text[1:], remedy, {"containers": rows}, severity=severity, node=host)


@rule(
    "HELM-007",
    "warning",
    "Multus has as little memory as it is killed at",
    needs=("operator",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def little_memory(contexts: list[Context]):
    """Symptom: Multus is killed at its start or later, and pods hang in ContainerCreating meanwhile.

    Cause: the default of 50Mi, or containerResources in the NicClusterPolicy that did not reach the container: an entry whose
    name matches no container leaves the default away and sets nothing.

    Evidence: the container's resources on the DaemonSet.

    Remedy: apply the rails, which ask for more (network_operator_multus_resources); the container's name is kube-multus.

    Source: k8snetworkplumbingwg/multus-cni#1346; Mellanox/network-operator, manifests/state-multus-cni.
    """
    for daemon_set in part(contexts[0], "daemon_sets"):
        for container in operands.containers(daemon_set):
            limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
            small = limit is not None and (operands.amount(limit) or 0) <= operands.amount(SMALL_MULTUS)
            if container.get("name") == "kube-multus" and small:
                yield Problem(
                    f"Multus may use {limit} of memory",
                    "Apply the rails with network_operator_multus_resources of some 512Mi.",
                    {"daemon_set": operands.name_of(daemon_set), "resources": container.get("resources")},
                )
