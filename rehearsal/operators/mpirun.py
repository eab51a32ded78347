# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of mpirun (Open MPI 4 and 5), as far as a launcher needs it: what it does not know it refuses."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Options by the number of their values.
_VALUES = {
    "--hostfile": 1, "-np": 1, "-n": 1, "--map-by": 1, "--bind-to": 1, "-bind-to": 1, "--mca": 2, "-mca": 2, "-x": 1,
    "-npernode": 1, "--allow-run-as-root": 0, "--tag-output": 0, "--oversubscribe": 0,
}  # fmt: skip


class MpiError(Exception):
    """mpirun or ssh ends with this code and says this."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


@dataclass
class Call:
    """A parsed command line. hosts: (name, slots) in the order of the host file."""

    ranks: int
    each: int
    hosts: list[tuple[str, int]]
    command: list[str] = field(default_factory=list)


def parse(argv: list[str], hostfile: str) -> Call:
    """Raises MpiError for what mpirun would refuse."""
    options: dict[str, list[str]] = {}
    place = 0
    while place < len(argv) and argv[place].startswith("-"):
        name = argv[place]
        if name not in _VALUES:
            raise MpiError(1, f'mpirun: Error: unknown option "{name}"')
        options.setdefault(name, []).extend(argv[place + 1 : place + 1 + _VALUES[name]])
        place += 1 + _VALUES[name]
    if place >= len(argv):
        raise MpiError(1, "mpirun could not find anything to do.")
    hosts = []
    for line in hostfile.splitlines():
        match = re.fullmatch(r"(\S+)(?: slots=([0-9]+))?", line.strip())
        if match:
            hosts.append((match[1], int(match[2] or 1)))
    ranks = int((options.get("-np") or options.get("-n") or ["0"])[0]) or sum(slots for _host, slots in hosts)
    ppr = re.fullmatch(r"ppr:([0-9]+):node", (options.get("--map-by") or [""])[0])
    each = int(ppr[1]) if ppr else int((options.get("-npernode") or ["0"])[0])
    return Call(ranks, each, hosts, argv[place:])


def placed(call: Call) -> list[tuple[str, int]]:
    """(host, number of ranks). Raises MpiError when there are not slots enough."""
    left, made = call.ranks, []
    for host, slots in call.hosts:
        count = min(call.each or slots, slots, left)
        if count:
            made.append((host, count))
        left -= count
    if left:
        raise MpiError(
            1,
            f"There are not enough slots available in the system to satisfy the {call.ranks}\nslots that were requested",
        )
    return made
