# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects of two layouts of one rail fleet, of all kinds that an apply writes, and a server that knows the kinds."""

from __future__ import annotations

import json
import time
from pathlib import Path

import yaml

from rehearsal.operators.install import permissive_crd
from rehearsal.operators.kinds import Kind

CHART = Path(__file__).parents[3] / "rehearsal" / "charts" / "network-operator"
# Of the chart and its sub-chart; that of Node Feature Discovery is not on.
CRDS = Path(__file__).parents[3] / "rehearsal" / "charts" / "network-operator"
NS = "op"
SRIOV, CNI, IPAM = "sriovnetwork.openshift.io/v1", "k8s.cni.cncf.io/v1", "nv-ipam.nvidia.com/v1alpha1"
IPAM_KINDS = [
    permissive_crd(Kind("nv-ipam.nvidia.com", "v1alpha1", kind, f"{kind.lower()}s"), kind.lower())
    for kind in ("IPPool", "CIDRPool")
]
PRUNE = [
    {"api_version": CNI, "kind": "NetworkAttachmentDefinition"},
    {"api_version": SRIOV, "kind": "SriovNetwork", "namespace": NS},
    {"api_version": SRIOV, "kind": "SriovNetworkNodePolicy", "namespace": NS},
    {"api_version": SRIOV, "kind": "SriovNetworkPoolConfig", "namespace": NS},
    {"api_version": IPAM, "kind": "IPPool", "namespace": NS},
    {"api_version": IPAM, "kind": "CIDRPool", "namespace": NS},
]
PLURALS = {
    "NetworkAttachmentDefinition": "network-attachment-definitions",
    "SriovNetwork": "sriovnetworks",
    "SriovNetworkNodePolicy": "sriovnetworknodepolicies",
    "SriovNetworkPoolConfig": "sriovnetworkpoolconfigs",
    "IPPool": "ippools",
    "CIDRPool": "cidrpools",
}


def obj(version, kind, name, namespace=NS, **spec):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def layout(prefix, rails=2):
    """Objects of all kinds, in the order of application."""
    chosen = {"type": "gpu"}
    found = [
        obj(IPAM, "IPPool", f"{prefix}-pool", subnet="192.168.0.0/16", perNodeBlockSize=100, gateway="192.168.0.1"),
        obj(IPAM, "CIDRPool", f"{prefix}-cidr", cidr="10.1.0.0/16", perNodeNetworkPrefix=24),
        obj(
            SRIOV, "SriovNetworkPoolConfig", f"{prefix}-drains", maxUnavailable=1, nodeSelector={"matchLabels": chosen}
        ),
    ]
    for rail in range(rails):
        selector = {"vendor": "15b3", "rootDevices": [f"0000:0c:00.{rail}"]}
        more = {"nodeSelector": chosen, "nicSelector": selector, "numVfs": 1, "mtu": 4220, "isRdma": True}
        found.append(obj(SRIOV, "SriovNetworkNodePolicy", f"{prefix}-{rail}", resourceName=f"vf_{rail}", **more))
    for rail in range(rails):
        ipam = json.dumps({"type": "nv-ipam", "poolName": f"{prefix}-pool"})
        more = {"networkNamespace": "default", "ipam": ipam}
        found.append(obj(SRIOV, "SriovNetwork", f"{prefix}-{rail}", resourceName=f"vf_{rail}", **more))
    config = json.dumps({"cniVersion": "1.0.0", "name": f"{prefix}-nad", "type": "macvlan", "master": "rdma0"})
    return [*found, obj(CNI, "NetworkAttachmentDefinition", f"{prefix}-nad", "default", config=config)]


def install_kinds(api):
    """Make the kinds and the namespace on a server, and wait until they are served."""
    documents = [d for path in sorted(CRDS.rglob("crds/*.yaml")) for d in yaml.safe_load_all(path.read_text()) if d]
    for document in [*documents, *IPAM_KINDS]:
        api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=document)
    api.request("POST", "/api/v1/namespaces", body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    deadline = time.monotonic() + 30
    while not {"IPPool", "CIDRPool"} <= set(served(api, IPAM)) or "SriovNetwork" not in served(api, SRIOV):
        if time.monotonic() > deadline:
            raise TimeoutError("the kinds are not served")
        time.sleep(0.05)


def served(api, version):
    try:
        return [row["kind"] for row in api.get(f"/apis/{version}")["resources"]]
    except Exception:
        return []


def names(api):
    """{(kind, name)} of all objects of the layouts' kinds that are there."""
    found = set()
    for entry in PRUNE:
        path = f"/apis/{entry['api_version']}/{PLURALS[entry['kind']]}"
        found |= {(entry["kind"], item["metadata"]["name"]) for item in api.list_items(path)}
    return found


def names_of(objects):
    return {(o["kind"], o["metadata"]["name"]) for o in objects}
