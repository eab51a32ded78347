# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each rule of the intent with the faulty and the healthy input."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue, rail_model

B4 = {"rails_shape": "BM.GPU.B4.8"}
H200 = {"rails_shape": "BM.GPU.H200.8"}
B300 = {"rails_shape": "BM.GPU.B300.8"}
DELL = {"rails_shape": "Dell-PowerEdge-XE9680-H200"}
IPVLAN = {**B4, "rails_network": "ipvlan"}
TWO_RAILS = {
    "rails": [{"pci": "0000:0c:00.0", "netdev": "rdma0"}, {"pci": "0000:0c:00.1", "netdev": "rdma1"}],
    "rails_mtu": 4220,
    "rails_ip_family": "ipv4",
    "rails_node_selector": {"rails": "yes"},
}
OF_B4 = [{"pci": pci} for pci in catalogue.get("BM.GPU.B4.8")["root_devices"]]


def pool(**fields) -> dict:
    """Intent with one pool, changed in some fields."""
    entry = {"name": "pods", "subnet": "192.168.0.0/16", "per_node_block_size": 100, "gateway": "192.168.0.1"}
    return {"rails_pools": [{k: v for k, v in {**entry, **fields}.items() if v is not None}]}


def cidr_pool(**fields) -> dict:
    entry = {"name": "pods", "kind": "CIDRPool", "cidr": "192.168.0.0/16", "per_node_network_prefix": 24}
    return {"rails_pools": [{**entry, **fields}]}


def rails_with(position: int, **fields) -> dict:
    rows = [dict(row) for row in OF_B4]
    rows[position].update(fields)
    return {"rails": rows}


def mistakes(variables: dict, hosts: int = 2) -> dict[str, str]:
    """Return path to message for the mistakes of some hosts with the same variables."""
    model, found = rail_model.build({f"gpu-{n}": variables for n in range(hosts)})
    assert (model is None) == bool(found)
    return {item.variable: str(item) for item in found}


# What is wrong, the variable that is named, a part of the message, and the nearest healthy form.
FAULTS = {
    "no shape": ({}, "rails_shape", "got nothing; allowed: a shape of the catalogue", B4),
    "unknown shape": ({"rails_shape": "BM.GPU.B4.9"}, "rails_shape", "did you mean 'BM.GPU.B4.8'", B4),
    "InfiniBand shape": ({"rails_shape": "BM.GPU.GB200.4"}, "rails_shape", "native InfiniBand", B4),
    "unquoted address": (
        {**B4, **rails_with(4, pci=2820.0)},
        "rails[4].pci",
        "got 2820.0; allowed: a PCI address in quotes",
        {**B4, **rails_with(4)},
    ),
    "missing address": ({**TWO_RAILS, "rails": [{"name": "a"}]}, "rails[0].pci", "a PCI address in quotes", TWO_RAILS),
    "upper case address": ({**B4, **rails_with(0, pci="0000:0C:00.0")}, "rails[0].pci", "here 0000:0c:00.0", B4),
    "address without domain": ({**B4, **rails_with(0, pci="0c:00.0")}, "rails[0].pci", "here 0000:0c:00.0", B4),
    "no address at all": ({**B4, **rails_with(0, pci="card 1")}, "rails[0].pci", "lower-case address with domain", B4),
    "address twice": ({**B4, **rails_with(1, pci="0000:0c:00.0")}, "rails", "rails 0, 1 share it", B4),
    "front-end NIC": ({**B4, **rails_with(3, pci="0000:6b:00.0")}, "rails[3].pci", "is a front-end NIC", B4),
    "GPU address": ({**B4, **rails_with(0, gpu_pci="0F:00.0")}, "rails[0].gpu_pci", "here 0000:0f:00.0", B4),
    "too few rails": ({**B4, "rails": OF_B4[:8]}, "rails", "got 8 rails; allowed: 16", {**B4, "rails": OF_B4}),
    "no rails": ({**TWO_RAILS, "rails": []}, "rails", "at least one rail", TWO_RAILS),
    "typo in a rail": (
        {**B4, **rails_with(2, pcii="x")},
        "rails[2].pcii",
        "one of pci, netdev, name, gpu_pci; did you mean 'pci'",
        B4,
    ),
    "typo in a variable": ({**B4, "rails_vf_per_pf": 1}, "rails_vf_per_pf", "did you mean 'rails_vfs_per_pf'", B4),
    "text for a list": ({**B4, "rails_pools": "all"}, "rails_pools", "allowed: a list", {**B4, **pool()}),
    "unknown network": (
        {**B4, "rails_network": "ipvlen"},
        "rails_network",
        "one of sriov, ipvlan, macvlan, host_device, host_network; did you mean 'ipvlan'",
        IPVLAN,
    ),
    "interface name": (
        {**IPVLAN, **rails_with(0, netdev="a name")},
        "rails[0].netdev",
        "1 to 15 characters",
        {**IPVLAN, **rails_with(0, netdev="rdma0")},
    ),
    "interface twice": (
        {**IPVLAN, **rails_with(0, netdev="enp12s0f1")},
        "rails",
        "on one rail only",
        {**IPVLAN, **rails_with(0, netdev="rdma0")},
    ),
    "pattern without number": (
        {**IPVLAN, "rails_netdev_pattern": "rdma"},
        "rails_netdev_pattern",
        "a name that contains {rail}",
        {**IPVLAN, "rails_netdev_pattern": "rdma{rail}"},
    ),
    "child without parent": (
        {**TWO_RAILS, "rails_network": "ipvlan", "rails": [{"pci": "0000:0c:00.0"}]},
        "rails_netdev_pattern",
        "the interface names of rails 0",
        {**TWO_RAILS, "rails_network": "ipvlan"},
    ),
    "IPvlan in exclusive mode": (
        {**IPVLAN, "rails_netns_mode": "exclusive"},
        "rails_netns_mode",
        "shared or keep with rails_network ipvlan",
        {**IPVLAN, "rails_netns_mode": "keep"},
    ),
    "macvlan in exclusive mode": (
        {**B4, "rails_network": "macvlan", "rails_netns_mode": "exclusive"},
        "rails_netns_mode",
        "shared or keep",
        {**B4, "rails_network": "macvlan", "rails_netns_mode": "shared"},
    ),
    "host network in exclusive mode": (
        {**B4, "rails_network": "host_network", "rails_netns_mode": "exclusive"},
        "rails_netns_mode",
        "shared or keep",
        {**B4, "rails_network": "host_device", "rails_netns_mode": "exclusive"},
    ),
    "keep without a word about the RDMA CNI": (
        {**B4, "rails_netns_mode": "keep"},
        "rails_rdma_cni",
        "true when nodes are exclusive",
        {**B4, "rails_netns_mode": "keep", "rails_rdma_cni": False},
    ),
    "RDMA CNI in shared mode": ({**B4, "rails_rdma_cni": True}, "rails_rdma_cni", "false in shared mode", B4),
    "no RDMA CNI in exclusive mode": (
        {**B4, "rails_netns_mode": "exclusive", "rails_rdma_cni": False},
        "rails_rdma_cni",
        "true in the exclusive mode",
        {**B4, "rails_netns_mode": "exclusive"},
    ),
    "RDMA CNI for IPvlan": ({**IPVLAN, "rails_rdma_cni": True}, "rails_rdma_cni", "it moves VFs only", IPVLAN),
    "VFs beyond the provider's limit": (
        {**B4, "rails_vfs_per_pf": 3},
        "rails_vfs_per_pf",
        "1 to 2, what the provider of BM.GPU.B4.8 supports",
        {**B4, "rails_vfs_per_pf": 2},
    ),
    "VFs beyond the firmware's limit": (
        {**H200, "rails_vfs_per_pf": 128, **pool(per_node_block_size=2000)},
        "rails_vfs_per_pf",
        "1 to 127, what the firmware allows",
        {**H200, "rails_vfs_per_pf": 127, **pool(per_node_block_size=2000)},
    ),
    "no VF": ({**B4, "rails_vfs_per_pf": 0}, "rails_vfs_per_pf", "1 to 2", B4),
    "VFs for IPvlan": ({**IPVLAN, "rails_vfs_per_pf": 2}, "rails_vfs_per_pf", "it makes no VFs", IPVLAN),
    "more jobs than VFs": (
        {**B4, "rails_jobs_per_node": 2},
        "rails_jobs_per_node",
        "at most rails_vfs_per_pf, here 1",
        {**B4, "rails_jobs_per_node": 2, "rails_vfs_per_pf": 2},
    ),
    "two jobs on the same PFs": (
        {**IPVLAN, "rails_jobs_per_node": 2},
        "rails_jobs_per_node",
        "each PF to one pod at a time",
        {**IPVLAN, "rails_jobs_per_node": 1},
    ),
    "no job": ({**B4, "rails_jobs_per_node": 0}, "rails_jobs_per_node", "1 or more", B4),
    "external VFs for IPvlan": (
        {**IPVLAN, "rails_externally_managed": True},
        "rails_externally_managed",
        "it makes no VFs",
        {**B4, "rails_externally_managed": True},
    ),
    "class too large": (
        {**B4, "rails_traffic_class": 256},
        "rails_traffic_class",
        "0 to 255",
        {**B4, "rails_traffic_class": 255},
    ),
    "negative class": (
        {**B4, "rails_traffic_class": -1},
        "rails_traffic_class",
        "0 to 255",
        {**B4, "rails_traffic_class": 0},
    ),
    "truth as class": ({**B4, "rails_traffic_class": True}, "rails_traffic_class", "a whole number", B4),
    "unknown class that would be forced": (
        {**TWO_RAILS, "rails_netns_mode": "exclusive"},
        "rails_traffic_class",
        "would force class 0",
        {**TWO_RAILS, "rails_netns_mode": "exclusive", "rails_traffic_class": 106},
    ),
    "MTU too small for IPv6": ({**B4, "rails_mtu": 1279}, "rails_mtu", "1280 to 9978", {**B4, "rails_mtu": 1280}),
    "MTU beyond the NIC": ({**B4, "rails_mtu": 9979}, "rails_mtu", "1280 to 9978", {**B4, "rails_mtu": 9978}),
    "unknown MTU": (
        {**TWO_RAILS, "rails_mtu": None},
        "rails_mtu",
        "the catalogue has no value",
        {**TWO_RAILS, "rails_mtu": 9000},
    ),
    "unknown family": (
        {**TWO_RAILS, "rails_ip_family": None},
        "rails_ip_family",
        "ipv4 or ipv6_slaac",
        {**TWO_RAILS, "rails_ip_family": "ipv6_slaac"},
    ),
    "none may be drained": (
        {**B4, "rails_max_unavailable": 0},
        "rails_max_unavailable",
        'a number from 1, or "1%" to "100%"',
        {**B4, "rails_max_unavailable": "1%"},
    ),
    "more than all drained": (
        {**B4, "rails_max_unavailable": "101%"},
        "rails_max_unavailable",
        "a number from 1",
        {**B4, "rails_max_unavailable": "100%"},
    ),
    "truth as number of drains": (
        {**B4, "rails_max_unavailable": True},
        "rails_max_unavailable",
        "a number from 1",
        {**B4, "rails_max_unavailable": "3"},
    ),
    "dot in the resource name": (
        {**B4, "rails_resource_name": "rdma.vf"},
        "rails_resource_name",
        "letters, digits, inner dashes",
        {**B4, "rails_resource_name": "sriov_rdma_vf"},
    ),
    "resource name too long": (
        {**B4, "rails_vfs_per_pf": 2, "rails_resource_name": "v" * 62},
        "rails_resource_name",
        "63 characters in all",
        {**B4, "rails_vfs_per_pf": 2, "rails_resource_name": "v" * 60},
    ),
    "prefix without domain": (
        {**B4, "rails_resource_prefix": "nvidia"},
        "rails_resource_prefix",
        "a domain",
        {**B4, "rails_resource_prefix": "example.com"},
    ),
    "reserved prefix": (
        {**B4, "rails_resource_prefix": "x.kubernetes.io"},
        "rails_resource_prefix",
        "outside of kubernetes.io",
        {**B4, "rails_resource_prefix": "kubernetes.example.com"},
    ),
    "namespace": (
        {**B4, "rails_networks_namespace": "Jobs"},
        "rails_networks_namespace",
        "lower-case letters",
        {**B4, "rails_networks_namespace": "jobs"},
    ),
    "network name": (
        {**B4, "rails_network_name": "rdma_vf"},
        "rails_network_name",
        "lower-case letters",
        {**B4, "rails_network_name": "rdma"},
    ),
    "policy name": (
        {**B4, "rails_policy_name": "B4"},
        "rails_policy_name",
        "lower-case",
        {**B4, "rails_policy_name": "b4"},
    ),
    "pool config name": (
        {**B4, "rails_pool_config_name": "-"},
        "rails_pool_config_name",
        "lower-case",
        {**B4, "rails_pool_config_name": "p"},
    ),
    "rail name": (
        {**B4, **rails_with(0, name="Rail A")},
        "rails[0].name",
        "lower-case letters",
        {**B4, **rails_with(0, name="a")},
    ),
    "rail name twice": (
        {**B4, **rails_with(0, name="1")},
        "rails",
        "rails 0, 1 share it",
        {**B4, **rails_with(0, name="x")},
    ),
    "no selector": (
        {**TWO_RAILS, "rails_node_selector": None},
        "rails_node_selector",
        "got nothing; allowed: at least one label",
        TWO_RAILS,
    ),
    "bare metal has no instance type": (
        {**DELL, "rails_mtu": 9000, "rails_ip_family": "ipv4"},
        "rails_node_selector",
        "at least one label",
        {**DELL, "rails_mtu": 9000, "rails_ip_family": "ipv4", "rails_node_selector": {"a": "b"}},
    ),
    "empty selector": ({**B4, "rails_node_selector": {}}, "rails_node_selector", "matches every node", B4),
    "truth as label": (
        {**B4, "rails_node_selector": {"gpu": True}},
        "rails_node_selector['gpu']",
        "as strings (quote",
        {**B4, "rails_node_selector": {"gpu": "true"}},
    ),
    "label key": (
        {**B4, "rails_node_selector": {"a key": "b"}},
        "rails_node_selector",
        "label keys",
        {**B4, "rails_node_selector": {"example.com/key": "b"}},
    ),
    "operator version": (
        {**B4, "network_operator_version": 26.7},
        "network_operator_version",
        "a version in quotes",
        {**B4, "network_operator_version": "26.7.0-rc.2"},
    ),
    "operator namespace": (
        {**B4, "network_operator_namespace": "NVIDIA"},
        "network_operator_namespace",
        "lower-case",
        {**B4, "network_operator_namespace": "nvidia"},
    ),
    "image repository": (
        {**B4, "network_operator_image_repository": "a b"},
        "network_operator_image_repository",
        "letters, digits",
        {**B4, "network_operator_image_repository": "registry.example.com/mirror"},
    ),
}

POOL_FAULTS = {
    "host bits": (pool(subnet="192.168.7.1/16"), "rails_pools[0].subnet", "here 192.168.0.0/16", pool()),
    "no subnet": (pool(subnet=None), "rails_pools[0].subnet", "got nothing", pool()),
    "gateway outside": (
        pool(gateway="10.0.0.1"),
        "rails_pools[0].gateway",
        "inside of 192.168.0.0/16",
        pool(gateway="192.168.9.9"),
    ),
    "gateway is no address": (pool(gateway="first"), "rails_pools[0].gateway", "an IP address", pool()),
    "block of nothing": (pool(per_node_block_size=0), "rails_pools[0].per_node_block_size", "1 to 65534", pool()),
    "subnet of two addresses": (
        pool(subnet="192.168.0.0/31", gateway=None),
        "rails_pools[0].subnet",
        "30 or less",
        pool(),
    ),
    "pool name": (pool(name="Pool A"), "rails_pools[0].name", "lower-case", pool(name="pool-a")),
    "unknown kind": (pool(kind="Pool"), "rails_pools[0].kind", "one of IPPool, CIDRPool", pool(kind="IPPool")),
    "field of the other kind": (pool(cidr="10.0.0.0/8"), "rails_pools[0].cidr", "belongs to CIDRPool", pool()),
    "routes without gateway": (
        pool(gateway=None, routes=[{"dst": "10.0.0.0/8"}]),
        "rails_pools[0].routes",
        "nothing without a gateway",
        pool(routes=[{"dst": "10.0.0.0/8"}]),
    ),
    "route of the other family": (
        pool(routes=[{"dst": "fd00::/8"}]),
        "rails_pools[0].routes[0].dst",
        "an IPv4 network",
        pool(routes=[{"dst": "10.0.0.0/8"}]),
    ),
    "two default routes": (
        pool(default_gateway=True, routes=[{"dst": "0.0.0.0/0"}]),
        "rails_pools[0].routes[0].dst",
        "no default route beside default_gateway",
        pool(default_gateway=True),
    ),
    "exclusion outside": (
        pool(exclusions=[{"start": "10.0.0.1", "end": "192.168.0.9"}]),
        "rails_pools[0].exclusions[0].start",
        "inside of 192.168.0.0/16",
        pool(exclusions=[{"start": "192.168.0.2", "end": "192.168.0.9"}]),
    ),
    "exclusion backwards": (
        pool(exclusions=[{"start": "192.168.0.9", "end": "192.168.0.2"}]),
        "rails_pools[0].exclusions[0]",
        "not above its end",
        pool(exclusions=[{"start": "192.168.0.2", "end": "192.168.0.9"}]),
    ),
    "positions backwards": (
        pool(per_node_exclusions=[{"start_index": 5, "end_index": 2}]),
        "rails_pools[0].per_node_exclusions[0]",
        "start not above end",
        pool(per_node_exclusions=[{"start_index": 2, "end_index": 5}]),
    ),
    "selector of a pool": (
        pool(node_selector={"a": 1}),
        "rails_pools[0].node_selector['a']",
        "as strings",
        pool(node_selector={"a": "1"}),
    ),
    "too few blocks": (
        pool(subnet="192.168.0.0/25", per_node_block_size=64),
        "rails_pools[0].per_node_block_size",
        "blocks for 2 nodes; 192.168.0.0/25 has 1",
        pool(subnet="192.168.0.0/25", per_node_block_size=63),
    ),
    "block too small for the rails": (
        pool(per_node_block_size=15, gateway=None),
        "rails_pools[0].per_node_block_size",
        "16 or more addresses for pods on every node (16 rails x 1 VFs); a block has 15",
        pool(per_node_block_size=16, gateway=None),
    ),
    "the gateway takes one": (
        pool(per_node_block_size=16),
        "rails_pools[0].per_node_block_size",
        "a block has 15 less gateway",
        pool(per_node_block_size=17),
    ),
    "exclusions take some": (
        pool(per_node_block_size=20, exclusions=[{"start": "192.168.0.22", "end": "192.168.0.30"}]),
        "rails_pools[0].per_node_block_size",
        "a block has 11",
        pool(per_node_block_size=20, exclusions=[{"start": "192.168.0.60", "end": "192.168.0.99"}]),
    ),
    "two VFs need twice as many": (
        {**pool(per_node_block_size=32), "rails_vfs_per_pf": 2},
        "rails_pools[0].per_node_block_size",
        "32 or more addresses",
        {**pool(per_node_block_size=33), "rails_vfs_per_pf": 2},
    ),
    "two pools for one rail": (
        {
            "rails_pools": [
                *pool()["rails_pools"],
                {**pool(subnet="172.16.0.0/16", gateway=None)["rails_pools"][0], "name": "b"},
            ]
        },
        "rails_pools",
        "got b and pods for rails 0",
        {
            "rails_resource_scope": "rail",
            "rails_pools": [
                {**pool()["rails_pools"][0], "rails": list(range(8))},
                {
                    **pool(subnet="172.16.0.0/16", gateway=None)["rails_pools"][0],
                    "name": "b",
                    "rails": list(range(8, 16)),
                },
            ],
        },
    ),
    "two pools for one network": (
        {
            "rails_pools": [
                {**pool()["rails_pools"][0], "rails": list(range(8))},
                {**cidr_pool(cidr="172.16.0.0/16")["rails_pools"][0], "name": "b", "rails": list(range(8, 16))},
            ]
        },
        "rails_resource_scope",
        "one network serves all rails",
        {
            "rails_resource_scope": "rail",
            "rails_pools": [
                {**pool()["rails_pools"][0], "rails": list(range(8))},
                {**cidr_pool(cidr="172.16.0.0/16")["rails_pools"][0], "name": "b", "rails": list(range(8, 16))},
            ],
        },
    ),
    "no pool for a rail": (
        pool(rails=list(range(15))),
        "rails_pools",
        "got none for rails 15",
        pool(rails=list(range(16))),
    ),
    "a rail that is not there": (pool(rails=list(range(17))), "rails_pools[0].rails", "rails 0 to 15", pool()),
    "pool name twice": (
        {"rails_pools": [{**pool()["rails_pools"][0], "rails": [n]} for n in range(16)]},
        "rails_pools[1].name",
        "every pool name once",
        pool(),
    ),
    "pools overlap": (
        {
            "rails_pools": [
                {**pool()["rails_pools"][0], "rails": list(range(8))},
                {
                    **pool(subnet="192.168.128.0/20", gateway=None)["rails_pools"][0],
                    "name": "b",
                    "rails": list(range(8, 16)),
                },
            ]
        },
        "rails_pools[1].subnet",
        "apart from 192.168.0.0/16 of the pool pods",
        pool(),
    ),
    "in the subnet of the rails": (
        pool(subnet="10.239.0.0/16", gateway=None),
        "rails_pools[0].subnet",
        "10.224.0.0/12 of the rail interfaces of the hosts (rails_rail_cidrs, the default of BM.GPU.B4.8)",
        {**pool(subnet="10.239.0.0/16", gateway=None), "rails_rail_cidrs": []},
    ),
    "in the pod network": (
        {**pool(), "rails_pod_cidrs": ["10.0.0.0/16", "192.168.128.0/17"]},
        "rails_pools[0].subnet",
        "192.168.128.0/17 of the pod network (rails_pod_cidrs)",
        {**pool(), "rails_pod_cidrs": ["10.0.0.0/16"]},
    ),
    "in the services": (
        {**pool(), "rails_service_cidrs": ["192.168.0.0/24"]},
        "rails_pools[0].subnet",
        "of the Kubernetes services",
        {**pool(), "rails_service_cidrs": ["10.96.0.0/16"]},
    ),
    "in the nodes' subnet": (
        {**pool(), "rails_node_cidrs": ["192.168.0.0/24"]},
        "rails_pools[0].subnet",
        "of the nodes",
        {**pool(), "rails_node_cidrs": ["10.140.0.0/16"]},
    ),
    "in a reserved range": (
        {**pool(), "rails_reserved_cidrs": ["0.0.0.0/0"]},
        "rails_pools[0].subnet",
        "reserved by the site",
        {**pool(), "rails_reserved_cidrs": ["::/0"]},
    ),
    "a range with host bits": (
        {"rails_pod_cidrs": ["10.0.0.1/16"]},
        "rails_pod_cidrs[0]",
        "here 10.0.0.0/16",
        {"rails_pod_cidrs": ["10.0.0.0/16"]},
    ),
    "the wrong family": (pool(subnet="fd01::/112", gateway=None), "rails_pools[0].subnet", "an IPv4 network", pool()),
    "a node subnet shorter than the range": (
        cidr_pool(per_node_network_prefix=15),
        "rails_pools[0].per_node_network_prefix",
        "16 to 32",
        cidr_pool(),
    ),
    "too few node subnets": (
        cidr_pool(cidr="192.168.0.0/24"),
        "rails_pools[0].per_node_network_prefix",
        "blocks for 2 nodes; 192.168.0.0/24 has 1",
        cidr_pool(cidr="192.168.0.0/23"),
    ),
    "node subnets too small": (
        cidr_pool(per_node_network_prefix=28),
        "rails_pools[0].per_node_network_prefix",
        "a block has 14",
        cidr_pool(per_node_network_prefix=27),
    ),
    "gateway index": (
        cidr_pool(gateway_index=0),
        "rails_pools[0].gateway_index",
        "1 to 254 in a subnet",
        cidr_pool(gateway_index=1),
    ),
    "static subnet of another length": (
        cidr_pool(static_allocations=[{"node_name": "a", "prefix": "192.168.1.0/25"}]),
        "rails_pools[0].static_allocations[0].prefix",
        "prefix length 24",
        cidr_pool(static_allocations=[{"node_name": "a", "prefix": "192.168.1.0/24", "gateway": "192.168.1.1"}]),
    ),
    "static gateway outside": (
        cidr_pool(static_allocations=[{"node_name": "a", "prefix": "192.168.1.0/24", "gateway": "192.168.2.1"}]),
        "rails_pools[0].static_allocations[0].gateway",
        "inside of 192.168.1.0/24",
        cidr_pool(),
    ),
    "a node twice": (
        cidr_pool(static_allocations=[{"node_name": "a", "prefix": f"192.168.{n}.0/24"} for n in (1, 2)]),
        "rails_pools[0].static_allocations[1].node_name",
        "every node and every prefix once",
        cidr_pool(static_allocations=[{"node_name": f"a{n}", "prefix": f"192.168.{n}.0/24"} for n in (1, 2)]),
    ),
}
POOL_FAULTS["positions take some"] = (
    pool(per_node_block_size=19, per_node_exclusions=[{"start_index": 1, "end_index": 3}]),
    "rails_pools[0].per_node_block_size",
    "a block has 15 less gateway",
    pool(per_node_block_size=20, per_node_exclusions=[{"start_index": 1, "end_index": 3}]),
)
ALL_FAULTS = {
    **FAULTS,
    **{f"pool: {name}": ({**B4, **a}, b, c, {**B4, **d}) for name, (a, b, c, d) in POOL_FAULTS.items()},
}


@pytest.mark.parametrize("name", ALL_FAULTS)
def test_the_fault_is_found_and_the_healthy_form_passes(name):
    faulty, variable, message, healthy = ALL_FAULTS[name]
    found = mistakes(faulty)
    assert variable in found, found
    assert message in found[variable]
    assert mistakes(healthy) == {}


@pytest.mark.parametrize("name", [name for name in catalogue.usable_names() if name.startswith("BM.")])
def test_every_usable_cloud_shape_needs_nothing_but_its_name(name):
    assert mistakes({"rails_shape": name}) == {}


def test_a_placeholder_pool_must_be_ipv6():
    found = mistakes({**B300, "rails_network": "ipvlan", **pool()})
    assert "an IPv6 placeholder turns IPv6 on" in found["rails_pools[0].subnet"]


def test_all_mistakes_come_in_one_go_and_each_once():
    faulty = {
        "rails_shape": "BM.GPU.B4.8",
        "rails_network": "ipvlan",
        "rails_netns_mode": "exclusive",
        "rails_traffic_class": 999,
        "rails_mtu": "large",
        "rails_typo": 1,
        "rails_pools": [{"name": "p", "subnet": 5, "per_node_block_size": "many", "gateway": "10.0.0.1"}],
    }
    model, found = rail_model.build({"a": faulty, "b": faulty})
    assert model is None
    paths = [item.variable for item in found]
    assert sorted(paths) == sorted(set(paths))
    assert set(paths) == {
        "rails_netns_mode",
        "rails_traffic_class",
        "rails_mtu",
        "rails_typo",
        "rails_pools[0].subnet",
        "rails_pools[0].per_node_block_size",
    }
    assert all(item.hosts == () for item in found)


def test_hosts_are_named_when_they_differ():
    _model, found = rail_model.build({"a": B4, "b": {**B4, "rails_mtu": 1}, "c": {**B4, "rails_mtu": 1}})
    assert [str(item) for item in found] == ["rails_mtu (on b, c): got 1; allowed: 1280 to 9978 bytes"]


def test_too_few_blocks_do_not_hide_that_a_block_is_too_small():
    model, found = rail_model.build({n: {**B4, **pool(subnet="192.168.0.0/28", per_node_block_size=8)} for n in "ab"})
    assert model is None
    told = [str(item) for item in found]
    assert any("blocks for 2 nodes" in text for text in told) and any("16 or more addresses" in text for text in told)


def test_two_layouts_that_select_the_same_nodes():
    small = {
        **TWO_RAILS,
        "rails_policy_name": "small",
        "rails_pool_config_name": "small",
        "rails_resource_name": "small",
    }
    model, found = rail_model.build(
        {"a": TWO_RAILS, "b": {**small, "rails_node_selector": {"rails": "yes", "rack": "1"}}}
    )
    assert model is None
    (text,) = [str(item) for item in found if item.variable == "rails_node_selector"]
    assert "that nodes of a do not have" in text and "a PF may be in one policy only" in text
    model, found = rail_model.build({"a": TWO_RAILS, "b": {**small, "rails_node_selector": {"rack": "1"}}})
    assert found == []


@pytest.mark.parametrize(
    ("version", "good"), [("26.1.0", False), ("25.10.0", False), ("26.4.0", True), ("27.1.0", True)]
)
def test_the_traffic_class_of_vfs_needs_a_release_that_sets_it(version, good):
    exclusive = {**B4, "rails_netns_mode": "exclusive", "network_operator_version": version}
    found = mistakes(exclusive)
    assert ("network_operator_version" not in found) is good
    assert good or "ignore rdmaQoS" in found["network_operator_version"]
    assert mistakes({**B4, "network_operator_version": version}) == {}
