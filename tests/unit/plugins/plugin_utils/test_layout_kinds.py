# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every kind of rail network as objects: how many of each kind, what they take addresses and devices from."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_model

B4, B300 = {"rails_shape": "BM.GPU.B4.8"}, {"rails_shape": "BM.GPU.B300.8"}
VFS = ("IPPool", "SriovNetworkPoolConfig", "SriovNetworkNodePolicy", "SriovNetwork")
KINDS = {
    "vfs-of-one-resource": (
        B4,
        {"IPPool": 1, "SriovNetworkPoolConfig": 1, "SriovNetworkNodePolicy": 1, "SriovNetwork": 1},
    ),
    "vfs-a-resource-a-rail": (
        {**B4, "rails_vfs_per_pf": 2},
        {"IPPool": 1, "SriovNetworkPoolConfig": 1, "SriovNetworkNodePolicy": 16, "SriovNetwork": 16},
    ),
    "exclusive": (
        {**B4, "rails_netns_mode": "exclusive"},
        {"IPPool": 1, "SriovNetworkPoolConfig": 1, "SriovNetworkNodePolicy": 1, "SriovNetwork": 1},
    ),
    "ipvlan": ({**B4, "rails_network": "ipvlan"}, {"IPPool": 1, "NetworkAttachmentDefinition": 16}),
    "macvlan": ({**B4, "rails_network": "macvlan"}, {"IPPool": 1, "NetworkAttachmentDefinition": 16}),
    "ipvlan-routed-ipv6": ({**B300, "rails_network": "ipvlan"}, {"IPPool": 1, "NetworkAttachmentDefinition": 16}),
    "host-device": ({**B300, "rails_network": "host_device"}, {}),
    "host-network": ({**B4, "rails_network": "host_network"}, {}),
}


def built(**hosts):
    model, mistakes = rail_model.build(hosts)
    assert mistakes == [], [str(item) for item in mistakes]
    return model


def objects(model, kind):
    return [row for document in model["documents"] if document["kind"] == kind for row in document["objects"]]


def counts(model):
    found = {document["kind"]: len(document["objects"]) for document in model["documents"]}
    assert found.pop("NicClusterPolicy") == 1
    return found


@pytest.mark.parametrize("name", KINDS)
def test_the_objects_of_each_kind_of_network(name):
    intent, wanted = KINDS[name]
    assert counts(built(a=intent)) == wanted


def test_routed_rails_have_a_pool_a_rail_with_what_the_router_routes():
    """A CIDRPool cannot learn a routed prefix, so each node's is written down."""
    pools = [
        {
            "name": f"rail-{rail}",
            "kind": "CIDRPool",
            "cidr": f"172.20.{rail}.0/24",
            "per_node_network_prefix": 28,
            "gateway_index": 1,
            "rails": [rail],
            "static_allocations": [
                {"node_name": "gpu-1", "prefix": f"172.20.{rail}.16/28", "gateway": f"172.20.{rail}.17"},
                {"node_name": "gpu-2", "prefix": f"172.20.{rail}.32/28", "gateway": f"172.20.{rail}.33"},
            ],
        }
        for rail in range(16)
    ]
    model = built(a={**B4, "rails_resource_scope": "rail", "rails_pools": pools})
    assert counts(model)["CIDRPool"] == 16 and "IPPool" not in counts(model)
    for rail, (pool, network) in enumerate(zip(objects(model, "CIDRPool"), objects(model, "SriovNetwork"))):
        assert network["ipam"] == {"type": "nv-ipam", "poolName": f"rail-{rail}", "poolType": "cidrpool"}
        assert pool["spec"]["staticAllocations"][1] == {
            "nodeName": "gpu-2",
            "prefix": f"172.20.{rail}.32/28",
            "gateway": f"172.20.{rail}.33",
        }
        assert pool["spec"]["gatewayIndex"] == 1


def test_mixed_shapes_and_kinds_are_grouped_by_layout_and_meet_nowhere():
    h200 = {"rails_shape": "BM.GPU.H200.8", "rails_resource_name": "vf-h200", "rails_netns_mode": "exclusive"}
    h200["rails_pools"] = [{"name": "h200", "subnet": "172.20.0.0/16", "per_node_block_size": 100}]
    model = built(a=B4, b=B4, c=h200, d={**B300, "rails_network": "ipvlan"})
    assert [layout["hosts"] for layout in model["layouts"]] == [["a", "b"], ["c"], ["d"]]
    assert counts(model) == {
        "IPPool": 3,
        "SriovNetworkPoolConfig": 2,
        "SriovNetworkNodePolicy": 2,
        "SriovNetwork": 2,
        "NetworkAttachmentDefinition": 16,
    }
    chains = {n["name"]: [p["type"] for p in n["meta_plugins"]] for n in objects(model, "SriovNetwork")}
    assert chains == {"rdma-vf": ["tuning", "sbr"], "vf-h200": ["tuning", "rdma", "sbr"]}
    selectors = [tuple(p["node_selector"].items()) for p in objects(model, "SriovNetworkNodePolicy")]
    assert len(set(selectors)) == 2


def test_routed_ipv6_children_have_a_placeholder_and_no_source_routing():
    (first, *_rest) = objects(built(a={**B300, "rails_network": "ipvlan"}), "NetworkAttachmentDefinition")
    (plugin, *chain) = first["config"]["plugins"]
    assert plugin["type"] == "ipvlan" and plugin["master"] and plugin["mode"] == "l2"
    assert "sbr" not in [p["type"] for p in chain]


def test_an_exclusive_chain_sets_the_class_after_tuning_and_before_source_routing():
    (network,) = objects(built(a={**B4, "rails_netns_mode": "exclusive"}), "SriovNetwork")
    assert [plugin["type"] for plugin in network["meta_plugins"]] == ["tuning", "rdma", "sbr"]
    assert network["meta_plugins"][1]["rdmaQoS"]["tc"] == 41


def test_only_sriov_has_drains_of_its_own():
    for name, (intent, _wanted) in KINDS.items():
        kinds = set(counts(built(a=intent)))
        assert ("SriovNetworkPoolConfig" in kinds) is ("SriovNetworkNodePolicy" in kinds), name
        assert kinds <= {*VFS, "NetworkAttachmentDefinition"}


def test_ipv6_tuning_is_for_routed_rails_that_ask_for_it():
    asked = {**B300, "rails_network": "ipvlan", "rails_ipv6_tuning": True}
    (first, *_rest) = objects(built(a=asked), "NetworkAttachmentDefinition")
    (tuning,) = [p for p in first["config"]["plugins"] if p["type"] == "tuning"]
    assert tuning["sysctl"] == {"net.ipv6.conf.IFNAME.disable_ipv6": "0", "net.ipv6.conf.IFNAME.accept_ra": "2"}
    for wrong in ({**B4, "rails_ipv6_tuning": True}, {**asked, "rails_network": "host_device"}):
        _model, mistakes = rail_model.build({"a": wrong})
        assert [item.variable for item in mistakes] == ["rails_ipv6_tuning"]
