# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Traffic of queue pairs on a node: which class and priority a packet gets, at which rate it flows, what counts it.

Rates and counters are those that two A100 nodes with ConnectX-5 were measured to have (perftest 6.28, MTU 4096): 96.87 Gb/s of
a port of 100 on a lossless priority, 43 to 59 with thousands of packets out of sequence on a lossy one, nearly all of the
port with four queue pairs there, half each for two pairs on one port. A priority is lossless where the fabric has it for
RDMA and PFC is on. No bytes move: whoever sends says how many it would have sent, see tools/ib_write_bw.
"""

from __future__ import annotations

import errno
import hashlib
from dataclasses import dataclass, field

from .devices import Devices, Port
from .errors import failure
from .netdevs import Netdevs
from .spec import NodeSpec
from .sysfs.infiniband import port_state, visible_row
from .tree import Caller

PAYLOAD, HEADERS = 4096, 58  # bytes of a packet: RDMA MTU; Ethernet, IPv4, UDP, BTH and ICRC
LOSSLESS, MANY_QPS = 0.9687, 0.9797
LOSSY = (0.4320, 0.5945)
LOSS_A_SECOND = 1165  # packets out of sequence, of 2.97 million a second
ENOUGH_QPS = 4
FILTERED_FRAMES = 10003  # what a queue pair sends before it gives up, of which one arrives
PRIORITY_NAMES = ("bytes", "packets", "pause", "pause_duration", "discards")


@dataclass
class Flow:
    """A queue pair that sends or answers; ``tclass`` is what its packets carry."""

    port: Port
    tclass: int
    function: str
    owner: int


@dataclass
class Fabric:
    """All flows of a node. Flows end with the connection of the process that has them."""

    devices: Devices
    netdevs: Netdevs
    spec: NodeSpec
    flows: dict[int, Flow] = field(default_factory=dict)
    priorities: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    last: int = 0

    def device(self, netns: int, name: str) -> Port:
        """The device as a process of the namespace opens it. ENODEV when it does not see it."""
        port = self.devices.by_rdma_name(name)
        if port is None or not self.devices.shows(port.rdma, netns):
            raise failure(errno.ENODEV)
        return port

    def ready_to_receive(self, netns: int, name: str, index: int) -> str:
        """ibv_modify_qp to RTR: the GID of the row. EINVAL for an empty row, ENODEV for one of another namespace, ENETDOWN
        for a port that is not active."""
        port = self.device(netns, name)
        if not 0 <= index < len(port.rdma.gids.rows):
            raise failure(errno.EINVAL)
        if visible_row(self.devices, self.netdevs, port, index, Caller(0, 0, lambda _pid: netns)) is None:
            raise failure(errno.EINVAL if port.rdma.gids.rows[index] is None else errno.ENODEV)
        if port_state(self.netdevs, port)[0] != "4: ACTIVE":
            raise failure(errno.ENETDOWN)
        return port.rdma.gids.rows[index].gid

    def start(self, owner: int, netns: int, name: str, index: int, asked: int) -> dict:
        """Begin to send with a class that the application asked for; a class that the device forces beats it.

        :returns: what the peer and the sender want to know: ``{flow, gid, tclass, priority, lossless, rate, function, rail,
            filtered, limit, flows}``; rate and limit in Gb/s, flows on the same port with this one.
        """
        gid = self.ready_to_receive(netns, name, index)
        port = self.device(netns, name)
        forced = port.rdma.traffic_class
        tclass = asked if forced is None else forced
        own = port.rdma.gids.rows[index].owner == self.netdevs.where(port.netdev)
        function = "vf" if port.is_vf else "pf" if own else "child"
        self.last += 1
        self.flows[self.last] = Flow(port, tclass, function, owner)
        rail = port.spec.rail
        slow = rail is not None and rail == self.spec.slow_rail
        return {
            "flow": self.last,
            "gid": gid,
            "tclass": tclass,
            "function": function,
            "rail": rail,
            **self.treatment(self.last, tclass),
            "rate": int(self.spec.rate.split()[0]),
            "limit": int(self.spec.rate.split()[0]) * 0.4 if slow else None,
            "filtered": rail is not None and rail == self.spec.filtered_rail and port.is_vf,
            "cut": rail is not None and rail == self.spec.cut_rail,
        }

    def treatment(self, flow: int, tclass: int) -> dict:
        """``{priority, lossless, flows}`` of packets with a class on the port of a flow."""
        mine = self.flows[flow].port
        dcb = mine.dcb
        priority = dcb.dscp_to_priority[tclass >> 2] if dcb.trust == "dscp" else 0
        together = sum(1 for other in self.flows.values() if other.port.spec is mine.spec)
        return {"priority": priority, "lossless": self.lossless(priority, dcb.pfc), "flows": together}

    def lossless(self, priority: int, pfc: list[int]) -> bool:
        """Whether the switches hold back traffic of a priority, and the port heeds it: for the classes of the shape that carry
        RDMA. A fabric of which the shape tells nothing drops nothing."""
        held = {self.spec.qos[key] for key in ("rdma_prio", "gpu_prio") if self.spec.qos.get(key) is not None}
        return not held or (priority in held and bool(pfc[priority]))

    def count(self, number: int, sent: dict, received: dict) -> None:
        """Count what a flow did: ``{bytes, packets, tclass, out_of_sequence}`` of each direction, on the function and on
        the port."""
        flow = self.flows[number]
        counters = flow.port.rdma.counters
        for way, name, traffic in (("tx", "xmit", sent), ("rx", "rcv", received)):
            if not traffic:
                continue
            bytes_, packets = traffic["bytes"] + traffic["packets"] * HEADERS, traffic["packets"]
            for key, value in (
                (f"port_{name}_data", bytes_ // 4),
                (f"port_{name}_packets", packets),
                (f"unicast_{name}_packets", packets),
                ("out_of_sequence", traffic.get("out_of_sequence", 0)),
                ("packet_seq_err", traffic.get("packet_seq_err", 0)),
                ("local_ack_timeout_err", traffic.get("timeouts", 0)),
            ):
                counters[key] = counters.get(key, 0) + value
            priority = self.treatment(number, traffic["tclass"])["priority"]
            row = self.priorities.setdefault(flow.port.spec.netdev, {}).setdefault(priority, {})
            row[f"{way}_bytes"] = row.get(f"{way}_bytes", 0) + bytes_
            row[f"{way}_packets"] = row.get(f"{way}_packets", 0) + packets

    def end(self, owner: int) -> None:
        """Forget the flows of a connection."""
        self.flows = {number: flow for number, flow in self.flows.items() if flow.owner != owner}

    def statistics(self, netns: int, netdev: str) -> dict[str, int]:
        """What ``ethtool -S`` shows of an interface of the namespace. EOPNOTSUPP for one that is not a function's."""
        for port in self.devices.ports():
            place = self.netdevs.where(port.netdev)
            if place and place[0] == netns and port.netdev.name == netdev:
                return self._of_vf(port) if port.is_vf else self._of_pf(port)
        raise failure(errno.EOPNOTSUPP)

    def _of_pf(self, port: Port) -> dict[str, int]:
        found = {"rx_out_of_buffer": 0, "rx_discards_phy": 0, "tx_pause_ctrl_phy": 0, "rx_pause_ctrl_phy": 0}
        counted = self.priorities.get(port.spec.netdev, {})
        for way in ("rx", "tx"):
            for priority in range(8):
                for name in PRIORITY_NAMES:
                    found[f"{way}_prio{priority}_{name}"] = counted.get(priority, {}).get(f"{way}_{name}", 0)
        return found

    @staticmethod
    def _of_vf(port: Port) -> dict[str, int]:
        counters = port.rdma.counters
        return {
            "rx_vport_rdma_unicast_packets": counters.get("port_rcv_packets", 0),
            "rx_vport_rdma_unicast_bytes": counters.get("port_rcv_data", 0) * 4,
            "tx_vport_rdma_unicast_packets": counters.get("port_xmit_packets", 0),
            "tx_vport_rdma_unicast_bytes": counters.get("port_xmit_data", 0) * 4,
        }


def transfer(near: dict, far: dict, seconds: float, queue_pairs: int, both: bool, pair: str) -> dict:
    """What a test of so many seconds transfers. Pure.

    :param near: what :meth:`Fabric.start` said of the sender, with ``flows`` as of the middle of the test; far: of the
        receiver.
    :param both: whether the receiver sends as much.
    :param pair: a name that stays the same, which decides where between the measured rates a lossy one lies.
    :returns: ``{gbps, bytes, packets, arrived, out_of_sequence}``; gbps of one direction.
    """
    lossless = near["lossless"] and far["lossless"]
    share = LOSSLESS if lossless else MANY_QPS if queue_pairs >= ENOUGH_QPS else _between(LOSSY, pair)
    if near["filtered"] or far["filtered"]:
        return {
            "gbps": 0.0,
            "bytes": FILTERED_FRAMES * 64,
            "packets": FILTERED_FRAMES,
            "arrived": 1,
            "out_of_sequence": 0,
        }
    rate = min(near["rate"], far["rate"])
    limits = [side["limit"] for side in (near, far) if side["limit"] is not None]
    gbps = min([rate * share, *limits]) / max(near["flows"], far["flows"])
    size = int(gbps * 1e9 / 8 * seconds)
    packets = size // PAYLOAD
    lost = 0 if lossless else int(LOSS_A_SECOND * seconds)
    return {"gbps": gbps, "bytes": size, "packets": packets, "arrived": packets - lost, "out_of_sequence": lost}


def _between(bounds: tuple[float, float], name: str) -> float:
    place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 0xFFFFFFFF
    return bounds[0] + (bounds[1] - bounds[0]) * place
