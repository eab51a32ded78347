# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated kernel of one rehearsal node, as a process: builds the devices, mounts /sys, answers until the end."""

from __future__ import annotations

import ipaddress
import os
import selectors
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from . import linux
from .children import Children
from .control import Client, Control
from .device_nodes import DeviceNodes
from .devices import Devices, Netdev, Port
from .fabric import Fabric
from .fuse import FuseServer, Unmounted
from .netdevs import Netdevs
from .router import ETH_P_IPV6, Router
from .spec import parse, vf_mac
from .sysfs import infiniband, pci, system
from .sysfs.net import NetClass
from .tree import Tree


class Terminated(BaseException):
    """SIGTERM came."""


class Kernel:
    """Devices, interfaces and the tree that shows them. Made in the node's network namespace."""

    def __init__(self, spec: dict, netns_mode: str, cmdline: str, device_folder: Path | None = None) -> None:
        node = parse(spec)
        self.services: dict[str, int] = {}
        self.device_nodes = DeviceNodes(device_folder, "rdma_ucm" not in node.not_loaded)
        self.netdevs = Netdevs()
        self.devices = Devices(node, netns_mode, self.netdevs, self.netdevs.home)
        self.children = Children(self.devices, self.netdevs)
        self.fabric = Fabric(self.devices, self.netdevs, node)
        self.tree = Tree()
        self.net_class = NetClass(self.tree, self.devices, self.netdevs, self.children)
        pci.build(self.tree, self.devices)
        for port in self.devices.pfs:
            self._show(port)
            self.netdevs.attach(port.netdev)
        if node.bare_front_end:
            mac = vf_mac(node.name, "eth0")
            eth0 = Netdev("eth0", mac, 9000, "front-end", up=True, addresses=(node.bare_front_end,))
            self.netdevs.attach(eth0)
        system.build(self.tree, self.devices, cmdline, self.services)
        self.devices.on_add, self.devices.on_remove = self._add, self._remove
        self.devices.on_mode = lambda: infiniband.mode_changed(self.tree, self.devices)
        self.netdevs.on_namespace_gone = self.devices.namespace_gone
        self.netdevs.on_change = self._update_gids
        self.netdevs.on_passed = self.children.gone
        routed = any(ipaddress.ip_interface(text).version == 6 for port in node.ports for text in port.addresses)
        self.router = Router(self.netdevs.wire_socket(ETH_P_IPV6), self._prefix) if routed else None
        self.netdevs.configure()
        self.netdevs.refresh()

    def _show(self, port: Port) -> None:
        infiniband.add_port(self.tree, self.devices, self.netdevs, port)
        self.net_class.add_port(self.tree, port)
        self.device_nodes.add(port.rdma.index)

    def _add(self, port: Port) -> None:
        pci.add_port(self.tree, self.devices, port)
        self._show(port)

    def _remove(self, port: Port) -> None:
        self.children.parent_gone(port)
        self.device_nodes.remove(port.rdma.index)
        infiniband.remove_port(self.tree, port)
        self.net_class.remove_port(port)
        pci.remove_port(self.tree, port)

    def _update_gids(self) -> None:
        for port in self.devices.ports():
            owner = self.netdevs.place(port.netdev)
            if owner is None:
                port.rdma.gids.update(None)
            else:
                link, addresses = self.netdevs.seen(owner)
                places = [place for child in self.children.of(port) if (place := self.netdevs.place(child.netdev))]
                children = [(place, self.netdevs.seen(place)[1]) for place in places]
                port.rdma.gids.update(owner, link.mac if link else port.netdev.mac, addresses, children)

    def _prefix(self, wire: str) -> ipaddress.IPv6Network | None:
        """What the rail's router advertises to an interface: a child, or a function that was moved into a pod."""
        child = self.children.at(wire)
        port = child.parent if child else next((p for p in self.devices.ports() if p.netdev.wire == wire), None)
        if port is None or not port.spec.addresses or port.spec.rail in (None, self.devices.spec.silent_router):
            return None
        place = self.netdevs.where((child or port).netdev)
        if place is None or place[0] == self.netdevs.home:
            return None
        network = ipaddress.ip_interface(port.spec.addresses[0]).network
        return network if network.version == 6 else None


def serve(
    spec: dict,
    *,
    sys_mount: str,
    control_socket: str,
    netns_mode: str,
    cmdline: str = "",
    devices: Path | None = None,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Be the kernel of one node until its /sys is unmounted everywhere or SIGTERM comes.

    Call it in a process of its own that is in the node's mount and network namespace, but not in its PID namespace,
    before the node's init starts. The process takes a mount namespace of its own afterwards, so it holds the node's
    mounts that exist now until it ends; end it before these are needed elsewhere.

    :param spec: the node's spec, see :mod:`rehearsal.kernel.spec`.
    :param sys_mount: where to mount, usually ``ROOT/sys``.
    :param control_socket: path of the unix socket for ``tools/rdma``, as seen now.
    :param netns_mode: ``shared`` or ``exclusive``; ``rdma system set netns`` may change it later.
    :param cmdline: the kernel line; ``lockdown=`` in it shows in /sys/kernel/security/lockdown.
    :param devices: the node's /dev/infiniband, to be filled as devtmpfs does; None for none.
    :param on_ready: called once when interfaces are up and /sys answers; it must not look into /sys itself.
    :raises SpecError: the spec cannot be built. OSError: a mount, an interface or the socket was refused.
    """
    main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, _terminate) if main else None
    listener = None
    try:
        listener = _listen(control_socket)
        kernel = Kernel(spec, netns_mode, cmdline, devices)
        fuse = FuseServer(kernel.tree, kernel.netdevs.netns_of_pid)
        fuse.mount(sys_mount)
        linux.leave_mounts_behind(sys_mount)
        linux.ensure_own_proc()
        control = Control(kernel.devices, kernel.netdevs, kernel.services, kernel.children, kernel.fabric)
        _loop(kernel, fuse, listener, control, on_ready)
    except (Unmounted, Terminated):
        pass
    finally:
        if listener is not None:
            listener.close()
        if main:
            signal.signal(signal.SIGTERM, previous)


def _terminate(_number, _frame) -> None:
    raise Terminated


def _listen(path: str) -> socket.socket:
    if os.path.exists(path):
        os.unlink(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    listener.setblocking(False)
    return listener


def _loop(kernel: Kernel, fuse: FuseServer, listener: socket.socket, control: Control, on_ready) -> None:
    """One thread for everything: no two requests ever see a half-made change."""
    selector = selectors.DefaultSelector()

    def accept() -> None:
        connection, _address = listener.accept()
        client = Client(connection)
        selector.register(connection, selectors.EVENT_READ, lambda: talk(client))

    def talk(client: Client) -> None:
        lines = client.receive()
        try:
            for line in lines or ():
                client.socket.sendall(control.answer(client, line))
        except OSError:
            lines = None
        if lines is None:
            selector.unregister(client.socket)
            control.gone(client)
            client.close()

    selector.register(fuse.fd, selectors.EVENT_READ, fuse.serve_pending)
    selector.register(listener, selectors.EVENT_READ, accept)
    for events in (kernel.netdevs.changes, kernel.netdevs.endings):
        selector.register(events, selectors.EVENT_READ, kernel.netdevs.refresh)
    if kernel.router is not None:
        selector.register(kernel.router.socket, selectors.EVENT_READ, kernel.router.answer_pending)
    while True:
        for key, _events in selector.select():
            key.data()
        if fuse.ready and on_ready is not None:
            on_ready, notify = None, on_ready
            notify()
