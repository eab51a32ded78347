# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two switches that stamp a packet's class: the device's forced class and RDMA CM's default ToS."""

from __future__ import annotations

import os

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import devices, rdma_cm
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.traffic_class import parse_traffic_class
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, four_rows
from hypothesis import given
from hypothesis import strategies as st

PF = "0000:0c:00.0"
CM = "/sys/kernel/config/rdma_cm"


@pytest.fixture
def node(tmp_path):
    node = NodeTree(tmp_path)
    node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"), rows=4)
    return node


def test_fc57_a_class_of_0_is_forced_and_not_unset(node):
    assert devices.read_traffic_class(node.tree(), "/sys/class/infiniband/mlx5_6", "1")["state"] == "absent"
    node.add("/sys/class/infiniband/mlx5_6/tc/1/traffic_class =")
    assert devices.read_traffic_class(node.tree(), "/sys/class/infiniband/mlx5_6", "1") == {
        "state": "unset",
        "value": None,
        "rules": [],
    }
    node.add("/sys/class/infiniband/mlx5_6/tc/1/traffic_class = Global tclass=0")
    assert devices.read_traffic_class(node.tree(), "/sys/class/infiniband/mlx5_6", "1") == {
        "state": "set",
        "value": 0,
        "rules": [],
    }


def test_fc55_rules_for_some_destinations_stand_beside_the_global_class():
    told = parse_traffic_class("Global tclass=236\nsrc_ip=10.0.0.1,dst_ip=10.0.0.9/32,tclass=41\n")
    assert told["state"] == "set" and told["value"] == 236
    assert told["rules"] == [{"src_ip": "10.0.0.1", "dst_ip": "10.0.0.9/32", "tclass": 41}]


def test_a_class_file_that_may_not_be_read_is_neither_absent_nor_unset(node):
    node.add("/sys/class/infiniband/mlx5_6/tc/1/traffic_class ! EACCES")
    told = devices.read_traffic_class(node.tree(), "/sys/class/infiniband/mlx5_6", "1")
    assert told["state"] is None and "EACCES" in told["reason"]


def test_fc58_the_tos_of_rdma_cm_is_read_beside_the_forced_class(node):
    node.add("/sys/class/infiniband/mlx5_6/tc/1/traffic_class = Global tclass=41")
    home = f"{CM}/mlx5_6/ports/1"
    node.add(f"{home}/default_roce_tos = 0\n{home}/default_roce_mode = RoCE v2")
    assert rdma_cm.read_rdma_cm(node.tree(), "mlx5_6", "1") == {"tos": 0, "mode": "RoCE v2", "reasons": {}}
    port = devices.read_devices(node.tree(), {"rdma0"}, {})["mlx5_6"]["ports"]["1"]
    assert port["traffic_class"]["value"] == 41 and port["rdma_cm_tos"] == 0 and port["rdma_cm_mode"] == "RoCE v2"


def test_fc58_a_healthy_pair(node):
    home = f"{CM}/mlx5_6/ports/1"
    node.add(f"{home}/default_roce_tos = 41\n{home}/default_roce_mode = IB/RoCE v1")
    assert rdma_cm.read_rdma_cm(node.tree(), "mlx5_6", "1") == {"tos": 41, "mode": "IB/RoCE v1", "reasons": {}}


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ("/sys/module/", "module rdma_cm is not loaded"),
        ("/sys/module/rdma_cm/", "no configfs"),
        ("/sys/module/rdma_cm/\n/sys/kernel/config/\n/proc/self/mounts = proc /proc proc rw 0 0", "not mounted"),
        (
            "/sys/module/rdma_cm/\n/sys/kernel/config/\n/proc/self/mounts = none /sys/kernel/config configfs rw 0 0",
            "CONFIG_INFINIBAND_ADDR_TRANS_CONFIGFS",
        ),
        (f"{CM}/", "directory in configfs"),
        (f"{CM}/mlx5_6/ports/", "does not show this port"),
    ],
)
def test_each_reason_why_rdma_cm_tells_nothing(node, there, reason):
    node.add(there)
    told = rdma_cm.read_rdma_cm(node.tree(), "mlx5_6", "1")
    assert told["tos"] is None and told["mode"] is None
    assert reason in told["reasons"]["rdma_cm_tos"] and reason in told["reasons"]["rdma_cm_mode"]


def test_reading_makes_no_directory(node):
    node.add(f"{CM}/")
    rdma_cm.read_rdma_cm(node.tree(), "mlx5_6", "1")
    assert os.listdir(str(node.root) + CM) == []


@pytest.mark.parametrize(("tos", "mode"), [("256", "RoCE v3"), ("-1", ""), ("x", "RoCE v22"), ("", "v2")])
def test_values_that_cannot_be(node, tos, mode):
    home = f"{CM}/mlx5_6/ports/1"
    node.add(f"{home}/default_roce_tos = {tos}\n{home}/default_roce_mode = {mode}")
    told = rdma_cm.read_rdma_cm(node.tree(), "mlx5_6", "1")
    assert told["tos"] is None and told["mode"] is None
    assert "not a ToS" in told["reasons"]["rdma_cm_tos"] and "not a RoCE mode" in told["reasons"]["rdma_cm_mode"]


def test_a_tos_that_may_not_be_read(node):
    home = f"{CM}/mlx5_6/ports/1"
    node.add(f"{home}/default_roce_tos ! EACCES\n{home}/default_roce_mode = RoCE v2")
    told = rdma_cm.read_rdma_cm(node.tree(), "mlx5_6", "1")
    assert told["tos"] is None and "EACCES" in told["reasons"]["rdma_cm_tos"] and told["mode"] == "RoCE v2"


@given(st.text())
def test_no_content_makes_the_class_parser_fail(text):
    told = parse_traffic_class(text)
    assert told["state"] in ("set", "unset") or told["reason"]
    assert told["value"] is None or 0 <= told["value"] <= 255
