# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ranks of NCCL reach together, and what they print with NCCL_DEBUG=INFO, from what each said of its pod. Pure.

Rates are those that two A100 nodes were measured to have: 190.55 GB/s bus bandwidth of 16 ports with 100 Gb/s each; 17.95 GB/s of
100 where NICs were far from the GPUs. Texts are those of NCCL 2.32 and nccl-tests 2.19.
"""

from __future__ import annotations

import errno
import ipaddress
import os
from dataclasses import dataclass, field

VERSION = "2.32.3+cuda13.4"
SHARE, LOSSY_SHARE, ENOUGH_QPS = 0.9527, 0.55, 4  # of the ports' sum; of lossy ones with few queue pairs
WITHOUT_GDR = 0.188  # of what a channel reaches with GPUDirect RDMA
IN_PLACE = 0.9957
CHANNELS = 2  # for each pair of GPU and NIC


@dataclass
class Nic:
    """What NCCL makes of the ports of one card. number: its index, where merged ones come after all devices."""

    number: int
    name: str
    devices: list[dict]

    @property
    def path(self) -> str:
        return self.devices[0]["path"]

    @property
    def mbps(self) -> int:
        return sum(device["traffic"]["rate"] for device in self.devices) * 1000


@dataclass
class Pod:
    """A worker: the ranks in the order of its GPUs."""

    name: str
    node: str
    ranks: list[dict]
    first: int
    nics: list[Nic] = field(default_factory=list)

    @property
    def devices(self) -> list[dict]:
        return self.ranks[0]["devices"]

    def pairs(self) -> list[tuple[int, Nic, bool]]:
        """(local rank, NIC, whether they are below one switch): each NIC serves the nearest GPU, and each GPU has a NIC."""
        load = [0] * len(self.ranks)
        made = []
        for nic in self.nics:
            near = [nearness(rank["gpu_path"], nic.path) for rank in self.ranks]
            best = min(range(len(near)), key=lambda place: (-near[place], load[place], place))
            load[best] += 1
            made.append((best, nic, near[best] > 0))
        for place, rank in enumerate(self.ranks):
            if not load[place]:
                nic = max(self.nics, key=lambda one: nearness(rank["gpu_path"], one.path))
                made.append((place, nic, nearness(rank["gpu_path"], nic.path) > 0))
        return sorted(made, key=lambda pair: (pair[0], pair[1].number))


def nearness(one: str, other: str) -> int:
    """Number of PCI bridges that two functions have in common below their host bridge."""
    common = os.path.commonpath([one, other]).split("/")
    return sum(1 for part in common if part.count(":") == 2)


def nics_of(devices: list[dict]) -> list[Nic]:
    """Ports of one card become one NIC (NCCL_NET_MERGE_LEVEL=PORT, the default), numbered after the devices."""
    cards: dict[str, list[dict]] = {}
    for device in devices:
        cards.setdefault(os.path.basename(device["path"]).rpartition(".")[0], []).append(device)
    made, number = [], len(devices)
    for group in cards.values():
        if len(group) == 1:
            made.append(Nic(devices.index(group[0]), group[0]["name"], group))
        else:
            made.append(Nic(number, "+".join(device["name"] for device in group), group))
            number += 1
    return made


def info(pod: Pod, local: int, text: str, level: str = "INFO", place: str = "") -> str:
    pid = 100 + local
    return f"{pod.name}:{pid}:{pid + 40} [{local}] {place}NCCL {level} {text}"


def short(gid: str | None) -> str:
    """A GID as NCCL prints it."""
    return str(ipaddress.IPv6Address(gid)) if gid else "::"


def trouble(pods: list[Pod]) -> list[str]:
    """What NCCL says when a queue pair cannot be connected, or memory not be registered; empty when all is well."""
    for pod in pods:
        peer = next(other for other in pods if other is not pod)
        failed = [rank for rank in pod.ranks if rank["memlock"] is False]
        if failed:
            text = "Call to ibv_reg_mr failed with error Cannot allocate memory"
            return [info(pod, 0, text, "WARN", "misc/ibvwrap.cc:173 "), *ending(pod, "unhandled system error")]
        for place, device in enumerate(pod.devices):
            far = peer.devices[min(place, len(peer.devices) - 1)] if peer.devices else device
            ends = f"on dev {device['name']}:1, curr state INIT, next state RTR, local GID index {device['index']}, "
            ends += f"local GID {short(device['gid'])}, remote GID {short(far['gid'])}"
            if "traffic" not in device:
                number = device["errno"] or errno.EINVAL
                text = f"Call to ibv_modify_qp failed with {number} {os.strerror(number)}, {ends}"
            elif (device["gid"] or "").startswith("fe80") or device["traffic"]["cut"]:
                text = f"Call to ibv_modify_qp failed with 110 Connection timed out, {ends}"
            elif device["traffic"]["filtered"]:
                text = (
                    f"NET/IB: Got completion from peer {short(far['gid'])}<40001> with status=IBV_WC_RETRY_EXC_ERR(12) "
                )
                text += f"opcode=IBV_WC_SEND(0) vendor_err=129 (Send) hca {device['name']}"
                return [
                    info(pod, 0, text, "WARN", "transport/net_ib/p2p.cc:688 "),
                    *ending(pod, "remote process exited"),
                ]
            else:
                continue
            return [info(pod, 0, text, "WARN", "misc/ibvwrap.cc:376 "), *ending(pod, "unhandled system error")]
    return []


def ending(pod: Pod, text: str) -> list[str]:
    return [
        f"{pod.name}: Test NCCL failure common.cu:1205 '{text} (run with NCCL_DEBUG=INFO for details) / '",
        f" .. {pod.name} pid 100: Test failure common.cu:1063",
    ]


def opening(pods: list[Pod], sockets: bool) -> list[str]:
    """Up to the choice of the network: what each rank says of itself."""
    lines = ["# nccl-tests version 2.19.6 nccl-headers=23203 nccl-library=23203", "# Using devices"]
    ranks = [(pod, local, rank) for pod in pods for local, rank in enumerate(pod.ranks)]
    for pod, local, rank in ranks:
        gpu = rank["gpu"].rpartition(".")[0]
        lines.append(
            f"#  Rank {pod.first + local:2d} Group  0 Pid {100 + local:6d} on {pod.name:>10} device {local:2d} [{gpu}] GPU"
        )
    lines.append(f"NCCL version {VERSION}")
    for pod, local, rank in ranks:
        env = rank["env"]
        if "NCCL_IB_HCA" in env:
            lines.append(info(pod, local, f"NCCL_IB_HCA set to {env['NCCL_IB_HCA']}"))
        for name in ("NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_IB_QPS_PER_CONNECTION"):
            if name in env:
                lines.append(info(pod, local, f"{name} set by environment to {env[name]}."))
        used = " ".join(f"[{place}]{device['name']}:1/RoCE" for place, device in enumerate(pod.devices))
        lines.append(
            info(
                pod,
                local,
                f"NET/IB : Using {used} [RO]; OOB eth0:10.244.0.1<0>" if used else "NET/IB : No device found.",
            )
        )
        lines.append(info(pod, local, f"Using network {'Socket' if sockets else 'IB'}"))
        domain, bus, slot = (int(part, 16) for part in rank["gpu"].rpartition(".")[0].split(":"))
        bus_id = f"{domain << 20 | bus << 12 | slot << 4:x}"
        total = sum(len(one.ranks) for one in pods)
        text = f"comm 0x5581 rank {pod.first + local} nranks {total} cudaDev {local} nvmlDev {local} busId {bus_id}"
        lines.append(info(pod, local, f"ncclCommInitRankConfig {text} commId 0x1 - Init START"))
    return lines


def connections(pods: list[Pod], pairs: dict[str, list]) -> list[str]:
    """A ring from pod to pod for each channel, with the NIC at both ends."""
    lines = []
    for pod in pods:
        for nic in pod.nics:
            if len(nic.devices) > 1:
                text = f"NET/IB : Made virtual device [{nic.number}] name={nic.name} speed={nic.mbps} ndevs={len(nic.devices)}"
                lines.append(info(pod, 0, f"{text} rail=-1 plane=16385"))
        for place, device in enumerate(pod.devices):
            text = f"NET/IB: NCCL Dev 0 IbDev {place} Port 1 qp_num {200 + place} mtu 5 GID {device['index']} (0/FFFF)"
            lines.append(info(pod, 0, text))
    count = CHANNELS * min(len(own) for own in pairs.values())
    for channel in range(count):
        for place, pod in enumerate(pods):
            after = pods[(place + 1) % len(pods)]
            ends = [pairs[one.name][channel // CHANNELS % len(pairs[one.name])] for one in (pod, after)]
            (sender, out, near), (receiver, into, far) = ends
            ring = f"Channel {channel:02d}/0 : {pod.first + sender}[{sender}] -> {after.first + receiver}[{receiver}]"
            for one, local, way, nic, gdr in (
                (pod, sender, "send", out, near),
                (after, receiver, "receive", into, far),
            ):
                how = "/GDRDMA/flush=Always" if gdr else ""
                lines.append(info(one, local, f"{ring} [{way}] via NET/IB/{nic.number}{how}"))
    return lines


def bus_bandwidth(pods: list[Pod], pairs: dict[str, list], sharing: dict[tuple[str, str], int]) -> float:
    """GB/s. Data is divided evenly over the channels, so the slowest one decides.

    :param sharing: number of jobs by (node, PF) of each port.
    """
    count = CHANNELS * min(len(own) for own in pairs.values())
    slowest = float("inf")
    for pod in pods:
        queue_pairs = int(pod.ranks[0]["env"].get("NCCL_IB_QPS_PER_CONNECTION") or 1)
        for _local, nic, near in pairs[pod.name]:
            capacity = 0.0
            for device in nic.devices:
                traffic = device["traffic"]
                share = SHARE if traffic["lossless"] or queue_pairs >= ENOUGH_QPS else LOSSY_SHARE
                rate = min(traffic["rate"], traffic["limit"] or traffic["rate"])
                capacity += rate * share / 8 / sharing.get((pod.node, device["pf"]), 1)
            users = CHANNELS * sum(1 for _rank, other, _near in pairs[pod.name] if other is nic)
            slowest = min(slowest, capacity / users * (1.0 if near else WITHOUT_GDR))
    return slowest * count


def sizes_of(argv: list[str]) -> list[int]:
    """Message sizes in bytes of the options -b, -e and -f."""
    given = dict(zip(argv[::2], argv[1::2]))

    def number(text: str) -> int:
        power = "KMGT".find(text[-1]) + 1
        return int(text[:-1] if power else text) << 10 * power

    size, last, factor = number(given.get("-b", "32M")), number(given.get("-e", "32M")), int(given.get("-f", "1"))
    found = [size]
    while factor > 1 and size * factor <= last:
        size *= factor
        found.append(size)
    return found


def table(argv: list[str], ranks: int, gbs: float) -> list[str]:
    names = f"{'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
    lines = [f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}  {names}  {names}"]
    shown = []
    for size in sizes_of(argv):
        row = f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}  {-1:>6}"
        for factor in (1.0, IN_PLACE):
            bus = gbs * factor * (1 - 40e6 / (size + 40e6) * 0.35)
            algorithm = bus * ranks / (2 * (ranks - 1))
            shown.append(bus)
            row += f"  {size / algorithm / 1e3:7.1f}  {algorithm:6.2f}  {bus:6.2f}  {0:6d}"
        lines.append(row)
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {sum(shown) / len(shown):g} ", "#"]
    return lines


def run(pods: list[Pod], sharing: dict[tuple[str, str], int]) -> tuple[int, list[str]]:
    """(exit code of mpirun, lines) of all ranks of a job."""
    argv, total = pods[0].ranks[0]["argv"], sum(len(pod.ranks) for pod in pods)
    sockets = any(not pod.devices for pod in pods)
    lines = opening(pods, sockets)
    if sockets:
        for pod in pods:
            text = f"Channel 00/0 : {pod.first}[0] -> {(pod.first + len(pod.ranks)) % total}[0] [send] via NET/Socket/0"
            lines.append(info(pod, 0, text))
        return 0, [*lines, *table(argv, total, 2.4)]
    failed = trouble(pods) if len(pods) > 1 else []
    if failed:
        return 3, [*lines, *failed]
    for pod in pods:
        pod.nics = nics_of(pod.devices)
    pairs = {pod.name: pod.pairs() for pod in pods}
    lines += connections(pods, pairs)
    return 0, [*lines, *table(argv, total, bus_bandwidth(pods, pairs, sharing))]
