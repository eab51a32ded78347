# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mistakes of the intent as data: which variable, what it got, what is allowed, on which hosts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

NOT_SET = object()


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong with the intent.

    :ivar variable: the variable, with the path of the part that is meant: C(rails[3].pci).
    :ivar got: what was found there, as text.
    :ivar allowed: what may stand there, with the reason and the remedy where they are not obvious.
    :ivar hosts: the hosts it concerns; empty when it concerns all of them.
    """

    variable: str
    got: str
    allowed: str
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" (on {_names(self.hosts)})" if self.hosts else ""
        return f"{self.variable}{where}: got {self.got}; allowed: {self.allowed}"


def mistake(variable: str, got, allowed: str) -> Mistake:
    """Make a mistake from a value of any type; C(NOT_SET) reads as "nothing"."""
    return Mistake(variable, shown(got), allowed)


def shown(value) -> str:
    """Return a value as a person would write it in the inventory, cut to a readable length."""
    if value is NOT_SET or value is None:
        return "nothing"
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = f"{value} ({type(value).__name__})"
    return text if len(text) <= 160 else text[:157] + "..."


def merge(per_group: Iterable[tuple[Iterable[str], Iterable[Mistake]]], all_hosts: Iterable[str]) -> list[Mistake]:
    """Join the mistakes of several groups of hosts: the same mistake is listed once, with hosts only when they differ.

    :param per_group: pairs of the hosts that share an intent and the mistakes found in it.
    :param all_hosts: every host that was looked at.
    """
    hosts_of: dict[Mistake, list[str]] = {}
    for hosts, found in per_group:
        for item in found:
            hosts_of.setdefault(item, []).extend(hosts)
    everyone = set(all_hosts)
    return [
        item if item.hosts or set(hosts) == everyone else replace(item, hosts=tuple(sorted(set(hosts))))
        for item, hosts in hosts_of.items()
    ]


def report(mistakes: list[Mistake]) -> str:
    """Return one message that names every mistake, a line each."""
    count = f"{len(mistakes)} mistake{'s' if len(mistakes) != 1 else ''}"
    return "\n".join([f"{count} in the rails_* variables; nothing was changed:", *(f"- {item}" for item in mistakes)])


def _names(hosts: tuple[str, ...]) -> str:
    return ", ".join(hosts) if len(hosts) <= 4 else f"{', '.join(hosts[:3])} and {len(hosts) - 3} more"
