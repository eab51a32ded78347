# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of a launcher's log, without what mpirun, the container runtime or a terminal put in front of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

# A log of many ranks at NCCL_DEBUG=INFO has some thousand lines; a line beyond this is no output of NCCL.
LONGEST = 8192
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Time of a container's log when it was asked for with timestamps.
_TIME = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+) ")
# Open MPI 4 writes "[1,0]<stdout>:text", Open MPI 5 and PRRTE "[job,0]<stdout>: text".
_TAG = re.compile(r"^\[[^\[\],\s]{1,256},([0-9]{1,9})\]<(?:stdout|stderr|stddiag)>:\s?")
# "host:pid:tid [gpu] NCCL INFO text"; older releases leave out the thread. The GPU is the rank's CUDA device.
# Warnings have the time before and the place in NCCL's source behind the GPU (ncclDebugLog in src/debug.cc).
_NCCL = re.compile(
    r"(?:\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\] )?([^\s:\[\]]{1,253}):[0-9]{1,10}(?::[0-9]{1,10})? \[([0-9]{1,4})\] "
    r"(?:[^\s:]{1,80}:[0-9]{1,6} )?NCCL (INFO|WARN|TRACE|CALL|ABORT) ?"
)


@dataclass(frozen=True)
class Line:
    """One line: ``text`` is what NCCL said when ``level`` is set, else what a program printed.

    host, gpu: where NCCL said it; rank: from mpirun's tag. None where the line does not tell.
    """

    text: str
    level: str | None = None
    host: str | None = None
    gpu: int | None = None
    rank: int | None = None


def lines_of(text: str) -> list[Line]:
    """The lines of a log. A message of NCCL in the middle of another line becomes a line of its own: the ranks of a
    node write into one pipe."""
    found = []
    for raw in text.replace("\r", "").split("\n"):
        plain = _TIME.sub("", _COLOUR.sub("", raw[:LONGEST]))
        tag = _TAG.match(plain)
        rank = int(tag.group(1)) if tag else None
        plain = plain[tag.end() :] if tag else plain
        said = list(_NCCL.finditer(plain))
        ends = [match.start() for match in said[1:]] + [len(plain)]
        before = plain[: said[0].start()] if said else plain
        if before.strip():
            found.append(Line(before, rank=rank))
        for match, end in zip(said, ends):
            host, gpu, level = match.group(1), int(match.group(2)), match.group(3)
            found.append(Line(plain[match.end() : end].rstrip(), level, host, gpu, rank))
    return found
