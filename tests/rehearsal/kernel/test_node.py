# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole kernel process on a real node: namespaces, veth, FUSE."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.fleet

ZERO = ":".join(["0000"] * 8)
CLASS = "/sys/class/infiniband"


def wait_for(condition, what: str):
    """Ending a namespace is asynchronous in the kernel."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def pod_with_vf(node, name="pod-1", address="192.168.0.34/16"):
    """What the SR-IOV CNI does: move the VF of rdma0, rename it, bring it up, give it an address."""
    node.sh(f"ip netns add {name} && ip link set rdma0v0 netns {name}")
    node.sh(f"ip link set rdma0v0 name net1 up && ip addr add {address} dev net1", name)
    return node.sh("ls /sys/class/net/net1/device/infiniband", name)


def test_shared_node_with_one_vf_on_each_rail(node):
    gpu = node()
    assert len(gpu.sh(f"ls {CLASS}").split()) == 18
    gpu.create_vfs()
    assert len(gpu.sh(f"ls {CLASS}").split()) == 34
    assert len(gpu.sh("ls /sys/class/infiniband_verbs").split()) == 34
    assert gpu.sh("readlink -f /sys/class/net/rdma0v0/device/physfn") == gpu.sh(
        "readlink -f /sys/bus/pci/devices/0000:0c:00.0"
    )
    assert gpu.sh("basename $(readlink /sys/bus/pci/devices/0000:0c:00.1/virtfn0)") == "0000:0c:10.1"
    assert gpu.sh("cat /sys/bus/pci/devices/0000:0c:00.2/device") == "0x101a"
    assert gpu.sh("basename $(readlink /sys/bus/pci/devices/0000:0c:00.2/driver)") == "mlx5_core"
    assert gpu.sh(f"ls {CLASS}/mlx5_5/ports/1/gids | wc -l") == "256"
    assert gpu.sh(f"ls {CLASS}/mlx5_18/ports/1/gid_attrs/types | wc -l") == "128"
    assert gpu.sh("cat /sys/module/ib_core/parameters/netns_mode") == "Y"
    assert gpu.sh("cat /sys/class/net/rdma0/qos/trust") == "dscp"
    assert gpu.sh("cat /sys/bus/pci/devices/0000:0f:00.0/class") == "0x030200"
    assert gpu.sh(f"cat {CLASS}/mlx5_5/ports/1/state {CLASS}/mlx5_18/ports/1/state").split("\n") == [
        "4: ACTIVE",
        "1: DOWN",
    ]


def test_sriov_numvfs_errors_and_removal(node):
    gpu = node()
    file = "/sys/class/net/rdma0/device/sriov_numvfs"
    gpu.sh(f"echo 1 > {file}")
    assert "busy" in gpu.fails(f"echo 2 > {file}")
    assert "out of range" in gpu.fails(f"echo 128 > {file}")
    assert "Invalid argument" in gpu.fails(f"echo many > {file}")
    gpu.sh(f"echo 1 > {file}")
    pod_with_vf(gpu)
    gpu.sh(f"echo 0 > {file}")
    assert gpu.sh("ls /sys/class/net", "pod-1") == "lo", "a VF goes from a pod too"
    assert "mlx5_18" not in gpu.sh(f"ls {CLASS}").split()
    gpu.fails(f"cat {CLASS}/mlx5_18/ports/1/gids/0")
    gpu.fails("ls /sys/bus/pci/devices/0000:0c:00.2/")
    gpu.sh(f"echo 2 > {file}")
    assert gpu.sh("cd /sys/class/net && echo rdma0v*") == "rdma0v0 rdma0v1"
    assert "Permission denied" in gpu.fails("echo 7 > /sys/class/net/rdma0/device/sriov_totalvfs")


def test_gids_follow_the_interface_and_hide_from_other_namespaces(node):
    """The check of DOCA-OFED's ib_core (FC-01): a row shows where its interface is, elsewhere zero and EINVAL."""
    gpu = node()
    gpu.create_vfs()
    assert gpu.gid("mlx5_5", 3) == "0000:0000:0000:0000:0000:ffff:0ae0:00e1"
    assert gpu.sh(f"cat {CLASS}/mlx5_5/ports/1/gid_attrs/ndevs/3") == "rdma0"
    assert gpu.sh(f"cat {CLASS}/mlx5_5/ports/1/gid_attrs/types/2 {CLASS}/mlx5_5/ports/1/gid_attrs/types/3") == (
        "IB/RoCE v1\nRoCE v2"
    )
    vf = pod_with_vf(gpu)
    assert gpu.gid(vf, 3, "pod-1") == "0000:0000:0000:0000:0000:ffff:c0a8:0022"
    assert gpu.sh(f"cat {CLASS}/{vf}/ports/1/gid_attrs/ndevs/3", "pod-1") == "net1"
    assert gpu.gid(vf, 0, "pod-1").startswith("fe80:")
    assert gpu.gid(vf, 3) == ZERO
    assert "Invalid argument" in gpu.fails(f"cat {CLASS}/{vf}/ports/1/gid_attrs/types/3")
    assert gpu.gid("mlx5_5", 3, "pod-1") == ZERO
    for attribute in ("types", "ndevs"):
        assert "Invalid argument" in gpu.fails(f"cat {CLASS}/mlx5_5/ports/1/gid_attrs/{attribute}/3", "pod-1")
    assert "Invalid argument" in gpu.fails(f"cat {CLASS}/mlx5_5/ports/1/gid_attrs/types/99"), "an empty row"
    assert len(gpu.sh(f"ls {CLASS}", "pod-1").split()) == 34


def test_inbox_driver_shows_every_row_to_everybody(node):
    gpu = node(driver="inbox")
    gpu.create_vfs()
    vf = pod_with_vf(gpu)
    assert gpu.gid("mlx5_5", 3, "pod-1") == gpu.gid("mlx5_5", 3) != ZERO
    assert gpu.gid(vf, 3) == "0000:0000:0000:0000:0000:ffff:c0a8:0022"
    assert "Invalid argument" in gpu.fails(f"cat {CLASS}/mlx5_5/ports/1/gid_attrs/types/99")
    gpu.fails(f"ls {CLASS}/mlx5_5/tc")
    gpu.fails("ls /sys/module/mlx_compat")


def test_address_changes_change_the_rows(node):
    gpu = node()
    table = f"{CLASS}/mlx5_5/ports/1/gids"
    gpu.sh("ip addr add 192.0.2.5/24 dev rdma0")
    assert gpu.gid("mlx5_5", 5).endswith("ffff:c000:0205")
    first = gpu.gid("mlx5_5", 3)
    line = f"ip addr del 10.224.0.225/12 dev rdma0; cat {table}/3; ip addr add 192.0.2.9/24 dev rdma0; cat {table}/3"
    assert gpu.sh(line).split("\n") == [ZERO, "0000:0000:0000:0000:0000:ffff:c000:0209"]
    assert first != gpu.gid("mlx5_5", 3)


def test_exclusive_node_lists_devices_where_they_are(node):
    gpu = node(mode="exclusive")
    gpu.create_vfs()
    assert gpu.sh("cat /sys/module/ib_core/parameters/netns_mode") == "N"
    assert gpu.rdma("system show") == "netns exclusive copy-on-fork on"
    gpu.sh("ip netns add pod-1 && ip link set rdma0v0 netns pod-1")
    assert gpu.sh(f"ls {CLASS}; ls /sys/class/net/rdma0v0/device/infiniband", "pod-1") == ""
    path = gpu.sh(f"readlink -f {CLASS}/mlx5_18")
    gpu.rdma("dev set mlx5_18 netns pod-1")
    assert gpu.sh(f"ls {CLASS}", "pod-1") == "mlx5_18"
    assert gpu.sh(f"ls {path}/ports", "pod-1") == "1"
    assert len(gpu.sh(f"ls {CLASS}").split()) == 33
    for line in (f"stat {path}", f"cat {path}/node_guid", f"cat {CLASS}/mlx5_18/ports/1/gids/0"):
        assert "No such file" in gpu.fails(line), line
    assert json.loads(gpu.rdma("-j dev show", "pod-1"))[0]["ifname"] == "mlx5_18"
    assert "mlx5_18" not in gpu.rdma("dev")
    assert "mlx5_18/1" in gpu.rdma("link", "pod-1")
    gpu.sh("ip netns del pod-1")
    wait_for(lambda: "mlx5_18" in gpu.sh(f"ls {CLASS}").split(), "the device is back")
    wait_for(lambda: "rdma0v0" in gpu.sh("ls /sys/class/net").split(), "the interface is back")
    assert gpu.sh("cat /sys/class/net/rdma0v0/operstate") == "down"


def test_moving_devices_is_refused_in_shared_mode_and_the_mode_while_namespaces_exist(node):
    gpu = node()
    gpu.sh("ip netns add pod-1")
    tool = Path(__file__).resolve().parents[3] / "rehearsal/kernel/tools/rdma"
    assert "not supported" in gpu.fails(f"python3 {tool} dev set mlx5_5 netns pod-1")
    assert "busy" in gpu.fails(f"python3 {tool} system set netns exclusive")
    assert "Cannot open network namespace" in gpu.fails(f"python3 {tool} dev set mlx5_5 netns nowhere")
    assert "Wrong device name" in gpu.fails(f"python3 {tool} dev set mlx5_77 netns pod-1")


def test_the_mode_can_be_switched_while_there_is_no_other_namespace(node):
    gpu = node()
    gpu.create_vfs()
    parameter = "cat /sys/module/ib_core/parameters/netns_mode"
    gpu.sh("ip netns add pod-1")
    assert len(gpu.sh(f"ls {CLASS}", "pod-1").split()) == 34
    gpu.sh("ip netns del pod-1")
    gpu.rdma("system set netns exclusive")
    assert (gpu.sh(parameter), gpu.rdma("system show")) == ("N", "netns exclusive copy-on-fork on")
    gpu.sh("ip netns add pod-1")
    assert gpu.sh(f"ls {CLASS}", "pod-1") == ""
    tool = Path(__file__).resolve().parents[3] / "rehearsal/kernel/tools/rdma"
    assert "busy" in gpu.fails(f"python3 {tool} system set netns shared")
    gpu.sh("ip netns del pod-1")
    gpu.rdma("system set netns shared")
    assert gpu.sh(parameter) == "Y"


def test_qos_of_the_port_is_the_shapes(node):
    gpu = node()
    tool = Path(__file__).resolve().parents[3] / "rehearsal/kernel/tools/mlnx_qos"
    text = gpu.sh(f"python3 {tool} -i rdma0")
    assert "Priority trust state: dscp" in text
    assert "\tenabled     1   1   0   0   0   1   0   0" in text
    rows = [line for line in text.splitlines() if "dscp:" in line]
    assert any("prio:0" in row and "10," in row for row in rows)
    assert any("prio:5" in row and "26," in row for row in rows)
    assert any("prio:1" in row and "00," in row for row in rows)
    assert gpu.sh("grep -P '^46\\t' /sys/class/net/rdma0/qos/dscp2prio") == "46\t6"
    gpu.sh(f"python3 {tool} -i rdma0 --trust pcp && python3 {tool} -i rdma0 --pfc 0,0,0,1,0,0,0,0")
    text = gpu.sh(f"python3 {tool} -i rdma0")
    assert "trust state: pcp" in text
    assert "dscp2prio" not in text
    assert "\tenabled     0   0   0   1" in text
    gpu.create_vfs()
    assert "not supported" in gpu.sh(f"python3 {tool} -i rdma0v0 || true")
    assert "Invalid argument" in gpu.fails("echo both > /sys/class/net/rdma0/qos/trust")


def test_numa_nodes_have_processors_and_distances(node):
    gpu = node()
    folder = "/sys/devices/system/node"
    assert gpu.sh(f"cat {folder}/online {folder}/node0/distance {folder}/node1/distance").split("\n") == [
        "0-1", "10 32", "32 10",
    ]  # fmt: skip
    assert (
        gpu.sh("cat /sys/bus/pci/devices/0000:0c:00.0/numa_node /sys/bus/pci/devices/0000:c3:00.0/numa_node") == "0\n1"
    )


def test_traffic_class_is_absent_unset_or_a_number(node):
    gpu = node(mode="exclusive")
    gpu.create_vfs()
    file = f"{CLASS}/mlx5_18/tc/1/traffic_class"
    assert gpu.sh(f"wc -c < {file}") == "0"
    gpu.sh(f"echo 41 > {file}")
    assert gpu.sh(f"cat {file}") == "Global tclass=41"
    gpu.sh(f"echo 0 > {file}")
    assert gpu.sh(f"cat {file}") == "Global tclass=0", "never empty again"
    assert "Invalid argument" in gpu.fails(f"echo 256 > {file}")
    gpu.sh(f"echo 41 > {file}; mkdir /sys/kernel/config/rdma_cm/mlx5_18")
    tos = "/sys/kernel/config/rdma_cm/mlx5_18/ports/1/default_roce_tos"
    gpu.sh(f"echo 106 > {tos}")
    gpu.sh("ip netns add pod-1")
    gpu.rdma("dev set mlx5_18 netns pod-1")
    assert gpu.sh(f"cat {file}", "pod-1") == "Global tclass=41"
    assert "not permitted" in gpu.fails(f"echo 7 > {file}", "pod-1")
    assert gpu.sh(f"cat {tos}") == "0", "the CM's default does not survive the move"

    shared = node(mode="shared")
    shared.sh("ip netns add pod-1")
    assert shared.sh(f"ls {CLASS}/mlx5_5/tc/1") == "traffic_class"
    assert "No such file" in shared.fails(f"ls {CLASS}/mlx5_5/tc", "pod-1")


def test_a_returning_vf_takes_another_name_when_its_own_is_taken(node):
    gpu = node()
    gpu.create_vfs()
    pod_with_vf(gpu)
    mac = gpu.sh("cat /sys/class/net/net1/address", "pod-1")
    gpu.sh("ip link set rdma1v0 name net1 && ip netns del pod-1")
    found = f"grep -l {mac} /sys/class/net/*/address"
    wait_for(lambda: gpu.run(found).returncode == 0, "the interface is back")
    assert gpu.sh(found).startswith("/sys/class/net/dev")
    assert gpu.gid("mlx5_18", 2) == ZERO, "its addresses are gone"


def test_next_namespace_with_a_recycled_identity_gets_nothing(node):
    """Inode numbers and ids of network namespaces are used again at once."""
    gpu = node(mode="exclusive")
    gpu.create_vfs()
    for turn in range(5):
        gpu.sh("ip netns add pod-1")
        assert gpu.sh(f"ls {CLASS}", "pod-1") == "", turn
        gpu.rdma("dev set mlx5_18 netns pod-1")
        assert gpu.sh(f"ls {CLASS}", "pod-1") == "mlx5_18"
        gpu.sh("ip netns del pod-1")
        wait_for(lambda: "mlx5_18" in gpu.sh(f"ls {CLASS}").split(), "the device is back")


def test_mtu_is_the_interfaces(node):
    gpu = node()
    assert gpu.sh("cat /sys/class/net/rdma0/mtu") == "4220"
    gpu.sh("echo 1500 > /sys/class/net/rdma0/mtu")
    assert " mtu 1500 " in gpu.sh("ip link show rdma0")
    gpu.sh("ip link set rdma0 mtu 9000")
    assert gpu.sh("cat /sys/class/net/rdma0/mtu") == "9000"
    assert "Invalid argument" in gpu.fails("echo 1 > /sys/class/net/rdma0/mtu")


def test_ipv6_rails_have_a_global_row_and_eth0_is_no_rdma_nic(node):
    gpu = node("BM.GPU.B300.8")
    assert gpu.gid("mlx5_0", 3).startswith("2001:0db8:")
    assert gpu.gid("mlx5_0", 1).startswith("fe80:")
    assert "10.140.0.7" in gpu.sh("ip addr show eth0")
    assert gpu.sh("readlink /sys/class/net/eth0") == "../../devices/virtual/net/eth0"
    assert len(gpu.sh(f"ls {CLASS}").split()) == 16


def test_node_without_root(node):
    """In a user namespace, as on a developer's machine."""
    if subprocess.run(["unshare", "--user", "--map-root-user", "true"], check=False).returncode != 0:
        pytest.skip("this machine allows no user namespaces")
    gpu = node(mode="exclusive", user=True)
    gpu.create_vfs()
    vf = pod_with_vf(gpu)
    assert vf == "", "the RDMA device is still on the node"
    gpu.rdma("dev set mlx5_18 netns pod-1")
    assert gpu.gid("mlx5_18", 3, "pod-1") == "0000:0000:0000:0000:0000:ffff:c0a8:0022"
    assert len(gpu.sh(f"ls {CLASS}").split()) == 33
