# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the CNI plugins share: one attachment, where it goes, and how a plugin reports an error."""

from __future__ import annotations

from dataclasses import dataclass, field

from rehearsal.operators.ipam import Ipam
from rehearsal.operators.machines import Machine


class CniError(Exception):
    """A plugin refused; the message is what it prints as the CNI error."""


@dataclass
class Call:
    """One attachment: where it goes and what the plugins of its chain share."""

    machine: Machine
    netns: str  # name under /run/netns of the node
    ifname: str
    owner: str  # "<pod uid>/<interface>", the key of address reservations
    device: str | None  # PCI address that the device plugin gave out
    ipam: Ipam
    ips: list[str] = field(default_factory=list)  # static addresses of the pod annotation
    mac: str | None = None
    notes: dict = field(default_factory=dict)

    async def host(self, script: str, *words: str) -> str:
        return await self.machine.shell(script, *words)

    async def pod(self, script: str, *words: str) -> str:
        return await self.machine.shell(script, *words, netns=self.netns)
