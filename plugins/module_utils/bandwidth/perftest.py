# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what ib_write_bw printed: the rate, or why there is none. Pure.

Formats are those of linux-rdma/perftest 4.x to 6.x and 24.x to 26.x: the header names the unit (``MB/sec`` and, later,
``MiB/sec`` are the same number of 2^20 bytes; ``Gb/sec`` is 10^9 bits with --report_gbits), and columns for service
levels, single ports or CPU load may be there. Messages on standard error come between the lines of the table.
"""

from __future__ import annotations

import json
import re

_MEBIBYTE_GBITS = 8 * 2**20 / 1e9
_UNITS = {"gb": 1.0, "mb": _MEBIBYTE_GBITS, "mib": _MEBIBYTE_GBITS}
_HEADER = re.compile(r"#bytes\s+(?P<sl>#sl\s+)?#iterations\s+BW peak\[(?P<unit>Gb|MB|MiB)/sec\]\s+BW average\[", re.I)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_BARE_KEY = re.compile(r"([{,]\s*)([A-Za-z_][A-Za-z0-9_ ]*?)\s*:")
_DETAIL = re.compile(
    r"^\s*(?P<name>Mtu|GID index|Number of qps|Link type|Device|Traffic class)\s*:\s*(?P<value>\S+)", re.I | re.M
)
_VERSION = re.compile(r"(?:Version|perftest)[: ]+v?([0-9]+\.[0-9]+(?:[.-][0-9]+)*)", re.I)
MAX_OUTPUT = 1 << 20  # characters that are looked at; a whole run prints some 3,000

# What the tool says, what it means, and what helps; the first that fits counts. Sources: src/perftest_resources.c,
# src/perftest_communication.c and src/write_bw.c of linux-rdma/perftest.
_FAILURES = (
    (
        "no_tool",
        ("not found.*ib_write_bw", "ib_write_bw.*(?:not found|No such file|Permission denied)"),
        "the image has no ib_write_bw",
        "Use an image with perftest (rdma_bandwidth_image).",
    ),
    (
        "option",
        ("unrecognized option", "invalid option", "Invalid Command", "is not supported in this version"),
        "this version of ib_write_bw does not know an option",
        "Use an image with a newer perftest.",
    ),
    (
        "no_device",
        ("IB device .* not found", "No IB devices found", "Unable to find the Infiniband/RoCE device"),
        "the RDMA device is not in the pod",
        "Run playbooks/verify.yml: it says why the device is missing.",
    ),
    (
        "memlock",
        (
            *("Couldn't allocate MR", "Couldn't create IB resources", "Failed to (?:register|create) MR"),
            *("mmap.*(?:Cannot allocate|failed)", "Cannot allocate memory", "Couldn't allocate work buf"),
        ),
        "memory for the test cannot be locked",
        "Raise the limit for locked memory of the container runtime, or give the test pods IPC_LOCK "
        "(rdma_bandwidth_ipc_lock).",
    ),
    (
        "no_context",
        ("Couldn't get context for the device",),
        "the device cannot be opened: its file in /dev/infiniband is missing, or belongs to another pod",
        "Run playbooks/verify.yml: the pod must have the device by its resource, not only see it.",
    ),
    (
        "qp",
        (
            *("Failed to modify QP", "Unable to Connect the HCA", "Failed to create AH", "Invalid GID"),
            *("Unable to set up socket connection", "can.t read (?:sgid|GID)", "Failed to (?:read|query) GID"),
        ),
        "the queue pair cannot be connected: the GID index has no usable row on one of the two sides",
        "Run playbooks/verify.yml: it finds the GID row of each pod and says why one is missing.",
    ),
    (
        "port",
        ("Couldn't listen to port", "Address already in use"),
        "the TCP port of the test is in use on the server's side",
        "Choose another rdma_bandwidth_port.",
    ),
    (
        "connect",
        (
            *("Couldn't connect to", "failed connect", "Unable to init the socket connection", "Problem in resolving"),
            *("Unable to open file descriptor for socket", "server accept", r"accept\(\) failed"),
        ),
        "the client does not reach the server's address over TCP",
        "Look at the address, the route and the ARP settings of the rail on both sides (playbooks/verify.yml), and at "
        "network policies.",
    ),
    (
        "retry",
        (
            "Failed status[- ]*(?:transport retry|RNR retry)",
            "retry counter exceeded",
            r"Failed status.*\(1[23]\)",
            "Failed status 1[23]:",
        ),
        "packets are not answered: the queue pair gave up after its retries",
        "Compare the counters of both ports: what leaves one and never arrives at the other is lost between them.",
    ),
    (
        "completion",
        ("Failed status", "Completion with error", "Failed to complete run_iter"),
        "a transfer ended with an error",
        "Look at the counters and at the kernel's log of both nodes.",
    ),
    (
        "peer_ended",
        (
            "Failed to exchange",
            "Couldn't (?:read|send) (?:(?:remote|local) address|reports)",
            "Unable to (?:read|write) .*socket",
        ),
        "the other side ended during the test",
        "Read what the other side said.",
    ),
    (
        "other",
        ("Couldn't", "Failed to", "Unable to", "Cannot ", "error"),
        "ib_write_bw failed",
        "Read what it said.",
    ),
)
_RULES = tuple((kind, re.compile("|".join(words), re.I), meaning, remedy) for kind, words, meaning, remedy in _FAILURES)
# Said in the course of a good run, too.
_HARMLESS = re.compile(
    r"Conflicting CPU frequency|CPU Frequency is not max|Using sampled CPU speed|^\s*WARNING|^Warning:|hugepage|"
    r"failed to (?:open|read) /proc/cpuinfo|Can't produce a report",
    re.I,
)


def printable(text: str) -> str:
    """Text without control characters that a terminal would act on, and not longer than is looked at."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text.replace("\r\n", "\n")[:MAX_OUTPUT])


def parse_rows(text: str) -> list[dict]:
    """The rows of the result table: ``[{bytes, iterations, peak_gbps, gbps, mpps}]``, rates in 10^9 bit/s.

    peak_gbps is None when the tool did not measure one: it prints 0.00 in duration mode.
    """
    rows: list[dict] = []
    unit, columns = None, 5
    for line in text.split("\n"):
        header = _HEADER.search(line)
        if header:
            unit, columns = _UNITS[header.group("unit").lower()], 6 if header.group("sl") else 5
            continue
        words = line.split()
        if unit is None or len(words) < columns or not all(_NUMBER.fullmatch(word) for word in words[:columns]):
            continue
        if not (words[0].isdigit() and words[columns - 4].isdigit()) or any(len(word) > 24 for word in words):
            continue
        peak, average, rate = (float(word) for word in words[columns - 3 : columns])
        rows.append(
            {
                "bytes": int(words[0]),
                "iterations": int(words[columns - 4]),
                "peak_gbps": round(peak * unit, 3) if peak else None,
                "gbps": round(average * unit, 3),
                "mpps": rate,
            }
        )
    return rows


def parse_json(text: str, gbits: bool) -> dict | None:
    """The result in a report of ``--out_json`` (keys without quotes in early versions), or None.

    :param gbits: whether --report_gbits was given; the file does not name its unit.
    """
    for quoted in (text, _BARE_KEY.sub(r'\1"\2":', text)):
        try:
            results = json.loads(quoted)["results"]
            unit = 1.0 if gbits else _MEBIBYTE_GBITS
            peak = float(results.get("BW_peak") or 0)
            return {
                "bytes": int(results["MsgSize"]),
                "iterations": int(results["n_iterations"]),
                "peak_gbps": round(peak * unit, 3) if peak else None,
                "gbps": round(float(results["BW_average"]) * unit, 3),
                "mpps": float(results["MsgRate"]),
            }
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            continue
    return None


def explain(text: str, code: int | None) -> dict | None:
    """Why a run failed: ``{kind, said, meaning, remedy}``; None when nothing in the text says so and the code is 0.

    said is the tool's own line. The kind ``peer_ended`` only tells that the other side knows more.
    """
    lines = [line.strip() for line in text.split("\n") if line.strip() and not _HARMLESS.search(line)]
    lines = [line for line in lines if not _HEADER.search(line)]
    for kind, rule, meaning, remedy in _RULES:
        # A tool that cannot be started is told by the shell's code, whatever the shell's words are.
        if kind == "no_tool" and code in (126, 127):
            return {"kind": kind, "said": lines[-1][:300] if lines else "", "meaning": meaning, "remedy": remedy}
        said = next((line for line in lines if rule.search(line)), None)
        if said is not None:
            return {"kind": kind, "said": said[:300], "meaning": meaning, "remedy": remedy}
    if code in (0, None):
        return None
    said = lines[-1][:300] if lines else ""
    return {
        "kind": "other",
        "said": said,
        "meaning": f"ib_write_bw ended with code {code}",
        "remedy": "Read what it said.",
    }


def parse(text: str, code: int | None = 0) -> dict:
    """All that one output of ib_write_bw tells.

    :param text: standard output and standard error in one.
    :param code: exit code, None when it was ended before it ended by itself.
    :returns: ``{gbps, peak_gbps, mpps, bytes, iterations, failure, details, version}``. gbps is None without a result;
        failure (see :func:`explain`) is None with one. A table of several sizes counts with its fastest row.
    """
    text = printable(text)
    # A test by time prints a row of zeros when its time was over before the first completion.
    rows = [row for row in parse_rows(text) if row["iterations"] or row["gbps"]]
    empty = {"bytes": None, "iterations": None, "peak_gbps": None, "gbps": None, "mpps": None}
    best = max(rows, key=lambda row: row["gbps"]) if rows else empty
    failure = None
    if not rows or code not in (0, None):
        failure = explain(text, code)
        if failure is None and not rows:
            if code is None:
                meaning = "ib_write_bw was ended before it had a result"
            elif parse_rows(text):
                meaning = "no message was completed within the time of the test"
            else:
                meaning = "ib_write_bw printed no result"
            remedy = "Test for longer; when nothing arrives then either, look at the counters of both ends."
            failure = {"kind": "no_result", "said": "", "meaning": meaning, "remedy": remedy}
    version = _VERSION.search(text)
    details = {match.group("name").lower().replace(" ", "_"): match.group("value") for match in _DETAIL.finditer(text)}
    return {**best, "failure": failure, "details": details, "version": version.group(1) if version else None}
