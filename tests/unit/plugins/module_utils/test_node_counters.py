# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import struct
import subprocess

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.network import ethtool
from ansible_collections.railyard.rdma.plugins.module_utils.rdma import counters
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, four_rows
from hypothesis import given
from hypothesis import strategies as st

PF = "0000:0c:00.0"
# Names as the drivers have them: mlx5_core, bnxt_en, ice, i40e, mlx4_en.
NAMES = {
    "rx_prio0_bytes": ("0", "rx_bytes"),
    "tx_prio1_bytes": ("1", "tx_bytes"),
    "rx_prio5_packets": ("5", "rx_packets"),
    "rx_prio5_cong_discard": ("5", "rx_cong_discard"),
    "tx_prio5_pause": ("5", "tx_pause"),
    "tx_prio5_pause_duration": ("5", "tx_pause_duration"),
    "rx_bytes_pri3": ("3", "rx_bytes"),
    "tx_pfc_ena_frames_pri4": ("4", "tx_pfc_ena_frames"),
    "rx_priority_6_xoff.nic": ("6", "rx_xoff"),
    "port.tx_priority_2_xon": ("2", "tx_xon"),
    "rx_prio_7_packets": ("7", "rx_packets"),
}
KEPT = ("rx_discards_phy", "rx_64_bytes_phy", "rx_vport_rdma_unicast_bytes", "tx_pause_ctrl_phy", "rx_out_of_buffer")
QUEUES = ("rx0_packets", "tx63_xmit_more", "ch12_poll", "tx_queue_0_bytes", "[3]: rx_ucast_packets", "tx-0.packets")


def test_counters_are_grouped_by_priority_whatever_the_driver_calls_them():
    told = ethtool.group({name: number for number, name in enumerate((*NAMES, *KEPT, *QUEUES))})
    for number, (priority, counter) in enumerate(NAMES.values()):
        assert told["priority"][priority][counter] == number
    assert sorted(told["other"]) == sorted(KEPT)


class Card:
    """Answers the ioctl as net/ethtool/ioctl.c does: into the caller's memory, as many entries as there are now."""

    def __init__(self, statistics: dict[str, int], growth=(), error: int | None = None) -> None:
        self.statistics, self.growth, self.error, self.calls = statistics, list(growth), error, 0

    def __call__(self, _descriptor, request, data):
        assert request == 0x8946
        name, address = struct.unpack("=16sQ16x", data)
        assert name.rstrip(b"\0") == b"rdma0"
        if self.error:
            raise OSError(self.error, "no")
        self.calls += 1
        command = ctypes.c_uint32.from_address(address).value
        if command == 0x37:
            mask = 1 << 1 if self.statistics else 0
            head = struct.pack("=IIQI", command, 0, mask, len(self.statistics))
        elif command == 0x1B:
            if self.growth:
                self.statistics.update(self.growth.pop(0))
            names = b"".join(name.encode().ljust(32, b"\0")[:32] for name in self.statistics)
            head = struct.pack("=III", command, 1, len(self.statistics)) + names
        else:
            assert command == 0x1D
            values = struct.pack(f"={len(self.statistics)}Q", *self.statistics.values())
            head = struct.pack("=II", command, len(self.statistics)) + values
        ctypes.memmove(address, head, len(head))


@pytest.fixture
def card(monkeypatch):
    def put(card: Card) -> Card:
        monkeypatch.setattr(ethtool.fcntl, "ioctl", card)
        return card

    return put


def test_statistics_come_in_three_calls(card):
    truth = {"rx_prio0_bytes": 12_000, "tx_prio1_bytes": 48 << 30, "x" * 32: 2**64 - 1}
    asked = card(Card(truth))
    assert ethtool.read_statistics("rdma0") == (truth, None)
    assert asked.calls == 3


def test_queues_that_are_added_meanwhile_lead_to_a_second_try(card):
    asked = card(Card({"a": 1}, growth=[{f"q{number}": number for number in range(3000)}]))
    told, reason = ethtool.read_statistics("rdma0")
    assert reason is None and len(told) == 3001 and told["q2999"] == 2999
    assert asked.calls == 6


def test_queues_that_keep_changing_are_a_reason(card):
    card(Card({"a": 1}, growth=[{f"q{number}": 0} for number in range(10)]))
    told, reason = ethtool.read_statistics("rdma0")
    assert told is None and "changed" in reason


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (Card({}), "no statistics"),
        (Card({}, error=errno.EOPNOTSUPP), "no statistics"),
        (Card({}, error=errno.ENODEV), "No such device"),
        (Card({}, error=errno.EPERM), "not permitted"),
    ],
)
def test_what_cannot_be_read_has_a_reason(card, broken, reason):
    card(broken)
    told, why = ethtool.read_statistics("rdma0")
    assert told is None and reason in why


def test_an_impossible_number_of_statistics_is_not_allocated(monkeypatch):
    def lie(_descriptor, _request, data):
        head = struct.pack("=IIQI", 0x37, 0, 2, 0xFFFFFFFF)
        ctypes.memmove(struct.unpack("=16sQ16x", data)[1], head, len(head))

    monkeypatch.setattr(ethtool.fcntl, "ioctl", lie)
    assert "cannot be" in ethtool.read_statistics("rdma0")[1]


def test_this_kernel_tells_that_there_is_no_such_netdev_and_nothing_of_lo():
    assert "No such device" in ethtool.read_statistics("nosuchdev0")[1]
    assert ethtool.read_statistics("lo")[1] == "the driver has no statistics"
    assert ethtool.read_statistics("x" * 16)[1] == "no name of a netdev"


def _enter_namespaces() -> bool:
    new_user, new_net = 0x10000000, 0x40000000
    owner = os.getuid()
    if ctypes.CDLL(None, use_errno=True).unshare(new_user | new_net):
        return False
    try:
        with open("/proc/self/uid_map", "w", encoding="ascii") as users:
            users.write(f"0 {owner} 1")  # a program that is started keeps its capabilities as root only
    except OSError:
        return False
    return True


def in_a_network_namespace(look) -> dict:
    """Run a function in a child with user and network namespaces of its own; skip where they cannot be had."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        try:
            told = look() if _enter_namespaces() else {}
        except Exception as error:  # the parent tells it
            told = {"error": repr(error)}
        os.write(sending, json.dumps(told).encode())
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as answer:
        told = json.loads(answer.read())
    os.waitpid(child, 0)
    if not told:
        pytest.skip("no user and network namespaces, no veth, or no ip")
    assert "error" not in told, told
    return told


def test_a_real_veth_tells_its_statistics():
    def look() -> dict:
        tool = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
        command = [str(tool), "link", "add", "one", "type", "veth", "peer", "name", "other"]
        if tool is None or subprocess.run(command, check=False, capture_output=True).returncode:
            return {}
        return {"statistics": ethtool.read_statistics("one")}

    told = in_a_network_namespace(look)
    statistics, reason = told["statistics"]
    assert reason is None and statistics["peer_ifindex"] > 0
    assert ethtool.group(statistics)["priority"] == {}


@given(st.dictionaries(st.text(), st.integers(0, 2**64 - 1)))
def test_no_name_of_a_counter_makes_grouping_fail(statistics):
    told = ethtool.group(statistics)
    assert set(told["priority"]) <= set("01234567")
    assert all(statistics[name] == value for name, value in told["other"].items())


@given(st.binary(max_size=300), st.integers(0, 12))
def test_no_string_set_makes_parsing_fail(data, count):
    assert len(ethtool.parse_strings(data, count)) <= count


@pytest.fixture
def node(tmp_path):
    node = NodeTree(tmp_path)
    place = node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"), rows=4)
    node.add(
        f"""{place}/ports/1/counters/port_xmit_data = 123456789
        {place}/ports/1/counters/port_xmit_wait = 7
        {place}/ports/1/hw_counters/lifespan = 10
        {place}/ports/1/hw_counters/out_of_sequence = 11650
        {place}/ports/1/hw_counters/np_cnp_sent = 0"""
    )
    return node


def test_fc54_the_counters_of_a_port_show_packets_out_of_order(node):
    told = counters.read_port_counters(node.tree(), "mlx5_6", "1")
    assert told["hw_counters"] == {"np_cnp_sent": 0, "out_of_sequence": 11650}
    assert told["counters"] == {"port_xmit_data": 123456789, "port_xmit_wait": 7}
    assert told["lifespan_ms"] == 10 and told["reasons"] == {}


def test_fc54_bytes_on_the_wrong_priority():
    before = ethtool.group({"tx_prio0_bytes": 1000, "tx_prio1_bytes": 0})["priority"]
    after = ethtool.group({"tx_prio0_bytes": 13_000, "tx_prio1_bytes": 48_000_000_000})["priority"]
    grown = {priority: counters.difference(before[priority], after[priority]) for priority in before}
    assert grown == {"0": {"tx_bytes": 12_000}, "1": {"tx_bytes": 48_000_000_000}}


def test_a_counter_that_started_anew_or_is_unknown_has_no_difference():
    assert counters.difference({"a": 5, "b": None, "c": 1}, {"a": 4, "b": 2, "d": 1}) == {}
    assert counters.difference(None, {"a": 1}) == {}


def test_missing_counters_are_null_with_a_reason(node):
    node.add("/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts = 5")
    told = counters.read_port_counters(node.tree(), "rxe0", "1")
    assert told["counters"] is None and told["reasons"] == {"counters": "the driver has no such counters"}
    assert told["hw_counters"] == {"rcvd_pkts": 5} and told["lifespan_ms"] is None
    assert counters.read_port_counters(node.tree(), "nothing0", "1")["hw_counters"] is None


def test_counters_of_the_device_stand_in_for_those_of_the_port(node):
    node.add("/sys/class/infiniband/hw0/hw_counters/rx_pkts = 9")
    assert counters.read_port_counters(node.tree(), "hw0", "1")["hw_counters"] == {"rx_pkts": 9}


def test_a_counter_without_a_number(node):
    node.add("/sys/class/infiniband/mlx5_6/ports/1/counters/symbol_error = N/A (no PMA)")
    node.add("/sys/class/infiniband/mlx5_6/ports/1/counters/link_downed ! EIO")
    told = counters.read_port_counters(node.tree(), "mlx5_6", "1")
    assert told["counters"]["symbol_error"] is None and "no PMA" in told["reasons"]["counters.symbol_error"]
    assert told["counters"]["link_downed"] is None and told["reasons"]["counters.link_downed"]
    assert told["counters"]["port_xmit_wait"] == 7


def test_another_root_has_no_counters_of_netdevs(node):
    assert counters.read_netdev_counters(node.tree(), "rdma0")[1].endswith("another root")


def test_counters_of_a_netdev_of_this_machine():
    assert counters.read_netdev_counters(Tree("/"), "lo") == (None, "the driver has no statistics")


@given(st.binary())
def test_no_content_of_a_counter_file_makes_parsing_fail(data):
    number = counters.parse_counter(data)
    assert number is None or number >= 0
