# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rail model and the data of the objects that follow from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.filter.operator_values import FilterModule as ValuesFilters
from ansible_collections.railyard.rdma.plugins.filter.rails_layout import rails_layout
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_mistakes, rail_model, rail_operator, rail_spec

ROLES = Path(__file__).resolve().parents[4] / "roles"

B4 = {"rails_shape": "BM.GPU.B4.8"}
B300 = {"rails_shape": "BM.GPU.B300.8"}
MI300X = {"rails_shape": "BM.GPU.MI300X.8"}


def model_of(*groups: dict) -> dict:
    """Return the model of one host a group of variables."""
    model, found = rail_model.build({f"gpu-{n}": variables for n, variables in enumerate(groups)})
    assert found == [], [str(item) for item in found]
    return model


def found_in(*groups: dict) -> list[str]:
    _model, found = rail_model.build({f"gpu-{n}": variables for n, variables in enumerate(groups)})
    return [str(item) for item in found]


def objects(model: dict, kind: str) -> list[dict]:
    return next((row["objects"] for row in model["documents"] if row["kind"] == kind), [])


def test_hosts_with_the_same_intent_share_a_layout_and_the_model_is_plain_json():
    model = model_of(B4, B300 | {"rails_network": "host_device", "rails_node_selector": {"a": "b"}}, B4)
    assert [layout["name"] for layout in model["layouts"]] == ["bm-gpu-b4-8", "bm-gpu-b300-8"]
    assert model["hosts"] == {"gpu-0": "bm-gpu-b4-8", "gpu-2": "bm-gpu-b4-8", "gpu-1": "bm-gpu-b300-8"}
    assert json.loads(json.dumps(model)) == model


def test_one_vf_gives_one_resource_for_all_rails():
    layout = model_of(B4)["layouts"][0]
    assert layout["resource_scope"] == "node"
    assert layout["netns_mode"] == "shared"
    assert layout["resources"] == [
        {"name": "rdma-vf", "full_name": "nvidia.com/rdma-vf", "count": 16, "rails": list(range(16))}
    ]
    assert layout["pod"]["annotations"] == {"k8s.v1.cni.cncf.io/networks": ",".join(["rdma-vf"] * 16)}
    assert layout["pod"]["resources"] == {"nvidia.com/rdma-vf": "16"}
    assert layout["rails"][4] == {
        "rail": 4,
        "name": "4",
        "pci": "0000:47:00.0",
        "netdev": "enp71s0f0",
        "gpu_pci": "0000:50:00.0",
        "resource": "nvidia.com/rdma-vf",
        "network": "rdma-vf",
    }


@pytest.mark.parametrize(
    ("variables", "scope"),
    [
        ({}, "node"),
        ({"rails_vfs_per_pf": 2}, "rail"),
        ({"rails_vfs_per_pf": 2, "rails_jobs_per_node": 2}, "rail"),
        ({"rails_vfs_per_pf": 2, "rails_resource_scope": "node"}, "node"),
        ({"rails_resource_scope": "rail"}, "rail"),
        ({"rails_network": "ipvlan"}, "node"),
    ],
)
def test_the_scope_follows_the_vfs_and_jobs_unless_it_is_set(variables, scope):
    assert model_of({**B4, **variables})["layouts"][0]["resource_scope"] == scope


def test_two_vfs_give_a_resource_a_rail_with_two_each():
    layout = model_of({**B4, "rails_vfs_per_pf": 2})["layouts"][0]
    assert [(row["name"], row["count"]) for row in layout["resources"]] == [(f"rdma-vf-{n}", 2) for n in range(16)]
    assert set(layout["pod"]["resources"].values()) == {"1"}
    assert layout["pod"]["annotations"]["k8s.v1.cni.cncf.io/networks"].startswith("rdma-vf-0,rdma-vf-1,")


def test_names_with_underscores_stay_fit_for_old_webhooks():
    model = model_of({**B4, "rails_vfs_per_pf": 2, "rails_resource_name": "sriov_rdma_vf"})
    assert objects(model, "SriovNetworkNodePolicy")[3]["resource_name"] == "sriov_rdma_vf_3"
    assert objects(model, "SriovNetworkNodePolicy")[3]["name"] == "sriov-rdma-vf-3"


def test_names_of_rails_replace_the_numbers():
    rows = [{"pci": "0000:0c:00.0", "name": "left"}, {"pci": "0000:0c:00.1"}]
    site = {"rails": rows, "rails_mtu": 9000, "rails_ip_family": "ipv4", "rails_node_selector": {"a": "b"}}
    model = model_of({**site, "rails_resource_scope": "rail"})
    assert [row["resource_name"] for row in objects(model, "SriovNetwork")] == ["rdma-vf-left", "rdma-vf-1"]
    assert objects(model, "SriovNetworkPoolConfig")[0]["match_expressions"] == [
        {"key": "a", "operator": "In", "values": ["b"]}
    ]


@pytest.mark.parametrize("vfs", [1, 2])
def test_the_rdma_cni_always_carries_the_class_in_exclusive_mode(vfs):
    model = model_of({**B4, "rails_netns_mode": "exclusive", "rails_vfs_per_pf": vfs, "rails_traffic_class": 106})
    for network in objects(model, "SriovNetwork"):
        assert network["meta_plugins"][1] == {"type": "rdma", "rdmaQoS": {"tc": 106}}


def test_the_shared_mode_has_no_rdma_cni_and_class_0_is_kept_when_asked_for():
    chain = objects(model_of(B4), "SriovNetwork")[0]["meta_plugins"]
    assert [plugin["type"] for plugin in chain] == ["tuning", "sbr"]
    chain = objects(model_of({**B4, "rails_netns_mode": "exclusive", "rails_traffic_class": 0}), "SriovNetwork")[0]
    assert chain["meta_plugins"][1]["rdmaQoS"] == {"tc": 0}


def test_routed_ipv6_rails_get_a_placeholder_pool_and_a_bare_chain():
    model = model_of({**B300, "rails_network": "ipvlan"})
    assert objects(model, "IPPool")[0]["spec"] == {"subnet": "fd01:0:0:100::/112", "perNodeBlockSize": 100}
    assert [len(row["config"]["plugins"]) for row in objects(model, "NetworkAttachmentDefinition")] == [1] * 16


def test_macvlan_children_have_the_mtu_of_the_rail():
    network = objects(model_of({**B4, "rails_network": "macvlan"}), "NetworkAttachmentDefinition")[0]
    assert network["config"]["plugins"][0] == {
        "type": "macvlan",
        "master": "enp12s0f0",
        "mode": "bridge",
        "mtu": 4220,
        "ipam": {"type": "nv-ipam", "poolName": "rdma-macvlan-pool"},
    }


def test_rails_can_have_pools_of_both_kinds():
    pools = [
        {"name": "a", "subnet": "172.16.0.0/16", "per_node_block_size": 64, "rails": [*range(15)]},
        {
            "name": "b",
            "kind": "CIDRPool",
            "cidr": "172.17.0.0/16",
            "per_node_network_prefix": 27,
            "gateway_index": 1,
            "rails": [15],
            "routes": [{"dst": "172.18.0.0/16"}],
            "node_selector": {"x": "y"},
            "exclusions": [{"start": "172.17.0.3", "end": "172.17.0.4"}],
            "per_node_exclusions": [{"start_index": 5, "end_index": 6}],
            "static_allocations": [{"node_name": "n", "prefix": "172.17.1.0/27"}],
        },
    ]
    model = model_of({**B4, "rails_network": "ipvlan", "rails_pools": pools})
    ipam = [row["config"]["plugins"][0]["ipam"] for row in objects(model, "NetworkAttachmentDefinition")]
    assert ipam[0] == {"type": "nv-ipam", "poolName": "a"}
    assert ipam[15] == {"type": "nv-ipam", "poolName": "b", "poolType": "cidrpool"}
    assert objects(model, "CIDRPool")[0]["spec"] == {
        "cidr": "172.17.0.0/16",
        "perNodeNetworkPrefix": 27,
        "gatewayIndex": 1,
        "staticAllocations": [{"nodeName": "n", "prefix": "172.17.1.0/27"}],
        "exclusions": [{"startIP": "172.17.0.3", "endIP": "172.17.0.4"}],
        "perNodeExclusions": [{"startIndex": 5, "endIndex": 6}],
        "routes": [{"dst": "172.18.0.0/16"}],
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]}]
        },
    }


def test_host_networks_need_the_device_plugin_only():
    model = model_of({**B4, "rails_network": "host_network"})
    assert [row["kind"] for row in model["documents"]] == ["NicClusterPolicy"]
    assert set(objects(model, "NicClusterPolicy")[0]["sections"]) == {"sriovDevicePlugin"}
    assert model["layouts"][0]["pod"]["host_network"] is True
    assert model["layouts"][0]["pod"]["annotations"] == {}
    assert model["layouts"][0]["pools"] == []


def test_nodes_with_another_gpu_taint_are_tolerated():
    assert "tolerations" not in objects(model_of(B4), "NicClusterPolicy")[0]["sections"]
    keys = [row["key"] for row in objects(model_of(MI300X), "NicClusterPolicy")[0]["sections"]["tolerations"]]
    assert keys == ["nvidia.com/gpu", "amd.com/gpu"]


def test_the_mellanox_plugin_is_off_wherever_the_sriov_operator_runs():
    values = ValuesFilters().filters()["operator_values"](model_of(B4))
    assert values["sriov-network-operator"]["sriovOperatorConfig"]["disablePlugins"] == ["mellanox"]
    assert values["sriovNetworkOperator"] == {"enabled": True}
    assert "operator" not in values["sriov-network-operator"]
    values = rail_operator.helm_values(model_of({**B4, "rails_network": "ipvlan"}), nfd_enabled=True)
    assert values["sriovNetworkOperator"] == {"enabled": False}
    assert "sriov-network-operator" not in values
    assert values["nfd"] == {"enabled": True}
    own = {"limits": {"memory": "1Gi"}}
    values = rail_operator.helm_values(model_of({**B4, "rails_resource_prefix": "example.com"}), resources=own)
    assert values["operator"]["resources"] == own
    assert values["sriov-network-operator"]["operator"] == {"resourcePrefix": "example.com"}


def test_two_shapes_in_one_cluster_share_what_is_equal_and_must_name_apart_what_is_not():
    other = {"rails_shape": "BM.GPU.H100.8"}
    assert any("rails_pool_config_name" in line and "another name" in line for line in found_in(B4, other))
    model = model_of(B4, {**other, "rails_pool_config_name": "h100"})
    assert len(objects(model, "SriovNetwork")) == 1
    assert len(objects(model, "IPPool")) == 1
    assert [row["name"] for row in objects(model, "SriovNetworkNodePolicy")] == ["bm-gpu-b4-8", "bm-gpu-h100-8"]


def test_per_rail_policies_of_two_shapes_need_two_network_names():
    rail = {"rails_resource_scope": "rail"}
    other = {"rails_shape": "BM.GPU.H100.8", **rail, "rails_pool_config_name": "h100"}
    assert any(line.startswith("rails_network_name: got") for line in found_in({**B4, **rail}, other))
    assert found_in({**B4, **rail}, {**other, "rails_network_name": "h100"}) == []


def test_a_pf_offered_on_all_nodes_must_not_be_a_front_end_nic_of_some():
    # 0000:4b:00.0 is unknown on the first shape, and a front-end NIC of BM.GPU.T1.2.
    hpc = {"rails_shape": "BM.HPC2.36", "rails_network": "host_device"}
    t1 = {
        "rails_network": "host_device",
        "rails": [{"pci": "0000:4b:00.0"}],
        "rails_node_selector": {"a": "b"},
    }
    assert found_in(hpc, t1) == []
    found = found_in({"rails_shape": "BM.GPU.T1.2"}, t1)
    assert any("rails_network: got host_device with 0000:4b:00.0" in line for line in found), found


def test_the_operator_is_the_same_for_all_hosts():
    found = found_in(B4, {**B4, "network_operator_version": "26.4.1"})
    assert found == [
        'network_operator_version: got "26.4.1" and "26.7.1"; '
        "allowed: one value for all hosts: the operator serves the whole cluster"
    ]
    model = model_of({**B4, "network_operator_version": "26.4.1", "network_operator_namespace": "ops"})
    policy = objects(model, "NicClusterPolicy")[0]["sections"]
    assert policy["nvIpam"]["version"] == "network-operator-v26.4.1"
    assert objects(model, "IPPool")[0]["namespace"] == "ops"
    assert model["layouts"][0]["namespaces"] == {"operator": "ops", "networks": "default"}


def test_defaults_of_the_operator_are_those_of_its_role():
    spec = yaml.safe_load((ROLES / "network_operator" / "meta" / "argument_specs.yml").read_text())
    options = spec["argument_specs"]["main"]["options"]
    shared = [name for name in rail_operator.VARIABLES if name in options]
    assert "network_operator_version" in shared
    assert {name: options[name]["default"] for name in shared} == {
        name: rail_operator.VARIABLES[name] for name in shared
    }


def test_text_from_the_command_line_counts_as_number_and_truth_but_numbers_never_as_text():
    values, bad, found = rail_spec.check({"rails_vfs_per_pf": "2", "rails_externally_managed": "True"})
    assert (values["rails_vfs_per_pf"], values["rails_externally_managed"], found) == (2, True, [])
    _values, bad, found = rail_spec.check({"rails_shape": 4, "rails_mtu": 1.5, "rails_externally_managed": 1})
    assert bad == {"rails_shape", "rails_mtu", "rails_externally_managed"}
    assert len(found) == 3


def test_nothing_given_is_nothing_set():
    assert model_of({**B4, "rails_mtu": None}) == model_of(B4)


def test_a_failed_template_is_one_mistake_and_hides_nothing():
    failed = [("a", rail_mistakes.Mistake("rails_shape", "a template that fails", "a value"))]
    _model, found = rail_model.build({"a": {"rails_traffic_class": 300}}, failed)
    assert [item.variable for item in found] == ["rails_shape", "rails_traffic_class"]


def test_no_hosts_is_a_mistake():
    _model, found = rail_model.build({})
    assert "gpu_nodes" in str(found[0])


def test_a_report_counts_and_lists():
    text = rail_mistakes.report(
        [rail_mistakes.mistake("rails_mtu", 1, "more"), rail_mistakes.mistake("rails", {1}, "x")]
    )
    assert text.startswith("2 mistakes in")
    assert "- rails_mtu: got 1; allowed: more" in text
    assert "{1} (set)" in text
    assert rail_mistakes.shown("x" * 500).endswith("...")


def test_the_layout_filter_finds_the_host_or_says_what_to_do():
    model = model_of(B4)
    assert rails_layout(model, "gpu-0")["shape"] == "BM.GPU.B4.8"
    with pytest.raises(AnsibleFilterError, match="has no host 'gpu-9'.*gpu_nodes"):
        rails_layout(model, "gpu-9")
    with pytest.raises(AnsibleFilterError, match="not a rail model"):
        rails_layout(None, "gpu-0")


SITE = {**B4, "rails_node_selector": {"pool": "a"}}


def test_groups_of_one_cluster_need_one_name_and_their_labels():
    model = model_of(SITE, {**SITE, "rails_group_name": "b", "rails_node_selector": {"pool": "b"}})
    names = {doc["kind"]: [row["name"] for row in doc["objects"]] for doc in model["documents"]}
    assert names["SriovNetworkPoolConfig"] == ["rdma-vf", "rdma-vf-b"]
    assert names["SriovNetworkNodePolicy"] == ["bm-gpu-b4-8", "bm-gpu-b4-8-b"]
    assert names["SriovNetwork"] == ["rdma-vf", "rdma-vf-b"]
    # Pods of one group must not get VFs of the other.
    assert [[row["name"] for row in layout["resources"]] for layout in model["layouts"]] == [["rdma-vf"], ["rdma-vf-b"]]
    assert [layout["name"] for layout in model["layouts"]] == ["bm-gpu-b4-8", "bm-gpu-b4-8-b"]


@pytest.mark.parametrize("network", ["ipvlan", "macvlan"])
def test_networks_without_vfs_take_the_name_of_the_group_too(network):
    one = {**SITE, "rails_network": network}
    model = model_of(one, {**one, "rails_group_name": "b", "rails_node_selector": {"pool": "b"}, "rails_mtu": 1500})
    rows = next(doc["objects"] for doc in model["documents"] if doc["kind"] == "NetworkAttachmentDefinition")
    assert {row["name"].rpartition("-")[0] for row in rows} == {f"rdma-{network}", f"rdma-{network}-b"}


def test_a_name_that_is_set_is_left_as_it_is():
    own = {
        "rails_resource_name": "vf",
        "rails_network_name": "net",
        "rails_policy_name": "p",
        "rails_pool_config_name": "c",
    }
    (layout,) = model_of({**SITE, **own, "rails_group_name": "b"})["layouts"]
    assert [row["name"] for row in layout["resources"]] == ["vf"]
    assert {rail["network"] for rail in layout["rails"]} == {"net"}


def test_a_collision_names_both_groups_what_differs_and_what_helps():
    found = found_in(SITE, {**SITE, "rails_node_selector": {"pool": "b"}})
    text = next(line for line in found if line.startswith("rails_policy_name"))
    for part in ("SriovNetworkNodePolicy bm-gpu-b4-8 of gpu-0", "that of gpu-1", "node_selector", "rails_group_name"):
        assert part in text


def test_labels_that_both_groups_have_name_both():
    (text,) = found_in(SITE, {**SITE, "rails_group_name": "b"})
    assert text.startswith("rails_node_selector") and "labels of gpu-1 that nodes of gpu-0 do not have" in text


@pytest.mark.parametrize("name", ["B", "a_b", "-a", "a" * 21, "a.b"])
def test_group_names_that_end_no_name(name):
    assert any(line.startswith("rails_group_name") for line in found_in({**SITE, "rails_group_name": name}))
