# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kind N: the RDMA netns mode and who sets it."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_model
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context
from ansible_collections.railyard.rdma.plugins.plugin_utils.node_table import node_lines, node_row
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import (
    LIVE,
    OURS,
    PCI,
    FieldNode,
    context,
    findings,
    found,
    layout,
    only,
)

OPERATOR = "/etc/modprobe.d/sriov_network_operator_modules_config.conf"
EXCLUSIVE = {"netns_mode": "exclusive"}


@pytest.fixture
def node(tmp_path):
    return FieldNode(tmp_path)


@pytest.fixture
def exclusive(tmp_path):
    return FieldNode(tmp_path, "exclusive")


def test_fc20_a_mode_that_needs_a_reboot_says_so_and_names_the_way(node):
    """The kernel does not switch while other namespaces exist; the way is file, image, reboot."""
    node.write(OURS, "options ib_core netns_mode=0")
    node.boot_image("exclusive")
    item = only("NETNS-001", context(node, layout(**EXCLUSIVE)))
    assert item["remedy"].startswith("Reboot the node")
    assert {"live": "shared", "next_boot": "exclusive"}.items() <= item["evidence"].items()
    assert "namespaces" in item["evidence"]


LABELS = {"rack": "a"}


def with_pool(spec, intent):
    """Findings of a node with the label rack=a in a cluster with one pool."""
    pool = {"metadata": {"name": "rdma-vf"}, "spec": {"maxUnavailable": 1, **spec}}
    offered = {"nvidia.com/rdma-vf": "2"}
    kubernetes = {"node": "node-a", "allocatable": offered, "labels": LABELS, "attachments": None, "pools": [pool]}
    return evaluate([Context("node-a", intent, kubernetes=kubernetes)], ["kubernetes"])


def test_fc21_two_owners_of_the_mode_are_named():
    (item,) = with_pool({"rdmaMode": "exclusive"}, layout(**EXCLUSIVE))
    assert (item["id"], item["severity"]) == ("NETNS-004", "error")
    assert "rdmaMode" in item["remedy"] and item["evidence"]["pool"] == "rdma-vf"
    assert with_pool({}, layout(**EXCLUSIVE)) == []


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({"matchLabels": LABELS}, True),
        ({"matchLabels": {"rack": "b"}}, False),
        ({"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["b"]}]}, True),
        ({"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}, False),
        ({}, True),
    ],
)
def test_fc21_a_pool_of_other_nodes_does_not_matter(selector, selected):
    assert bool(with_pool({"rdmaMode": "shared", "nodeSelector": selector}, layout())) == selected


def test_fc21_a_node_whose_mode_is_left_alone_may_have_it_set_by_the_pool():
    assert with_pool({"rdmaMode": "shared"}, layout(netns_mode="keep", rdma_cni=False)) == []


def test_fc22_a_later_sorting_file_wins_and_is_named(exclusive):
    exclusive.write(OPERATOR, "options ib_core netns_mode=1")
    exclusive.boot_image("shared")
    exclusive.write(LIVE, "Y")
    items = {item["id"]: item for item in findings(context(exclusive, layout(**EXCLUSIVE)))}
    assert set(items) == {"NETNS-001", "NETNS-002"}
    item = items["NETNS-002"]
    assert item["severity"] == "error" and OPERATOR in item["summary"] and "rdmaMode" in item["remedy"]
    owners = item["evidence"]["owners"]
    assert [(owner["path"], owner["mode"], owner["wins"]) for owner in owners] == [
        (OURS, "exclusive", False),
        (OPERATOR, "shared", True),
    ]


def test_fc22_dash_and_underscore_name_the_same_module(exclusive):
    exclusive.write("/usr/lib/modprobe.d/zz-vendor.conf", "options ib-core netns_mode=1")
    exclusive.boot_image("shared")
    item = next(item for item in findings(context(exclusive, layout(**EXCLUSIVE))) if item["id"] == "NETNS-002")
    assert item["severity"] == "error" and "/usr/lib/modprobe.d/zz-vendor.conf" in item["summary"]


def test_fc22_a_file_that_agrees_or_comes_first_is_a_warning(exclusive):
    exclusive.write("/etc/modprobe.d/aa-vendor.conf", "options ib_core netns_mode=1")
    assert found(context(exclusive, layout(**EXCLUSIVE))) == [("NETNS-002", "warning", None)]


def test_fc22_a_file_that_ours_hides_has_no_effect(exclusive):
    exclusive.write("/usr/lib/modprobe.d/ib_core.conf", "options ib_core netns_mode=1")
    assert found(context(exclusive, layout(**EXCLUSIVE))) == []


def test_fc22_a_value_that_the_kernel_refuses_is_an_error(exclusive):
    exclusive.write("/etc/modprobe.d/zz.conf", "options ib_core netns_mode=maybe")
    assert ("NETNS-002", "error", None) in found(context(exclusive, layout(**EXCLUSIVE)))


def test_fc23_a_mode_that_changed_since_the_boot_is_told_with_the_driver(exclusive):
    before = exclusive.facts()
    exclusive.write(LIVE, "Y")
    exclusive.write("/sys/module/mlx5_core/version", "25.01-0.6.0")
    items = {item["id"]: item for item in findings(context(exclusive, layout(**EXCLUSIVE), before=before))}
    assert set(items) == {"NETNS-001", "NETNS-005"}
    assert "24.10-1.1.4, now 25.01-0.6.0" in items["NETNS-005"]["summary"]
    evidence = items["NETNS-001"]["evidence"]
    assert (evidence["live"], evidence["configured"], evidence["next_boot"]) == ("shared", "exclusive", "exclusive")


def test_fc23_after_a_reboot_the_mode_may_be_another_one(node):
    before = node.facts()
    node.write(OURS, "options ib_core netns_mode=0")
    node.boot_image("exclusive")
    node.write(LIVE, "N")
    node.write("/proc/sys/kernel/random/boot_id", "0b1f9f0e-6be4-495e-904c-e4e4110be599")
    assert found(context(node, layout(**EXCLUSIVE), before=before)) == []


@pytest.mark.parametrize(
    ("network", "mode", "refused"),
    [
        ("ipvlan", "exclusive", True),
        ("macvlan", "exclusive", True),
        ("host_network", "exclusive", True),
        ("ipvlan", "shared", False),
        ("sriov", "exclusive", False),
    ],
)
def test_fc24_network_and_mode_that_cannot_work_are_refused_before_anything(network, mode, refused):
    variables = {
        "rails": [{"pci": PCI[0], "netdev": "rdma0"}],
        "rails_network": network,
        "rails_netns_mode": mode,
        "rails_mtu": 4220,
        "rails_ip_family": "ipv4",
        "rails_traffic_class": 41,
        "rails_node_selector": {"rack": "a"},
    }
    model, mistakes = rail_model.build({"node-a": variables})
    assert (model is None) == refused
    assert any(entry.variable == "rails_netns_mode" for entry in mistakes) == refused


def test_fc25_four_columns_show_where_images_differ(tmp_path):
    """One image ships exclusive and no file, the other shared; shared is wanted on both."""
    nodes = []
    for name, live in (("node-a", "N"), ("node-b", "Y")):
        node = FieldNode(tmp_path / name)
        (node.root / OURS.lstrip("/")).unlink()
        node.boot_image(None)
        node.write(LIVE, live)
        nodes.append(context(node, name=name))
    items = findings(*nodes)
    assert [(item["id"], item["node"]) for item in items] == [("NETNS-001", "node-a")]
    heading, _rule, first, second = node_lines([node_row(one, items) for one in nodes])
    columns = ["wanted", "live", "modprobe.d", "boot image"]
    assert heading.split()[2:7] == [*columns[:3], "boot", "image"]
    assert first.split()[2:6] == ["shared", "exclusive", "-", "-"] and "fail (1 error)" in first
    assert second.split()[2:6] == ["shared", "shared", "-", "-"] and second.endswith("pass")
