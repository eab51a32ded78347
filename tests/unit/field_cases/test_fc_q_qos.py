# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kind Q: traffic class and QoS of the node's devices. What packets really carried is for a test with counters."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue, rail_model
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import (
    BRIDGE,
    PCI,
    PRIORITY_0,
    FieldNode,
    context,
    findings,
    found,
    layout,
    mapped,
    only,
)
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import four_rows

VF = "0000:0c:00.2"


@pytest.fixture
def node(tmp_path):
    return FieldNode(tmp_path)


def forced(node, text, number=0):
    node.write(f"{BRIDGE}/{PCI[number]}/infiniband/mlx5_{number}/tc/1/traffic_class", text)


def test_fc54_the_wanted_class_lands_on_a_priority_without_flow_control(node):
    """DSCP 10 on priority 1, PFC on 0 and 5: the map of a NIC that nobody configured."""
    moved = PRIORITY_0.replace("prio:0 dscp:10,", "prio:0 dscp:").replace("prio:1 dscp:00,", "prio:1 dscp:00,10,")
    node.mlnx_qos["rdma1"] = moved
    items = findings(context(node))
    assert [(item["id"], item["severity"], item["rail"]) for item in items] == [("QOS-006", "warning", 1)]
    evidence = items[0]["evidence"]
    assert (evidence["dscp"], evidence["priority"], evidence["pfc"]) == (10, 1, [0, 5])


def test_fc54_another_class_is_judged_by_its_own_priority(node):
    """105 has DSCP 26, which goes to 5 here; 106 differs in its ECN bits only."""
    for wanted in (41, 105, 106):
        assert found(context(node, layout(traffic_class=wanted))) == []
    assert {name for name, *_rest in found(context(node, layout(traffic_class=0)))} == {"QOS-006"}


def test_fc54_a_port_that_looks_at_the_pcp(node):
    for number in range(2):
        node.write(f"/sys/class/net/rdma{number}/qos/trust", "pcp")
    item = only("QOS-005", context(node))
    assert (item["severity"], item["rail"]) == ("warning", None)
    assert "rdma0, rdma1" in item["remedy"]


def test_fc54_congestion_notification_that_is_off_for_the_class(node):
    node.write("/sys/class/net/rdma0/ecn/roce_rp/enable/0", "0")
    item = only("QOS-007", context(node))
    assert item["evidence"].items() >= {"priority": 0, "notification": True, "reaction": False}.items()
    node.write("/sys/class/net/rdma0/ecn/roce_rp/enable/0", "1")
    node.write("/sys/class/net/rdma0/ecn/roce_rp/enable/3", "0")
    assert found(context(node)) == [], "priority 3 carries another class"


def test_qos_that_doca_ofed_does_not_tell_is_unknown_and_not_supported_by_the_kernel_is_nothing(node):
    node.mlnx_qos = {}
    assert found(context(node)) == [("QOS-006", "unknown", None)]
    for path in ("sys/module/mlx_compat/version",):
        (node.root / path).unlink()
    (node.root / "sys/module/mlx_compat").rmdir()
    assert node.facts()["driver"]["flavour"] == "inbox"
    assert found(context(node)) == []


def test_fc55_a_forced_class_does_not_reach_queue_pairs_of_the_gpu(node):
    forced(node, "Global tclass=41")
    item = only("QOS-009", context(node))
    assert item["severity"] == "info" and "GPU" in item["summary"]


def test_fc56_a_class_on_the_pf_beats_what_applications_ask_for(node):
    forced(node, "Global tclass=105")
    items = {item["id"]: item for item in findings(context(node))}
    assert set(items) == {"QOS-003", "QOS-009"}
    assert items["QOS-003"]["evidence"]["forced"]["value"] == 105


def test_fc56_ecn_bits_are_no_other_class(node):
    forced(node, "Global tclass=40")
    assert {name for name, *_rest in found(context(node))} == {"QOS-009"}


def test_a_class_that_cannot_be_read_is_unknown(node):
    forced(node, "Local tclass=41")
    assert found(context(node)) == [("QOS-003", "unknown", 0)]


def with_vf(node, text, netdev="rdma0v0"):
    home = node.function(VF, netdev, physfn=PCI[0])
    place = node.rdma(home, "mlx5_9", four_rows(netdev or "net1", mapped("198.51.100.66")))
    node.add(f"{place}/tc/1/traffic_class = {text}")
    if netdev:
        node.links[netdev] = {}
        node.sysctls(netdev)
    return node


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Global tclass=0", [("QOS-002", "warning", 0)]), ("", []), ("Global tclass=41", [])],
)
def test_fc57_a_class_0_that_stayed_on_an_idle_vf(node, text, expected):
    """Absent, empty and a forced 0 are three things."""
    assert found(context(with_vf(node, text))) == expected


def test_fc57_where_the_cni_writes_the_class_for_every_pod_it_is_a_hint(tmp_path):
    node = with_vf(FieldNode(tmp_path, "exclusive"), "Global tclass=0")
    assert found(context(node, layout(netns_mode="exclusive"))) == [("QOS-002", "info", 0)]


def test_fc57_a_vf_that_a_pod_uses_is_not_idle(node):
    assert found(context(with_vf(node, "Global tclass=0", netdev=None))) == []


def rdma_cm(node, tos):
    node.write("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", str(tos))
    node.write("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "RoCE v2")


def test_fc58_storage_is_not_marked_while_verbs_are(node):
    forced(node, "Global tclass=41")
    rdma_cm(node, 0)
    item = next(item for item in findings(context(node)) if item["id"] == "QOS-004")
    assert (item["severity"], item["rail"]) == ("warning", 0)
    assert item["evidence"].items() >= {"traffic_class": 41, "rdma_cm_tos": 0}.items()
    rdma_cm(node, 41)
    assert "QOS-004" not in {name for name, *_rest in found(context(node))}


def of_shape(name: str, **variables) -> dict:
    model, mistakes = rail_model.build({"node-a": {"rails_shape": name, **variables}})
    assert model is not None, [str(mistake) for mistake in mistakes]
    return model["layouts"][0]


def test_fc59_the_class_is_that_of_the_shape():
    shapes = {name: shape for name, shape in catalogue.load().items() if not shape.get("refused")}
    classes = {name: (shape.get("qos") or {}).get("default_tclass") for name, shape in shapes.items()}
    assert len(set(classes.values()) - {None}) > 1, "one class for all shapes would prove nothing"
    for name in ("BM.GPU.B4.8", "BM.HPC2.36"):
        assert of_shape(name)["traffic_class"] == classes[name]


def differing() -> str:
    """A shape whose two published classes differ."""
    for name, shape in catalogue.load().items():
        classes = (shape.get("qos") or {}).get("default_tclass"), (shape.get("nccl") or {}).get("NCCL_IB_TC")
        if not shape.get("refused") and None not in classes and classes[0] >> 2 != classes[1] >> 2:
            return name
    pytest.fail("the catalogue has no such shape any more")


def test_fc59_two_published_classes_of_a_shape_are_both_told(node):
    name = differing()
    facts = node.facts()
    items = evaluate([Context("node-a", of_shape(name), facts)], ["facts"])
    (item,) = [item for item in items if item["id"] == "QOS-008"]
    assert item["severity"] == "info"
    assert item["evidence"]["default_tclass"] != item["evidence"]["NCCL_IB_TC"]
    chosen = of_shape(name, rails_traffic_class=item["evidence"]["NCCL_IB_TC"])
    assert "QOS-008" not in {item["id"] for item in evaluate([Context("node-a", chosen, facts)], ["facts"])}
