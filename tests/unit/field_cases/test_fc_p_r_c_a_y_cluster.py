# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cases about policies, drains, resources, attachments, addresses and YAML, as the cluster shows them."""

from __future__ import annotations

import json

import field_cluster as field
import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import drain, maintenance, prune, readiness
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api
from ansible_collections.railyard.rdma.plugins.modules import rail_wait
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_model
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context

PF = field.PFS


def found(rule_id, state=None, intent=None):
    return [row for row in field.judged(state, intent) if row["id"] == rule_id]


def wait_for(states, pods=(), budgets=()):
    """What a wait says at its end about nodes in these states."""

    class Fake(Api):
        def list_items(self, path, query=()):
            if path.endswith("/pods"):
                return [] if "labelSelector" in dict(query) else list(pods)
            return list(budgets) if "poddisruptionbudgets" in path else []

        def request(self, method, path, query=(), attempts=None):
            return {"metadata": {"name": path.rpartition("/")[2]}, "spec": {"unschedulable": True}}

    policy = {"apiVersion": "sriovnetwork.openshift.io/v1", **field.policy()}
    snapshot = {
        "nodes": [field.node(name) for name in states],
        "states": states,
        "attachments": {},
        "pools": {},
    }
    hosts = {"hosts": list(states), "resources": []}
    pending = readiness.layout_pending([policy], [hosts], {}, snapshot)
    return rail_wait.explained(Fake(None), pending, [policy], [])


# FC-29


def state_in(name, current, desired="Drain_Required"):
    state = field.node_state(name)
    keys = ("sriovnetwork.openshift.io/desired-state", "sriovnetwork.openshift.io/current-state")
    state["metadata"]["annotations"] = dict(zip(keys, (desired, current)))
    state["status"]["syncStatus"] = "InProgress"
    return state


def test_fc_29_a_drain_that_a_budget_holds_up_is_named_with_pod_and_budget():
    labels = {"app": "trainer"}
    meta = {"name": "trainer-0", "namespace": "default", "labels": labels, "uid": "1"}
    meta["ownerReferences"] = [{"kind": "ReplicaSet", "name": "t", "controller": True, "uid": "2"}]
    pod = {"metadata": meta, "spec": {"nodeName": "node-a"}, "status": {"phase": "Running"}}
    budget = {
        "metadata": {"name": "keep-all", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "minAvailable": "100%"},
        "status": {"disruptionsAllowed": 0},
    }
    text = "\n".join(readiness.summary(wait_for({"node-a": state_in("node-a", "Draining")}, [pod], [budget])))
    for part in ("node-a:", "current-state Draining", "trainer-0", "keep-all"):
        assert part in text, text


def test_fc_29_a_finished_drain_is_nothing_to_wait_for():
    assert wait_for({"node-a": field.node_state("node-a")}) == []
    assert maintenance.drain_obstacles([], [], "evict", "evict") == []
    assert callable(drain.held_up)


# FC-30


def test_fc_30_all_policies_of_a_shape_are_applied_in_one_call_and_waited_for_once():
    """One list of objects, policies after the pool configuration that limits their drains."""
    other = {"rails_shape": "BM.GPU.H200.8", "rails_resource_name": "rdma-vf-h200"}
    other["rails_pools"] = [{"name": "h200", "subnet": "172.16.0.0/16", "per_node_block_size": 100}]
    model, mistakes = rail_model.build({"a": {"rails_shape": "BM.GPU.B4.8"}, "b": other})
    assert mistakes == []
    kinds = [doc["kind"] for doc in model["documents"]]
    assert kinds.index("SriovNetworkPoolConfig") < kinds.index("SriovNetworkNodePolicy")
    policies = next(doc for doc in model["documents"] if doc["kind"] == "SriovNetworkNodePolicy")["objects"]
    assert len(policies) == 2
    assert prune.BEFORE.index("SriovNetworkNodePolicy") < prune.BEFORE.index("SriovNetworkPoolConfig")


def test_fc_30_nodes_that_wait_for_each_other_are_both_named():
    states = {"node-a": state_in("node-a", "Idle"), "node-b": state_in("node-b", "Draining")}
    lines = readiness.summary(wait_for(states))
    assert "node-a:" in lines and "node-b:" in lines
    assert any("desired-state Drain_Required" in line for line in lines)


# FC-33


def test_fc_33_a_pf_in_two_policies_is_refused_before_the_apply():
    (row,) = found("POL-001", field.cluster(policies=[field.policy("by-hand", PF[1:])]))
    assert (
        row["severity"] == "error" and PF[1] in row["summary"] and row["evidence"]["policies"] == ["rails", "by-hand"]
    )


@pytest.mark.parametrize(
    "other",
    [field.policy("b", PF[1:], nodeSelector={"type": "cpu"}), field.policy("b", ["0000:16:00.0"])],
    ids=["other-nodes", "other-pf"],
)
def test_fc_33_policies_that_do_not_meet_pass(other):
    assert found("POL-001", field.cluster(policies=[other])) == []


@pytest.mark.parametrize(
    ("rule_id", "changes"),
    [
        ("POL-006", {"operator_configs": [{"metadata": {"name": "default", "namespace": "else"}}]}),
        (
            "POL-005",
            {"wanted": [field.policy(resourceName="a-b")], "webhooks": ["sriov"], "operator_version": "26.4.0"},
        ),
        (
            "POL-004",
            {
                "wanted": [field.policy(externallyManaged=True, mtu=9000)],
                "node_states": [field.node_state("node-a"), field.node_state("node-b")],
            },
        ),
    ],
    ids=["namespace", "resource-name", "mtu-above-the-pf"],
)
def test_fc_33_the_other_checks_of_the_webhook(rule_id, changes):
    assert {row["severity"] for row in found(rule_id, field.cluster(**changes))} == {"error"}


def test_fc_33_no_policy_without_vfs():
    _model, mistakes = rail_model.build({"a": {"rails_shape": "BM.GPU.B4.8", "rails_vfs_per_pf": 0}})
    assert [item.variable for item in mistakes] == ["rails_vfs_per_pf"]


# FC-34


def test_fc_34_every_node_at_once_needs_a_confirmation():
    names = [f"gpu-{number}" for number in range(32)]
    state = field.cluster(
        nodes=[field.node(name) for name in names],
        node_states=[field.node_state(name) for name in names],
        wanted=[field.pool_config(maxUnavailable="100%")],
    )
    (row,) = [row for row in field.judged(state, hosts=names) if row["id"] == "POL-012"]
    assert "32 of 32 nodes" in row["summary"] and "rail_networks_drain_limit" in row["remedy"]
    assert field.judged({**state, "drain_limit": "100%"}, hosts=names) == []


def test_fc_34_the_default_is_one_node():
    model, _mistakes = rail_model.build({"a": {"rails_shape": "BM.GPU.B4.8"}})
    assert model["layouts"][0]["max_unavailable"] == 1


# FC-35


def test_fc_35_the_pf_without_its_vfs_is_named():
    states = [
        field.node_state("node-a"),
        field.node_state("node-b", field.interface(PF[0], vfs=2), field.interface(PF[1], vfs=1)),
    ]
    given = {"wanted": [field.policy(externallyManaged=True, numVfs=2)], "node_states": states[1:]}
    (row,) = found("POL-004", field.cluster(**given))
    assert (row["rail"], row["node"]) == (1, "node-b") and "1 of 2 VFs" in row["summary"]
    enough = [field.node_state("node-b", *(field.interface(pci, vfs=2) for pci in PF))]
    assert found("POL-004", field.cluster(**{**given, "node_states": enough})) == []


# FC-40


@pytest.mark.parametrize("told", [None, "openshift.io/rdma_vf"], ids=["missing", "other-prefix"])
def test_fc_40_the_odd_one_out_of_three_names_is_told(told):
    (row,) = found("RESOURCE-010", field.cluster(attachments=[field.attachment(resource=told, by_hand=True)]))
    assert row["evidence"] == {
        "annotation": told,
        "pod_asks_for": "nvidia.com/rdma_vf",
        "nodes_offer": {"nvidia.com/rdma_vf": 4},
    }
    assert found("RESOURCE-010") == []


def test_fc_40_the_wait_does_not_end_with_a_wrong_annotation():
    network = {"apiVersion": "sriovnetwork.openshift.io/v1", **field.network()}
    wrong = {("default", "rdma-vf"): field.attachment(resource="openshift.io/rdma_vf")}
    right = {("default", "rdma-vf"): field.attachment()}
    (pending,) = readiness.attachments_pending([network], wrong, {"nvidia.com/rdma_vf"})
    assert "openshift.io/rdma_vf" in pending["reason"]
    assert readiness.attachments_pending([network], right, {"nvidia.com/rdma_vf"}) == []


# FC-41


def test_fc_41_nothing_offered_with_vfs_there_points_at_the_device_plugin():
    intent = field.layout()
    context = Context("node-a", intent, kubernetes={"allocatable": {"nvidia.com/rdma_vf": "0"}})
    (row,) = [r for r in evaluate([context], ["kubernetes"]) if r["id"] == "RESOURCE-001"]
    assert "restart" in row["remedy"] and "sriov-device-plugin" in row["remedy"]
    context = Context("node-a", intent, kubernetes={"allocatable": {"nvidia.com/rdma_vf": "2"}})
    assert [r for r in evaluate([context], ["kubernetes"]) if r["id"] == "RESOURCE-001"] == []


# FC-44


def test_fc_44_rdma_qos_under_args_is_an_error_and_on_top_is_read():
    wrong = [{"type": "rdma", "args": {"cni": {"rdmaQoS": {"tc": 41}}}}]
    right = [{"type": "rdma", "rdmaQoS": {"tc": 41}}]
    assert [
        r["severity"]
        for r in found("CNI-010", field.cluster(attachments=[field.attachment(plugins=wrong, by_hand=True)]))
    ] == ["error"]
    assert found("CNI-010", field.cluster(attachments=[field.attachment(plugins=right, by_hand=True)])) == []


def test_fc_44_what_we_render_has_it_on_top():
    model, _mistakes = rail_model.build({"a": {"rails_shape": "BM.GPU.B4.8", "rails_netns_mode": "exclusive"}})
    (document,) = [doc for doc in model["documents"] if doc["kind"] == "SriovNetwork"]
    chain = document["objects"][0]["meta_plugins"]
    assert [plugin["rdmaQoS"] for plugin in chain if plugin["type"] == "rdma"] == [{"tc": 41}]


# FC-47


@pytest.mark.parametrize(
    "changes",
    [
        {"pods": [field.pod("trainer", "node-a", "192.168.0.2", pci=PF[1])]},
        {
            "nic_cluster_policies": [
                {
                    "metadata": {"name": "nic-cluster-policy"},
                    "spec": {
                        "nvIpam": {},
                        "sriovDevicePlugin": {
                            "config": json.dumps(
                                {
                                    "resourceList": [
                                        {
                                            "resourcePrefix": "nvidia.com",
                                            "resourceName": "rdma_vf",
                                            "selectors": {"pciAddresses": [PF[1]]},
                                        }
                                    ]
                                }
                            )
                        },
                    },
                }
            ]
        },
    ],
    ids=["a-pod-got-it", "the-configuration-selects-it"],
)
def test_fc_47_a_pf_in_a_pool_of_vfs(changes):
    (row,) = found("RESOURCE-011", field.cluster(**changes))
    assert (row["severity"], row["rail"]) == ("error", 1) and PF[1] in row["summary"]


def test_fc_47_vfs_in_pods_pass():
    vf = field.pod("trainer", "node-a", "192.168.0.2", pci="0000:0c:00.3")
    assert found("RESOURCE-011", field.cluster(pods=[vf])) == []


# FC-61


def test_fc_61_one_address_on_two_nodes():
    pods = [field.pod("trainer-0", "node-a", "192.168.5.2"), field.pod("trainer-1", "node-b", "192.168.5.2")]
    (row,) = found("ADDRESS-010", field.cluster(pods=pods))
    assert row["evidence"]["pods"] == ["node-a default/trainer-0", "node-b default/trainer-1"]


def test_fc_61_host_local_with_one_range_is_refused_on_several_nodes_only():
    ipam = {"type": "host-local", "ranges": [[{"subnet": "192.168.5.0/24"}]]}
    state = field.cluster(attachments=[field.attachment(by_hand=True, ipam=ipam)])
    assert [row["severity"] for row in found("ADDRESS-010", state)] == ["error"]
    lone = [row for row in field.judged(state, hosts=("node-a",)) if row["id"] == "ADDRESS-010"]
    assert lone == []


# FC-62


def test_fc_62_a_pool_that_is_full_of_pods_that_are_gone():
    pods = [field.pod(f"p{number}", "node-a", f"192.168.0.{number + 1}") for number in range(2)]
    events = [{"node": "node-a", "object": "default/x", "message": "nv-ipam: no free addresses in the pool sriov-pool"}]
    (row,) = found("ADDRESS-011", field.cluster(pods=pods, events=events))
    assert row["evidence"]["probably_stale"] == 98 and "nv-ipam-node" in row["remedy"]
    assert row["evidence"]["operator_version"] == "26.7.1"
    assert found("ADDRESS-011", field.cluster(pods=pods)) == []


# FC-72


@pytest.mark.parametrize("given", [2820.1, 960.0, 47], ids=["base-sixty", "another", "whole"])
def test_fc_72_an_address_that_became_a_number_is_refused_with_the_advice(given):
    rails = [{"pci": "0000:0c:00.0", "netdev": "a"}, {"pci": given, "netdev": "b"}]
    base = {"rails_mtu": 4220, "rails_ip_family": "ipv4", "rails_node_selector": {"r": "y"}}
    _model, mistakes = rail_model.build({"a": {**base, "rails": rails}})
    assert any(item.variable == "rails[1].pci" and "in quotes" in str(item) for item in mistakes)


def test_fc_72_an_object_by_hand_with_such_an_address_selects_nothing_of_ours():
    other = field.policy("by-hand", [2820.0, "0000:0c:00.1"])
    (row,) = found("POL-001", field.cluster(policies=[other]))
    assert row["evidence"]["pfs"] == [PF[1]]


# FC-73


def test_fc_73_what_must_be_text_is_text():
    """No off, on or number of YAML 1.1 gets into a rendered chain; tests/golden/test_schemas.py judges what is rendered
    by the schemas of the kinds."""
    model, _mistakes = rail_model.build({"a": {"rails_shape": "BM.GPU.B4.8"}})
    (document,) = [doc for doc in model["documents"] if doc["kind"] == "SriovNetwork"]
    for network in document["objects"]:
        for plugin in network["meta_plugins"]:
            assert all(isinstance(value, str) for value in (plugin.get("sysctl") or {}).values())
