# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy cluster of two nodes with two rails as rail_state returns it, and the judgement of the rules about it."""

from __future__ import annotations

import json

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context

PFS = ("0000:0c:00.0", "0000:0c:00.1")
NS = "op"
GPU = {"type": "gpu"}
OWNER = "sriovnetwork.openshift.io/owner-ref"
RESOURCE = "k8s.v1.cni.cncf.io/resourceName"


def meta(name, namespace=NS, **more):
    return {"name": name, "namespace": namespace, **more}


def applied(obj, *managers):
    """The object with the record of who applied it."""
    rows = [{"manager": m, "operation": "Apply", "apiVersion": "x/v1", "fieldsV1": {}} for m in managers]
    return {**obj, "metadata": {**obj["metadata"], "managedFields": rows}}


def policy(name="rails", devices=PFS, **spec):
    given = {"nodeSelector": GPU, "numVfs": 1, "resourceName": "rdma_vf", "mtu": 4220, "priority": 90}
    given["nicSelector"] = {"vendor": "15b3", "rootDevices": list(devices)}
    return {"kind": "SriovNetworkNodePolicy", "metadata": meta(name), "spec": {**given, **spec}}


def pool_config(name="rails", selector=None, **spec):
    chosen = {"matchLabels": GPU} if selector is None else selector
    given = {"maxUnavailable": 1, "nodeSelector": chosen, **spec}
    return {"kind": "SriovNetworkPoolConfig", "metadata": meta(name), "spec": given}


def network(name="rdma-vf"):
    spec = {"resourceName": "rdma_vf", "networkNamespace": "default"}
    return {"kind": "SriovNetwork", "metadata": meta(name), "spec": spec}


def attachment(name="rdma-vf", resource="nvidia.com/rdma_vf", plugins=None, ipam=None, by_hand=False):
    """An attachment as the operator makes it of our network, or one that somebody made by hand."""
    notes = {} if by_hand else {OWNER: f"SriovNetwork.sriovnetwork.openshift.io/{NS}/{name}"}
    if resource:
        notes[RESOURCE] = resource
    chain = [{"type": "sriov", "ipam": ipam or {"type": "nv-ipam", "poolName": "sriov-pool"}}, *(plugins or [])]
    config = json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": chain})
    found = {"metadata": meta(name, "default", annotations=notes), "spec": {"config": config}}
    return {"kind": "NetworkAttachmentDefinition", **found}


def node(name, offers="2", **labels):
    status = {"addresses": [], "allocatable": {"nvidia.com/rdma_vf": offers}}
    return {"kind": "Node", "metadata": {"name": name, "labels": {**GPU, **labels}}, "spec": {}, "status": status}


def interface(pci, vfs=1, total=8, **more):
    rows = [{"vfID": number} for number in range(vfs)]
    found = {"pciAddress": pci, "vendor": "15b3", "deviceID": "1019", "name": f"rdma{pci[-1]}", "mtu": 4220}
    return {**found, "numVfs": vfs, "totalvfs": total, "Vfs": rows, **more}


def node_state(name, *interfaces):
    rows = list(interfaces) or [interface(pci) for pci in PFS]
    spec = {"interfaces": [{"pciAddress": row["pciAddress"], "numVfs": 1} for row in rows]}
    status = {"syncStatus": "Succeeded", "interfaces": rows}
    return {"kind": "SriovNetworkNodeState", "metadata": meta(name), "spec": spec, "status": status}


def ip_pool(name="sriov-pool", nodes=("node-a", "node-b")):
    rows = [{"nodeName": n, "startIP": f"192.168.{i}.1", "endIP": f"192.168.{i}.100"} for i, n in enumerate(nodes)]
    return {"kind": "IPPool", "metadata": meta(name), "spec": {}, "status": {"allocations": rows}}


def pod(name, on, *addresses, pci=None, network_name="default/rdma-vf", **more):
    rows = [{"name": network_name, "interface": "net1", "ips": list(addresses)}]
    if pci:
        rows[0]["device-info"] = {"type": "pci", "pci": {"pci-address": pci}}
    known = {"namespace": "default", "name": name, "node": on, "phase": "Running", "networks": rows}
    return {**known, "requests": {"nvidia.com/rdma_vf": 1}, "controlled_by": "Job", "empty_dir": False, **more}


def layout(**changes):
    rails = [
        {"rail": i, "pci": pci, "network": "rdma-vf", "resource": "nvidia.com/rdma_vf"} for i, pci in enumerate(PFS)
    ]
    return {
        "name": "rails",
        "network": "sriov",
        "vfs_per_pf": 1,
        "node_selector": GPU,
        "namespaces": {"operator": NS, "networks": "default"},
        "rails": rails,
        "resources": [{"name": "rdma_vf", "full_name": "nvidia.com/rdma_vf", "count": 2, "rails": [0, 1]}],
        "pools": [{"name": "sriov-pool"}],
        **changes,
    }


def cluster(**changes):
    """What rail_state returned, with the objects that are to be applied: everything is as it should be."""
    return {
        "nodes": [node("node-a"), node("node-b"), {"metadata": {"name": "system", "labels": {}}}],
        "node_states": [node_state("node-a"), node_state("node-b")],
        "policies": [applied(policy(), "railyard")],
        "pool_configs": [applied(pool_config(), "railyard")],
        "operator_configs": [{"kind": "SriovOperatorConfig", "metadata": meta("default"), "spec": {}}],
        "nic_cluster_policies": [{"metadata": {"name": "nic-cluster-policy"}, "spec": {"nvIpam": {"image": "i"}}}],
        "attachments": [attachment()],
        "ip_pools": [ip_pool()],
        "cidr_pools": [],
        "webhooks": [],
        "namespaces": ["default", NS],
        "pods": [pod("trainer-0", "node-a", "192.168.0.2"), pod("trainer-1", "node-b", "192.168.1.2")],
        "events": [],
        "nic_ids": ["15b3 1019 101a"],
        "reasons": {},
        "wanted": [policy(), pool_config(), network()],
        "operator_version": "26.7.1",
        "drain_limit": "50%",
        **changes,
    }


def judged(state=None, intent=None, hosts=("node-a", "node-b")):
    """Findings of the rules that look at the cluster alone."""
    known = {**(state or cluster()), "hosts": {host: host for host in hosts}}
    names = {n["metadata"]["name"] for n in known["nodes"] or []}
    known["hosts"] = {host: host if host in names else None for host in hosts}
    return evaluate([Context(host, intent or layout(), cluster=known) for host in hosts], ["cluster"])


def ids(findings):
    return [(row["id"], row["severity"]) for row in findings]
