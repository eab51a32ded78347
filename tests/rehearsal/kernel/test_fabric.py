# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Traffic between two simulated nodes: ib_write_bw itself, classes, priorities and counters."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from rehearsal.kernel.fabric import transfer

from .conftest import REPO

TOOLS = REPO / "rehearsal/kernel/tools"
SIDE = {"rate": 100, "limit": None, "filtered": False, "lossless": True, "flows": 1}


@pytest.mark.parametrize(
    ("near", "far", "queue_pairs", "low", "high"),
    [
        ({}, {}, 1, 96.86, 96.88),
        ({"lossless": False}, {}, 1, 43.20, 59.45),
        ({}, {"lossless": False}, 4, 97.96, 97.98),
        ({"flows": 2}, {"flows": 2}, 1, 48.43, 48.44),
        ({}, {"limit": 40.0}, 1, 40, 40),
        ({"rate": 400}, {"rate": 200}, 1, 193.7, 193.8),
    ],
    ids=["right", "wrong-class", "four-queue-pairs", "shared", "slow", "unequal"],
)
def test_rates_that_were_measured(near, far, queue_pairs, low, high):
    done = transfer({**SIDE, **near}, {**SIDE, **far}, 10, queue_pairs, False, "a-b")
    assert low <= done["gbps"] <= high
    assert done["packets"] - done["arrived"] == done["out_of_sequence"]


def test_packets_of_the_articles():
    done = transfer(SIDE, SIDE, 10, 1, False, "a-b")
    assert done["packets"] == pytest.approx(29_563_232, rel=0.001)
    lossy = transfer({**SIDE, "lossless": False}, SIDE, 10, 1, False, "a-b")
    assert lossy["out_of_sequence"] == pytest.approx(11_649, rel=0.01)
    filtered = transfer({**SIDE, "filtered": True}, SIDE, 10, 1, False, "a-b")
    assert (filtered["gbps"], filtered["packets"], filtered["arrived"]) == (0, 10003, 1)


@pytest.fixture
def pair(node, tmp_path):
    """Two nodes, and a function that runs the tool between them on a rail's PF."""
    fabric = tmp_path / "f"
    fabric.mkdir()
    first, second = (node(name=name, address=f"10.140.0.{number}") for name, number in (("gpu-1", 7), ("gpu-2", 8)))
    # A socket's path has 107 bytes at most, and temporary folders are long.
    for one in (first, second):
        one.sh(f"mkdir -p /run/rehearsal/fabric && mount --bind {fabric} /run/rehearsal/fabric")

    def command(one, words: str) -> list[str]:
        return [
            "nsenter",
            "--target",
            str(one.process.pid),
            "--mount",
            "--net",
            "sh",
            "-c",
            f"{TOOLS}/ib_write_bw {words}",
        ]

    def run(words: str, server_words: str = "", rail: int = 0):
        device = second.sh(f"ls /sys/class/net/rdma{rail}/device/infiniband")
        address = second.sh(f"ip -4 -o addr show dev rdma{rail} | awk '{{print $4}}'").partition("/")[0]
        common = f"-d {device} -F --report_gbits -D 2 -p 18515"
        server = subprocess.Popen(
            command(second, f"{common} {server_words or words}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        second.sh("until grep -q ':4853 00000000:0000 0A' /proc/net/tcp; do sleep 0.05; done")
        client = subprocess.run(
            command(first, f"{common} {words} {address}"), capture_output=True, text=True, timeout=60, check=False
        )
        said = server.communicate(timeout=60)[0]
        return client.stdout + client.stderr, client.returncode, said, server.returncode

    run.first, run.second = first, second
    return run


def statistics(one, netdev: str) -> dict[str, int]:
    """The counters by priority that the product reads, through the patched ioctl."""
    line = f"""
import sys; sys.path[:0] = ["{REPO}/collections", "{TOOLS}"]
import ethtool_ioctl, json
from ansible_collections.railyard.rdma.plugins.module_utils.network import ethtool
print(json.dumps(ethtool.group(ethtool.read_statistics("{netdev}")[0])["priority"]))
"""
    found = subprocess.run(
        ["nsenter", "--target", str(one.process.pid), "--mount", "--net", "python3", "-c", line],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(found.stdout)


def rate(text: str) -> float:
    return float(re.search(r"^ 65536 +[0-9]+ +0 +([0-9.]+)|^ 65536 +[0-9]+ +0\.00 +([0-9.]+)", text, re.M).group(2))


def test_class_priority_and_counters_of_both_ends(pair):
    text, code, said, server_code = pair("-x 3 --tclass=41")
    assert (code, server_code, rate(text), rate(said)) == (0, 0, 96.87, 96.87)
    sent, came = statistics(pair.first, "rdma0"), statistics(pair.second, "rdma0")
    assert sent["0"]["tx_packets"] == came["0"]["rx_packets"] > 10**6
    assert sent["1"]["tx_packets"] == came["1"]["rx_packets"] == 0
    # Without a class the packets take priority 1, which the fabric does not hold back.
    text, *_rest = pair("-x 3")
    assert 43.20 <= rate(text) <= 59.45
    assert statistics(pair.first, "rdma0")["1"]["tx_packets"] > 10**6
    device = pair.second.sh("ls /sys/class/net/rdma0/device/infiniband")
    lost = pair.second.sh(f"cat /sys/class/infiniband/{device}/ports/1/hw_counters/out_of_sequence")
    assert int(lost) > 1000
    # A class that the device forces beats what is asked for, and four queue pairs hide the loss.
    pair.first.sh(f"echo 0 > /sys/class/infiniband/{device}/tc/1/traffic_class")
    assert 43.20 <= rate(pair("-x 3 --tclass=41")[0]) <= 59.45
    assert rate(pair("-x 3 --tclass=41 -q 4")[0]) == 97.97


def test_what_the_tool_refuses(pair):
    text, code, said, server_code = pair("-x 7", "-x 3")
    assert (code, server_code) == (1, 1)
    assert "Failed to modify QP" in text and "Couldn't read remote address" in said
    text, code, said, server_code = pair("-x 3", "-x 7")
    assert "Couldn't read remote address" in text and "Failed to modify QP" in said
    tool = f"{TOOLS}/ib_write_bw"
    assert "IB device mlx5_99 not found" in pair.first.fails(f"{tool} -d mlx5_99")
    assert "unrecognized option '--nonsense'" in pair.first.fails(f"{tool} --nonsense")
    assert "Couldn't connect to 10.224.1.1:9" in pair.first.fails(f"{tool} -x 3 -p 9 10.224.1.1")
