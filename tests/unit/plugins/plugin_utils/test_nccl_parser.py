# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Output of all_reduce_perf and of NCCL_DEBUG=INFO, of several releases, whole, interleaved and cut."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.debug import (
    channel_counts,
    nic_of,
    parse_debug,
    pci_of_bus_id,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.errors import find_errors
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.lines import lines_of
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.output import parse_table
from hypothesis import given
from hypothesis import strategies as st

# Measured on two BM.GPU.B4.8 nodes with a VF on each rail, as published.
NEW = """\
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
  4294967296    1073741824     float     sum      -1  42530.7  100.99  189.35       0  42573.0  100.88  189.16       0
  8589934592    2147483648     float     sum      -1  84524.1  101.63  190.55       0  84890.4  101.19  189.73       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 189.699
"""
OLD = """\
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  8589934592    2147483648   float     sum  84524.1  101.63  190.55  1e-06  84890.4  101.19  189.73    N/A
"""
OLDEST = """\
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
  8589934592    2147483648   float  84524.1  101.63  190.55  0e+00  84890.4  101.19  189.73  0e+00
"""
HALF = "     time   algbw   busbw  #wrong    i_min   i_max   i_p99   i_cv%"
PER_ITERATION = f"""\
#       size         count      type   redop    root{HALF}{HALF}           timestamp
  8589934592    2147483648     float     sum      -1  84524.1  101.63  190.55       3    1.0     2.0     2.0     0.1\
  84890.4  101.19  189.73     N/A    1.0     2.0     2.0     0.1 2026-11-28 10:11:12
"""
INFO = "vf-n1:101:140 [1] NCCL INFO "


def table(text):
    return parse_table(lines_of(text))


def test_the_published_table():
    found = table(NEW)
    assert [row["bytes"] for row in found["sizes"]] == [4 << 30, 8 << 30]
    assert found["sizes"][1]["out_of_place"] == {"time_us": 84524.1, "algbw": 101.63, "busbw": 190.55, "wrong": 0}
    assert found["sizes"][1]["in_place"] == {"time_us": 84890.4, "algbw": 101.19, "busbw": 189.73, "wrong": 0}
    assert (found["average_gbs"], found["out_of_bounds"], found["cut"]) == (189.699, 0, 0)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [(OLD, (None, None)), (OLDEST, (None, None)), (PER_ITERATION, (3, None)), (NEW.replace("      0  42", "    N/A  42"), (0, 0))],
    ids=["error", "no-redop", "per-iteration", "not-checked"],
)  # fmt: skip
def test_columns_of_other_releases(text, wrong):
    last = table(text)["sizes"][-1]
    assert last["out_of_place"]["busbw"] == 190.55 and last["in_place"]["busbw"] == 189.73
    assert (last["out_of_place"]["wrong"], last["in_place"]["wrong"]) == wrong


def test_a_table_without_header_is_read_by_its_width():
    rows = "\n".join(line for line in NEW.splitlines() if not line.startswith("#"))
    assert table(rows)["sizes"] == table(NEW)["sizes"]


@pytest.mark.parametrize(
    "prefix",
    ["[1,0]<stdout>:", "[1,0]<stdout>: ", "[prterun-x-1@1,0]<stdout>: ", "2026-11-30T02:03:04.123456789Z ", "\x1b[32m"],
    ids=["openmpi-4", "openmpi-4-space", "openmpi-5", "log-time", "colour"],
)
def test_prefixes_change_nothing(prefix):
    assert table("\n".join(prefix + line for line in NEW.splitlines())) == table(NEW)


def test_a_message_in_the_middle_of_a_row_does_not_cost_the_row():
    row = "  8589934592    2147483648     float     sum      -1"
    rest = "  84524.1  101.63  190.55       0  84890.4  101.19  189.73       0"
    text = f"{row}{INFO}Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/16/GDRDMA\n{rest}\n"
    lines = lines_of(text)
    assert parse_table(lines)["sizes"] == table(NEW)["sizes"][1:]
    assert len(parse_debug(lines)["channels"]) == 1


@pytest.mark.parametrize("keep", [60, 75, 100], ids=str)
def test_a_cut_row_is_counted_and_not_believed(keep):
    row = NEW.splitlines()[3]
    found = table("\n".join([*NEW.splitlines()[:3], row[:keep]]))
    assert [item["bytes"] for item in found["sizes"]] == [4 << 30] and found["cut"] == 1


def test_ranks_and_their_gpus_in_both_notations():
    text = """\
#  Rank  0 Group  0 Pid    101 on      vf-n1 device  0 [0000:0f:00] NVIDIA A100-SXM4-40GB
#  Rank  8 Pid    102 on      vf-n2 device  0 [0x0f] NVIDIA A100-SXM4-40GB
# nccl-tests version 2.19.6 nccl-headers=23203 nccl-library=23203
"""
    found = table(text)
    assert found["ranks"] == {
        0: {"host": "vf-n1", "gpu": 0, "pci": "0000:0f:00.0", "name": "NVIDIA A100-SXM4-40GB"},
        8: {"host": "vf-n2", "gpu": 0, "pci": "0000:0f:00.0", "name": "NVIDIA A100-SXM4-40GB"},
    }
    assert found["tests_version"] == "2.19.6"


def test_what_nccl_says_of_its_network():
    text = f"""\
NCCL version 2.32.3+cuda13.4
{INFO}NET/IB : Using [0]mlx5_18:1/RoCE [1]mlx5_19:1/RoCE [RO]; OOB eth0:10.244.66.2<0>
{INFO}NCCL_IB_HCA set to =mlx5_18,mlx5_19
{INFO}NCCL_IB_GID_INDEX set by environment to 3.
{INFO}Using network IB
{INFO}ncclCommInitRankConfig comm 0x55 rank 1 nranks 16 cudaDev 1 nvmlDev 1 busId 15000 commId 0x1 - Init START
{INFO}NET/IB : Made virtual device [16] name=mlx5_18+mlx5_19 speed=200000 ndevs=2 rail=-1 plane=16385
{INFO}Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/16/GDRDMA/flush=Always
vf-n2:201:240 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [receive] via NET/IB/16/GDRDMA/flush=Always
{INFO}Channel 01/0 : 1[1] -> 9[1] [send] via NET/IB/1(7)
{INFO}Channel 02/0 : 1[1] -> 2[2] via P2P/CUMEM/read
{INFO}NET/IB: NCCL Dev 16 IbDev 1 Port 1 qpn 300 mtu 5 query_ece={{supported=0}} GID 3 (0/A0A0A0A) fifoRkey=0x1
"""
    found = parse_debug(lines_of(text))
    assert found["version"] == "2.32.3+cuda13.4" and found["networks"] == ["IB"]
    assert found["set"] == {"NCCL_IB_HCA": ["=mlx5_18,mlx5_19"], "NCCL_IB_GID_INDEX": ["3"]}
    assert found["ranks"] == {1: {"host": "vf-n1", "gpu": 1, "pci": "0000:15:00.0"}}
    assert nic_of(found, "vf-n1", 16) == {
        "name": "mlx5_18+mlx5_19",
        "devices": ["mlx5_18", "mlx5_19"],
        "speed_mbps": 200000,
    }
    assert nic_of(found, "vf-n1", 0) == {"name": "mlx5_18", "devices": ["mlx5_18"], "speed_mbps": None}
    assert found["gids"] == {"vf-n1": {"mlx5_19": [3]}}
    assert [(c["rank"], c["peer"], c["nic"], c["gdrdma"], c["proxy"]) for c in found["channels"]] == [
        (1, 8, 16, True, None), (8, 1, 16, True, None), (1, 9, 1, False, 7)
    ]  # fmt: skip
    assert channel_counts(found["channels"]) == {"channels": 2, "with_gdrdma": 1}


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("Using network Socket", "Socket"),
        ("Assigned NET plugin Socket to comm", "Socket"),
        ("Using network AWS Libfabric", "AWS Libfabric"),
    ],
    ids=["2.18", "2.27", "plugin"],
)
def test_the_network_in_use(text, network):
    assert parse_debug(lines_of(INFO + text))["networks"] == [network]


@pytest.mark.parametrize(
    ("bus_id", "pci"), [("f000", "0000:0f:00.0"), ("da000", "0000:da:00.0"), ("10015001", "0100:15:00.1")], ids=str
)
def test_bus_ids(bus_id, pci):
    assert pci_of_bus_id(bus_id) == pci


WARN = "vf-n1:1:2 [5] NCCL WARN "
QP = WARN + "Call to ibv_modify_qp failed with "
WHERE = ", on dev mlx5_18:1, curr state INIT, next state RTR, local GID index 3, local GID ::a, remote GID ::b"
ERRORS = {
    "timed-out": ("unreachable", 110, f"[2026-11-28 10:11:12] {QP}110 Connection timed out{WHERE}"),
    "with-place": ("unreachable", 110, f"{QP}110 Connection timed out{WHERE}".replace("NCCL", "ibvwrap.cc:376 NCCL")),
    "no-device": ("gid", 19, f"{QP}19 No such device{WHERE}"),
    "no-data": ("gid", 61, f"{QP}61 No data available{WHERE}"),
    "no-device-2.9": ("gid", None, f"{QP}error No such device"),
    "no-route": ("address", None, f"{WARN}socketStartConnect: Connect to 10.0.0.1<40001> failed : No route to host"),
    "system": ("nccl", None, "vf-n1: Test NCCL failure common.cu:958 'unhandled system error / '"),
    "system-name": ("nccl", None, "vf-n1: Test NCCL failure common.cu:400 'ncclSystemError'"),
    "test": ("test", None, " .. vf-n1 pid 12: Test failure common.cu:1063"),
    "gpu-memory": ("gpu_memory", None, "vf-n1: Test CUDA failure common.cu:892 'out of memory'"),
    "completion": (
        "completion",
        None,
        f"{WARN}NET/IB: Got completion from peer 192.0.2.2<47> with status=12 vendor err 129",
    ),
    "memlock": ("memlock", None, f"{WARN}Call to ibv_reg_mr failed with error Cannot allocate memory"),
    "slots": ("slots", None, "There are not enough slots available in the system to satisfy the 16"),
    "ssh": ("ssh", None, "root@job-worker-0.job: Permission denied (publickey)."),
    "program": ("no_program", None, "sh: 1: /workspace/nccl-tests/build/all_reduce_perf: No such file or directory"),
    "killed": ("killed", None, "mpirun noticed that process rank 3 with PID 0 on node x exited on signal 9 (Killed)."),
    "launcher": ("launcher", None, "railyard-error: worker-1 does not answer to ssh"),
    "warning": ("warning", None, f"{WARN}something new"),
}


@pytest.mark.parametrize(("kind", "errno", "text"), ERRORS.values(), ids=ERRORS)
def test_errors_have_a_kind(kind, errno, text):
    (error,) = find_errors(lines_of(text))
    assert (error["kind"], error["errno"]) == (kind, errno)


def test_the_cause_comes_first_and_repeated_lines_are_one():
    warn = f"{QP}110 Connection timed out{WHERE}"
    errors = find_errors(lines_of("\n".join([" .. vf-n1 pid 12: Test failure common.cu:1063", warn, warn])))
    assert [(e["kind"], e["count"]) for e in errors] == [("unreachable", 2), ("test", 1)]
    assert errors[0]["device"] == "mlx5_18" and errors[0]["gid_index"] == 3


def test_a_healthy_log_has_no_errors():
    retry = f"Call to ibv_modify_qp failed with 110 Connection timed out{WHERE}, retrying 1/3 after 100 msec of sleep"
    assert find_errors(lines_of(f"{NEW}{INFO}{retry}\n")) == []


sizes = st.lists(
    st.tuples(
        st.integers(1, 1 << 40),
        st.floats(0.01, 1e9),
        st.floats(0, 4000),
        st.floats(0, 4000),
        st.one_of(st.none(), st.integers(0, 10**6)),
    ),
    max_size=6,
)


@given(sizes, st.lists(st.integers(0, 6), max_size=4))
def test_what_the_program_prints_is_what_is_read(rows, noise):
    lines = NEW.splitlines()[:2]
    for size, time, algbw, busbw, wrong in rows:
        half = f"  {time:7.1f}  {algbw:6.2f}  {busbw:6.2f}  {'   N/A' if wrong is None else format(float(wrong), '6g')}"
        lines.append(f"{size:12d}  {size // 4:12d}     float     sum      -1{half}{half}")
    for place in noise:
        lines.insert(min(place, len(lines)), f"{INFO}Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/16/GDRDMA")
    found = table("\n".join(lines))
    assert found["cut"] == 0 and [row["bytes"] for row in found["sizes"]] == [row[0] for row in rows]
    for read, (_size, time, _algbw, busbw, wrong) in zip(found["sizes"], rows):
        assert read["out_of_place"] == read["in_place"]
        assert read["out_of_place"]["time_us"] == float(f"{time:.1f}") and read["out_of_place"]["busbw"] == float(
            f"{busbw:.2f}"
        )
        assert read["out_of_place"]["wrong"] == (None if wrong is None else int(float(format(float(wrong), "6g"))))


words = st.sampled_from([*NEW.split(" "), INFO, "\n", "[1,0]<stdout>:"])


@given(st.one_of(st.text(max_size=400), st.lists(words, max_size=60).map(" ".join)))
def test_nothing_breaks_the_parsers(text):
    lines = lines_of(text)
    found = parse_table(lines)
    assert all(row["bytes"] >= 0 for row in found["sizes"])
    parse_debug(lines)
    find_errors(lines)
