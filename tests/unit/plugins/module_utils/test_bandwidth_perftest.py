# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parser of ib_write_bw over outputs of several releases, failures, and any text at all."""

from __future__ import annotations

import json

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth import perftest
from hypothesis import given
from hypothesis import strategies as st

HEAD = """---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_26
 Number of qps   : 1\t\tTransport type : IB
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
---------------------------------------------------------------------------------------
"""
GBITS = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
ROW = " 65536      923824           0.00               96.87  \t\t   0.184766\n"
CPU = "Conflicting CPU frequency values detected: 2250.000000 != 3390.000000. CPU Frequency is not max.\n"


@pytest.mark.parametrize(
    ("header", "row", "gbps", "peak"),
    [
        (GBITS, ROW, 96.87, None),
        (GBITS, CPU + ROW, 96.87, None),
        (GBITS, " 65536    5000             97.05              96.86  \t\t   0.184743\n", 96.86, 97.05),
        # perftest before 24.04 says MB and means 2^20 bytes; 11548.6 of them are 96.87 Gb/s.
        (GBITS.replace("Gb/sec", "MB/sec"), ROW.replace("96.87", "11548.02"), 96.872, None),
        (GBITS.replace("Gb/sec", "MiB/sec"), ROW.replace("96.87", "11548.02"), 96.872, None),
        # --report-both of service levels, and CPU load at the end.
        (
            GBITS.replace("#iterations", "#sl      #iterations"),
            " 65536    0     923824    0.00    48.96    0.093\n",
            48.96,
            None,
        ),
        (GBITS.rstrip("\n") + "    CPU_Util[%]\n", ROW.rstrip("\n") + "\t    3.25\n", 96.87, None),
        # Bandwidths below 0.1 Gb/s come with six digits (rdma_rxe in a virtual machine).
        (GBITS, " 4096       20000           0.000000            0.099731            0.003043\n", 0.1, None),
    ],
    ids=["gbits", "message-between", "iterations", "MB", "MiB", "service-level", "cpu", "small"],
)
def test_formats_of_releases(header, row, gbps, peak):
    got = perftest.parse(HEAD + header + row + "-" * 87 + "\n")
    assert got["failure"] is None
    assert got["gbps"] == pytest.approx(gbps, abs=0.001)
    assert got["peak_gbps"] == peak
    assert got["details"]["gid_index"] == "3" and got["details"]["mtu"] == "4096[B]"


def test_a_row_of_zeros_is_no_result():
    """A test by time whose time was over before the first completion (perftest 4.5 over rdma_rxe, starved of CPU time)."""
    zeros = " 1024       0           0.000000            0.000000            0.000000\n"
    got = perftest.parse(HEAD + GBITS + zeros)
    assert (got["gbps"], got["failure"]["kind"]) == (None, "no_result")
    assert got["failure"]["meaning"] == "no message was completed within the time of the test"
    assert perftest.parse(HEAD + GBITS + zeros + ROW)["failure"] is None


def test_the_fastest_of_several_sizes_counts():
    text = GBITS + " 2 5000 0.1 0.08 5.0\n 8388608 5000 97.1 96.9 0.001\n"
    assert (perftest.parse(text)["bytes"], perftest.parse(text)["gbps"]) == (8388608, 96.9)


@pytest.mark.parametrize("quoted", [True, False], ids=["quoted", "bare-keys"])
def test_json(quoted):
    results = {"MsgSize": 65536, "n_iterations": 5000, "BW_peak": 0.0, "BW_average": 96.87, "MsgRate": 0.184766}
    data = {"test_info": {"test": "RDMA_Write_BW_Test", "Device": "mlx5_0"}, "results": results}
    text = json.dumps(data)
    if not quoted:
        for key in (*data, *data["test_info"], *data["results"]):
            text = text.replace(f'"{key}":', f"{key}:")
    assert perftest.parse_json(text, gbits=True)["gbps"] == 96.87
    assert perftest.parse_json(text, gbits=False)["gbps"] == pytest.approx(0.813, abs=0.001)
    assert perftest.parse_json("{", gbits=True) is None


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("Couldn't connect to 192.168.0.34:18515\n Unable to open file descriptor for socket connection\n"
         " Unable to init the socket connection", 1, "connect"),
        ("Failed to modify QP 134 to RTR\n Unable to Connect the HCA's through the link", 1, "qp"),
        ("Couldn't allocate MR\nFailed to create MR\n Couldn't create IB resources", 1, "memlock"),
        ("mmap of 131072 bytes failed: Cannot allocate memory", 1, "memlock"),
        ("IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device", 1, "no_device"),
        (" Couldn't get context for the device", 1, "no_context"),
        ("Couldn't listen to port 18515\n Unable to open file descriptor for socket connection", 1, "port"),
        (HEAD + GBITS + " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n"
         " Failed to complete run_iter_bw function successfully", 1, "retry"),
        (HEAD + GBITS + " Completion with error at client\n Failed status 10: wr_id 0 syndrom 0x88", 1, "completion"),
        ("ethernet_read_keys: Couldn't read remote address\n Unable to read from socket/rdma_cm\n"
         " Failed to exchange data between server and clients", 1, "peer_ended"),
        ("sh: 1: exec: ib_write_bw: not found", 127, "no_tool"),
        ("ib_write_bw: unrecognized option '--ipv6-addr'", 1, "option"),
        ("", 1, "other"),
        (HEAD + GBITS, 0, "no_result"),
        (HEAD + GBITS, None, "no_result"),
        (CPU, 0, "no_result"),
    ],
    ids=["connect", "qp", "mr", "mmap", "device", "context", "port", "retry", "completion", "peer", "tool", "option", "silent",
         "cut", "ended", "only-a-warning"],
)  # fmt: skip
def test_failures(text, code, kind):
    got = perftest.parse(text, code)
    assert got["gbps"] is None
    assert got["failure"]["kind"] == kind
    assert got["failure"]["remedy"]


def test_a_result_with_a_failing_code_is_no_full_success():
    assert (
        perftest.parse(GBITS + ROW + " Failed to exchange data between server and clients\n", 1)["failure"]["kind"]
        == "peer_ended"
    )


NUMBERS = st.floats(0.01, 999_999, allow_nan=False).map(lambda value: f"{value:.2f}")


@given(
    st.integers(1, 2**30), st.integers(0, 10**9), NUMBERS, NUMBERS, st.sampled_from(["Gb", "MB", "MiB"]), st.booleans()
)
def test_what_is_printed_is_read(size, iterations, peak, average, unit, warned):
    row = f" {size:<7}    {iterations:<10}       {peak:<7}            {average:<7}\t\t   0.184766\n"
    got = perftest.parse(GBITS.replace("Gb", unit) + CPU * warned + row)
    factor = 1 if unit == "Gb" else 8 * 2**20 / 1e9
    assert (got["bytes"], got["iterations"]) == (size, iterations)
    assert got["gbps"] == pytest.approx(float(average) * factor, abs=0.001)
    assert got["failure"] is None


@given(st.text(), st.one_of(st.none(), st.integers(-1, 255)))
def test_any_text_gives_a_rate_or_a_reason(text, code):
    for shown in (text, GBITS + text, HEAD + GBITS + ROW + text):
        got = perftest.parse(shown, code)
        assert (got["gbps"] is None) <= (got["failure"] is not None)
        json.dumps(got)


@given(st.integers(0, len(HEAD + GBITS + ROW) - 2))
def test_an_output_that_was_cut_never_gives_another_rate(place):
    got = perftest.parse((HEAD + GBITS + ROW)[:place], None)
    assert got["gbps"] in (None, 96.87)


def test_huge_and_hostile_numbers():
    for row in (
        " 65536 5000 1e999 nan 1\n",
        " 65536 5000 0 inf 1\n",
        f" 65536 5000 0 {'9' * 400} 1\n",
        " -1 5000 0 1 1\n",
    ):
        assert perftest.parse(GBITS + row)["gbps"] is None
