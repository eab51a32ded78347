# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/sys/class/net: the interfaces of the caller's network namespace (net/core/net-sysfs.c), with mlx5's folders."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from functools import partial

from ..children import Children
from ..dcb import Dcb
from ..devices import Devices, Port
from ..errors import failure, kernel_integer
from ..netdevs import Netdevs
from ..netlink import Link as Interface
from ..tree import Caller, Dir, File, Link, Live, Node, Tree


class NetClass:
    """Keeps one directory per interface, so that a name that was looked up stays the same thing."""

    def __init__(self, tree: Tree, devices: Devices, netdevs: Netdevs, children: Children) -> None:
        self.devices, self.netdevs, self.children = devices, netdevs, children
        self._virtual: dict[tuple[int, int], Dir] = {}
        self._physical: dict[str, Dir] = {}
        self._ports: dict[str, Port] = {}
        self._links: dict[str, Link] = {}
        tree.put("class/net", Live(self._class_entries))
        tree.put("devices/virtual/net", Live(self._virtual_entries))

    def add_port(self, tree: Tree, port: Port) -> None:
        wire = port.netdev.wire
        self._ports[wire] = port
        self._physical[wire] = self._directory(partial(self._port_link, port), port)
        tree.put(f"{port.function.path}/net", Live(partial(self._port_entries, port)))

    def remove_port(self, port: Port) -> None:
        self._physical.pop(port.netdev.wire, None)
        self._ports.pop(port.netdev.wire, None)

    def _interfaces(self, netns: int) -> Iterator[tuple[Interface, Port | None]]:
        for ifindex, link in self.netdevs.links(netns).items():
            yield link, self._ports.get(self.netdevs.wire_at(netns, ifindex))

    def _port_link(self, port: Port, _caller: Caller) -> Interface:
        link = self.netdevs.link(port.netdev)
        if link is None:
            raise failure(errno.ENODEV)
        return link

    def _virtual_link(self, netns: int, ifindex: int, _caller: Caller) -> Interface:
        link = self.netdevs.links(netns).get(ifindex)
        if link is None:
            raise failure(errno.ENODEV)
        return link

    def _port_entries(self, port: Port, caller: Caller) -> Iterator[tuple[str, Node]]:
        place = self.netdevs.where(port.netdev)
        link = self.netdevs.link(port.netdev)
        if place and link and place[0] == caller.netns:
            yield link.name, self._physical[port.netdev.wire]

    def _virtual_entries(self, caller: Caller) -> Iterator[tuple[str, Node]]:
        for link, port in self._interfaces(caller.netns):
            if port is None:
                key = caller.netns, link.ifindex
                if key not in self._virtual:
                    self._virtual[key] = self._directory(partial(self._virtual_link, *key), None)
                yield link.name, self._virtual[key]

    def _class_entries(self, caller: Caller) -> Iterator[tuple[str, Node]]:
        for link, port in self._interfaces(caller.netns):
            folder = f"{port.function.path}/net" if port else "devices/virtual/net"
            target = f"../../{folder}/{link.name}"
            if target not in self._links:
                self._links[target] = Link(target, lifetime=0.0)
            yield link.name, self._links[target]

    def _child_number(self, caller: Caller, link: Interface) -> int:
        child = self.children.at(self.netdevs.wire_at(caller.netns, link.ifindex))
        return child.dev_id if child else 0

    def _lower(self, caller: Caller, link: Interface) -> int:
        """A child tells the ifindex that its parent has, in whatever namespace that is."""
        child = self.children.at(self.netdevs.wire_at(caller.netns, link.ifindex))
        place = self.netdevs.where(child.parent.netdev) if child else None
        return place[1] if place else link.ifindex

    def _directory(self, find, port: Port | None) -> Dir:
        def show(text):
            return File(lambda caller: text(find(caller)))

        def set_mtu(caller: Caller, text: str) -> None:
            self.netdevs.set_mtu(caller.pid, find(caller).ifindex, kernel_integer(text, 0x7FFFFFFF))

        files: dict[str, Node] = {
            "address": show(lambda link: link.mac),
            "addr_len": File("6"),
            "carrier": File(partial(_carrier, find)),
            "flags": show(lambda link: f"0x{link.flags & 0xFFFF:x}"),
            "ifindex": show(lambda link: str(link.ifindex)),
            "dev_id": File(lambda caller: f"0x{self._child_number(caller, find(caller)):x}"),
            "iflink": File(lambda caller: str(self._lower(caller, find(caller)))),
            "mtu": File(lambda caller: str(find(caller).mtu), set_mtu),
            "operstate": show(lambda link: link.operstate),
            "type": show(lambda link: str(link.kind)),
            "uevent": show(lambda link: f"INTERFACE={link.name}\nIFINDEX={link.ifindex}"),
        }
        if port is not None:
            speed = self.devices.spec.rate.partition(" ")[0]
            files["device"] = Link(f"../../../{port.function.pci}")
            files["dev_port"] = File("0")
            files["speed"] = File(f"{speed}000")
            if not port.is_vf and self.devices.spec.driver == "doca_ofed":
                files["qos"] = _qos(port.dcb)
                files["ecn"] = _ecn(self.devices.spec.qos)
        return Dir(files, lifetime=0.0)


def _carrier(find, caller: Caller) -> str:
    link = find(caller)
    if not link.up:
        raise failure(errno.EINVAL)
    return str(int(link.carrier))


def _setting(value, accept) -> File:
    """A file that keeps what is written to it; ``accept`` returns the value or raises OSError."""
    state = [value]

    def store(_caller: Caller, text: str) -> None:
        state[0] = accept(text)

    return File(lambda _caller: str(state[0]), store)


def _qos(dcb: Dcb) -> Dir:
    trust = File(lambda _caller: dcb.trust, lambda _caller, text: dcb.set_trust(text))
    return Dir({"trust": trust, "dscp2prio": File(lambda _caller: dcb.show_map(), lambda _caller, t: dcb.set_map(t))})


def _ecn(qos: dict) -> Dir:
    """RoCE congestion control of the port: np answers with CNPs, rp reacts to them; on for all priorities at first."""

    def number(value: int, limit: int) -> File:
        return _setting(value, lambda text: kernel_integer(text, limit))

    def enable() -> Dir:
        return Dir({str(priority): number(1, 1) for priority in range(8)})

    np = {
        "enable": enable(),
        "cnp_dscp": number(qos.get("cnp_dscp") or 48, 63),
        "cnp_802p_prio": number(qos.get("cnp_prio") or 6, 7),
        "min_time_between_cnps": number(4, 4095),
    }
    rp = {"enable": enable(), "rate_to_set_on_first_cnp": number(0, 400000)}
    return Dir({"roce_np": Dir(np), "roce_rp": Dir(rp)})
