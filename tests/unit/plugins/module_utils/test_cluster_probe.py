# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.parse

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import addresses, probe
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pod_facts import pod_facts
from hypothesis import given
from hypothesis import strategies as st

ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
V4 = "0000:0000:0000:0000:0000:ffff:c0a8:0005"
SHELLS = [s for s in ("sh", "dash", "bash", "busybox", "mksh", "yash") if shutil.which(s)]
PCI = "sys/devices/pci0000:0b/0000:0b:01.0"


class Root:
    """A file tree with one VF in a pod: device mlx5_20, interface net1."""

    def __init__(self, path):
        self.path = path
        self.vf = f"{PCI}/0000:0c:00.2"
        self.pf = f"{PCI}/0000:0c:00.0"
        port = f"{self.vf}/infiniband/mlx5_20/ports/1"
        self.port = port
        for name, text in {
            "sys/module/ib_core/parameters/netns_mode": "Y\n",
            f"{self.vf}/numa_node": "0\n",
            f"{self.vf}/infiniband/mlx5_20/node_guid": "0c42:a103:0000:0110\n",
            f"{self.vf}/infiniband/mlx5_20/fw_ver": "16.35.4030\n",
            f"{self.vf}/infiniband/mlx5_20/tc/1/traffic_class": "Global tclass=41\n",
            f"{self.vf}/net/net1/mtu": "4220\n",
            f"{self.vf}/net/net1/address": "02:aa:00:00:00:01\n",
            f"{self.vf}/net/net1/operstate": "up\n",
            f"{self.vf}/net/net1/ifindex": "7\n",
            f"{port}/state": "4: ACTIVE\n",
            f"{port}/phys_state": "5: LinkUp\n",
            f"{port}/rate": "100 Gb/sec (4X EDR)\n",
            f"{port}/link_layer": "Ethernet\n",
            f"{self.pf}/numa_node": "0\n",
            "proc/sys/net/ipv4/conf/all/arp_ignore": "1\n",
            "proc/sys/net/ipv4/conf/net1/arp_ignore": "0\n",
            "proc/net/if_inet6": "fe8000000000000000aa00fffe000001 07 40 20 80     net1\n",
            "proc/net/fib_trie": "Local:\n  |-- 192.168.0.5\n     /32 host LOCAL\n",
            "proc/net/route": "Iface\tDestination\nnet1\t0000A8C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n",
            "dev/infiniband/uverbs20": "",
            "sys/class/infiniband_verbs/uverbs20/ibdev": "mlx5_20\n",
        }.items():
            self.write(name, text)
        for index in range(8):
            self.row(index, ZERO)
        self.link(f"{self.vf}/physfn", "../0000:0c:00.0")
        self.link(f"{self.pf}/virtfn0", "../0000:0c:00.2")
        self.link(f"{self.vf}/infiniband/mlx5_20/device", "../..")
        self.link(f"{self.vf}/net/net1/device", "../..")
        self.link("sys/class/infiniband/mlx5_20", f"../../../{self.vf}/infiniband/mlx5_20")
        self.link("sys/class/net/net1", f"../../../{self.vf}/net/net1")

    def write(self, name, text):
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())

    def link(self, name, target):
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def row(self, index, gid, kind=None, netdev=None):
        self.write(f"{self.port}/gids/{index}", gid + "\n")
        if kind:
            self.write(f"{self.port}/gid_attrs/types/{index}", kind + "\n")
        if netdev:
            self.write(f"{self.port}/gid_attrs/ndevs/{index}", netdev + "\n")


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path)


def run(root, shell="sh", **environment):
    argv = probe.command(str(root.path))
    argv[0:1] = ["busybox", "sh"] if shell == "busybox" else [shell]
    argv[0] = shutil.which(argv[0])
    result = subprocess.run(argv, capture_output=True, env={**os.environ, **environment}, check=False)
    return result.stdout.decode("utf-8", "replace")


def facts(root, shell="sh", **environment):
    return pod_facts(run(root, shell, **environment))


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_reads_the_same(root, shell):
    root.row(3, V4, "RoCE v2", "net1")
    found = facts(root, shell)
    device = found["devices"]["mlx5_20"]
    assert (device["pci"], device["function"], device["parent_pci"], device["vf_index"]) == (
        "0000:0c:00.2",
        "vf",
        "0000:0c:00.0",
        0,
    )
    assert (device["netdev"], device["firmware"], device["numa_node"]) == ("net1", "16.35.4030", 0)
    port = device["ports"]["1"]
    assert (port["state"], port["phys_state"], port["rate_gbps"], port["active_mtu"]) == (
        "ACTIVE",
        "LinkUp",
        100.0,
        4096,
    )
    assert port["traffic_class"] == {"state": "set", "value": 41, "rules": []}
    table = port["gid_table"]
    assert [table[key] for key in ("length", "zero", "unreadable", "reason")] == [8, 7, 0, None]
    assert [(r["index"], r["address"], r["type"], r["netdev"], r["usable"]) for r in port["gids"]] == [
        (3, "192.168.0.5", "RoCE v2", "net1", True)
    ]
    assert port["gid_index"] == 3
    assert found["netns_mode"] == "shared"
    assert found["device_files"] == {"uverbs20": {"device": "mlx5_20", "opens": True, "reason": None}}
    assert found["netdevs"]["net1"]["parent_pci"] == "0000:0c:00.0"


def test_row_of_a_netdev_elsewhere_is_not_usable(root):
    """FC-01: the row shows, its netdev is on the host."""
    root.row(3, V4, "RoCE v2", "rdma0")
    row = facts(root)["devices"]["mlx5_20"]["ports"]["1"]["gids"][0]
    assert row["usable"] is False
    assert "rdma0 is not in this network namespace" in row["reason"]


def test_row_without_attributes_is_not_usable(root):
    """FC-07: attributes that cannot be read end nothing; the rows after them are read."""
    root.row(2, V4)
    root.row(5, V4, "RoCE v2", "net1")
    rows = facts(root)["devices"]["mlx5_20"]["ports"]["1"]["gids"]
    assert [(r["index"], r["usable"]) for r in rows] == [(2, False), (5, True)]


def test_late_rows_are_found(root):
    """FC-10: the first valid row may be far down the table."""
    for index in range(8, 140):
        root.row(index, ZERO)
    root.row(133, V4, "RoCE v2", "net1")
    port = facts(root)["devices"]["mlx5_20"]["ports"]["1"]
    assert port["gid_table"]["length"] == 140
    assert port["gid_index"] == 133


@pytest.mark.parametrize(
    ("content", "state"),
    [("Global tclass=41\n", "set"), ("", "unset"), (None, "absent"), ("Global tclass=0\n", "set")],
)
def test_traffic_class_has_its_states(root, content, state):
    """FC-57: absent, empty and a forced 0 are three things."""
    path = root.path / root.vf / "infiniband/mlx5_20/tc/1/traffic_class"
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert facts(root)["devices"]["mlx5_20"]["ports"]["1"]["traffic_class"]["state"] == state


def test_a_file_that_cannot_be_read_is_neither_absent_nor_empty(root):
    path = root.path / root.vf / "infiniband/mlx5_20/tc/1/traffic_class"
    path.unlink()
    path.mkdir()  # Opens, and every read fails: what EINVAL does, also for root.
    forced = facts(root)["devices"]["mlx5_20"]["ports"]["1"]["traffic_class"]
    assert forced["state"] is None
    assert "cannot be read" in forced["reason"]


def test_without_any_command_the_gids_are_read_all_the_same(root, tmp_path):
    root.row(3, V4, "RoCE v2", "net1")
    found = facts(root, PATH=str(tmp_path / "nothing"))
    port = found["devices"]["mlx5_20"]["ports"]["1"]
    assert (port["gid_index"], port["gid_table"]["zero"]) == (3, 7)


def test_without_cat_an_empty_file_is_unknown_rather_than_unset(root, tmp_path):
    (root.path / root.vf / "infiniband/mlx5_20/tc/1/traffic_class").write_text("")
    found = facts(root, PATH=str(tmp_path / "nothing"))
    assert found["devices"]["mlx5_20"]["ports"]["1"]["traffic_class"]["state"] is None


def test_without_ip_addresses_come_from_proc(root):
    entries = facts(root)["netdevs"]["net1"]["addresses"]
    assert [(e["address"], e["prefix"], e["scope"]) for e in entries] == [
        ("192.168.0.5", 16, "global"),
        ("fe80::aa:ff:fe00:1", 64, "link"),
    ]


def test_without_ip_and_with_rails_in_one_subnet_no_interface_is_guessed(root):
    route = "net1\t0000A8C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    root.write("proc/net/route", "Iface\tDestination\n" + route + route.replace("net1", "net2"))
    found = facts(root)
    assert found["addresses_unknown"] == ["192.168.0.5"]
    assert "share a subnet" in found["reasons"]["addresses"]
    assert [e["family"] for e in found["netdevs"]["net1"]["addresses"]] == ["ipv6"]


def test_effective_sysctl_is_the_larger_of_all_and_interface(root):
    assert facts(root)["netdevs"]["net1"]["sysctls"]["arp_ignore"] == 1


def test_pod_without_rdma_devices_says_so(root):
    shutil.rmtree(root.path / "sys/class/infiniband")
    shutil.rmtree(root.path / "dev/infiniband")
    found = facts(root)
    assert found["devices"] == {}
    assert set(found["reasons"]) >= {"devices", "device_files"}


@pytest.mark.parametrize(
    "content",
    [
        b"@ end\n@ ok /sys/class/net\n|fake\n",
        b"|bar\n||\n",
        b"\\n\\c\\0$(reboot)`reboot`\n",
        b"%s %d %n\n",
        b"no newline at the end",
        b"\n\n\n",
        b"\xff\xfe\x80binary\n",
        b"a\rb\tc\n",
        b"* ? [a-z]\n",
    ],
)
@pytest.mark.parametrize("shell", SHELLS)
def test_no_content_breaks_out_of_its_record(root, shell, content):
    root.write(f"{root.vf}/infiniband/mlx5_20/fw_ver", content)
    root.row(3, V4, "RoCE v2", "net1")
    found = facts(root, shell)
    assert list(found["devices"]) == ["mlx5_20"]
    assert list(found["netdevs"]) == ["net1"]
    assert found["devices"]["mlx5_20"]["ports"]["1"]["gid_index"] == 3
    expected = content.decode("utf-8", "replace").strip() or None
    assert found["devices"]["mlx5_20"]["firmware"] == expected


def test_the_script_fits_into_a_url():
    """Proxies in front of API servers commonly take 8 KB; the rest of the query is short."""
    assert len(urllib.parse.quote(probe.SCRIPT)) < 6000


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shellcheck_accepts_the_script():
    # SC3045: a shell without "ulimit -l" gives no limit, which the reader takes as not known. SC2035: names are
    # numbers.
    result = subprocess.run(
        ["shellcheck", "-s", "sh", "-S", "warning", "-e", "SC2035,SC3045", "-"],
        input=probe.SCRIPT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert result.stdout == ""


def test_cut_output_is_refused():
    output = "@ dir /sys/class/net\n|eth0\n"
    with pytest.raises(probe.ProbeError, match="ends early, after 1 records"):
        pod_facts(output)


@pytest.mark.parametrize(
    "output", ["sh: not found\n", "|content first\n@ end\n", "@ weird /x\n@ end\n", "@ ok\n@ end\n"]
)
def test_other_output_is_refused_with_the_line(output):
    with pytest.raises(probe.ProbeError, match="line 1"):
        pod_facts(output)


record = st.tuples(
    st.sampled_from(sorted(probe.STATES)),
    st.text(st.characters(blacklist_characters="\n"), min_size=1, max_size=30),
    st.lists(st.text(st.characters(blacklist_characters="\n"), max_size=20), max_size=4),
)


@given(st.lists(record, max_size=20))
def test_records_survive_any_content(records):
    text = "".join(f"@ {state} {path}\n" + "".join(f"|{line}\n" for line in lines) for state, path, lines in records)
    assert probe.parse_records(text + "@ end\n") == {path: (state, lines) for state, path, lines in records}


known_paths = st.sampled_from(
    [
        "/sys/class/net",
        "/sys/class/infiniband",
        "/sys/class/infiniband/mlx5_0/device",
        "/sys/class/infiniband/mlx5_0/ports/1/gids",
        "/sys/class/infiniband/mlx5_0/ports/1/gids/3",
        "/sys/class/infiniband/mlx5_0/ports/1/rate",
        "/sys/class/infiniband/mlx5_0/tc/1/traffic_class",
        "/sys/class/net/net1/device",
        "/sys/class/net/net1/mtu",
        "/proc/net/if_inet6",
        "/proc/net/route",
        "/proc/net/fib_trie",
        "/dev/infiniband",
        "memlock",
        "status",
        "env",
        "nvidia",
        "ip",
        "rule4",
        "rule6",
        "route4",
        "open/uverbs0",
        "/sys/class/infiniband_verbs/uverbs0/ibdev",
        "/proc/driver/nvidia/gpus",
        "/proc/driver/nvidia/gpus/0000:0f:00.0/information",
        "/dev/dri",
        "/sys/class/drm/renderD128/device",
    ]
)
odd_line = st.one_of(
    st.text(st.characters(blacklist_characters="\n"), max_size=30),
    st.sampled_from(
        [
            "mlx5_0",
            "net1",
            "3",
            "/sys/devices/pci0000:00/0000:0c:00.0",
            "1: eth0 inet 1.2.3.4/8",
            "9" * 400,
            V4,
            "0:\tfrom all lookup local",
            "5: from",
            "default via",
            "local",
            "CapEff: zz",
            "NCCL_X=",
            "renderD128",
            "Device Minor: 0",
            "0000:0f:00.0",
        ]
    ),
)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(probe.STATES)), known_paths, st.lists(odd_line, max_size=4)), max_size=15)
)
def test_no_complete_output_makes_the_reader_fail(records):
    text = "".join(f"@ {state} {path}\n" + "".join(f"|{line}\n" for line in lines) for state, path, lines in records)
    found = pod_facts(text + "@ end\n")
    assert set(found) >= {"devices", "netdevs", "reasons"}


def test_ip_output_in_its_variants():
    lines = [
        "4: net1@if12    inet 192.168.0.5/16 brd 192.168.255.255 scope global net1\\       valid_lft forever",
        "4: net1    inet6 2001:db8::7/64 scope global tentative dynamic mngtmpaddr \\       valid_lft 100sec",
        "5: tun0    inet 10.0.0.1 peer 10.0.0.2/32 scope global tun0\\ valid_lft forever",
        "something else",
    ]
    found = addresses.from_ip(lines)
    assert [(e["address"], e["prefix"], e["tentative"], e["dynamic"]) for e in found["net1"]] == [
        ("192.168.0.5", 16, False, False),
        ("2001:db8::7", 64, True, True),
    ]
    assert found["tun0"][0]["prefix"] == 32


@given(st.lists(st.text(max_size=60), max_size=6))
def test_address_parsers_take_any_text(lines):
    addresses.from_ip(lines)
    addresses.from_if_inet6(lines)
    addresses.ipv4_from_proc(lines, lines)
