# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table that all_reduce_perf prints: a row a message size, with times and bandwidths out of place and in place.

The header of the table names the columns, and they differ between releases: 2.0 has no ``redop`` and ``root``; up to
2.12 the last column of each half is ``error`` (largest difference), then ``#wrong`` (number of wrong elements); the
option -I adds columns, -T a time (NVIDIA/nccl-tests, src/util.cu).
"""

from __future__ import annotations

import math
import re

from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.lines import Line

HALVES = ("out_of_place", "in_place")
_START = ("size", "count", "type")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?:nan|inf)")
_ROW = re.compile(r"^\s*([0-9]{1,19})\s+([0-9]{1,19})\s+([a-z][a-z0-9_]*)(?:\s|$)")
_RANK = re.compile(
    r"^#\s+Rank\s+([0-9]+)(?:\s+Group\s+[0-9]+)?\s+Pid\s+([0-9]+)\s+on\s+(\S+)\s+device\s+([0-9]+)\s+\[([0-9a-fx:.]+)\]\s*(.*)$"
)
_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*(\S+)")
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*([0-9]+)\s+(OK|FAILED)")
_TESTS = re.compile(r"^#\s*nccl-tests version\s+(\S+)")


def number(text: str) -> float | None:
    """A number as printf writes it; None for ``N/A``, ``nan``, ``inf`` and what is none."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def columns_of(text: str) -> list[str] | None:
    """The names of the columns when the line is a header of the table, else None."""
    words = text.replace("#wrong", "wrong").lstrip().removeprefix("#").split()
    words = ["time" if word == "cputime" else word for word in words]  # option -C
    return words if tuple(words[:3]) == _START and words.count("time") in (1, 2) else None


def _guess(count: int) -> list[str] | None:
    """The columns of a row of that many words, for a log whose header was cut off."""
    half = ["time", "algbw", "busbw", "wrong"]
    start = [*_START, "redop", "root"][: count - 8]
    return [*start, *half, *half] if 11 <= count <= 13 else None


def _half(names: list[str], words: list[str]) -> dict:
    told = dict(zip(names, words))
    wrong = number(told.get("wrong", ""))
    return {
        "time_us": number(told.get("time", "")),
        "algbw": number(told.get("algbw", "")),
        "busbw": number(told.get("busbw", "")),
        "wrong": None if wrong is None else int(wrong),
    }


def row_of(words: list[str], columns: list[str] | None) -> dict | None:
    """``{bytes, out_of_place, in_place}`` of the words of a row; None when there are not all of them."""
    columns = columns or _guess(len(words))
    if columns is None or len(words) < len(columns):
        return None
    starts = [place for place, name in enumerate(columns) if name == "time"]
    row: dict = {"bytes": int(words[0]), "out_of_place": None, "in_place": None}
    for half, start, end in zip(HALVES, starts, [*starts[1:], len(columns)]):
        row[half] = _half(columns[start:end], words[start:end])
    halves = [row[half] for half in HALVES if row[half]]
    # A bandwidth that is no number means that words of another line got into this one.
    broken = any(half["time_us"] is None and half["busbw"] is None for half in halves)
    return None if broken or not halves else row


def pci_of(text: str) -> str | None:
    """PCI address of a GPU in the list of ranks: ``0000:0f:00`` (function 0), or ``0x0f`` in older releases."""
    if re.fullmatch(r"0x[0-9a-f]{1,2}", text):
        return f"0000:{int(text, 16):02x}:00.0"
    match = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", text)
    return f"{match[1]}:{match[2]}:{match[3]}.{match[4] or 0}" if match else None


def parse_table(lines: list[Line]) -> dict:
    """What the program printed.

    :returns: ``{sizes: [{bytes, out_of_place: {time_us, algbw, busbw, wrong}, in_place}], ranks: {rank: {host, gpu,
        pci, name}}, average_gbs, out_of_bounds, tests_version, cut: rows that did not come whole}``. Bandwidths in
        GB/s (10^9 byte/s), times in microseconds. ``wrong`` is None where it was not checked (``N/A``) or the release
        prints a difference instead.
    """
    found: dict = {
        "sizes": [],
        "ranks": {},
        "average_gbs": None,
        "out_of_bounds": None,
        "tests_version": None,
        "cut": 0,
    }
    columns: list[str] | None = None
    waiting: list[str] = []
    for line in lines:
        if line.level is not None:
            continue
        text = line.text
        header = columns_of(text) if "#" in text else None
        if header:
            columns = header
        elif _ROW.match(text):
            found["cut"] += bool(waiting)
            waiting = _take(text.split(), columns, found)
        elif waiting and all(_value(word) for word in text.split()):
            waiting = _take(waiting + text.split(), columns, found)
        else:
            _about(text, found)
    found["cut"] += bool(waiting)
    return found


def _value(word: str) -> bool:
    return word == "N/A" or bool(_NUMBER.fullmatch(word))


def _take(words: list[str], columns: list[str] | None, found: dict) -> list[str]:
    """Keep a whole row; the words of one that is not whole yet are given back."""
    row = row_of(words, columns)
    if row is not None:
        found["sizes"].append(row)
        return []
    wanted = len(columns) if columns else 13
    if len(words) < wanted:
        return words
    found["cut"] += 1
    return []


def _about(text: str, found: dict) -> None:
    stripped = text.strip()
    if rank := _RANK.match(stripped):
        host, pci, name = rank[3], pci_of(rank[5]), rank[6].strip()
        found["ranks"][int(rank[1])] = {"host": host, "gpu": int(rank[4]), "pci": pci, "name": name or None}
    elif average := _AVERAGE.match(stripped):
        found["average_gbs"] = number(average[1])
    elif bounds := _BOUNDS.match(stripped):
        found["out_of_bounds"] = int(bounds[1])
    elif tests := _TESTS.match(stripped):
        found["tests_version"] = tests[1]
