# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which netdev, PCI function and rail belong to which RDMA device, on cards and nodes of many kinds."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils import node_facts
from ansible_collections.railyard.rdma.plugins.module_utils.network import netdevs
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import devices
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, four_rows

PF, VF = "0000:0c:00.0", "0000:0c:00.2"


@pytest.fixture
def node(tmp_path):
    return NodeTree(tmp_path)


def link(index, **more):
    """A link as netlink.read_links gives it."""
    return {"index": index, "mtu": 4220, "master": None, "kind": None, "vrf_table": None, **more}


def read(node, links, **more):
    return devices.read_devices(node.tree(), set(links), links, **more)


def describe(node, links, wanted=()):
    tree = node.tree()
    return netdevs.read_netdevs(tree, netdevs.choose(tree, links, set(wanted)), links, None)


def gb300(node):
    """One multi-plane card: PF without address, planes without RDMA device, a VF in a VRF."""
    home = node.function("0002:03:00.0", "rdma0")
    node.rdma(home, "rdma_rail0", {})
    for plane in (1, 2, 3):
        node.function(f"0002:03:00.{plane}", f"rdma0p{plane}")
    vf = node.function("0002:03:00.4", "rdma_vf0", physfn="0002:03:00.0")
    node.rdma(vf, "rdma_vf_rail0", four_rows("rdma_vf0", "2001:0db8:0000:00a1:0000:0000:0000:0001"))
    node.add("/sys/class/net/vrf_r0/mtu = 65575\n/sys/class/net/vrf_r0/operstate = up")
    links = {f"rdma0p{plane}": link(10 + plane) for plane in (1, 2, 3)}
    links.update({"rdma0": link(10), "rdma_vf0": link(20, master="vrf_r0")})
    links["vrf_r0"] = link(21, kind="vrf", vrf_table=1003, mtu=65575)
    return links


def test_fc12_a_multi_plane_card_shows_its_planes_and_the_vf_that_carries_the_rail(node):
    links = gb300(node)
    found = read(node, links)
    assert set(found) == {"rdma_rail0", "rdma_vf_rail0"}, "planes have no RDMA device"
    assert (found["rdma_rail0"]["plane"], found["rdma_rail0"]["netdev"]) == (0, "rdma0")
    assert found["rdma_rail0"]["ports"]["1"]["gids"] == []
    vf = found["rdma_vf_rail0"]
    assert (vf["function"], vf["parent_pci"], vf["plane"], vf["netdev"]) == ("vf", "0002:03:00.0", None, "rdma_vf0")
    told = describe(node, links)
    assert [told[f"rdma0p{plane}"]["plane"] for plane in (1, 2, 3)] == [1, 2, 3]
    assert told["rdma_vf0"]["plane"] is None and told["rdma_vf0"]["vf_of"] == "0002:03:00.0"


def test_the_vrf_of_a_rail_is_described_with_its_table(node):
    told = describe(node, gb300(node))
    assert told["rdma_vf0"]["master"] == "vrf_r0"
    assert (told["vrf_r0"]["kind"], told["vrf_r0"]["vrf_table"], told["vrf_r0"]["pci"]) == ("vrf", 1003, None)


def test_the_layout_of_sixteen_plane_pfs_has_a_device_on_each_plane(node):
    for plane in range(4):
        home = node.function(f"0002:03:00.{plane}", f"rdma{plane}")
        node.rdma(home, f"rdma_p{plane}_rail0", four_rows(f"rdma{plane}"))
    found = read(node, {f"rdma{plane}": link(plane + 1) for plane in range(4)})
    assert [found[f"rdma_p{plane}_rail0"]["plane"] for plane in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("driver", ["mlx5_core", "ice"])
def test_two_ports_are_no_planes_and_four_ports_of_another_driver_neither(node, driver):
    functions = 2 if driver == "mlx5_core" else 4
    for number in range(functions):
        home = node.function(f"0000:0c:00.{number}", f"eth{number}")
        (node.root / home.lstrip("/") / "driver").unlink()
        node.add(f"{home}/driver -> ../../../../bus/pci/drivers/{driver}")
    told = describe(node, {f"eth{number}": link(number + 1) for number in range(functions)})
    assert {netdev["plane"] for netdev in told.values()} == {None}


def test_a_soft_roce_device_resolves_its_function_through_its_netdev(node):
    node.function(PF, "eth0")
    place = node.rdma(None, "rxe0", four_rows("eth0"))
    node.add(f"{place}/parent = eth0\n{place}/node_desc = rxe")
    device = read(node, {"eth0": link(2)})["rxe0"]
    assert (device["kind"], device["pci"], device["netdev"], device["netdev_pci"]) == ("software", None, "eth0", PF)
    assert device["function"] is None and "software" in device["reasons"]["pci"]


def test_a_soft_device_below_a_pci_function_is_still_software(node):
    """Soft-iWARP makes itself a child of its netdev's function in some kernels; RDMA netlink names the netdev."""
    home = node.function(PF, "eth0")
    place = node.rdma(home, "siw0", four_rows("eth0"))
    node.add(f"{place}/node_desc = Software iWARP stack")
    device = read(node, {"eth0": link(2)}, port_netdevs={("siw0", "1"): "eth0"})["siw0"]
    assert (device["kind"], device["netdev"], device["netdev_pci"]) == ("software", "eth0", PF)


def test_a_soft_device_on_a_vlan_leaves_by_the_function_below(node):
    node.function(PF, "eth0")
    node.add("/sys/class/net/eth0.5/lower_eth0/mtu = 1\n/sys/class/net/eth0.5/mtu = 1500")
    place = node.rdma(None, "rxe0", four_rows("eth0.5"))
    node.add(f"{place}/parent = eth0.5")
    device = read(node, {"eth0": link(2), "eth0.5": link(3, kind="vlan")})["rxe0"]
    assert (device["netdev"], device["netdev_pci"]) == ("eth0.5", PF)


def test_netdevs_below_each_other_in_a_circle_end(node):
    for name, other in (("a", "b"), ("b", "a")):
        node.add(f"/sys/class/net/{name}/lower_{other}/x = 1")
    assert devices.netdev_pci(node.tree(), "a") is None


def test_a_netdev_named_by_the_driver_but_in_another_namespace_is_not_ours(node):
    place = node.rdma(None, "rxe0", {})
    node.add(f"{place}/parent = eth7")
    device = read(node, {"eth0": link(2)})["rxe0"]
    assert device["kind"] == "software" and device["netdev"] is None and device["reasons"]["netdev"]


def test_a_rail_is_matched_by_the_function_of_a_soft_device_but_hardware_comes_first(node):
    node.function(PF, "rdma0")
    soft = node.rdma(None, "rxe0", four_rows("rdma0"))
    node.add(f"{soft}/parent = rdma0\n/sys/module/ib_core/x = 1")
    (rail,) = node_facts.gather(node.tree(), [{"rail": 0, "pci": PF}])["rails"]
    assert (rail["device"], rail["netdev"], rail["gid_index"]) == ("rxe0", "rdma0", 3)
    node.rdma(f"/sys/devices/pci0000:00/0000:00:01.1/{PF}", "zz0", four_rows("rdma0"))
    (rail,) = node_facts.gather(node.tree(), [{"rail": 0, "pci": PF}])["rails"]
    assert rail["device"] == "zz0"


def test_a_bond_is_told_on_its_members_and_itself(node):
    node.rdma(node.function(PF, "eno1"), "mlx5_bond_0", four_rows("bond0"))
    node.rdma(node.function("0000:0d:00.0", "eno3"), "mlx5_2", four_rows("eno3"))
    links = {"eno1": link(2, master="bond0"), "eno3": link(4), "bond0": link(5, kind="bond")}
    found = read(node, links)
    assert (found["mlx5_bond_0"]["netdev"], found["mlx5_bond_0"]["bond"]) == ("bond0", True)
    assert found["mlx5_bond_0"]["netdev_pci"] == PF
    assert found["mlx5_2"]["bond"] is False


def test_a_bond_is_told_without_netlink_too(node):
    home = node.function(PF, "eno1")
    node.add(f"/sys/class/net/bond0/bonding/mode = 1\n{home}/net/eno1/master -> ../../../../../../class/net/bond0")
    node.rdma(home, "mlx5_bond_0", four_rows("bond0"))
    device = devices.read_devices(node.tree(), {"eno1", "bond0"}, {})["mlx5_bond_0"]
    assert (device["netdev"], device["bond"]) == ("bond0", True)


def test_ipoib_children_are_not_taken_for_the_port(node):
    home = node.function(PF)
    for name, index, parent in (("ib0", 5, 5), ("a0.8001", 6, 5)):
        node.netdev(home, name, f"dev_port=0 ifindex={index} iflink={parent}")
    node.rdma(home, "mlx5_0", {}, link_layer="InfiniBand")
    device = read(node, {"ib0": link(5), "a0.8001": link(6)})["mlx5_0"]
    assert device["netdev"] == "ib0"
    port = device["ports"]["1"]
    assert port["active_mtu"] is None and "link layer" in port["reasons"]["active_mtu"]


def test_an_infiniband_port_without_ipoib_is_no_fault_and_has_its_gid(node):
    rows = {0: ("fe80:0000:0000:0000:0002:c903:00a0:0001", "IB/RoCE v1", None)}
    node.rdma(node.function(PF), "mlx5_0", rows, link_layer="InfiniBand")
    device = read(node, {})["mlx5_0"]
    assert "netdev" not in device["reasons"] and device["netdev"] is None
    assert device["ports"]["1"]["gids"][0]["usable"] is True and device["ports"]["1"]["gids"][0]["type"] == "IB"


def test_two_ports_on_one_function_have_a_netdev_each(node):
    home = node.function(PF)
    node.netdev(home, "eth1", "dev_port=1")
    node.netdev(home, "eth2", "dev_port=0")
    place = node.rdma(home, "mlx4_0", {})
    node.add(f"{place}/ports/2/link_layer = Ethernet\n{place}/ports/10/link_layer = Ethernet")
    device = read(node, {"eth1": link(3), "eth2": link(4)})["mlx4_0"]
    assert list(device["ports"]) == ["1", "2", "10"]
    assert [device["ports"][number]["netdev"] for number in ("1", "2", "10")] == ["eth2", "eth1", None]
    assert device["netdev"] == "eth2"


def test_a_device_without_ports_says_so(node):
    home = node.function(PF)
    node.add(f"{home}/infiniband/smi0/fw_ver = 1\n/sys/class/infiniband/smi0 -> ../..{home[4:]}/infiniband/smi0")
    node.add(f"{home}/infiniband/smi0/device -> ../..")
    device = read(node, {})["smi0"]
    assert device["ports"] == {} and device["reasons"]["ports"] == "the device has no port"
    assert device["netdev"] is None and device["reasons"]["netdev"] and device["pci"] == PF


@pytest.mark.parametrize("name", ["pf0vf3", "c1pf0vf0", "pf0sf88", "pf0hpf", "c2pf1"])
def test_representors_are_told(node, name):
    home = node.function(PF)
    node.netdev(home, "rep0", f"phys_port_name={name}")
    node.netdev(home, "rdma0", "phys_port_name=p0")
    told = describe(node, {"rep0": link(2), "rdma0": link(3)})
    assert told["rep0"]["representor"] is True
    assert told["rdma0"]["representor"] is False


def test_fc09_the_hash_changes_when_an_index_moves(node, tmp_path):
    node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"))
    other = NodeTree(tmp_path / "later")
    other.rdma(other.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0", first=5))
    same = NodeTree(tmp_path / "same")
    same.rdma(same.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"), rows=32)
    first, moved, again = (
        read(each, {"rdma0": link(2)})["mlx5_6"]["ports"]["1"]["gid_table"]["hash"] for each in (node, other, same)
    )
    assert first == again != moved and len(first) == 16


def test_fc09_no_hash_of_a_table_that_could_not_be_read_whole(node):
    place = node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"))
    node.add(f"{place}/ports/1/gids/9 ! EIO")
    assert read(node, {"rdma0": link(2)})["mlx5_6"]["ports"]["1"]["gid_table"]["hash"] is None


def test_a_row_of_a_child_in_another_namespace_is_not_usable_and_names_it(node):
    node.rdma(node.function(PF, "rdma0"), "mlx5_6", {**four_rows("rdma0"), **four_rows("net1", first=4)})
    rows = read(node, {"rdma0": link(2)})["mlx5_6"]["ports"]["1"]["gids"]
    assert [row["usable"] for row in rows] == [True] * 4 + [False] * 4
    assert "net1 is not in this network namespace" in rows[7]["reason"]


def test_fc48_sysctls_are_combined_as_the_kernel_does(node):
    node.function(PF, "rdma0")
    values = {"arp_ignore": (0, 1), "arp_announce": (2, 0), "rp_filter": (1, 2), "arp_filter": (1, 0)}
    values["accept_local"] = (0, 0)
    for key, (everywhere, own) in values.items():
        node.add(f"/proc/sys/net/ipv4/conf/all/{key} = {everywhere}\n/proc/sys/net/ipv4/conf/rdma0/{key} = {own}")
    for key, value in {"disable_ipv6": 0, "accept_ra": 1, "forwarding": 1, "autoconf": 1}.items():
        node.add(f"/proc/sys/net/ipv6/conf/rdma0/{key} = {value}\n/proc/sys/net/ipv6/conf/all/{key} = 0")
    told = describe(node, {"rdma0": link(2)})["rdma0"]["sysctls"]
    assert [told[key] for key in values] == [1, 2, 2, 1, 0]
    assert (told["accept_ra"], told["forwarding"], told["accepts_ra"]) == (1, 1, False)
    assert told["accept_ra_defrtr"] is None


def test_an_or_is_decided_by_one_side_and_a_maximum_is_not(node):
    node.function(PF, "rdma0")
    node.add("/proc/sys/net/ipv4/conf/rdma0/arp_filter = 1\n/proc/sys/net/ipv4/conf/rdma0/accept_local = 0")
    node.add("/proc/sys/net/ipv4/conf/rdma0/rp_filter = 1")
    told = describe(node, {"rdma0": link(2)})["rdma0"]
    assert (told["sysctls"]["arp_filter"], told["sysctls"]["accept_local"], told["sysctls"]["rp_filter"]) == (
        1,
        None,
        None,
    )
    assert "ipv6" in told["reasons"]["sysctls"]


def test_fc38_the_netdev_of_the_node_address_and_its_bridge_are_described(node):
    node.function(PF, "eth0")
    node.add("/sys/class/net/br0/mtu = 1500\n/sys/class/net/veth9/mtu = 1500")
    routes = [{"family": "ipv4", "gateway": "198.51.100.1", "metric": 100, "table": 254, "origin": "dhcp"}]
    links = {"eth0": link(2, master="br0"), "br0": link(3, kind="bridge", default_routes=routes, addresses=[])}
    links["veth9"] = link(4, kind="veth", master="br0")
    told = describe(node, links)
    assert set(told) == {"eth0", "br0"} and told["br0"]["default_routes"] == routes
    assert told["eth0"]["default_routes"] is None and told["eth0"]["reasons"]["default_routes"]


def test_exclusive_mode_hints_that_devices_may_be_elsewhere(node):
    node.add("/sys/module/ib_core/parameters/netns_mode = N\n/sys/class/net/")
    facts = node_facts.gather(node.tree())
    assert facts["devices"] == {} and "exclusive" in facts["reasons"]["devices"]
    node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"))
    facts = node_facts.gather(node.tree())
    assert "mlx5_6" in facts["devices"] and "other network namespaces" in facts["reasons"]["devices"]


def test_without_sysfs_the_devices_are_unknown_not_none(tmp_path):
    facts = node_facts.gather(NodeTree(tmp_path).tree())
    assert facts["devices"] is None and "sysfs" in facts["reasons"]["devices"]
    assert facts["gathered_at"].endswith("Z") and facts["routing"]["rules"] is None and facts["routing"]["reason"]
