# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.host import topology
from ansible_collections.railyard.rdma.plugins.module_utils.host.topology import Place, distance
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree
from hypothesis import given
from hypothesis import strategies as st

A100, CONNECTX, AST2500 = ("0x10de", "0x20b2"), ("0x15b3", "0x101d"), ("0x1a03", "0x2000")
ROOT, UPSTREAM = "0000:00:01.1", "0000:08:00.0"
# The places of Mellanox cards and GPUs on an A100 machine: two switches on one root complex, a second one on the other
# socket.
RAIL_0 = f"pci0000:00/{ROOT}/{UPSTREAM}/0000:09:00.0/0000:0c:00.0"
GPU_SAME_SWITCH = f"pci0000:00/{ROOT}/{UPSTREAM}/0000:09:04.0/0000:0f:00.0"
GPU_NEXT_SWITCH = f"pci0000:00/{ROOT}/{UPSTREAM}/0000:09:08.0/0000:10:00.0/0000:11:00.0/0000:12:00.0"
GPU_OTHER_PORT = "pci0000:00/0000:00:03.1/0000:4b:00.0"
GPU_OTHER_BRIDGE = "pci0000:40/0000:40:01.1/0000:4f:00.0"
GPU_OTHER_SOCKET = "pci0000:80/0000:80:01.1/0000:8f:00.0"


@pytest.fixture
def node(tmp_path):
    return NodeTree(tmp_path)


def add(node, path: str, kind: str, ids: tuple[str, str], numa_node: int = 0, driver: str | None = None) -> str:
    address = path.rsplit("/", 1)[-1]
    home = f"/sys/devices/{path}"
    node.add(
        f"""{home}/class = {kind}
        {home}/vendor = {ids[0]}
        {home}/device = {ids[1]}
        {home}/numa_node = {numa_node}
        /sys/bus/pci/devices/{address} -> ../../../devices/{path}"""
    )
    if driver:
        node.add(f"{home}/driver -> ../../../../bus/pci/drivers/{driver}")
    return address


def numa(node, rows: dict[int, str]) -> None:
    for number, row in rows.items():
        node.add(f"/sys/devices/system/node/node{number}/distance = {row}")


def near_to(tree, address: str | None) -> dict:
    """What becomes of a rail with this address."""
    rail: dict = {"pci": address}
    topology.attach_gpus(tree, [rail], topology.read_gpus(tree)[0])
    return rail


@pytest.fixture
def a100(node):
    add(node, RAIL_0, "0x020000", CONNECTX)
    for path in (GPU_NEXT_SWITCH, GPU_SAME_SWITCH, GPU_OTHER_PORT, GPU_OTHER_BRIDGE):
        add(node, path, "0x030200", A100, driver="nvidia")
    add(node, GPU_OTHER_SOCKET, "0x030200", A100, numa_node=1)
    add(node, "pci0000:00/0000:00:05.0/0000:02:00.0", "0x030000", AST2500)
    numa(node, {0: "10 32", 1: "32 10"})
    return node


def test_fc70_the_same_numa_node_is_not_the_same_switch(a100):
    tree = a100.tree()
    near = near_to(tree, "0000:0c:00.0")["gpus"]
    assert [(gpu["pci"], gpu["distance"], gpu["numa_distance"]) for gpu in near] == [
        ("0000:0f:00.0", "PIX", 10),
        ("0000:12:00.0", "PXB", 10),
        ("0000:4b:00.0", "PHB", 10),
        ("0000:4f:00.0", "NODE", 10),
        ("0000:8f:00.0", "SYS", 32),
    ]


def test_gpus_are_described(a100):
    gpus, _reason = topology.read_gpus(a100.tree())
    assert gpus[0] == {
        "pci": "0000:0f:00.0",
        "vendor": "10de",
        "device": "20b2",
        "driver": "nvidia",
        "numa_node": 0,
        "pci_path": GPU_SAME_SWITCH.partition("/")[2],
    }
    assert len(gpus) == 5 and gpus[-1]["driver"] is None


@pytest.mark.parametrize(
    ("kind", "ids", "counts"),
    [
        ("0x030200", ("0x10de", "0x2941"), True),
        ("0x030000", ("0x10de", "0x1eb8"), True),
        ("0x120000", ("0x1002", "0x74a1"), True),  # MI300X
        ("0x038000", ("0x1002", "0x740f"), True),  # MI210
        ("0x030000", AST2500, False),
        ("0x030000", ("0x102b", "0x0536"), False),  # Matrox
        ("0x120000", ("0x10de", "0x0000"), False),
        ("0x020000", CONNECTX, False),
        ("0x060400", ("0x10de", "0x22a3"), False),
        ("", ("", ""), False),
    ],
)
def test_which_devices_are_gpus(node, kind, ids, counts):
    add(node, GPU_OTHER_PORT, kind, ids)
    assert len(topology.read_gpus(node.tree())[0]) == counts


def test_vfs_of_a_gpu_are_not_gpus_of_the_host(node):
    add(node, GPU_OTHER_PORT, "0x030200", A100)
    add(node, "pci0000:00/0000:00:03.1/0000:4b:00.4", "0x030200", A100)
    node.add("/sys/devices/pci0000:00/0000:00:03.1/0000:4b:00.4/physfn -> ../0000:4b:00.0")
    assert [gpu["pci"] for gpu in topology.read_gpus(node.tree())[0]] == ["0000:4b:00.0"]


def test_without_sysfs_gpus_are_unknown_and_without_gpus_there_are_none(node):
    assert topology.read_gpus(node.tree())[0] is None
    add(node, RAIL_0, "0x020000", CONNECTX)
    assert topology.read_gpus(node.tree()) == ([], None)
    assert near_to(node.tree(), "0000:0c:00.0") == {"pci": "0000:0c:00.0", "gpus": [], "reason_gpus": None}
    for address in (None, "0000:ff:00.0"):
        told = near_to(node.tree(), address)
        assert told["gpus"] is None and "no PCI device" in told["reason_gpus"]
    rail = {"pci": "0000:0c:00.0"}
    topology.attach_gpus(node.tree(), [rail], None)
    assert rail["gpus"] is None and rail["reason_gpus"]


def test_a_vf_is_as_near_as_its_pf(a100):
    # A VF on a bus of its own, directly below the bridge of its PF.
    home = f"pci0000:00/{ROOT}/{UPSTREAM}/0000:09:00.0/0000:0d:01.2"
    add(a100, home, "0x020000", CONNECTX, numa_node=-1)
    a100.add(f"/sys/devices/{home}/physfn -> ../0000:0c:00.0")
    tree = a100.tree()
    assert near_to(tree, "0000:0d:01.2")["gpus"] == near_to(tree, "0000:0c:00.0")["gpus"] != []


def test_a_machine_with_a_pci_domain_a_socket(node):
    """GB300: each socket's devices are in domains of their own, and GPU memory makes NUMA nodes without processors."""
    add(node, "pci0000:00/0000:00:00.0/0000:01:00.0", "0x020000", CONNECTX, numa_node=0)
    near = add(node, "pci0008:00/0008:00:00.0/0008:06:00.0", "0x030200", A100, numa_node=0)
    far = add(node, "pci0018:00/0018:00:00.0/0018:06:00.0", "0x030200", A100, numa_node=1)
    numa(node, {0: "10 40 80 120", 1: "40 10 120 80", 2: "80 120 10 160", 10: "120 80 160 10"})
    tree = node.tree()
    told = near_to(tree, "0000:01:00.0")["gpus"]
    assert [(gpu["pci"], gpu["distance"], gpu["numa_distance"]) for gpu in told] == [
        (near, "NODE", 10),
        (far, "SYS", 40),
    ]
    assert topology.numa_distances(tree)[0][10] == 120


def test_a_firmware_that_does_not_tell_the_numa_node(node):
    add(node, RAIL_0, "0x020000", CONNECTX, numa_node=-1)
    add(node, GPU_SAME_SWITCH, "0x030200", A100, numa_node=-1)
    add(node, GPU_OTHER_BRIDGE, "0x030200", A100, numa_node=-1)
    tree = node.tree()
    gpus, _reason = topology.read_gpus(tree)
    assert [gpu["numa_node"] for gpu in gpus] == [None, None]
    numa(node, {0: "10 20", 1: "20 10"})
    near = near_to(tree, "0000:0c:00.0")["gpus"]
    assert near[0]["distance"] == "PIX" and near[0]["numa_distance"] is None
    assert near[1]["distance"] is None and "firmware" in near[1]["reason"]
    # With one NUMA node there is nothing to tell.
    (node.root / "sys/devices/system/node/node1/distance").unlink()
    (node.root / "sys/devices/system/node/node1").rmdir()
    numa(node, {0: "10"})
    assert near_to(node.tree(), "0000:0c:00.0")["gpus"][1]["distance"] == "NODE"


def test_functions_of_one_card_and_devices_of_a_virtual_machine():
    one, other = Place("pci0000:00", ("0000:00:01.0", "0000:0c:00.0"), 0), Place("pci0000:00", ("0000:00:05.0",), 0)
    assert distance(one, Place("pci0000:00", ("0000:00:01.0", "0000:0c:00.1"), 0), 2) == ("PIX", None)
    assert distance(one, other, 2) == ("PHB", None)
    assert distance(one, Place(None, (), None), 2)[0] is None


@pytest.mark.parametrize("row", ["", "10", "10 x", "10 32 40"])
def test_a_distance_file_that_does_not_fit_is_not_used(node, row):
    numa(node, {0: row, 1: "32 10"})
    assert 0 not in topology.numa_distances(node.tree())


PLACES = st.builds(
    Place,
    st.sampled_from(["pci0000:00", "pci0000:80", None]),
    st.lists(st.sampled_from(["0000:00:01.0", "0000:01:00.0", "0000:02:00.0"]), max_size=4).map(tuple),
    st.sampled_from([None, 0, 1]),
)


@given(PLACES, PLACES, st.integers(0, 3))
def test_distances_are_the_same_both_ways_and_unknown_ones_have_a_reason(one, other, nodes):
    word, reason = distance(one, other, nodes)
    assert (word, reason) == distance(other, one, nodes)  # pylint: disable=arguments-out-of-order
    assert (word in topology.WORDS) != bool(reason)


@given(kind=st.text(max_size=12), vendor=st.text(max_size=8), row=st.text(max_size=20))
def test_no_content_of_sysfs_makes_reading_fail(tmp_path_factory, kind, vendor, row):
    node = NodeTree(tmp_path_factory.mktemp("sys"))
    home = node.root / "sys/devices/pci0000:00/0000:00:01.0"
    home.mkdir(parents=True)
    for name, text in (("class", kind), ("vendor", vendor), ("device", vendor), ("numa_node", row)):
        (home / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    node.add("/sys/bus/pci/devices/0000:00:01.0 -> ../../../devices/pci0000:00/0000:00:01.0")
    place = node.root / "sys/devices/system/node/node0"
    place.mkdir(parents=True)
    (place / "distance").write_bytes(row.encode("utf-8", "surrogatepass"))
    tree = node.tree()
    near_to(tree, "0000:00:01.0")
