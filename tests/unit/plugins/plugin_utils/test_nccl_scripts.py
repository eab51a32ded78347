# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scripts of the NCCL test, run by the machine's own sh on a tree like a pod's sysfs."""

from __future__ import annotations

import fnmatch
import ipaddress
import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.nccl_jobs import public_key
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl import scripts
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.discovery import address_of, parse_rails
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.lines import lines_of
from hypothesis import given
from hypothesis import strategies as st

ZERO = ":".join(["0000"] * 8)


def full(address: str) -> str:
    """A GID in the kernel's full form."""
    ip = ipaddress.ip_address(address)
    value = int(ip) | (0xFFFF << 32 if ip.version == 4 else 0)
    return ":".join(f"{value:032x}"[at : at + 4] for at in range(0, 32, 4))


class Pod:
    """A pod's /sys as a folder; the script is run with its paths moved there."""

    def __init__(self, root: Path):
        self.root = root
        (root / "class/infiniband").mkdir(parents=True)
        (root / "class/net").mkdir()
        (root / "tmp").mkdir()

    def device(
        self, name: str, pci: str, rows: dict[int, tuple], pf: str | None = None, tclass: str | None = None
    ) -> None:
        """rows: {index: (address or None for zero, type, interface)}."""
        place = self.root / "devices" / pci
        (place / "infiniband" / name).mkdir(parents=True)
        (place / "net").mkdir()
        if pf:
            (self.root / "devices" / pf).mkdir(exist_ok=True)
            (place / "physfn").symlink_to(self.root / "devices" / pf)
        port = self.root / "class/infiniband" / name / "ports/1"
        for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
            (port / folder).mkdir(parents=True)
        (self.root / "class/infiniband" / name / "device").symlink_to(place)
        for index in range(max(rows, default=0) + 3):
            address, kind, netdev = rows.get(index, (None, None, None))
            (port / "gids" / str(index)).write_text((full(address) if address else ZERO) + "\n")
            if address:
                (port / "gid_attrs/types" / str(index)).write_text(kind + "\n")
                (port / "gid_attrs/ndevs" / str(index)).write_text(netdev + "\n")
        if tclass is not None:
            folder = self.root / "class/infiniband" / name / "tc/1"
            folder.mkdir(parents=True)
            (folder / "traffic_class").write_text(tclass)

    def interface(self, name: str, pci: str | None = None) -> None:
        folder = self.root / "class/net" / name
        folder.mkdir()
        if pci:
            (folder / "device").symlink_to(self.root / "devices" / pci)
            (self.root / "devices" / pci / "net" / name).mkdir(exist_ok=True)

    def discover(self, interfaces: str, placeholders: tuple[str, ...] = (), **env: str):
        text = scripts.DISCOVER.replace("/tmp/", f"{self.root}/tmp/").replace("S=/sys/class", f"S={self.root}/class")
        text = text.replace("/sys/bus/pci/devices", f"{self.root}/devices")
        env = {"RAILYARD_JOB": "job", "RAILYARD_INTERFACES": interfaces, "RAILYARD_ADDRESS_WAIT": "1", **env}
        env["RAILYARD_PLACEHOLDERS"] = " ".join(scripts.gid_patterns(list(placeholders)))
        done = subprocess.run(
            ["sh", "-c", text], env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    def environment(self, **env: str) -> dict:
        script = f'. {self.root}/tmp/railyard-job.env; echo "${{NCCL_IB_HCA-unset}} ${{NCCL_IB_GID_INDEX-unset}}"'
        clean = {key: value for key, value in os.environ.items() if not key.startswith("NCCL_")}
        out = subprocess.run(["sh", "-c", script], env={**clean, **env}, capture_output=True, text=True, check=True)
        return dict(zip(("hca", "index"), out.stdout.split()))


@pytest.fixture
def pod(tmp_path):
    return Pod(tmp_path)


def vf(pod, number, address, index=3, **more):
    pci = f"0000:0c:00.{number + 2}"
    rows = {0: ("fe80::1", "IB/RoCE v1", f"net{number}"), 1: ("fe80::1", "RoCE v2", f"net{number}")}
    rows |= {index - 1: (address, "IB/RoCE v1", f"net{number}"), index: (address, "RoCE v2", f"net{number}")}
    pod.device(f"mlx5_{17 + number}", pci, rows, pf=f"0000:0c:00.{number - 1}", **more)
    pod.interface(f"net{number}", pci)


def test_vfs_are_found_with_their_first_routed_row(pod):
    vf(pod, 1, "192.168.0.5", tclass="Global tclass=41\n")
    vf(pod, 2, "192.168.0.6", tclass="\n")
    pod.device("mlx5_6", "0000:0c:00.7", {})  # the PF, which a pod in shared mode sees without a row
    code, text = pod.discover("net1 net2")
    assert code == 0, text
    (rows,) = list(parse_rails(lines_of(text)).values())
    assert [(r["interface"], r["device"], r["pf"], r["gid_index"], r["address"]) for r in rows] == [
        ("net1", "mlx5_18", "0000:0c:00.0", 3, "192.168.0.5"),
        ("net2", "mlx5_19", "0000:0c:00.1", 3, "192.168.0.6"),
    ]
    assert [row["class"] for row in rows] == [{"state": "set", "value": 41}, {"state": "unset", "value": None}]
    assert pod.environment() == {"hca": "=mlx5_18,mlx5_19", "index": "3"}
    assert pod.environment(NCCL_IB_HCA="mlx5_1", NCCL_IB_GID_INDEX="7") == {"hca": "mlx5_1", "index": "7"}


def test_one_index_is_not_forced_on_rails_with_different_ones(pod):
    vf(pod, 1, "192.168.0.5")
    vf(pod, 2, "192.168.0.6", index=5)
    assert pod.discover("net1 net2")[0] == 0
    assert pod.environment() == {"hca": "=mlx5_18,mlx5_19", "index": "unset"}


def test_children_are_found_in_the_table_of_their_rail(pod):
    placeholder, routed = "fd01:0:0:100::7", "2001:db8:0:a1::107"
    rows = {0: ("10.0.0.1", "RoCE v2", "rdma0"), 5: (placeholder, "RoCE v2", "net1"), 8: (routed, "IB/RoCE v1", "net1")}
    pod.device("mlx5_6", "0000:0c:00.0", rows | {9: (routed, "RoCE v2", "net1")})
    pod.device("mlx5_0", "0000:2d:00.0", {3: ("10.1.0.1", "RoCE v2", "eth0")})
    pod.interface("net1")
    code, text = pod.discover("net1", ("fd01:0:0:100::/112",))
    (row,) = parse_rails(lines_of(text))[os.uname().nodename]
    assert code == 0 and (row["device"], row["gid_index"], row["pf"]) == ("mlx5_6", 9, "0000:0c:00.0")
    assert pod.discover("net1")[1].count("gid_index=5") == 1  # without the subnet nobody can tell


def test_host_network_names_functions(pod):
    rows = {3: ("10.0.0.1", "RoCE v2", "rdma0")}
    pod.device("mlx5_6", "0000:0c:00.0", rows)
    pod.interface("rdma0", "0000:0c:00.0")
    code, text = pod.discover("0000:0c:00.0")
    assert code == 0 and "interface=rdma0 device=mlx5_6" in text


@pytest.mark.parametrize("case", ["no-interface", "no-device", "no-row"])
def test_a_pod_without_a_rail_says_which(pod, case):
    if case != "no-interface":
        vf(pod, 1, "192.168.0.5")
        pod.interface("net2") if case == "no-device" else vf(pod, 2, "169.254.1.1")
    code, text = pod.discover("net1 net2" if case != "no-interface" else "net7")
    assert code == 1 and "railyard-error: " in text
    assert ("none of the interfaces net7" if case == "no-interface" else "address on net2 (waited 1 s") in text


def test_a_rank_runs_the_first_program_that_is_there(pod, tmp_path):
    program = tmp_path / "all_reduce_perf"
    program.write_text('#!/bin/sh\necho "$NCCL_IB_HCA $*"\n')
    program.chmod(0o755)
    vf(pod, 1, "192.168.0.5")
    pod.discover("net1")
    text = scripts.RANK.replace("/tmp/", f"{tmp_path}/tmp/")
    env = {**os.environ, "RAILYARD_JOB": "job", "RAILYARD_PROGRAMS": f"/nowhere/x {program}"}
    argv = ["sh", "-c", text, "railyard", "-b", "1G"]
    assert subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout == "=mlx5_18 -b 1G\n"
    done = subprocess.run(
        argv, env={**env, "RAILYARD_PROGRAMS": "/nowhere/x"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 127 and "railyard-error: " in done.stdout


@pytest.mark.parametrize("script", ["WORKER", "DISCOVER", "RANK", "LAUNCHER"])
def test_scripts_are_posix(script):
    done = subprocess.run(["sh", "-n"], input=getattr(scripts, script), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""


def test_the_key_is_read_once_it_is_said():
    assert public_key("railyard: waiting\n") is None
    assert (
        public_key("x\nrailyard-key ssh-ed25519 AAAAC3Nz+/= railyard-nccl\n") == "ssh-ed25519 AAAAC3Nz+/= railyard-nccl"
    )
    assert public_key('railyard-key ssh-ed25519 AAAA railyard"; rm -rf /\n') is None


networks = st.one_of(
    st.tuples(st.integers(0, (1 << 128) - 1), st.integers(0, 128)).map(lambda t: ipaddress.ip_network(t, strict=False)),
    st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, 32)).map(lambda t: ipaddress.IPv4Network(t, strict=False)),
)


@given(networks, st.integers(0, (1 << 128) - 1))
def test_a_pattern_matches_the_addresses_of_its_subnet_and_no_other(network, number):
    (pattern,) = scripts.gid_patterns([str(network)])
    own = network[number % network.num_addresses]
    assert fnmatch.fnmatchcase(full(str(own)), pattern)
    other = (
        ipaddress.ip_address(number % (1 << network.max_prefixlen))
        if network.version == 4
        else ipaddress.IPv6Address(number)
    )
    assert fnmatch.fnmatchcase(full(str(other)), pattern) == (other in network)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_addresses_come_back_from_their_gids(address):
    mapped = getattr(address, "ipv4_mapped", None)
    assert address_of(full(str(address))) == str(mapped or address)


@given(st.text(max_size=300))
def test_nothing_breaks_the_reader(text):
    parse_rails(lines_of(f"railyard-rail host=a {text}"))
    public_key(text)
