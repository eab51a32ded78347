# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the variables of a site to one complete intent: what is not set is derived from the shape and the network."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue

# An IPvlan or macvlan child and a hostNetwork pod leave the RDMA device in the host's namespace, so only the shared
# mode shows them its GIDs (measured in kubernetes-sigs/dranet's GB300 example: exclusive shows an IPvlan pod no
# device at all).
SHARED_ONLY = frozenset({"ipvlan", "macvlan", "host_network"})
CHILD_NETWORKS = frozenset({"ipvlan", "macvlan"})
# Networks that give a pod an interface of its own on each rail, with an address from a pool.
ATTACHED = CHILD_NETWORKS | {"sriov"}

# Firmware lets a PF have 127 VFs (measured on ConnectX-5 Ex; 128 functions with the PF). The webhook of the SR-IOV
# operator refuses more than 128 on NICs of this vendor.
FIRMWARE_VF_LIMIT = 127

DEFAULT_RESOURCE = {"sriov": "rdma-vf"}
OTHER_RESOURCE = "hostdev"
DEFAULT_NETWORK_NAME = {"ipvlan": "rdma-ipvlan", "macvlan": "rdma-macvlan"}
DEFAULT_POOL_NAME = {"sriov": "sriov-pool", "ipvlan": "rdma-ipvlan-pool", "macvlan": "rdma-macvlan-pool"}
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
IP_FAMILIES = {"ipv4": "ipv4", "ipv6": "ipv6_slaac"}


@dataclass
class Intent:
    """The complete intent of some hosts. C(None) means: not known, because it was not set or its value is a mistake.

    :ivar given: the variables as checked, with the defaults of the argument specification.
    :ivar bad: variables whose value could not be used; rules that need them stay silent, so one slip is reported once.
    :ivar explicit: variables that the site has set.
    :ivar rails: rows C({rail, name, pci, netdev, gpu_pci, named}) in rail order.
    """

    hosts: tuple[str, ...]
    given: dict
    bad: frozenset[str]
    explicit: frozenset[str]
    shape: dict | None = None
    shape_fault: str | None = None
    network: str | None = None
    netns_mode: str | None = None
    rdma_cni: bool | None = None
    vfs_per_pf: int | None = None
    vf_limit: int = FIRMWARE_VF_LIMIT
    vf_limit_reason: str = ""
    resource_scope: str | None = None
    resource_name: str = ""
    network_name: str | None = None
    policy_name: str = ""
    pool_config_name: str = ""
    traffic_class: int | None = None
    mtu: int | None = None
    ip_family: str | None = None
    node_selector: dict | None = None
    rail_cidrs: list = field(default_factory=list)
    rails: list = field(default_factory=list)
    pools: list = field(default_factory=list)

    def usable(self, *variables: str) -> bool:
        """Return whether none of the variables carries a value that could not be used."""
        return not self.bad.intersection(variables)

    def resource_of(self, rail: dict) -> str:
        """Return the resource name of one rail, or of all of them with the scope C(node)."""
        if self.resource_scope != "rail":
            return self.resource_name
        separator = "_" if "_" in self.resource_name and "-" not in self.resource_name else "-"
        return f"{self.resource_name}{separator}{rail['name']}"

    def network_of(self, rail: dict) -> str | None:
        """Return the name of the network attachment of one rail; the same for all where one serves every rail."""
        if self.network_name is None:
            return None
        one_for_all = self.network == "sriov" and self.resource_scope == "node"
        return self.network_name if one_for_all else f"{self.network_name}-{rail['name']}"


def derive(hosts, values: dict, bad: set[str], explicit: set[str], shapes: dict | None = None) -> Intent:
    """Complete the checked variables of some hosts.

    :param values: from C(rail_spec.check()).
    :param explicit: names of the variables that the site has set.
    """
    intent = Intent(tuple(hosts), values, frozenset(bad), frozenset(explicit))
    _take_shape(intent, catalogue.load() if shapes is None else shapes)
    shape = intent.shape or {}
    intent.network = values["rails_network"] if intent.usable("rails_network") else None
    _take_mode(intent)
    _take_vfs(intent, shape)
    _take_names(intent)
    intent.traffic_class = _first(values["rails_traffic_class"], (shape.get("qos") or {}).get("default_tclass"))
    intent.mtu = _first(values["rails_mtu"], shape.get("mtu"))
    intent.ip_family = _first(values["rails_ip_family"], IP_FAMILIES.get(shape.get("ip_family")))
    intent.rail_cidrs = _first(values["rails_rail_cidrs"], shape.get("rail_subnets"), [])
    label = {INSTANCE_TYPE_LABEL: shape["name"]} if shape.get("cloud_instance_type") else None
    intent.node_selector = _first(values["rails_node_selector"], label)
    _take_rails(intent, shape)
    if intent.network in ATTACHED:
        own = "rails_pools" in explicit
        pools = values["rails_pools"] if own else default_pools(intent.network, intent.ip_family)
        intent.pools = [pool for pool in pools or [] if pool]
    return intent


def default_pools(network: str, ip_family: str | None) -> list[dict]:
    """Return the pools of a site that names none: the ones that were measured with these networks.

    Rails with router advertisements get a placeholder pool: its address lets the CNI plugin start and turns IPv6 on
    for the child, the routed address comes from the router.
    """
    pool = {"name": DEFAULT_POOL_NAME[network], "kind": "IPPool", "per_node_block_size": 100}
    if ip_family == "ipv6_slaac":
        return [{**pool, "subnet": "fd01:0:0:100::/112"}]
    return [{**pool, "subnet": "192.168.0.0/16", "gateway": "192.168.0.1"}]


def _first(*candidates):
    return next((item for item in candidates if item is not None), None)


def _take_shape(intent: Intent, shapes: dict) -> None:
    name = intent.given["rails_shape"]
    if name is None:
        return
    try:
        shape = catalogue.get(name, shapes)
    except catalogue.CatalogueError as error:
        intent.shape_fault = str(error)
        return
    if shape.get("refused"):
        intent.shape_fault = f"the catalogue refuses it: {shape['refused']}"
        return
    intent.shape = shape


def _take_mode(intent: Intent) -> None:
    if intent.network is None or not intent.usable("rails_netns_mode"):
        return
    intent.netns_mode = intent.given["rails_netns_mode"] or "shared"
    if intent.usable("rails_rdma_cni"):
        # With "keep" the mode is known on the nodes only, so the site must say which chain fits it.
        unknown = intent.network == "sriov" and intent.netns_mode == "keep"
        derived = None if unknown else intent.network == "sriov" and intent.netns_mode == "exclusive"
        intent.rdma_cni = _first(intent.given["rails_rdma_cni"], derived)


def _take_vfs(intent: Intent, shape: dict) -> None:
    cloud_limit = shape.get("num_vfs_max_cloud")
    if cloud_limit is not None:
        intent.vf_limit = cloud_limit
        intent.vf_limit_reason = f"what the provider of {shape['name']} supports"
    else:
        intent.vf_limit_reason = "what the firmware allows on a PF"
    if not intent.usable("rails_vfs_per_pf", "rails_network"):
        return
    intent.vfs_per_pf = intent.given["rails_vfs_per_pf"] if intent.network == "sriov" else 0
    several = max(intent.given["rails_vfs_per_pf"], intent.given["rails_jobs_per_node"] or 1) > 1
    if intent.usable("rails_resource_scope"):
        intent.resource_scope = intent.given["rails_resource_scope"] or ("rail" if several else "node")


def _take_names(intent: Intent) -> None:
    """Names that are not set end with the name of the group, so that two groups of one cluster have objects of their own.

    The resource, too: a pod that asks for the network of one group must not be sent to a node of another.
    """
    given = intent.given
    group = f"-{given['rails_group_name']}" if given["rails_group_name"] else ""
    intent.resource_name = (
        given["rails_resource_name"] or f"{DEFAULT_RESOURCE.get(intent.network, OTHER_RESOURCE)}{group}"
    )
    from_resource = as_object_name(intent.resource_name)
    if intent.network in ATTACHED:
        by_kind = DEFAULT_NETWORK_NAME.get(intent.network)
        intent.network_name = given["rails_network_name"] or (f"{by_kind}{group}" if by_kind else from_resource)
    shape_name = f"{as_object_name(intent.shape['name'])}{group}" if intent.shape else from_resource
    intent.policy_name = given["rails_policy_name"] or shape_name
    intent.pool_config_name = given["rails_pool_config_name"] or from_resource


def as_object_name(text: str) -> str:
    """Return text in the form of a Kubernetes object name: C(BM.GPU.B4.8) becomes C(bm-gpu-b4-8)."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _take_rails(intent: Intent, shape: dict) -> None:
    pattern = intent.given["rails_netdev_pattern"]
    known = {pf["pci"]: pf for pf in shape.get("pfs", [])}
    rows = intent.given["rails"] if "rails" in intent.explicit else shape.get("pfs", [])
    for number, row in enumerate(rows or []):
        if not isinstance(row, dict):
            continue
        pf = known.get(row.get("pci")) or {}
        by_pattern = pattern.replace("{rail}", str(number)) if pattern else None
        # A rail that the site describes itself wins over the pattern, the pattern over the catalogue.
        own = row.get("netdev") if "rails" in intent.explicit else None
        intent.rails.append(
            {
                "rail": number,
                "name": row.get("name") or str(number),
                "pci": row.get("pci"),
                "netdev": _first(own, by_pattern, pf.get("netdev")),
                "gpu_pci": _first(row.get("gpu_pci"), pf.get("gpu_pci")),
            }
        )
