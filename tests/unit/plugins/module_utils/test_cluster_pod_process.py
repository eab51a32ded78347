# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Routes and rules of a pod, and what its process may do: from the probe's records, and by the script itself."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import addresses, pod_process, pod_routes, probe
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pod_facts import pod_facts
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.probe_tree import ProbeTree

SHELLS = [s for s in ("sh", "dash", "bash", "busybox", "mksh", "yash") if shutil.which(s)]


def tree(records: dict[str, list[str]]) -> ProbeTree:
    """A tree of records whose state is ok, but for folders (their path ends with a slash) and links (with @)."""
    states = {"/": "dir", "@": "link"}
    return ProbeTree({path.rstrip("/@"): (states.get(path[-1], "ok"), lines) for path, lines in records.items()})


def run(root, shell="sh", **environment) -> dict:
    argv = ["busybox", "sh"] if shell == "busybox" else [shell]
    argv = [shutil.which(argv[0]), *argv[1:], *probe.command(str(root))[1:]]
    told = {"PATH": os.environ["PATH"], **environment}
    return pod_facts(subprocess.run(argv, capture_output=True, env=told, check=False, text=True).stdout)


# Rules and routes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0:\tfrom all lookup local", (0, "all", 255, "lookup")),
        ("32765:\tfrom 192.168.0.5 lookup 100", (32765, "192.168.0.5/32", 100, "lookup")),
        ("32765:\tfrom 192.168.0.0/16 lookup 100 ", (32765, "192.168.0.0/16", 100, "lookup")),
        ("100:\tfrom all to 198.51.100.0/24 lookup rails", (100, "all", "rails", "lookup")),
        ("101:\tfrom 192.0.2.1 unreachable", (101, "192.0.2.1/32", None, "unreachable")),
    ],
)
def test_rules(line, expected):
    row = pod_routes.parse_rule(line, "ipv4")
    assert (row["priority"], row["from"], row["table"], row["action"]) == expected


@pytest.mark.parametrize(
    "line", ["", "x", "a:\tfrom all", "1:\tfrom nowhere lookup 7", "1:\tfrom 2001:db8::1 lookup 7"]
)
def test_what_is_no_rule(line):
    assert pod_routes.parse_rule(line, "ipv4") is None


def test_routes():
    row = pod_routes.parse_route("default via fe80::5:1 dev net1 proto ra metric 1024 expires 1790sec", "ipv6")
    assert row == {
        "family": "ipv6", "to": "default", "gateway": "fe80::5:1", "netdev": "net1", "table": 254, "metric": 1024,
        "origin": "ra", "source": None,
    }  # fmt: skip
    row = pod_routes.parse_route("192.168.0.0/16 dev net2 table 101 scope link src 192.168.0.6", "ipv4")
    assert (row["to"], row["netdev"], row["table"], row["source"]) == ("192.168.0.0/16", "net2", 101, "192.168.0.6")
    for line in ("local 192.168.0.5 dev net1 table local", "broadcast 10.0.0.255 dev eth0", "", "Error: what"):
        assert pod_routes.parse_route(line, "ipv4") is None


def test_routing_is_known_only_where_ip_answers():
    told = pod_routes.routing(tree({"rule4": ["0: from all lookup local"]}))
    assert told["rules"] is None and "no 'ip'" in told["reasons"]["rules"]
    told = pod_routes.routing(tree({"ip": [], "rule4": [], "route4": []}))
    assert told["rules"] is None and "does not show rules" in told["reasons"]["rules"]
    told = pod_routes.routing(tree({"ip": [], "rule4": ["0: from all lookup local"], "route4": ["x"] * 999}))
    assert [row["table"] for row in told["rules"]] == [255]
    assert told["routes"] is None and "999 or more" in told["reasons"]["routes"]


# Locked memory, device files, GPUs, variables --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ({"memlock": ["8192", "8192"], "status": ["CapEff:\t0000000000000000"]}, (8192, 8192, False)),
        ({"memlock": ["64", "unlimited"], "status": ["CapEff:\t0000000000004000"]}, (64, "unlimited", True)),
        ({"memlock": ["unlimited"], "status": []}, ("unlimited", None, None)),
        ({"memlock": ["", ""], "status": ["CapEff:\tzz"]}, (None, None, None)),
        ({}, (None, None, None)),
    ],
)
def test_locked_memory_as_the_process_sees_it(records, expected):
    found = pod_process.memory_lock(tree(records))
    assert (found["soft_kib"], found["hard_kib"], found["ipc_lock"]) == expected


def test_device_files_by_their_device():
    found = pod_process.device_files(
        tree({
            "open/uverbs26": ["yes"], "/sys/class/infiniband_verbs/uverbs26/ibdev": ["mlx5_26"],
            "open/uverbs27": ["Operation not permitted"], "open/rdma_cm": ["yes"],
        })
    )  # fmt: skip
    assert found["uverbs26"] == {"device": "mlx5_26", "opens": True, "reason": None}
    assert found["uverbs27"] == {"device": None, "opens": False, "reason": "Operation not permitted"}
    assert found["rdma_cm"]["opens"] is True


def gpu(address, minor):
    return {
        f"/proc/driver/nvidia/gpus/{address}/information": [f"Device Minor: \t {minor}", f"Bus Location: \t {address}"]
    }


def test_the_gpus_of_a_pod_are_those_with_a_device_file():
    records = {
        "/proc/driver/nvidia/gpus/": ["0000:0f:00.0", "0000:15:00.0"],
        **gpu("0000:0f:00.0", 0),
        **gpu("0000:15:00.0", 1),
        "nvidia": ["nvidia1"],
    }
    assert pod_process.gpus(tree(records)) == (["0000:15:00.0"], None)
    assert pod_process.gpus(tree({**records, "nvidia": []})) == ([], None)


def test_gpus_without_an_address_are_not_known():
    found, reason = pod_process.gpus(tree({"nvidia": ["nvidia0"]}))
    assert found is None and "nvidia0" in reason
    found, reason = pod_process.gpus(tree({"/dev/dri/": ["card0", "renderD128"]}))
    assert found is None and "renderD128" in reason


def test_gpus_of_amd():
    records = {
        "/dev/dri/": ["renderD128", "renderD129"],
        "/sys/class/drm/renderD128/device@": ["/sys/devices/pci0000:00/0000:11:00.0"],
        "/sys/class/drm/renderD129/device@": ["/sys/devices/pci0000:00/0000:2f:00.0"],
    }
    assert pod_process.gpus(tree(records)) == (["0000:11:00.0", "0000:2f:00.0"], None)


@pytest.mark.parametrize(
    ("text", "short"), [("00000000:0F:00.0", "0000:0f:00.0"), ("0000:0f:00.0", "0000:0f:00.0"), ("nvidia0", None)]
)
def test_addresses_of_gpus_are_as_sysfs_writes_them(text, short):
    assert pod_process.short_address(text) == short


# The script -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_opens_device_files_and_goes_on_after_one_that_does_not(tmp_path, shell):
    folder = tmp_path / "dev/infiniband"
    folder.mkdir(parents=True)
    (folder / "rdma_cm").touch()
    (folder / "uverbs3").touch()
    (folder / "uverbs4").mkdir()  # Opens for reading only, also for root.
    (folder / "umad3").touch()
    (tmp_path / "sys/class/net").mkdir(parents=True)
    found = run(tmp_path, shell, NCCL_IB_TC="105", UCX_TLS="rc", HOME="/")
    assert {name: row["opens"] for name, row in found["device_files"].items()} == {
        "rdma_cm": True, "uverbs3": True, "uverbs4": False,
    }  # fmt: skip
    assert "directory" in found["device_files"]["uverbs4"]["reason"].lower()
    assert found["environment"] == {"NCCL_IB_TC": "105", "UCX_TLS": "rc"}
    assert found["gpus"] == []
    assert found["memlock"]["ipc_lock"] in (True, False)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_reads_the_sysctls_that_count(tmp_path, shell):
    (tmp_path / "sys/class/net/net1").mkdir(parents=True)
    values = {
        "ipv4": {"arp_ignore": (0, 1), "arp_announce": (2, 0), "rp_filter": (1, 0), "arp_filter": (0, 1),
                 "accept_local": (1, 0)},
        "ipv6": {"disable_ipv6": (1, 0), "accept_ra": (0, 1), "accept_ra_defrtr": (1, 0), "forwarding": (0, 1),
                 "autoconf": (1, 0)},
    }  # fmt: skip
    for family, keys in values.items():
        for key, pair in keys.items():
            for place, value in zip(("all", "net1"), pair):
                path = tmp_path / f"proc/sys/net/{family}/conf/{place}/{key}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{value}\n")
    found = run(tmp_path, shell)["netdevs"]["net1"]["sysctls"]
    assert {key: found[key] for key in values["ipv4"]} == {
        "arp_ignore": 1, "arp_announce": 2, "rp_filter": 1, "arp_filter": 1, "accept_local": 1,
    }  # fmt: skip
    assert {key: found[key] for key in values["ipv6"]} == {
        "disable_ipv6": 0, "accept_ra": 1, "accept_ra_defrtr": 0, "forwarding": 1, "autoconf": 0,
    }  # fmt: skip
    assert found["accepts_ra"] is False


def test_an_address_that_failed_its_detection_is_not_waited_for():
    row = {"address": "2001:db8::7", "scope": "global", "tentative": True}
    assert "tentative" in addresses.pending({"net1": {"addresses": [row]}}, [])
    assert addresses.pending({"net1": {"addresses": [{**row, "dadfailed": True}]}}, []) is None
    (told,) = addresses.from_ip(["4: net1 inet6 2001:db8::7/64 scope global dadfailed tentative \\ x"])["net1"]
    assert (told["tentative"], told["dadfailed"]) == (True, True)
