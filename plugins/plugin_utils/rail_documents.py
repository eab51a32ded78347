# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The data behind every object of the cluster, in order of application. Templates only lay it out."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_operator, rail_pools, rail_rules_pools
from ansible_collections.railyard.rdma.plugins.plugin_utils.catalogue import RAIL_VENDOR
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_intent import CHILD_NETWORKS, Intent
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_rules_network import max_unavailable_value

# Priority of the policies; a lower number wins in the SR-IOV operator, and 99 is the lowest.
POLICY_PRIORITY = 90

# With 16 interfaces in one flat subnet every one of them would answer ARP for the addresses of all others, and
# answers would leave through the wrong rail. Values as measured with these networks. IFNAME stands for the interface
# of the attachment; rp_filter also needs "all", because the kernel takes the larger of the two values
# (Documentation/networking/ip-sysctl.rst).
RAIL_SYSCTLS = {
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.IFNAME.arp_announce": "2",
    "net.ipv4.conf.IFNAME.arp_filter": "1",
    "net.ipv4.conf.IFNAME.arp_ignore": "1",
    "net.ipv4.conf.IFNAME.rp_filter": "0",
    "net.ipv4.conf.IFNAME.accept_local": "1",
}

# For routed rails, where a site asks for them: with forwarding on, the kernel takes router advertisements only with the
# value 2 (Documentation/networking/ip-sysctl.rst).
ROUTED_SYSCTLS = {"net.ipv6.conf.IFNAME.disable_ipv6": "0", "net.ipv6.conf.IFNAME.accept_ra": "2"}

# File, phase and template of each kind. Pool configs come before the policies: they limit the drains that policies
# start.
KINDS = (
    ("NicClusterPolicy", "10-nicclusterpolicy.yml", "operator"),
    ("IPPool", "20-ippool.yml", "pools"),
    ("CIDRPool", "21-cidrpool.yml", "pools"),
    ("SriovNetworkPoolConfig", "30-sriovnetworkpoolconfig.yml", "policies"),
    ("SriovNetworkNodePolicy", "40-sriovnetworknodepolicy.yml", "policies"),
    ("SriovNetwork", "50-sriovnetwork.yml", "networks"),
    ("NetworkAttachmentDefinition", "60-networkattachmentdefinition.yml", "networks"),
)


def documents(intents: list[Intent], operator: dict) -> list[dict]:
    """Return the documents in order of application: C({file, phase, kind, template, objects}), without empty ones.

    An object that several layouts need in the same form is listed once.
    """
    by_kind: dict[str, list[dict]] = {kind: [] for kind, _file, _phase in KINDS}
    by_kind["NicClusterPolicy"].append(rail_operator.policy(intents, operator))
    for intent in intents:
        for kind, rows in of_intent(intent, operator["network_operator_namespace"]).items():
            by_kind[kind].extend(row for row in rows if row not in by_kind[kind])
    return [
        {"file": file, "phase": phase, "kind": kind, "template": f"{kind.lower()}.yml.j2", "objects": by_kind[kind]}
        for kind, file, phase in KINDS
        if by_kind[kind]
    ]


def of_intent(intent: Intent, operator_namespace: str) -> dict[str, list[dict]]:
    """Return the data of the objects that one intent needs, by kind."""
    rows: dict[str, list[dict]] = {"IPPool": [], "CIDRPool": []}
    for pool in rail_rules_pools.pools_of(intent):
        # nv-ipam reads pools in its own namespace only.
        data = {"name": pool.name, "namespace": operator_namespace, "spec": rail_pools.spec(pool)}
        rows[pool.given["kind"]].append(data)
    if intent.network == "sriov":
        rows["SriovNetworkPoolConfig"] = [_pool_config(intent, operator_namespace)]
        rows["SriovNetworkNodePolicy"] = _policies(intent, operator_namespace)
        rows["SriovNetwork"] = _sriov_networks(intent, operator_namespace)
    elif intent.network in CHILD_NETWORKS:
        rows["NetworkAttachmentDefinition"] = [_child_network(intent, rail) for rail in intent.rails]
    return rows


def _pool_config(intent: Intent, namespace: str) -> dict:
    # rdmaMode is left out on purpose: with it the operator edits the kernel line and reboots Ubuntu nodes without end
    # (k8snetworkplumbingwg/sriov-network-operator#959). The mode is set on the nodes, by the role rdma_netns.
    return {
        "name": intent.pool_config_name,
        "namespace": namespace,
        "max_unavailable": max_unavailable_value(intent),
        "match_expressions": rail_pools.match_expressions(intent.node_selector),
    }


def _policies(intent: Intent, namespace: str) -> list[dict]:
    common = {
        "namespace": namespace,
        "mtu": intent.mtu,
        "vendor": RAIL_VENDOR,
        "node_selector": intent.node_selector,
        "num_vfs": intent.vfs_per_pf,
        "priority": POLICY_PRIORITY,
        "externally_managed": intent.given["rails_externally_managed"],
    }
    if intent.resource_scope == "node":
        devices = [rail["pci"] for rail in intent.rails]
        row = {"name": intent.policy_name, "root_devices": devices, "resource_name": intent.resource_name}
        return [{**common, **row}]
    return [
        {
            **common,
            "name": f"{intent.network_name}-{rail['name']}",
            "root_devices": [rail["pci"]],
            "resource_name": intent.resource_of(rail),
        }
        for rail in intent.rails
    ]


def _sriov_networks(intent: Intent, namespace: str) -> list[dict]:
    networks = []
    for rail in intent.rails:
        data = {
            "name": intent.network_of(rail),
            # The operator honours networkNamespace only for networks in its own namespace.
            "namespace": namespace,
            "network_namespace": intent.given["rails_networks_namespace"],
            "resource_name": intent.resource_of(rail),
            "ipam": _ipam(intent, rail),
            "meta_plugins": _chain(intent),
        }
        if data not in networks:
            networks.append(data)
    return networks


def _child_network(intent: Intent, rail: dict) -> dict:
    name = intent.network_of(rail)
    interface = {"type": intent.network, "master": rail["netdev"]}
    if intent.network == "ipvlan":
        # Layer 2 mode keeps the MAC of the parent, so the fabric sees no new address.
        interface["mode"] = "l2"
    else:
        interface.update(mode="bridge", mtu=intent.mtu)
    return {
        "name": name,
        "namespace": intent.given["rails_networks_namespace"],
        "config": {
            "cniVersion": "1.0.0",
            "name": name,
            "plugins": [{**interface, "ipam": _ipam(intent, rail)}, *_chain(intent)],
        },
    }


def _ipam(intent: Intent, rail: dict) -> dict:
    name = rail_rules_pools.pools_of_rail(intent, rail["rail"])[0]
    given = next(pool for pool in intent.pools if pool["name"] == name)
    kind = {"poolType": "cidrpool"} if given["kind"] == "CIDRPool" else {}
    return {"type": "nv-ipam", "poolName": name, **kind}


def _chain(intent: Intent) -> list[dict]:
    """Return the plugins that follow the one that makes the interface, in the order in which they run."""
    chain: list[dict] = []
    flat_ipv4 = intent.ip_family == "ipv4"
    if flat_ipv4:
        chain.append({"type": "tuning", "sysctl": dict(RAIL_SYSCTLS)})
    elif intent.given["rails_ipv6_tuning"]:
        chain.append({"type": "tuning", "sysctl": dict(ROUTED_SYSCTLS)})
    if intent.rdma_cni:
        # Read by the plugin at the top level only, whatever its README shows. Without it the plugin writes class 0.
        chain.append({"type": "rdma", "rdmaQoS": {"tc": intent.traffic_class}})
    if flat_ipv4:
        # Routed rails have neither: the sysctls are IPv4's, and source routing would serve the placeholder address
        # only.
        chain.append({"type": "sbr", "addSourceHints": True})
    return chain
