# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IPvlan and macvlan children of rails: who sees which GID rows, and addresses from router advertisements."""

from __future__ import annotations

import ipaddress
import shlex
import time

import pytest

from rehearsal.kernel.router import advertisement, checksum
from rehearsal.operators.cni_main import CONFIGURE

from .conftest import REPO, Node, spec_of

CLASS = "/sys/class/infiniband"
TOOL = REPO / "rehearsal/kernel/tools/link-child"
ZERO = ":".join(["0000"] * 8)
# What runtimes do where the pod network is IPv4 only.
NO_IPV6 = "for i in all default; do echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; done"


def pod(node, name: str) -> None:
    node.sh(f"ip netns add {name}")
    node.sh(NO_IPV6, name)


def attach(node, rail: int, name: str, *addresses: str, kind: str = "ipvlan") -> str:
    """A child of a rail as net1 of a pod, configured as the CNI plugin does it; its MAC."""
    mac, _mtu, half = node.sh(f"{TOOL} rdma{rail} child {name} {kind}").split()
    words = shlex.join([CONFIGURE, "sh", "child", "net1", "", half, *addresses, "--"])
    node.sh(f"sh -ec {words}", name)
    return mac


def rows(node, device: str, netns: str | None = None) -> dict[int, tuple[str, str, str]]:
    """(GID, type, interface) of the rows that a namespace can read, by index."""
    line = 'for i in 0 1 2 3 4 5 6 7 8 9 10 11; do echo "$i|$(cat gids/$i)|$(cat gid_attrs/types/$i 2>&1)'
    line = f'cd {CLASS}/{device}/ports/1; {line}|$(cat gid_attrs/ndevs/$i 2>&1)"; done'
    table = [text.split("|") for text in node.sh(line, netns).splitlines()]
    return {int(index): (gid, kind, name) for index, gid, kind, name in table if gid != ZERO}


def wait_for(find, what: str):
    deadline = time.monotonic() + 15
    while not (found := find()):
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.1)
    return found


def test_rows_of_a_child_are_in_the_table_of_its_rail_and_seen_where_it_is(node):
    """The A100 nodes of the published measurements: the child's address is at index 5, the host's rows read zero."""
    gpu = node()
    host = rows(gpu, "mlx5_5")
    for name, address in (("pod-1", "192.168.0.2/16"), ("pod-2", "192.168.0.3/16")):
        pod(gpu, name)
        attach(gpu, 0, name, address)
    for name, index, last in (("pod-1", 5, "0002"), ("pod-2", 7, "0003")):
        seen = rows(gpu, "mlx5_5", name)
        assert sorted(seen) == [index - 1, index]
        assert seen[index] == (f"0000:0000:0000:0000:0000:ffff:c0a8:{last}", "RoCE v2", "net1")
        assert seen[index - 1][1] == "IB/RoCE v1"
        assert rows(gpu, "mlx5_6", name) == {}, "no child on this rail"
    assert rows(gpu, "mlx5_5") == host
    parent = gpu.sh("cat /sys/class/net/rdma0/address /sys/class/net/rdma0/ifindex /sys/class/net/rdma0/mtu").split()
    child = gpu.sh("cd /sys/class/net/net1; cat address iflink mtu dev_id; ls -d device 2>&1 || true", "pod-2")
    assert child.split("\n")[:4] == [*parent, "0x2"]
    assert "No such file" in child
    gpu.sh("ip netns del pod-1")
    pod(gpu, "pod-3")
    attach(gpu, 0, "pod-3", "192.168.0.4/16")
    assert sorted(rows(gpu, "mlx5_5", "pod-3")) == [4, 5], "freed rows are used again"
    assert "child" not in gpu.sh("ls /sys/class/net"), "a child does not come home"


def test_advertised_addresses_of_routed_rails(node):
    """The B300 nodes: placeholder at 5, the address of the advertisement at 9; a library that takes the first fails."""
    gpu = node("BM.GPU.B300.8")
    device = gpu.sh("ls /sys/class/net/rdma0/device/infiniband")
    before = rows(gpu, device)
    pod(gpu, "pod-1")
    attach(gpu, 0, "pod-1", "fd01:0:0:100::7/112")
    wait_for(lambda: 9 in rows(gpu, device, "pod-1"), "SLAAC")
    seen = rows(gpu, device, "pod-1")
    assert seen[5] == ("fd01:0000:0000:0100:0000:0000:0000:0007", "RoCE v2", "net1")
    assert seen[7][0].startswith("fe80:")
    prefix = before[3][0][:19]
    assert seen[9][0].startswith(prefix)
    # The MAC is the rail's, the number in the middle is the child's own.
    assert seen[9][0][20:] == seen[7][0][20:] != before[3][0][20:]
    assert rows(gpu, device) == before
    assert "default via fe80::1 dev net1 proto ra" in gpu.sh("ip -6 route", "pod-1")
    # Nobody answers where nobody listens, and the host keeps the addresses that the cloud's agent gave.
    pod(gpu, "pod-2")
    gpu.sh("echo 0 > /proc/sys/net/ipv6/conf/default/accept_ra", "pod-2")
    attach(gpu, 0, "pod-2", "fd01:0:0:100::8/112")
    assert "2001:db8" not in gpu.sh("ip -6 addr show dev net1; sleep 1; ip -6 addr show dev net1", "pod-2")


def test_a_rail_without_a_router_leaves_the_placeholder_alone(node):
    gpu = node("BM.GPU.B300.8", silent_router=1)
    for rail, name in enumerate(("pod-1", "pod-2")):
        pod(gpu, name)
        attach(gpu, rail, name, "fd01:0:0:100::7/112")
    wait_for(lambda: "2001:db8" in gpu.sh("ip -6 addr show dev net1", "pod-1"), "SLAAC on the other rail")
    assert "2001:db8" not in gpu.sh("ip -6 addr show dev net1", "pod-2")
    assert "default" not in gpu.sh("ip -6 route", "pod-2")


def test_without_an_ipv6_address_from_the_pool_the_pods_ipv6_stays_off(node):
    gpu = node("BM.GPU.B300.8")
    pod(gpu, "pod-1")
    attach(gpu, 0, "pod-1", "192.168.0.2/16")
    assert gpu.sh("ip -6 addr show dev net1", "pod-1") == ""


def test_macvlan_children_have_a_mac_of_their_own(node):
    gpu = node("BM.GPU.B300.8")
    device = gpu.sh("ls /sys/class/net/rdma0/device/infiniband")
    pod(gpu, "pod-1")
    mac = attach(gpu, 0, "pod-1", "fd01:0:0:100::7/112", kind="macvlan")
    assert gpu.sh("cat /sys/class/net/net1/address", "pod-1") == mac != gpu.sh("cat /sys/class/net/rdma0/address")
    half = f"{int(mac[:2], 16) ^ 2:02x}{mac[3:5]}:{mac[6:8]}ff:fe{mac[9:11]}:{mac[12:14]}{mac[15:]}"

    def routed() -> list[str]:
        return [gid for gid, _kind, _name in rows(gpu, device, "pod-1").values() if gid.startswith("2001:")]

    assert wait_for(routed, "SLAAC")[0].endswith(half)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("rdma99 c pod-1 ipvlan", "No such device"),
        ("eth0 lo pod-1 ipvlan", "File exists"),
        ("rdma0 c pod-1 bridge", "Invalid argument"),
        ("rdma0 c pod-1 ipvlan 9000", "Invalid argument"),
        ("rdma0 c pod-1 ipvlan 1500 02:00:00:00:00:01", "Invalid argument"),
        ("rdma0 c nowhere ipvlan", "No such file"),
        ("rdma0 c/d pod-1 ipvlan", "Invalid argument"),
    ],
)
def test_what_the_drivers_refuse(refusing, words, text):
    assert text in refusing.fails(f"{TOOL} {words}")


@pytest.fixture(scope="module")
def refusing(able, catalogue):
    gpu = Node(spec_of(catalogue, "BM.GPU.B4.8"))
    gpu.sh("ip netns add pod-1")
    yield gpu
    gpu.stop()


def test_advertisement_is_a_whole_frame_with_a_right_checksum():
    frame = advertisement(ipaddress.ip_network("2001:db8:7:1::/64"))
    packet = frame[14:]
    assert frame[12:14] == b"\x86\xdd"
    assert packet[7] == 255, "RFC 4861, 6.1.2: a hop limit that no router has touched"
    assert len(packet) == 40 + int.from_bytes(packet[4:6], "big")
    message = packet[40:]
    given = int.from_bytes(message[2:4], "big")
    assert checksum(packet[8:24], packet[24:40], message[:2] + b"\0\0" + message[4:]) == given
