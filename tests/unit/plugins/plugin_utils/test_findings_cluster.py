# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules about the cluster's objects: each one on a faulty input and on its healthy twin."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings import pool_config as rules
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import RULES
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "field_cases"))
import field_cluster as field

PF = field.PFS
EXTERNAL = {"externallyManaged": True}
NO_ADDRESS = {"node": "node-a", "object": "default/x", "message": "no free addresses in the pool"}


def wanted(*objects):
    return {"wanted": list(objects)}


# id: (changes of the cluster, changes of the layout, what the summary must name, rail)
FAULTY = {
    "POL-001": ({"policies": [field.policy("by-hand", PF[1:])]}, {}, ("by-hand", PF[1], "node-a, node-b"), 1),
    "POL-002": ({"node_states": [field.node_state("node-a", field.interface(PF[0]))]}, {}, (PF[1], "node-a"), 1),
    "POL-003": (
        {"node_states": [field.node_state("node-b", field.interface(PF[0]), field.interface(PF[1], total=0))]},
        {},
        (PF[1], "1 VFs", "offers 0", "node-b"),
        1,
    ),
    "POL-004": (
        {
            **wanted(field.policy(**EXTERNAL)),
            "node_states": [field.node_state("node-a", field.interface(PF[0], vfs=0), field.interface(PF[1], mtu=1500))],
        },
        {},
        (PF[0], "0 of 1 VFs"),
        0,
    ),
    "POL-005": (
        {**wanted(field.policy(resourceName="rdma-vf")), "webhooks": ["sriov-operator-webhook-config"],
         "operator_version": "26.4.1"},
        {},
        ("rdma-vf", "sriov-operator-webhook-config"),
        None,
    ),
    "POL-006": ({"operator_configs": [{"metadata": {"name": "default", "namespace": "else"}}]}, {}, ("op", "else"), None),
    "POL-007": ({"nodes": [field.node("node-a"), field.node("node-b", type="cpu")]}, {}, ("node-b",), None),
    "POL-008": ({"nodes": [field.node(n) for n in ("node-a", "node-b", "node-z")]}, {}, ("node-z",), None),
    "POL-009": (
        {"policies": [field.policy("other", ["0000:ff:00.0"], excludeTopology=True)]},
        {},
        ("other", "excludeTopology"),
        None,
    ),
    "POL-010": ({"pool_configs": [field.pool_config("all", {})]}, {}, ("all, rails", "never drained"), None),
    "POL-011": (wanted(field.policy(), field.pool_config(maxUnavailable="10%")), {}, ("10% of 2 nodes is 0",), None),
    "POL-012": (wanted(field.pool_config(maxUnavailable="100%")), {}, ("100%", "2 of 2 nodes", "1 are allowed"), None),
    "POL-013": ({"namespaces": ["kube-system"]}, {}, ("namespace default",), None),
    "POL-014": (
        {**wanted({"kind": "NicClusterPolicy", "metadata": {"name": "n"}, "spec": {}}), "ip_pools": [field.ip_pool("theirs")]},
        {},
        ("IPPool theirs",),
        None,
    ),
    "POL-015": (
        {},
        {"pools": [{"name": "rail-0", "static_allocations": [{"node_name": "node-a"}, {"node_name": "node-c"}]}]},
        ("node-c",),
        None,
    ),
    "CNI-010": (
        {"attachments": [field.attachment(by_hand=True, plugins=[{"type": "rdma", "args": {"cni": {"rdmaQoS": {"tc": 41}}}}])]},
        {},
        ("rdma-vf", "args.cni"),
        None,
    ),
    "RESOURCE-010": (
        {"attachments": [field.attachment(resource="openshift.io/rdma_vf")]},
        {},
        ("openshift.io/rdma_vf", "nvidia.com/rdma_vf"),
        None,
    ),
    "RESOURCE-011": ({"pods": [field.pod("trainer", "node-b", "192.168.1.2", pci=PF[1])]}, {}, ("trainer", PF[1], "node-b"), 1),
    "ADDRESS-010": (
        {"attachments": [field.attachment(by_hand=True, ipam={"type": "host-local", "subnet": "192.168.5.0/24"})]},
        {},
        ("host-local", "2 nodes"),
        None,
    ),
    "ADDRESS-011": ({"events": [NO_ADDRESS]}, {}, ("sriov-pool", "node-a", "1 of the block's 100"), None),
}  # fmt: skip
OURS = sorted(name for name, rule in RULES.items() if rule.needs == ("cluster",))


def test_the_healthy_cluster_has_no_finding():
    assert field.judged() == []


def test_every_rule_about_the_cluster_has_a_faulty_input():
    assert sorted(FAULTY) == [name for name in OURS if not name.startswith("HELM")]


@pytest.mark.parametrize("name", sorted(FAULTY))
def test_a_fault_is_found_once_and_nothing_else(name):
    changes, intent, texts, rail = FAULTY[name]
    found = field.judged(field.cluster(**copy.deepcopy(changes)), field.layout(**intent))
    assert {row["id"] for row in found} == {name}, found
    row = next(row for row in found if row["rail"] == rail)
    for text in texts:
        assert text in row["summary"], row
    assert row["remedy"] and row["evidence"]


@pytest.mark.parametrize("part", sorted(set(field.cluster()) - {"reasons", "operator_version", "drain_limit"}))
def test_what_could_not_be_read_is_unknown_and_says_why(part):
    given = {**wanted(field.policy(resourceName="r-v")), part: None, "reasons": {part: "pods is forbidden"}}
    found = field.judged(field.cluster(**given))
    looks = {row["id"] for row in found if row["severity"] == "unknown"}
    assert looks and not {row["id"] for row in found if row["severity"] != "unknown"} - {"POL-007"}
    assert all("forbidden" in row["summary"] for row in found if row["severity"] == "unknown")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("policies of other nodes", {"policies": [field.policy("x", PF, nodeSelector={"type": "cpu"})]}),
        ("an earlier policy of ours goes", {"policies": [field.applied(field.policy("old"), "railyard")]}),
        ("an earlier pool of ours goes", {"pool_configs": [field.applied(field.pool_config("old"), "railyard")]}),
        ("the daemon has not looked yet", {"node_states": []}),
        ("OVS offload is no pool", {"pool_configs": [field.pool_config("o", {}, ovsHardwareOffloadConfig={"name": "w"})]}),
        ("no webhook, so dashes may be", wanted(field.policy(resourceName="rdma-vf"))),
        ("another webhook", {**wanted(field.policy(resourceName="r-v")), "webhooks": ["cert-manager-webhook"]}),
        ("VFs are there", wanted(field.policy(externallyManaged=True))),
        ("no operator yet", {"operator_configs": [], "node_states": [], "attachments": []}),
        ("the class where it is read", {"attachments": [
            field.attachment(by_hand=True, plugins=[{"type": "rdma", "rdmaQoS": {"tc": 41}}])]}),
        ("a new name for our resource", {"attachments": [field.attachment(resource="nvidia.com/old_name")]}),
        ("our chain is brought anew", {"attachments": [field.attachment(
            plugins=[{"type": "rdma", "args": {"cni": {"rdmaQoS": {"tc": 41}}}}], ipam={"type": "host-local"})]}),
        ("full for good reason", {"events": [NO_ADDRESS], "pods": [
            field.pod(f"p{i}", "node-a", f"192.168.0.{i + 1}") for i in range(99)]}),
        ("a pod that has ended", {"pods": [field.pod("a", "node-a", "192.168.0.2"),
                                           field.pod("b", "node-b", "192.168.0.2", phase="Succeeded")]}),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)  # fmt: skip
def test_what_looks_like_a_fault_and_is_none(name, changes):
    assert field.judged(field.cluster(**changes)) == []


def test_a_nic_that_the_operator_does_not_know_is_told_before_its_daemon_has_looked():
    nic = {"vendor": "15b3", "model": "ConnectX-9", "pf_device": "1025", "vf_device": "101e"}
    (row,) = field.judged(field.cluster(node_states=[]), field.layout(nic=nic))
    assert (row["id"], row["rail"]) == ("POL-002", None)
    assert "ConnectX-9 (15b3:1025)" in row["summary"] and '"15b3 1025 101e"' in row["remedy"]
    extra = field.cluster(node_states=[], nic_ids=["15b3 1019 101a", "15B3 1025 101e"])
    assert field.judged(extra, field.layout(nic=nic)) == []


def test_every_node_of_the_layout_has_a_static_allocation_where_one_has():
    def pools(*names):
        return field.layout(pools=[{"name": "rail-0", "static_allocations": [{"node_name": name} for name in names]}])

    (row,) = field.judged(intent=pools("node-a"))
    assert (row["id"], row["node"]) == ("POL-015", "node-b") and "none for node-b" in row["summary"]
    assert field.judged(intent=pools("node-a", "node-b")) == []


def test_a_newer_webhook_is_a_warning_only():
    changes = {**wanted(field.policy(resourceName="r-v")), "webhooks": ["sriov-x"], "operator_version": "26.7.1"}
    assert field.ids(field.judged(field.cluster(**changes))) == [("POL-005", "warning")]


def test_a_confirmed_limit_lets_more_nodes_go():
    everyone = wanted(field.pool_config(maxUnavailable="100%"))
    assert field.judged(field.cluster(**everyone, drain_limit="100%")) == []
    assert field.judged(field.cluster(**everyone, drain_limit=2)) == []
    absent = field.pool_config()
    del absent["spec"]["maxUnavailable"]
    assert field.ids(field.judged(field.cluster(**wanted(absent)))) == [("POL-012", "error")]


def test_many_nodes_with_one_fault_are_one_finding():
    names = [f"node-{number}" for number in range(40)]
    state = field.cluster(
        nodes=[field.node(name) for name in names],
        node_states=[field.node_state(name) for name in names],
        policies=[field.policy("by-hand")],
    )
    (row,) = field.judged(state, hosts=names)
    assert "and 36 more" in row["summary"] and len(row["evidence"]["nodes"]) == 40


@given(st.one_of(st.none(), st.integers(0, 2000), st.integers(0, 100).map("{}%".format)), st.integers(0, 2000))
def test_at_once_is_never_more_than_there_are(value, nodes):
    assert 0 <= rules.at_once(value, nodes) <= nodes
    assert rules.allowed_at_once("50%" if value is None else value, nodes) >= 1
