# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PCI functions of a node and where they sit, from the node's spec. Pure.

The catalogue knows addresses, not bridges. Functions whose bus numbers are close share a host bridge: on the 8-GPU
machines of the catalogue each PCIe root holds two GPUs and the NICs next to them. There a switch at the root port leads
to a switch for each NIC and the GPU that the catalogue pairs it with: PIX between the two, PXB to the other pair, in the
words of ``nvidia-smi topo``. Without pairs each bus gets its own root port.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")
_SAME_ROOT = 16  # largest distance of bus numbers within one root


@dataclass(frozen=True, order=True)
class Address:
    domain: int
    bus: int
    devfn: int

    @classmethod
    def parse(cls, text: str) -> Address:
        match = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ValueError(f"PCI address {text!r}: want domain:bus:device.function in lower case, like 0000:0c:00.0")
        domain, bus, device, function = (int(part, 16) for part in match.groups())
        return cls(domain, bus, device << 3 | function)

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.devfn >> 3:02x}.{self.devfn & 7}"

    @property
    def slot(self) -> tuple[int, int, int]:
        return self.domain, self.bus, self.devfn >> 3

    @property
    def function(self) -> int:
        return self.devfn & 7

    def at(self, offset: int) -> Address:
        """The function ``offset`` routing ids further (PCI Express SR-IOV, 2.1.2)."""
        rid = (self.bus << 8 | self.devfn) + offset
        return Address(self.domain, rid >> 8, rid & 0xFF)


@dataclass
class Function:
    """One PCI function. ``path`` is relative to /sys; bridges have no address object, their path says it."""

    address: Address | None
    path: str
    vendor: str
    device: str
    pci_class: int
    numa_node: int
    driver: str | None
    total_vfs: int = 0
    first_vf_offset: int = 0
    vf_device: str = ""
    parent: Function | None = None
    vf_index: int | None = None
    vfs: list[Function] = field(default_factory=list)

    @property
    def pci(self) -> str:
        return str(self.address)


def vf_offset(pf: Address, functions: Iterable[Address], total_vfs: int) -> int:
    """First VF offset of a PF with stride 1: the VFs of the card's ports lie one after the other behind its PFs."""
    on_card = sorted(other.function for other in functions if other.slot == pf.slot)
    first = max(on_card) + 1 + on_card.index(pf.function) * total_vfs
    return first - pf.function


def roots(nics: list[Address], pairs: list[tuple[Address, Address]]) -> list[list[tuple[int, int]]]:
    """Group the (domain, bus) of all functions by PCIe root, in ascending order."""
    buses = sorted({(a.domain, a.bus) for a in nics} | {(a.domain, a.bus) for pair in pairs for a in pair})
    groups: list[list[tuple[int, int]]] = []
    for bus in buses:
        near = groups and groups[-1][-1][0] == bus[0] and bus[1] - groups[-1][-1][1] <= _SAME_ROOT
        if near:
            groups[-1].append(bus)
        else:
            groups.append([bus])
    for nic, gpu in pairs:
        first = next(g for g in groups if (nic.domain, nic.bus) in g)
        second = next(g for g in groups if (gpu.domain, gpu.bus) in g)
        if first is not second and nic.domain == gpu.domain:
            first.extend(second)
            first.sort()
            groups.remove(second)
    return groups


def pair_sets(group: list[tuple[int, int]], pairs: list[tuple[Address, Address]]) -> list[list[tuple[int, int]]]:
    """The buses of a group in sets that pairs connect, in ascending order; empty when nothing is paired."""
    sets = [{bus} for bus in group]
    for nic, gpu in pairs:
        ends = {(nic.domain, nic.bus), (gpu.domain, gpu.bus)}
        touched = [found for found in sets if found & ends]
        if ends <= set(group):
            sets = [found for found in sets if found not in touched] + [set().union(*touched)]
    return sorted(map(sorted, sets)) if any(len(found) > 1 for found in sets) else []


class Topology:
    """sysfs path and NUMA node of every bus. Two NUMA nodes, the lower half of the roots on the first."""

    def __init__(self, nics: list[Address], pairs: list[tuple[Address, Address]]) -> None:
        self._bridge: dict[tuple[int, int], str] = {}
        self._numa: dict[tuple[int, int], int] = {}
        self.bridges: list[tuple[str, int]] = []
        groups = roots(nics, pairs)
        # The bus after a NIC's is where VFs go that its own has no room for.
        self._taken = {bus for group in groups for bus in group} | {(nic.domain, nic.bus + 1) for nic in nics}
        for index, group in enumerate(groups):
            self._numa.update(dict.fromkeys(group, 0 if index < (len(groups) + 1) // 2 else 1))
            sets = pair_sets(group, pairs)
            buses = self._free(group[0], 3 + 2 * len(sets)) if sets else []
            if buses:
                self._switches(group[0][0], sets, buses)
            else:
                self._root_ports(group)

    def _free(self, below: tuple[int, int], count: int) -> list[int]:
        """``count`` unused bus numbers below a bus, ascending: a bridge's number is lower than those behind it."""
        domain, lowest = below
        found = [number for number in range(lowest - 1, -1, -1) if (domain, number) not in self._taken][:count]
        if len(found) < count:
            return []
        self._taken |= {(domain, number) for number in found}
        return found[::-1]

    def _root_ports(self, group: list[tuple[int, int]]) -> None:
        domain, lowest = group[0]
        root = next((n for n in range(lowest, -1, -1) if (domain, n) not in self._taken), 0)
        self._taken.add((domain, root))
        for port, bus in enumerate(group, 1):
            # Device numbers end at 0x1f; further ports become functions of the last devices.
            self._place(bus, f"devices/pci{domain:04x}:{root:02x}", root, port)

    def _switches(self, domain: int, sets: list[list[tuple[int, int]]], buses: list[int]) -> None:
        root, upstream, middle, *rest = buses
        numa = self._numa[sets[0][0]]
        top = f"devices/pci{domain:04x}:{root:02x}/{domain:04x}:{root:02x}:01.0"
        above = f"{top}/{domain:04x}:{upstream:02x}:00.0"
        self.bridges += [(top, numa), (above, numa)]
        for number, found in enumerate(sets):
            if len(found) == 1:
                self._place(found[0], above, middle, number)
                continue
            leaf, down = rest[2 * number : 2 * number + 2]
            port = f"{above}/{domain:04x}:{middle:02x}:{number:02x}.0"
            switch = f"{port}/{domain:04x}:{leaf:02x}:00.0"
            self.bridges += [(port, numa), (switch, numa)]
            for place, bus in enumerate(found):
                self._place(bus, switch, down, place)

    def _place(self, bus: tuple[int, int], above: str, number: int, port: int) -> None:
        bridge = f"{bus[0]:04x}:{number:02x}:{port % 32:02x}.{port // 32}"
        self._bridge[bus] = f"{above}/{bridge}"
        self.bridges.append((self._bridge[bus], self._numa[bus]))

    def path(self, address: Address) -> str:
        return f"{self._bridge[address.domain, address.bus]}/{address}"

    def beside(self, parent: str, address: Address) -> str:
        """Path of a VF, which sits behind the bridge of its PF whatever its bus number."""
        return f"{parent.rpartition('/')[0]}/{address}"

    def numa_node(self, address: Address) -> int:
        return self._numa[address.domain, address.bus]
