# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about SR-IOV policies and PFs: what the operator's webhook would refuse, were it on. The chart leaves it off."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import foreign
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.foreign import metadata, short
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.cluster_objects import (
    API_ONLY,
    interfaces_by_pci,
    node_of,
    others,
    part,
    state_of,
    together,
    wanted,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import FLEET, Context, rule

POLICY = "SriovNetworkNodePolicy"


def policies_on(contexts: list[Context]):
    """(context, node name, wanted policies that select the node) of every host that the cluster knows."""
    nodes = {metadata(node).get("name"): node for node in part(contexts[0], "nodes")}
    for context in contexts:
        name = node_of(context)
        if name in nodes:
            mine = [p for p in wanted(context, POLICY) if foreign.policy_nodes(p, [nodes[name]])]
            yield context, name, mine


@rule("POL-001", "error", "Two policies take VFs of one PF", needs=("cluster",), scope=FLEET, unrehearsed=API_ONLY)
def overlapping_policies(contexts: list[Context]):
    """Symptom: VFs come and go, or the second policy's resource has all VFs and the first one's none.

    Cause: two policies name the same PF on the same node. Only the operator's admission webhook refuses that, and the
    chart leaves it off; without it the policy with the lower priority number wins, and ties go by name.

    Evidence: both policies, the PFs and the nodes.

    Remedy: delete the policy that is not ours, or take the PF out of it; or leave the PF out of the rails.

    Source: k8snetworkplumbingwg/sriov-network-operator, pkg/webhook/validate.go.
    """
    hits, states = [], part(contexts[0], "node_states")
    theirs = others(contexts[0], "policies", POLICY)
    nodes = {metadata(node).get("name"): node for node in part(contexts[0], "nodes")}
    for context, name, mine in policies_on(contexts):
        rails = {rail["pci"]: rail["rail"] for rail in context.layout["rails"]}
        rest = [other for other in theirs if foreign.policy_nodes(other, [nodes[name]])]
        for index, policy in enumerate(mine):
            for other in [*mine[index + 1 :], *rest]:
                pfs = foreign.shared_pfs(policy, other, foreign.interfaces_of(policy, states, {name}))
                if not pfs:
                    continue
                pair = [metadata(policy).get("name"), metadata(other).get("name")]
                text = f"The policies {pair[0]} and {pair[1]} both take VFs of {short(pfs)} on {{where}}"
                remedy = f"Delete SriovNetworkNodePolicy {pair[1]}, or take these PFs out of it."
                evidence = {"policies": pair, "pfs": pfs, "numVfs": [p["spec"].get("numVfs") for p in (policy, other)]}
                hits.append((context.node, text, remedy, evidence, rails.get(pfs[0]) if len(pfs) == 1 else None))
    yield from together(hits)


@rule(
    "POL-002",
    "error",
    "The operator does not support a rail's NIC",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def unsupported_nic(contexts: list[Context]):
    """Symptom: the policy is accepted, the PF never shows up in the node state, and no VF is made.

    Cause: the SR-IOV operator ignores NICs whose vendor and device id are not in the ConfigMap supported-nic-ids.

    Evidence: the PFs of the node state, the rail's PCI address and the list of ids.

    Remedy: add the NIC to the chart's value sriov-network-operator.supportedExtraNICs, a list of
    'Name: "vendor pf-device vf-device"', and let the operator be upgraded.

    Source: k8snetworkplumbingwg/sriov-network-operator, api/v1/helper.go and pkg/webhook/validate.go.
    """
    ids, hits = part(contexts[0], "nic_ids"), []
    nic = contexts[0].layout.get("nic") or {}
    known = {tuple(line.lower().split()[:2]) for line in ids}
    if nic.get("pf_device") and wanted(contexts[0], POLICY) and (nic["vendor"], nic["pf_device"]) not in known:
        text = f"The SR-IOV operator does not know {nic.get('model')} ({nic['vendor']}:{nic['pf_device']}) of {{where}}"
        line = f"{nic['vendor']} {nic['pf_device']} {nic.get('vf_device')}"
        remedy = f'Add "{line}" to supportedExtraNICs of the chart, and let the operator be upgraded.'
        hits = [(context.node, text, remedy, {"nic": nic, "supported_nic_ids": ids}, None) for context in contexts]
        yield from together(hits)
        return
    for context, name, mine in policies_on(contexts):
        listed = interfaces_by_pci(state_of(context))
        if not mine or not listed:
            continue  # The daemon has not looked yet; the wait after the apply names the node.
        gone = [rail for rail in context.layout["rails"] if rail["pci"] not in listed]
        for rail in gone:
            text = f"The SR-IOV operator does not list {rail['pci']} among the NICs of {{where}}"
            remedy = (
                "Is the card on the bus? If so, add its ids to supportedExtraNICs of the chart (vendor, PF, VF device)."
            )
            evidence = {"node": name, "listed": sorted(listed), "supported_nic_ids": ids}
            hits.append((context.node, text, remedy, evidence, rail["rail"]))
    yield from together(hits)


@rule(
    "POL-003",
    "error",
    "A policy asks for more VFs than the NIC offers",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def more_vfs_than_firmware(contexts: list[Context]):
    """Symptom: the node state stays InProgress, and the daemon's log says that numVfs is too large.

    Cause: numVfs is above sriov_totalvfs. The firmware decides on it; neither the API nor the operator refuses before.

    Evidence: totalvfs of the node state and numVfs of the policy.

    Remedy: set NUM_OF_VFS in the firmware by the provider's tool and cold boot, or lower rails_vfs_per_pf.

    Source: k8snetworkplumbingwg/sriov-network-operator#449; the operator's plugin refuses it on the node.
    """
    hits = []
    for context, _name, mine in policies_on(contexts):
        listed = interfaces_by_pci(state_of(context))
        for policy in mine:
            count = policy["spec"].get("numVfs") or 0
            for pci, interface in listed.items():
                total = interface.get("totalvfs")
                if foreign.pf_span(policy, interface) is None or total is None or count <= total:
                    continue
                name = metadata(policy).get("name")
                text = f"The policy {name} asks for {count} VFs of {pci} on {{where}}, and the NIC offers {total}"
                remedy = "Set NUM_OF_VFS in the NIC's firmware and cold boot, or lower rails_vfs_per_pf."
                rail = next((r["rail"] for r in context.layout["rails"] if r["pci"] == pci), None)
                hits.append((context.node, text, remedy, {"totalvfs": total, "numVfs": count, "pci": pci}, rail))
    yield from together(hits)


@rule(
    "POL-004",
    "error",
    "Externally managed VFs do not fit the policy",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def external_vfs(contexts: list[Context]):
    """Symptom: a policy with externallyManaged never reaches its number of VFs, or the daemon refuses it.

    Cause: with externallyManaged the operator makes nothing: the VFs must be there before, no fewer than numVfs, and
    the PF's MTU no smaller than the policy's. All policies of a PF must have the same externallyManaged.

    Evidence: numVfs and mtu of the PF in the node state and in the policy.

    Remedy: let what manages the VFs make them (and set the MTU) before the apply, or set rails_externally_managed=false.

    Source: k8snetworkplumbingwg/sriov-network-operator#436, k8snetworkplumbingwg/sriov-network-operator#476.
    """
    hits = []
    for context, _name, mine in policies_on(contexts):
        listed = interfaces_by_pci(state_of(context))
        for policy in (p for p in mine if p["spec"].get("externallyManaged")):
            spec = policy["spec"]
            for pci, interface in listed.items():
                if foreign.pf_span(policy, interface) is None:
                    continue
                have, mtu = interface.get("numVfs") or 0, interface.get("mtu") or 0
                wrong = []
                if have < (spec.get("numVfs") or 0):
                    wrong.append(f"has {have} of {spec.get('numVfs')} VFs")
                if mtu and mtu < (spec.get("mtu") or 0):
                    wrong.append(f"has MTU {mtu}, below the policy's {spec['mtu']}")
                if wrong:
                    text = f"{pci} on {{where}} {' and '.join(wrong)}, and the operator is told not to change it"
                    remedy = "Let what manages the VFs make them before, or set rails_externally_managed=false."
                    evidence = {"pci": pci, "numVfs": have, "wanted": spec.get("numVfs"), "mtu": mtu}
                    rail = next((r["rail"] for r in context.layout["rails"] if r["pci"] == pci), None)
                    hits.append((context.node, text, remedy, evidence, rail))
    yield from together(hits)


@rule(
    "POL-005",
    "error",
    "The operator's webhook refuses dashes in resource names",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def dash_in_resource_name(contexts: list[Context]):
    """Symptom: the apply of a policy is refused by the webhook of the SR-IOV operator.

    Cause: the webhook of the releases up to 26.4 takes letters, digits and underscores only. It is off in the chart; here
    it is on. Later releases take inner dashes, but which is the first one is not known, so there it is a warning.

    Evidence: the webhook, the resource names and the operator's release.

    Remedy: an underscore in rails_resource_name (rdma_vf), or the webhook off (admissionControllers.enabled=false).

    Source: k8snetworkplumbingwg/sriov-network-operator, pkg/webhook/validate.go, commit f900cbcf5.
    """
    named = sorted({p["spec"].get("resourceName") or "" for p in wanted(contexts[0], POLICY)})
    dashed = [name for name in named if "-" in name]
    if not dashed:
        return
    hooks = [name for name in part(contexts[0], "webhooks") if "sriov" in name.lower()]
    if hooks:
        version = contexts[0].cluster.get("operator_version")
        old = version is None or [int(n) for n in version.split("-")[0].split(".")[:2]] < [26, 7]
        text = f"The webhook {short(hooks)} refuses the resource names {short(dashed)}, as for {{where}}"
        remedy = "Use underscores in rails_resource_name, or turn the SR-IOV operator's admission controllers off."
        evidence = {"webhooks": hooks, "resource_names": dashed, "operator_version": version}
        hits = [(context.node, text, remedy, evidence, None) for context in contexts]
        yield from together(hits, "error" if old else "warning")


@rule(
    "POL-006",
    "error",
    "Objects are outside of the operator's namespace",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def wrong_namespace(contexts: list[Context]):
    """Symptom: policies and networks are there and nothing happens; networkNamespace has no effect.

    Cause: the SR-IOV operator looks at its own namespace only, and uses one SriovOperatorConfig, named default, there.

    Evidence: the namespaces of the objects and of the operator's configuration.

    Remedy: set network_operator_namespace to the namespace in which the operator runs.

    Source: k8snetworkplumbingwg/sriov-network-operator, controllers and pkg/webhook/validate.go.
    """
    configs = [c for c in part(contexts[0], "operator_configs") if metadata(c).get("name") == "default"]
    homes = sorted({metadata(c).get("namespace") for c in configs})
    mine = wanted(contexts[0], POLICY, "SriovNetwork", "SriovNetworkPoolConfig")
    astray = sorted({metadata(obj).get("namespace") for obj in mine} - set(homes))
    if homes and astray:
        text = f"Our SR-IOV objects for {{where}} are in {short(astray)}, the SR-IOV operator runs in {short(homes)}"
        remedy = f"Set network_operator_namespace to {homes[0]}."
        hits = [(c.node, text, remedy, {"objects": astray, "operator": homes}, None) for c in contexts]
        yield from together(hits)


@rule(
    "POL-007",
    "error",
    "A policy or pool does not select a node of the inventory",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def selector_misses_node(contexts: list[Context]):
    """Symptom: nothing happens on a node, without any error: no VFs, or the node has no drain limit of its own.

    Cause: rails_node_selector names labels that the node does not have, or the host of the inventory is no node of the
    cluster. The webhook would refuse a policy that selects no node; it is off in the chart.

    Evidence: the selector and the node's labels of the same keys.

    Remedy: label the node, or correct rails_node_selector; a host of another name needs ansible_host or the label
    kubernetes.io/hostname to be found.

    Source: k8snetworkplumbingwg/sriov-network-operator, pkg/webhook/validate.go.
    """
    nodes = {metadata(node).get("name"): node for node in part(contexts[0], "nodes")}
    hits = []
    for context in contexts:
        name, selector = node_of(context), context.layout.get("node_selector") or {}
        if name not in nodes:
            text = "The cluster has no node for {where} of the inventory"
            remedy = "Join the node to the cluster, or take it out of gpu_nodes; names and addresses are compared."
            hits.append((context.node, text, remedy, {"nodes": len(nodes)}, None))
        elif context.layout["network"] == "sriov" and not foreign.nodes_of(
            selector, [nodes[name]], foreign.labels_match
        ):
            labels = metadata(nodes[name]).get("labels") or {}
            text = f"The selector {selector} does not match {{where}}"
            remedy = "Label the node, or correct rails_node_selector."
            have = {key: labels.get(key) for key in selector}
            hits.append((context.node, text, remedy, {"selector": selector, "labels": have}, None))
    yield from together(hits)


@rule(
    "POL-008",
    "warning",
    "A policy also selects nodes that are not in the inventory",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def selector_takes_others(contexts: list[Context]):
    """Symptom: nodes that nobody named get VFs, and may be drained for them.

    Cause: the labels of rails_node_selector are on more nodes than the inventory has; the netns mode of these nodes is
    not looked after, and their pods may get no RDMA device.

    Evidence: the nodes that are selected and are no hosts.

    Remedy: add the nodes to gpu_nodes, or select by a label that only the rails' nodes have.

    Source: own rule.
    """
    known = set((contexts[0].cluster.get("hosts") or {}).values())
    nodes = part(contexts[0], "nodes")
    selector = contexts[0].layout.get("node_selector") or {}
    if contexts[0].layout["network"] != "sriov" or not selector:
        return
    extra = foreign.nodes_of(selector, nodes, foreign.labels_match) - known
    if extra:
        text = f"The selector {selector} also takes {short(extra)}, which the inventory does not have"
        remedy = "Add these nodes to gpu_nodes, or choose a label that only the rails' nodes have."
        yield from together([(contexts[0].node, text, remedy, {"selector": selector, "extra": sorted(extra)}, None)])


@rule(
    "POL-009",
    "error",
    "Policies of one resource differ in excludeTopology",
    needs=("cluster",),
    scope=FLEET,
    unrehearsed=API_ONLY,
)
def exclude_topology_differs(contexts: list[Context]):
    """Symptom: VFs of one resource come with a NUMA node on some PFs and without on others.

    Cause: the device plugin has one setting for a resource, and another policy with the same resourceName has another.

    Evidence: the policies and their values.

    Remedy: another resource name, or the same excludeTopology.

    Source: k8snetworkplumbingwg/sriov-network-operator, pkg/webhook/validate.go.
    """
    hits, theirs = [], others(contexts[0], "policies", POLICY)
    for context, _name, mine in policies_on(contexts):
        for policy in mine:
            for other in theirs:
                if other["spec"].get("resourceName") != policy["spec"].get("resourceName"):
                    continue
                values = [bool(p["spec"].get("excludeTopology")) for p in (policy, other)]
                if values[0] != values[1]:
                    pair = [metadata(policy).get("name"), metadata(other).get("name")]
                    text = f"{pair[0]} and {pair[1]} share a resource name and differ in excludeTopology, on {{where}}"
                    remedy = "Give one of them another resourceName."
                    hits.append((context.node, text, remedy, {"policies": pair, "excludeTopology": values}, None))
    yield from together(hits)
