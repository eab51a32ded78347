# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.network import netdevs
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import devices
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.gid import best_gid_index
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, four_rows
from hypothesis import given
from hypothesis import strategies as st

PF, VF = "0000:0c:00.0", "0000:0c:00.2"


@pytest.fixture
def node(tmp_path):
    return NodeTree(tmp_path)


def read(node, here=("rdma0", "rdma0v0", "net1"), links=None, **more):
    return devices.read_devices(node.tree(), set(here), links or {}, **more)


def link(index, **more):
    """A link as netlink.read_links gives it."""
    return {"index": index, "mtu": 4220, "master": None, "kind": None, "vrf_table": None, "addresses": [], **more}


def describe(node, links=None, reason=None, wanted=()):
    tree = node.tree()
    return netdevs.read_netdevs(tree, netdevs.choose(tree, links, set(wanted)), links, reason)


def test_a_pf_with_its_netdev_and_its_usable_row(node):
    node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"))
    device = read(node)["mlx5_6"]
    assert device["pci"] == PF
    assert device["netdev"] == "rdma0"
    assert device["function"] == "pf"
    assert device["driver"] == "mlx5_core"
    assert device["numa_node"] == 0
    assert device["pci_path"] == f"0000:00:01.1/{PF}"
    assert device["firmware"] == "16.35.2000"
    port = device["ports"]["1"]
    assert (port["state"], port["phys_state"], port["rate_gbps"]) == ("ACTIVE", "LinkUp", 100.0)
    assert port["active_mtu"] == 4096
    table = port["gid_table"]
    assert [table[key] for key in ("length", "zero", "unreadable", "reason")] == [16, 12, 0, None]
    assert len(table["hash"]) == 16
    assert [row["index"] for row in port["gids"]] == [0, 1, 2, 3]
    assert best_gid_index(port["gids"]) == 3
    assert port["traffic_class"]["state"] == "absent"
    assert port["rdma_cm_tos"] is None and "not loaded" in port["reasons"]["rdma_cm_tos"]


def test_a_vf_knows_its_pf_and_its_number(node):
    node.function(PF, "rdma0")
    node.rdma(node.function(VF, "rdma0v0", physfn=PF, index=11), "mlx5_18", four_rows("rdma0v0"))
    device = read(node)["mlx5_18"]
    assert (device["function"], device["parent_pci"], device["vf_index"]) == ("vf", PF, 11)
    assert device["netdev"] == "rdma0v0"


def test_a_sub_function_belongs_to_its_pci_function(node):
    home = node.function(PF, "rdma0")
    node.netdev(f"{home}/mlx5_core.sf.4", "enp12s0f0s88")
    node.rdma(f"{home}/mlx5_core.sf.4", "mlx5_30", {})
    device = read(node, here=("enp12s0f0s88",))["mlx5_30"]
    assert (device["function"], device["pci"], device["parent_pci"]) == ("sf", PF, PF)
    assert device["netdev"] == "enp12s0f0s88"


def test_a_software_device_has_no_pci_and_says_so(node):
    place = node.rdma(None, "rxe0", four_rows("eth0"))
    node.add(f"{place}/parent = eth0")
    device = read(node, here=("eth0",))["rxe0"]
    assert device["pci"] is None and device["function"] is None
    assert "software device" in device["reasons"]["pci"]
    assert device["netdev"] == "eth0"


def test_fc07_einval_on_a_row_means_not_ours_and_the_scan_goes_on(node):
    place = node.rdma(node.function(PF, "net1"), "mlx5_6", four_rows("net1", first=4))
    port = read(node)["mlx5_6"]["ports"]["1"]
    assert [row["index"] for row in port["gids"]] == [4, 5, 6, 7]
    assert best_gid_index(port["gids"]) == 7
    # the same when the GID itself answers EINVAL
    node.add(f"{place}/ports/1/gids/5 ! EINVAL")
    port = read(node)["mlx5_6"]["ports"]["1"]
    assert port["gid_table"]["unreadable"] == 1 and port["gid_table"]["reason"] is None
    assert best_gid_index(port["gids"]) == 7


def test_a_row_that_may_not_be_read_is_reported(node):
    place = node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"))
    node.add(f"{place}/ports/1/gids/9 ! EACCES")
    assert "row 9" in read(node)["mlx5_6"]["ports"]["1"]["gid_table"]["reason"]


def test_fc10_the_first_row_of_a_bonded_port_is_the_thirteenth_of_a_long_table(node):
    rows = {12: ("0000:0000:0000:0000:0000:ffff:cb00:7116", "IB/RoCE v1", "bond0")}
    rows[13] = (rows[12][0], "RoCE v2", "bond0")
    node.rdma(node.function(PF, "eno1"), "mlx5_bond_0", rows, rows=256)
    links = {"eno1": {"master": "bond0", "mtu": 9000}, "bond0": {"master": None, "mtu": 9000}}
    device = read(node, here=links, links=links)["mlx5_bond_0"]
    assert device["netdev"] == "bond0"
    assert device["ports"]["1"]["gid_table"]["length"] == 256
    assert best_gid_index(device["ports"]["1"]["gids"]) == 13


def test_rows_are_sorted_by_number_not_by_name(node):
    node.rdma(node.function(PF, "rdma0"), "mlx5_6", {**four_rows("rdma0", first=9), **four_rows("rdma0")}, rows=14)
    indexes = [row["index"] for row in read(node)["mlx5_6"]["ports"]["1"]["gids"]]
    assert indexes == sorted(indexes) and len(indexes) == 8


def test_types_and_netdevs_of_empty_rows_are_not_even_opened(node):
    node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"), rows=64)
    read(node)
    assert sum("/gid_attrs/" in path for path in node.reads) == 8
    assert sum("/gids/" in path for path in node.reads) == 64


def test_zero_rows_are_listed_on_request(node):
    node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"))
    rows = read(node, zero_rows=True)["mlx5_6"]["ports"]["1"]["gids"]
    assert len(rows) == 16 and rows[4]["scope"] == "zero" and rows[4]["usable"] is False


def test_fc01_fc03_an_active_port_whose_netdev_is_elsewhere_has_no_usable_row(node):
    node.rdma(node.function(PF), "mlx5_3", {})
    device = read(node, here=("eth0",))["mlx5_3"]
    assert device["ports"]["1"]["state"] == "ACTIVE"
    assert device["netdev"] is None and "network namespace" in device["reasons"]["netdev"]
    assert device["ports"]["1"]["gids"] == []
    assert device["ports"]["1"]["gid_table"]["zero"] == 16
    assert device["ports"]["1"]["active_mtu"] is None


def test_representors_are_not_taken_for_the_pf(node):
    home = node.function(PF)
    node.netdev(home, "rdma0", "phys_port_name=p0 dev_port=0")
    node.netdev(home, "aaa0", "phys_port_name=pf0vf0 dev_port=1")
    node.netdev(home, "eth9", "phys_port_name=c1pf0sf88 dev_port=2")
    node.rdma(home, "mlx5_6", {})
    assert read(node)["mlx5_6"]["netdev"] == "rdma0"


def test_two_netdevs_that_fit_are_not_guessed_at(node):
    home = node.function(PF)
    node.netdev(home, "eth1", "dev_port=0")
    node.netdev(home, "eth2", "dev_port=0")
    node.rdma(home, "mlx5_6", {})
    device = read(node, here=("eth1", "eth2"))["mlx5_6"]
    assert device["netdev"] is None and "several" in device["reasons"]["netdev"]


def test_fc57_fc58_forced_class_and_rdma_cm_class_are_two_facts(node):
    place = node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"))
    node.add(f"{place}/tc/1/traffic_class = Global tclass=0")
    node.add("/sys/kernel/config/rdma_cm/mlx5_6/ports/1/default_roce_tos = 106")
    port = read(node)["mlx5_6"]["ports"]["1"]
    assert port["traffic_class"] == {"state": "set", "value": 0, "rules": []}
    assert port["rdma_cm_tos"] == 106


def test_a_class_that_may_not_be_read_is_not_absent(node):
    place = node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"))
    node.add(f"{place}/tc/1/traffic_class ! EACCES")
    told = read(node)["mlx5_6"]["ports"]["1"]["traffic_class"]
    assert told["state"] is None and "EACCES" in told["reason"]


@pytest.mark.parametrize(
    ("netdev", "rdma"), [(1500, 1024), (4220, 4096), (9000, 4096), (4191, 2048), (300, None), (None, None)]
)
def test_fc51_the_rdma_mtu_follows_from_the_netdev(netdev, rdma):
    assert devices.roce_mtu(netdev) == rdma


@pytest.mark.parametrize(
    ("text", "rate"), [("200 Gb/sec (4X HDR)\n", 200.0), ("2.5 Gb/sec", 2.5), ("fast", None), (None, None)]
)
def test_rates(text, rate):
    assert devices.parse_rate(text) == rate


@given(st.text())
def test_no_text_makes_the_small_parsers_fail(text):
    devices.parse_rate(text)
    devices.parse_state(text)


def test_fc49_sysctls_are_effective_values(node):
    node.function(PF, "rdma0")
    for scope, value in (("all", 1), ("rdma0", 0)):
        node.add(f"/proc/sys/net/ipv4/conf/{scope}/rp_filter = {value}")
    node.add("/proc/sys/net/ipv4/conf/rdma0/arp_ignore = 1")
    told = describe(node, None, "another root")["rdma0"]
    assert told["sysctls"]["rp_filter"] == 1
    assert told["sysctls"]["arp_ignore"] is None  # one of the two scopes is not known
    assert told["addresses"] is None and told["reasons"]["addresses"] == "another root"


def test_a_pf_lists_its_vfs_by_number(node):
    home = node.function(PF, "rdma0")
    node.add(f"{home}/sriov_totalvfs = 16\n{home}/sriov_numvfs = 2")
    for index in (10, 2):
        vf = node.function(f"0000:0c:01.{index % 7}", f"rdma0v{index}", physfn=PF, index=index)
        node.rdma(vf, f"mlx5_{index}", {})
    node.add(f"{home}/net/rdma0/qos/trust = dscp\n{home}/net/rdma0/qos/dscp2prio = 10:0 26:5")
    told = describe(node)
    assert told["rdma0"]["sriov"]["total"] == 16 and told["rdma0"]["sriov"]["num"] == 2
    assert [(vf["index"], vf["netdev"], vf["device"]) for vf in told["rdma0"]["sriov"]["vfs"]] == [
        (2, "rdma0v2", "mlx5_2"),
        (10, "rdma0v10", "mlx5_10"),
    ]
    assert told["rdma0"]["qos"]["trust"] == "dscp"
    assert told["rdma0"]["qos"]["dscp_to_priority"] == {"10": 0, "26": 5}
    assert told["rdma0v2"]["sriov"] is None
    assert told["rdma0v2"]["qos"]["trust"] is None and told["rdma0v2"]["qos"]["qos_of"] == "rdma0"


def test_netdevs_of_other_namespaces_and_of_pods_are_left_out(node):
    node.function(PF, "rdma0")
    node.add("/sys/class/net/veth1/mtu = 1500\n/sys/class/net/bond0/mtu = 1500")
    told = describe(node, {"veth1": link(7), "bond0": link(8)}, wanted={"bond0"})
    assert list(told) == ["bond0"]
