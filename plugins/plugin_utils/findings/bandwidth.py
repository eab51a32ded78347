# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about what a benchmark measured. A test is told with the node of its client; the server is in the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context, Problem, Unknown, rule

NOT_COVERED = "queue pairs that the GPU makes itself (NVSHMEM IBGDA, NCCL GIN): they bypass the forced class"
# Out of sequence: of so many packets one is more than a lossless class has. Wrong class: 1 of 2,500 was measured.
LOST_SHARE = 1e-5
ENOUGH_LOST = 100
REHEARSED_APART = "only a benchmark shows it; tests/rehearsal/benchmark does so beside QOS-001"


def _tests(context: Context) -> list[dict]:
    """The tests in which the node was the client."""
    return [row for row in context.bandwidth["results"] if row["client"]["host"] == context.node]


def _evidence(row: dict) -> dict:
    keys = ("round", "stream", "client", "server", "gbps", "port_gbps", "ratio", "kind", "said", "counters")
    return {key: row.get(key) for key in keys}


def _collapsed(found: list[tuple[dict, Problem]], context: Context) -> Iterator[Problem]:
    """One finding for all rails where every rail of the node has the same cause, else one a rail."""
    rails = {row["rail"] for row, _problem in found}
    if len(rails) == len(context.layout["rails"]) > 1:
        rows = [row for row, _problem in found]
        first = found[0][1]
        rates = [row["gbps"] for row in rows if row.get("gbps") is not None]
        span = f", {min(rates):.2f} to {max(rates):.2f} Gb/s" if rates else ""
        yield Problem(
            f"All rails{span}: {first.summary}",
            first.remedy,
            {"rails": sorted(rails), "tests": [problem.evidence for _row, problem in found]},
            severity=first.severity,
        )
        return
    yield from (problem for _row, problem in found)


@rule("BW-001", "error", "A rail carries no traffic between two pods", needs=("bandwidth",))
def no_traffic(context: Context) -> Iterable[Problem | Unknown]:
    """Symptom: ib_write_bw fails on a rail; NCCL hangs or ends with "unhandled system error".

    Cause: what the tool said names it: no way to the peer over TCP, a GID index without a usable row, memory that cannot
    be locked, a device that cannot be opened, packets that nobody answers.

    Evidence: the tool's own line, both ends with device, GID index and address, and what both devices counted.

    Remedy: that of the tool's message; it stands with the finding.

    Source: linux-rdma/perftest; Mellanox/k8s-rdma-shared-dev-plugin#72; k8snetworkplumbingwg/sriov-network-device-plugin#271.
    """
    found = []
    for row in _tests(context):
        if row["verdict"] == "failed" and row["kind"] != "lost":
            summary = f"No traffic to {row['server']['host']}: {row['reason']}"
            found.append((row, Problem(summary, row["remedy"] or "Read what it said.", _evidence(row), row["rail"])))
    yield from _collapsed(found, context)


@rule("BW-002", "error", "A rail is slower than its port", needs=("bandwidth",))
def slow(context: Context) -> Iterable[Problem | Unknown]:
    """Symptom: a rail gives clearly less than the rate of its port: 43 to 59 Gb/s instead of 97 were measured with the
    wrong traffic class.

    Cause: most often the traffic class (BW-003 says so); else a port at a lower rate, a cable, a PCIe slot with fewer
    lanes, or other traffic.

    Evidence: rate, share of the port's rate, out-of-sequence packets, and whether the node was slow in both of its pairs.

    Remedy: cure BW-003 first. A node that is slow as client and as server is at fault itself; one that is slow in one
    pair only has a bad way to that peer.

    Source: the measurements in docs/benchmark.md.
    """
    if not context.bandwidth["results"]:
        yield Unknown("No bandwidth was measured: the layout has no other node to measure with")
    slow_hosts = {row["rail"]: row["hosts"] for row in context.bandwidth.get("slow_hosts") or []}
    found = []
    for row in _tests(context):
        if row["verdict"] == "unknown":
            yield Unknown(f"No bandwidth to {row['server']['host']}: {row['reason']}", _evidence(row), row["rail"])
        if row["verdict"] != "low":
            continue
        sides = [
            host for host in slow_hosts.get(row["rail"], []) if host in (row["client"]["host"], row["server"]["host"])
        ]
        whose = f"; {' and '.join(sides)} slow in every test" if len(sides) == 1 else ""
        evidence = {**_evidence(row), "slow_in_every_test": sides}
        found.append(
            (
                row,
                Problem(
                    f"Slow to {row['server']['host']}: {row['reason']}{whose}", row["remedy"], evidence, row["rail"]
                ),
            )
        )
    yield from _collapsed(found, context)


@rule(
    "BW-003",
    "error",
    "Packets of a rail take another priority than their class should",
    needs=("bandwidth",),
    unrehearsed=REHEARSED_APART,
)
def wrong_priority(context: Context) -> Iterable[Problem | Unknown]:
    """Symptom: half of the bandwidth with one queue pair and full bandwidth with four; out-of-sequence packets.

    Cause: the device forces another class than the tests ask for. In exclusive mode the RDMA CNI writes class 0 when the
    network has no rdmaQoS, and class 0 has a priority that the fabric may drop.

    Evidence: bytes of each priority that the PF counted during the tests, the wanted priority, and the forced class.

    Remedy: exclusive mode: a top-level rdmaQoS with the class in the rdma plugin of the network. Shared mode: recreate the
    VFs.

    Source: Mellanox/rdma-cni, Mellanox/network-operator#3710; not covered: NVIDIA/nccl#2383.
    """
    found = []
    for row in context.bandwidth["priorities"]:
        keys = ("netdev", "wanted_priority", "share_on_wanted", "bytes", "packets", "pause", "cnp")
        evidence = {**{key: row.get(key) for key in keys}, "not_covered": NOT_COVERED}
        if row["verdict"] == "unknown":
            yield Unknown(f"The priority of the packets is not known: {row['reason']}", evidence, row["rail"])
        elif row["verdict"] == "wrong":
            found.append((row, Problem(f"{row['netdev']}: {row['reason']}", row["remedy"], evidence, row["rail"])))
    yield from _collapsed(found, context)


@rule("BW-004", "error", "Frames leave a device and do not arrive at the peer", needs=("bandwidth",))
def lost_on_the_way(context: Context) -> Iterable[Problem]:
    """Symptom: the queue pair connects, and then nothing gets through; the sender gives up after its retries.

    Cause: the fabric drops the frames. Of 10,003 frames that left a VF one arrived, while all frames of the PF on the same
    rail did: the fabric takes no MAC addresses of VFs.

    Evidence: packets that the sender's device and the receiver's counted.

    Remedy: let the fabric accept the MAC addresses of VFs, or use a network that keeps the rail's own (IPvlan).

    Source: the measurements in docs/benchmark.md.
    """
    found = []
    for row in _tests(context):
        if row["kind"] == "lost":
            summary = f"Nothing arrives at {row['server']['host']}: {row['reason']}"
            found.append((row, Problem(summary, row["remedy"], _evidence(row), row["rail"])))
    yield from _collapsed(found, context)


@rule("BW-005", "warning", "Packets arrive out of sequence", needs=("bandwidth",), unrehearsed=REHEARSED_APART)
def out_of_sequence(context: Context) -> Iterable[Problem]:
    """Symptom: the bandwidth is full, yet packets are repeated; it falls when the fabric is loaded.

    Cause: the fabric loses packets of this class (it is not lossless there), or it spreads them over several ways
    (adaptive routing, which devices may take well).

    Evidence: out-of-sequence packets that the receiver counted, of all that it got.

    Remedy: look at the priority of the class, and at PFC and ECN on the ports of nodes and switches. With adaptive routing
    this is usual: tolerate the finding.

    Source: the measurements in docs/benchmark.md.
    """
    found = []
    for row in _tests(context):
        counted = row["counters"]["server"]
        lost = counted.get("hw_counters/out_of_sequence", 0)
        arrived = counted.get("counters/port_rcv_packets") or counted.get("hw_counters/rcvd_pkts") or 0
        if row["verdict"] == "full" and lost >= ENOUGH_LOST and lost > arrived * LOST_SHARE:
            summary = f"{lost} of {arrived} packets from {row['client']['host']} came out of sequence at {row['server']['host']}"
            remedy = "Look at the priority of the class, and at PFC and ECN on the way."
            found.append((row, Problem(summary, remedy, _evidence(row), row["rail"])))
    yield from _collapsed(found, context)
