# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import socket
import struct

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.network import dcb, netdevs, qos
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import LiveTree, NodeTree
from hypothesis import given
from hypothesis import strategies as st

PF = "0000:0c:00.0"
OFED_FILES = {"function": "pf", "driver": "mlx5_core"}
NO_TOOL = qos.MlnxQos("/nowhere/mlnx_qos")


@pytest.fixture
def node(tmp_path):
    return NodeTree(tmp_path)


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def app(*entries: tuple[int, int, int]) -> bytes:
    """The application table: (selector, priority, protocol) each."""
    return attribute(3, b"".join(attribute(1, struct.pack("=BBH", *entry)) for entry in entries))


def pfc(enabled: int, capable: int = 8, requests=(0,) * 8, indications=(0,) * 8) -> bytes:
    # As a 64-bit C compiler lays struct ieee_pfc out: native alignment, not the packed one.
    return attribute(2, struct.pack("@BBBH8Q8Q", capable, enabled, 0, 700, *requests, *indications))


def answer(command: int, *attributes: bytes) -> bytes:
    body = struct.pack("=BBH", 0, command, 0) + attribute(1, b"rdma0\0") + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), 78, 0, 1, 4711) + body


class Kernel:
    """Stands where the kernel's netlink socket is; answers by command."""

    def __init__(self, answers: dict) -> None:
        self.answers, self.asked = answers, []

    def __call__(self, *_arguments):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return False

    def settimeout(self, seconds):
        assert 0 < seconds <= 10

    def bind(self, address):
        assert address == (0, 0)

    def send(self, message):
        self.asked.append(message)

    def recv(self, _size):
        reply = self.answers[self.asked[-1][17]]
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.fixture
def kernel(monkeypatch):
    def set_up(*attributes: bytes, dcbx: int | None = 9) -> Kernel:
        told = answer(22, attribute(14, bytes([dcbx]))) if dcbx is not None else OSError(95, "unsupported")
        kernel = Kernel({21: answer(21, attribute(13, b"".join(attributes))), 22: told})
        monkeypatch.setattr(dcb.socket, "socket", kernel)
        return kernel

    return set_up


# What a 6.18 kernel answered to both requests for a virtio netdev, which has no DCB: EOPNOTSUPP with the request.
REFUSED = bytes.fromhex(
    "340000000200000005000000a20c0000a1ffffff200000004e000100050000000000000000150000090001006574683000000000"
)


def test_the_request_is_the_one_that_a_real_kernel_answered():
    assert dcb.request(dcb.IEEE_GET, "eth0", 5) == REFUSED[20:]


def test_a_refusal_by_a_real_kernel_has_a_reason():
    assert dcb.parse_answer(REFUSED, dcb.IEEE_GET) == (None, "the driver (or the kernel) has no DCB for it")


def test_this_kernel_refuses_the_loopback_device():
    told = dcb.read_dcb("lo")
    assert told["trust"] is None and told["pfc"] is None
    assert "no DCB" in told["reason"] and "no DCB" in told["dcbx_reason"]


def test_a_netdev_that_is_not_there_and_a_name_that_cannot_be():
    assert "no such netdev" in dcb.read_dcb("nosuchdev0")["reason"]
    assert dcb.read_dcb("x" * 16)["reason"] == dcb.read_dcb("")["reason"] == "no name of a netdev"


def test_dscp_entries_make_the_port_trust_the_dscp(kernel):
    kernel(app((5, 0, 10), (5, 5, 26), (5, 6, 46), (1, 3, 0x8915)), pfc(0b00100001))
    told = dcb.read_dcb("rdma0")
    assert told["trust"] == "dscp" and told["dscp_to_priority"] == {"10": 0, "26": 5, "46": 6}
    assert told["pfc"]["enabled"] == [0, 5] and told["pfc"]["capable"] == 8 and told["pfc"]["delay"] == 700
    assert told["dcbx"] == "os" and told["reason"] is None and told["dcbx_reason"] is None


def test_without_a_dscp_entry_the_pcp_is_trusted(kernel):
    kernel(app((1, 3, 0x8915)), pfc(0))
    told = dcb.read_dcb("rdma0")
    assert told["trust"] == "pcp" and told["dscp_to_priority"] == {} and told["pfc"]["enabled"] == []


def test_a_trust_table_of_the_driver_decides(kernel):
    trusts_pcp = attribute(11, attribute(2, b"\xff") + attribute(1, b"\x05"))
    kernel(app((5, 0, 10)), trusts_pcp)
    assert dcb.read_dcb("rdma0")["trust"] == "pcp"
    kernel(app(), attribute(11, attribute(1, b"\x05")))
    assert dcb.read_dcb("rdma0")["trust"] == "dscp"


def test_of_two_priorities_for_one_dscp_the_highest_counts():
    assert dcb.parse_ieee(app((5, 5, 26), (5, 2, 26)))["dscp_to_priority"] == {"26": 5}


def test_entries_out_of_range_are_not_believed():
    assert dcb.parse_ieee(app((5, 8, 10), (5, 1, 64)))["trust"] == "pcp"


def test_pfc_counters_by_priority():
    told = dcb.parse_ieee(pfc(1 << 5, requests=range(8), indications=range(10, 18)))["pfc"]
    assert told["requests"]["5"] == 5 and told["indications"]["5"] == 15 and told["enabled"] == [5]


def test_ets_of_a_port():
    values = (0, 8, 0, *[0] * 3, 60, *[0] * 3, 40, *[9] * 8, *[0] * 3, 2, 0, 255, 1, 2, *range(8))
    told = dcb.parse_ieee(attribute(1, bytes(values) + b"\0" * 24))["ets"]
    assert told["traffic_classes"] == 8
    assert told["bandwidth"]["3"] == 60 and told["bandwidth"]["7"] == 40
    assert told["algorithm"]["3"] == "ets" and told["algorithm"]["5"] == "vendor" and told["algorithm"]["6"] == "cbs"
    assert told["priority_to_tc"] == {str(number): number for number in range(8)}


@pytest.mark.parametrize(("flags", "owner"), [(0x9, "os"), (0xC, "firmware"), (0x2, "firmware"), (0, None)])
def test_who_owns_dcb(flags, owner):
    assert dcb.parse_dcbx(flags)["dcbx"] == owner


def test_a_driver_without_dcbx_still_tells_the_rest(kernel):
    kernel(app((5, 0, 10)), pfc(1), dcbx=0)
    told = dcb.read_dcb("rdma0")
    assert told["trust"] == "dscp" and told["dcbx"] is None and told["dcbx_reason"] == "the driver does no DCBX"


def test_a_kernel_that_does_not_answer_is_a_reason(kernel):
    kernel(app((5, 0, 10)), pfc(1), dcbx=None)
    told = dcb.read_dcb("rdma0")
    assert told["trust"] == "dscp" and told["reason"] is None and "unsupported" in told["dcbx_reason"]
    kernel().answers[21] = socket.timeout("timed out")
    told = dcb.read_dcb("rdma0")
    assert told["trust"] is None and "timed out" in told["reason"] and "timed out" in told["dcbx_reason"]


@given(st.binary(max_size=400))
def test_no_bytes_make_the_netlink_parsers_fail(data):
    dcb.parse_answer(data, dcb.IEEE_GET)
    dcb.parse_ieee(data)
    for mapping in (dcb.parse_app_table(data),):
        assert all(0 <= int(code) < 64 and 0 <= priority < 8 for code, priority in mapping.items())
    framed = answer(21, attribute(13, attribute(2, data) + attribute(1, data) + attribute(3, data)))
    attributes, _reason = dcb.parse_answer(framed, dcb.IEEE_GET)
    assert attributes is not None
    dcb.parse_ieee(attributes[13])


# In the form of python/mlnx_qos of Mellanox/mlnx-tools: the rows of one priority go on in a second line after 8 codes.
MLNX_QOS = """DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:07,06,05,04,03,02,01,00,
\tprio:0 dscp:10,
\tprio:5 dscp:26,
Receive buffer size (bytes): 130944,130944,0,0,0,0,0,0,max_buffer_size=262016
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     1   0   0   0   0   1   0   0   \n\
\tbuffer      1   0   0   0   0   1   0   0   \n\
tc: 0 ratelimit: unlimited, tsa: vendor
\t priority:  1
tc: 1 ratelimit: unlimited, tsa: vendor
\t priority:  0
"""


def test_the_blocks_of_mlnx_qos():
    told = dcb.parse_mlnx_qos(MLNX_QOS)
    assert told["trust"] == "dscp" and told["dcbx"] == "os"
    assert told["pfc"]["enabled"] == [0, 5] and told["pfc"]["requests"] is None
    assert told["dscp_to_priority"]["10"] == 0 and told["dscp_to_priority"]["26"] == 5
    assert len(told["dscp_to_priority"]) == 10


def test_older_and_other_mlnx_qos():
    old = "Priority trust state: pcp\nPFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n" + (
        "\tenabled     0   0   0   1   0   0   0   0   \ntc: 0 ratelimit: unlimited, tsa: vendor\n"
    )
    told = dcb.parse_mlnx_qos(old)
    assert told["trust"] == "pcp" and told["dscp_to_priority"] is None and told["dcbx"] is None
    assert told["pfc"]["enabled"] == [3]
    assert dcb.parse_mlnx_qos("DCBX mode: Firmware controlled")["dcbx"] == "firmware"


def test_a_warning_or_an_unknown_word_is_not_a_value():
    told = dcb.parse_mlnx_qos("****** WARNING: lldpad service is running ******\nPriority trust state: both\n")
    assert told == {"trust": None, "dscp_to_priority": None, "pfc": None, "dcbx": None}
    short = "PFC configuration:\n priority 0 1 2 3 4 5 6 7\n enabled 1 0\n"
    assert dcb.parse_mlnx_qos(short)["pfc"] is None


@given(st.text() | st.lists(st.sampled_from(MLNX_QOS.splitlines())).map("\n".join))
def test_no_text_makes_the_text_parsers_fail(text):
    dcb.parse_mlnx_qos(text)
    mapping = qos.parse_dscp_map(text)
    assert mapping is None or all(0 <= int(code) < 64 for code in mapping)


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        ("dscp\tprio\n0\t0\n10\t0\n26\t5\n", {"0": 0, "10": 0, "26": 5}),
        ("10:0 26:5\n", {"10": 0, "26": 5}),
        ("64 0\n", None),
        ("10 9\n", None),
        ("", None),
        ("dscp prio\n", None),
        ("on\n", None),
    ],
)
def test_dscp_maps_of_the_driver(text, mapping):
    assert qos.parse_dscp_map(text) == mapping


def ofed_port(node, name: str = "rdma0", enabled: str = "1", trust: str = "dscp") -> str:
    home = node.function(PF, name)
    place = f"{home}/net/{name}"
    node.add(f"{place}/qos/trust = {trust}\n{place}/ecn/roce_np/cnp_dscp = 48\n{place}/ecn/roce_np/cnp_802p_prio = 6")
    for part in ("roce_np", "roce_rp"):
        for priority in range(8):
            node.add(f"{place}/ecn/{part}/enable/{priority} = {enabled}")
    return home


def test_ecn_of_a_port(node):
    ofed_port(node)
    ecn, reason = qos.read_ecn(node.tree(), "/sys/class/net/rdma0")
    assert reason is None and ecn["reasons"] == {}
    assert ecn["notification"] == ecn["reaction"] == {str(priority): True for priority in range(8)}
    assert (ecn["cnp_dscp"], ecn["cnp_priority"]) == (48, 6)


def test_ecn_that_is_off_unreadable_or_not_there(node):
    home = ofed_port(node, enabled="0")
    assert not any(qos.read_ecn(node.tree(), "/sys/class/net/rdma0")[0]["notification"].values())
    (node.root / home.lstrip("/") / "net/rdma0/ecn/roce_rp/enable/3").unlink()
    ecn, _reason = qos.read_ecn(node.tree(), "/sys/class/net/rdma0")
    assert ecn["reaction"] is None and "roce_rp" in ecn["reasons"]["reaction"] and ecn["notification"] is not None
    assert qos.read_ecn(node.tree(), "/sys/class/net/rdma9")[0] is None


def read(tree: Tree, function=None, tool=NO_TOOL) -> dict:
    return qos.read_qos(tree, "rdma0", "/sys/class/net/rdma0", function or OFED_FILES, tool)


def test_a_default_map_is_told_from_one_that_was_read(node):
    ofed_port(node)
    told = read(node.tree())
    assert told["source"]["trust"] == "sysfs" and told["source"]["dscp_to_priority"] == "default"
    assert told["dscp_to_priority"]["10"] == 1 and told["dscp_to_priority"]["46"] == 5
    node.add("/sys/class/net/rdma0/qos/dscp2prio = dscp prio\\n10 0\\n26 5")
    told = read(node.tree())
    assert told["source"]["dscp_to_priority"] == "sysfs" and told["dscp_to_priority"] == {"10": 0, "26": 5}


def test_a_port_that_trusts_the_pcp_has_no_map(node):
    ofed_port(node, trust="pcp")
    told = read(node.tree())
    assert told["trust"] == "pcp" and told["dscp_to_priority"] is None
    assert "PCP" in told["reasons"]["dscp_to_priority"]


def test_another_root_says_that_pfc_needs_a_kernel(node):
    ofed_port(node)
    told = read(node.tree())
    assert told["pfc"] is None and "another root" in told["reasons"]["pfc"]
    assert None not in told["reasons"].values()


def test_inbox_drivers_tell_by_netlink_what_files_do_not(node, kernel):
    kernel(app((5, 0, 10), (5, 5, 26)), pfc(0b100001))
    node.add("/sys/class/net/rdma0/mtu = 4220")
    told = read(LiveTree(node.root))
    assert told["trust"] == "dscp" and told["dscp_to_priority"] == {"10": 0, "26": 5} and told["dcbx"] == "os"
    assert told["pfc"]["enabled"] == [0, 5] and told["ecn"] is None
    assert set(told["source"].values()) == {"netlink"}
    assert "DOCA-OFED" in told["reasons"]["ecn"] and "trust" not in told["reasons"]


def test_files_of_the_driver_go_before_netlink(node, kernel):
    ofed_port(node)
    kernel(app(), pfc(1))
    told = read(LiveTree(node.root))
    assert told["trust"] == "dscp" and told["source"] == {
        "trust": "sysfs",
        "ecn": "sysfs",
        "pfc": "netlink",
        "dcbx": "netlink",
        "dscp_to_priority": "default",
    }


def tool(tmp_path, script: str) -> qos.MlnxQos:
    path = tmp_path / "mlnx_qos"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return qos.MlnxQos(str(path))


def test_mlnx_qos_is_asked_last(node, tmp_path, monkeypatch):
    monkeypatch.setattr(dcb.socket, "socket", Kernel({21: REFUSED, 22: REFUSED}))
    (tmp_path / "out").write_text(MLNX_QOS)
    told = read(LiveTree(node.root), tool=tool(tmp_path, f'test "$1 $2" = "-i rdma0" && cat {tmp_path}/out\n'))
    assert told["pfc"]["enabled"] == [0, 5] and told["trust"] == "dscp"
    assert set(told["source"].values()) == {"mlnx_qos"}
    assert "trust" not in told["reasons"] and "pfc" not in told["reasons"]


def test_other_drivers_and_vfs_are_not_asked_by_mlnx_qos(node, tmp_path, monkeypatch):
    monkeypatch.setattr(dcb.socket, "socket", Kernel({21: REFUSED, 22: REFUSED}))
    mark = tmp_path / "called"
    asked = tool(tmp_path, f"touch {mark}\n")
    for function in ({"function": "pf", "driver": "bnxt_en"}, {"function": "vf", "driver": "mlx5_core"}):
        told = read(LiveTree(node.root), function, asked)
        assert told["pfc"] is None and told["reasons"]["pfc"]
    assert not mark.exists()


def test_a_tool_that_fails_or_is_missing_is_a_reason(node, tmp_path, monkeypatch):
    monkeypatch.setattr(dcb.socket, "socket", Kernel({21: REFUSED, 22: REFUSED}))
    told = read(LiveTree(node.root), tool=tool(tmp_path, "echo cannot open >&2; exit 3\n"))
    assert told["pfc"] is None and "mlnx_qos ended with 3: cannot open" in told["reasons"]["pfc"]
    told = read(LiveTree(node.root))
    assert "mlnx_qos: " in told["reasons"]["pfc"] and "no DCB" in told["reasons"]["pfc"]


def test_a_tool_that_hangs_is_not_asked_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(qos, "_TOOL_SECONDS", 0.2)
    hangs = tool(tmp_path, f"echo x >> {tmp_path}/calls; exec sleep 60\n")
    for _time in range(2):
        told, reason = hangs.ask("rdma0")
        assert told is None and "did not end" in reason
    calls = tmp_path / "calls"
    assert not calls.exists() or calls.read_text() == "x\n"


def read_all(node) -> dict:
    tree = node.tree()
    return netdevs.read_netdevs(tree, netdevs.choose(tree, None, set()), None, "another root")


def test_vfs_point_to_the_netdev_of_their_pf(node):
    ofed_port(node)
    node.function("0000:0c:00.2", "rdma0v0", physfn=PF)
    told = read_all(node)
    assert told["rdma0v0"]["qos"]["qos_of"] == "rdma0" and told["rdma0v0"]["qos"]["trust"] is None
    assert "PF" in told["rdma0v0"]["qos"]["reasons"]["trust"]
    assert told["rdma0"]["qos"]["qos_of"] is None and told["rdma0"]["qos"]["trust"] == "dscp"


def test_a_pf_in_another_namespace_is_named_as_the_reason(node):
    node.function(PF)
    node.function("0000:0c:00.2", "rdma0v0", physfn=PF)
    told = read_all(node)["rdma0v0"]["qos"]
    assert told["qos_of"] is None and PF in told["reasons"]["qos_of"]


def test_representors_are_not_taken_for_the_pf():
    one = {"pci": PF, "representor": False, "qos": {"qos_of": None, "reasons": {}}}
    netdev = {"pci": "0000:0c:00.2", "qos": {"qos_of": None, "reasons": {}}}
    facts = {"rdma0": one, "rdma0_0": {**one, "representor": True}, "rdma0v0": netdev}
    qos.attach_pfs(facts, {"rdma0v0": PF, "rdma0": None, "rdma0_0": None})
    assert facts["rdma0v0"]["qos"]["qos_of"] == "rdma0"


def test_the_tool_is_looked_for_in_system_directories_only(monkeypatch, tmp_path):
    (tmp_path / "mlnx_qos").write_text("#!/bin/sh\n")
    (tmp_path / "mlnx_qos").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ.get("PATH", ""))
    assert qos.MlnxQos().path != str(tmp_path / "mlnx_qos")


@given(st.binary(max_size=40))
def test_no_content_of_the_files_makes_reading_fail(tmp_path_factory, data):
    home = tmp_path_factory.mktemp("net") / "sys/class/net/rdma0"
    for name in ("qos/trust", "qos/dscp2prio", "ecn/roce_np/cnp_dscp", *(f"ecn/roce_np/enable/{n}" for n in range(8))):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)
    told = read(Tree(str(home.parents[3])))
    for key in ("trust", "dscp_to_priority", "dcbx", "pfc", "ets", "ecn"):
        assert told[key] is not None or told["reasons"][key]
        assert (told[key] is None) == (key not in told["source"])


def test_long_lines_of_the_tool_take_no_time():
    text = "DCBX mode: a" + " " * 200_000 + "b\nprio:0 dscp:" + "1 " * 100_000 + "x\nenabled" + " 1" * 100_000 + "y"
    assert dcb.parse_mlnx_qos(text) == {"trust": None, "dscp_to_priority": None, "pfc": None, "dcbx": None}
