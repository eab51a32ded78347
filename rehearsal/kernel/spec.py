# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node's spec says about its NICs and GPUs, checked and completed. Pure.

The spec is the fleet's JSON: ``{name, shape, rails: [{pci, netdev, rdma, gpu_pci}], front_end: [pci | {pci, netdev,
rdma}], nic: {vendor, model, pf_device, vf_device, ports_per_card}, mtu, ip_family, num_vfs_max, driver, address}``.
Optional: ``qos`` (as in the shape catalogue), ``gpu`` ({model, device}), ``rate_gbps``, ``lockdown``,
``not_loaded`` (modules: of rdma_cm, rdma_ucm, ib_umad), and numbers of rails: ``silent_router`` (its router answers nobody),
``slow_rail`` (40 % of the rate), ``cut_rail`` (nothing passes between nodes), ``filtered_rail`` (no frame of a VF does).
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass

from .pci import Address

DRIVERS = ("doca_ofed", "inbox")
OF_A_RAIL = ("silent_router", "slow_rail", "cut_rail", "filtered_rail")
FIRMWARE_VFS = 127  # what the cloud's image allows per PF when the spec has no number
RAIL_NETWORK = ipaddress.ip_network("10.224.0.0/12")
# One PF port in Gb/s by PCI device id, where one and two ports a card differ (single, double).
RATES = {"1019": (100, 100), "1017": (100, 100), "101d": (100, 100), "1021": (400, 200), "1023": (800, 400)}
RATE_NAMES = {
    100: "100 Gb/sec (4X EDR)",
    200: "200 Gb/sec (4X HDR)",
    400: "400 Gb/sec (4X NDR)",
    800: "800 Gb/sec (4X XDR)",
}


class SpecError(ValueError):
    """The node's spec cannot be built; the text says which key, what it got, and what is allowed."""


@dataclass(frozen=True)
class PortSpec:
    """One PF: ``rail`` is its position in the rail order, None for a front-end NIC."""

    address: Address
    netdev: str
    rdma: str
    rail: int | None
    mtu: int
    mac: str
    addresses: tuple[str, ...]
    up: bool


@dataclass(frozen=True)
class NodeSpec:
    name: str
    driver: str
    nic: dict
    ports: tuple[PortSpec, ...]
    pairs: tuple[tuple[Address, Address], ...]
    gpus: tuple[Address, ...]
    gpu: dict
    total_vfs: int
    rate: str
    qos: dict
    lockdown: str
    not_loaded: tuple[str, ...]  # modules of the RDMA stack that are not loaded
    silent_router: int | None
    slow_rail: int | None
    cut_rail: int | None
    filtered_rail: int | None
    bare_front_end: str | None  # address of an eth0 that is no RDMA NIC (the catalogue names no front-end NIC)


def node_number(spec: dict) -> int:
    """A number that no other node of the fleet has: the host part of its address."""
    try:
        return int(ipaddress.ip_interface(spec["address"]).ip) & 0xFFFF
    except (KeyError, ValueError) as error:
        raise SpecError(f"address: got {spec.get('address')!r}, want the node's IPv4 address ({error})") from None


def vf_mac(node: str, pci: str) -> str:
    """Random-looking, locally administered, the same after every reboot."""
    digest = hashlib.sha256(f"{node}/{pci}".encode()).digest()
    return bytes([digest[0] & 0xFC | 0x02, *digest[1:6]]).hex(":")


def pf_mac(number: int, port: int) -> str:
    return bytes([0x0C, 0x42, 0xA1, number >> 8, number & 0xFF, port]).hex(":")


def node_guid(mac: str) -> str:
    """As mlx5 firmware makes it: 03 00 between the two halves of the MAC."""
    octets = bytes.fromhex(mac.replace(":", ""))
    guid = octets[:3] + b"\x03\x00" + octets[3:]
    return ":".join(guid[at : at + 2].hex() for at in range(0, 8, 2))


def rail_addresses(family: str, number: int, rail: int, mac: str) -> tuple[str, ...]:
    """The address that the cloud's agent or the rail router gives to a rail. Link-local ones come from the kernel."""
    if family in ("ipv6", "ipv6_slaac"):
        octets = bytes.fromhex(mac.replace(":", ""))
        identifier = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
        prefix = int(ipaddress.ip_address("2001:db8::")) | number << 80 | (rail + 1) << 64
        return (f"{ipaddress.ip_address(prefix | int.from_bytes(identifier, 'big'))}/64",)
    if family == "ipv4":
        host = number * 32 + rail + 1
        if host >= RAIL_NETWORK.num_addresses - 1:
            raise SpecError(f"address: node number {number} does not fit into the rail network {RAIL_NETWORK}")
        return (f"{RAIL_NETWORK[host]}/{RAIL_NETWORK.prefixlen}",)
    if family == "none":
        return ()
    raise SpecError(f"ip_family: got {family!r}, want ipv4, ipv6, ipv6_slaac or none")


def parse(spec: dict) -> NodeSpec:
    """Check and complete a spec. Raises SpecError."""
    driver = spec.get("driver", "doca_ofed")
    if driver not in DRIVERS:
        raise SpecError(f"driver: got {driver!r}, want one of {', '.join(DRIVERS)}")
    nic = {"vendor": "15b3", "pf_device": "1019", "vf_device": "101a", **(spec.get("nic") or {})}
    number = node_number(spec)
    try:
        rails = [(Address.parse(entry["pci"]), entry) for entry in spec.get("rails") or []]
        given = [entry if isinstance(entry, dict) else {"pci": entry} for entry in spec.get("front_end") or []]
        front = [(Address.parse(entry["pci"]), entry) for entry in given]
        pairs = tuple((address, Address.parse(e["gpu_pci"])) for address, e in rails if e.get("gpu_pci"))
    except ValueError as error:
        raise SpecError(str(error)) from None
    front = _with_second_ports(rails, front)
    functions = [address for address, _entry in rails + front]
    twice = {str(address) for address in functions if functions.count(address) > 1}
    if twice:
        raise SpecError(f"rails, front_end: listed twice: {', '.join(sorted(twice))}")
    names = rdma_names(
        [entry.get("rdma") for _a, entry in rails], [entry.get("rdma") for _a, entry in front], functions
    )
    netdevs = _netdev_names([e.get("netdev") for _a, e in rails], [e.get("netdev") for _a, e in front])
    for name in netdevs:
        if not re.fullmatch(r"[^\s/:]{1,15}", name) or netdevs.count(name) > 1:
            raise SpecError(f"netdev: got {name!r}, want names of at most 15 letters, each once")
    family, mtu = spec.get("ip_family") or "ipv4", spec.get("mtu") or 1500
    ports = []
    for index, (address, _entry) in enumerate(rails + front):
        rail = index if index < len(rails) else None
        mac = pf_mac(number, index)
        first_front = index == len(rails)
        addresses = rail_addresses(family, number, rail, mac) if rail is not None else ()
        if first_front:
            addresses = (_front_address(spec),)
        ports.append(
            PortSpec(
                address,
                netdevs[index],
                names[index],
                rail,
                mtu if rail is not None else 9000,
                mac,
                addresses,
                rail is not None or first_front,
            )
        )
    per_card = max((sum(a.slot == b.slot for b in functions) for a in functions), default=1)
    rate = spec.get("rate_gbps") or RATES.get(nic["pf_device"], (100, 100))[0 if per_card == 1 else 1]
    return NodeSpec(
        name=spec["name"],
        driver=driver,
        nic=nic,
        ports=tuple(ports),
        pairs=pairs,
        gpus=tuple(sorted({gpu for _nic, gpu in pairs})),
        gpu=spec.get("gpu") or {},
        total_vfs=FIRMWARE_VFS if spec.get("num_vfs_max") is None else int(spec["num_vfs_max"]),
        rate=RATE_NAMES.get(rate, f"{rate} Gb/sec"),
        qos=spec.get("qos") or {},
        lockdown=spec.get("lockdown") or "none",
        not_loaded=tuple(spec.get("not_loaded") or ()),
        **{key: spec.get(key) for key in OF_A_RAIL},
        bare_front_end=None if front else _front_address(spec),
    )


def _front_address(spec: dict) -> str:
    address = spec["address"]
    return address if "/" in address else f"{address}/24"


def _mlx5_number(name: str | None) -> int | None:
    match = re.fullmatch(r"mlx5_([0-9]+)", name or "")
    return int(match.group(1)) if match else None


def _with_second_ports(rails: list, front: list) -> list:
    """Add the other port of a front-end card when the rails' device numbers leave room for it.

    mlx5 devices are numbered without gaps, so a number that no rail has belongs to another NIC. A catalogue entry
    that names fewer front-end functions than there are gaps left out second ports (function .1 of the same card).
    """
    used = {_mlx5_number(entry.get("rdma")) for _address, entry in rails} - {None}
    gaps = len(set(range(max(used, default=-1) + 1)) - used)
    known = {address for address, _entry in rails + front}
    for address, _entry in list(front):
        second = Address(address.domain, address.bus, address.devfn + 1)
        if len(front) < gaps and address.function == 0 and second not in known:
            front = [*front, (second, {"pci": str(second)})]
    return front


def rdma_names(rails: list[str | None], front: list[str | None], functions: list[Address]) -> list[str]:
    """Names as given; functions without one take the lowest free numbers in PCI order, front-end NICs first."""
    given = rails + front
    used = {name for name in given if name}
    order = sorted(range(len(given)), key=lambda i: (i < len(rails) and any(rails), functions[i]))
    names, free = list(given), (n for n in range(1 << 16))
    for index in order:
        if names[index] is None:
            names[index] = next(f"mlx5_{n}" for n in free if f"mlx5_{n}" not in used)
    return names


def _netdev_names(rails: list[str | None], front: list[str | None]) -> list[str]:
    names = [name or f"rdma{index}" for index, name in enumerate(rails)]
    used = set(names) | {name for name in front if name}
    for name in front:
        chosen = name or next(f"eth{n}" for n in range(1 << 10) if f"eth{n}" not in used)
        used.add(chosen)
        names.append(chosen)
    return names
