# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What RDMA netlink does on a real node, over a unix socket: one JSON object a line, one answer a line.

Requests: ``{"op": "rdma_system_show" | "rdma_dev_list" | "rdma_link_list"}``, ``{"op": "rdma_system_set_netns",
"mode": "shared" | "exclusive"}`` and ``{"op": "rdma_dev_set_netns", "dev": NAME, "netns": NAME or process id}``; with
the last one the descriptor of the namespace may come along (SCM_RIGHTS) as in the real RDMA_NLDEV_NET_NS_FD; it then
decides. What DCB netlink does: ``{"op": "dcb_get" | "dcb_set_pfc", "netdev": NAME, "pfc": [0, 1, …]}``. What route netlink
does for a child of a rail: ``{"op": "link_add", "lower": NAME, "name": NAME, "kind": "ipvlan" | "macvlan", "netns": NAME
or process id, "mtu": N or null, "mac": MAC or null}``. And what no netlink does: ``{"op": "service_started", "service":
NAME, "pid": N}``, by which init puts a process into the cgroup of a service. What verbs do for tools/ib_write_bw:
``verbs_start``, ``verbs_flows``, ``verbs_transfer``, ``verbs_count`` (see :mod:`.fabric`); and ``ethtool_statistics``.
Answers: ``{"ok": true, "result": …}`` or ``{"ok": false, "errno": 16, "error": "Device or resource busy"}``.
The caller's namespace is that of the connected process (SO_PEERCRED).
"""

from __future__ import annotations

import array
import errno
import json
import os
import re
import socket
import struct
import time

from .children import Children
from .devices import EXCLUSIVE, SHARED, Devices, Port
from .errors import failure
from .fabric import Fabric, transfer
from .netdevs import Netdevs
from .sysfs.infiniband import REMEMBERED, firmware, port_state

_LINE_LIMIT = 1 << 16


class Client:
    """One connection: what it sent so far, and the descriptors that came with it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.setblocking(False)
        cred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.pid, self.uid, _gid = struct.unpack("3i", cred)
        self.pending = b""
        self.fds: list[int] = []

    def receive(self) -> list[bytes] | None:
        """Complete lines, or None at the end of the connection."""
        space = socket.CMSG_SPACE(4 * array.array("i").itemsize)
        try:
            data, ancillary, _flags, _address = self.socket.recvmsg(4096, space)
        except BlockingIOError:
            return []
        except OSError:
            return None
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                self.fds += fds
        if not data:
            return None
        *lines, self.pending = (self.pending + data).split(b"\n")
        return lines if len(self.pending) <= _LINE_LIMIT else None

    def drop_fds(self) -> None:
        while self.fds:
            os.close(self.fds.pop())

    def close(self) -> None:
        self.drop_fds()
        self.socket.close()


class Control:
    """The requests. Names of namespaces are looked up in the caller's /run/netns, as the caller would."""

    def __init__(
        self, devices: Devices, netdevs: Netdevs, services: dict[str, int], children: Children, fabric: Fabric
    ) -> None:
        self.devices, self.netdevs, self.services, self.children = devices, netdevs, services, children
        self.fabric = fabric

    def gone(self, client: Client) -> None:
        """A connection ended, and with it what its process did."""
        self.fabric.end(id(client))

    def answer(self, client: Client, line: bytes) -> bytes:
        try:
            request = json.loads(line)
            operation = getattr(self, f"_{request['op']}", None)
            if operation is None:
                raise failure(errno.EOPNOTSUPP, f"unknown op {request['op']!r}")
            answer = {"ok": True, "result": operation(client, request)}
        except OSError as error:
            answer = {"ok": False, "errno": error.errno, "error": error.strerror}
        except (ValueError, KeyError, TypeError) as error:
            answer = {"ok": False, "errno": errno.EINVAL, "error": f"bad request: {error!r}"}
        finally:
            client.drop_fds()
        return json.dumps(answer).encode() + b"\n"

    def _rdma_system_show(self, _client: Client, _request: dict) -> dict:
        return {"netns": self.devices.mode, "copy-on-fork": True}

    def _visible(self, client: Client) -> list[Port]:
        netns = self.netdevs.netns_of_pid(client.pid)
        ports = [port for port in self.devices.ports() if self.devices.shows(port.rdma, netns)]
        return sorted(ports, key=lambda port: port.rdma.index)

    def _rdma_dev_list(self, client: Client, _request: dict) -> list[dict]:
        return [
            {
                "ifindex": port.rdma.index,
                "ifname": port.rdma.name,
                "node_type": "ca",
                "fw": firmware(port),
                "node_guid": port.rdma.guid,
                "sys_image_guid": self.devices.image_guid(port),
            }
            for port in self._visible(client)
        ]

    def _rdma_link_list(self, client: Client, _request: dict) -> list[dict]:
        netns = self.netdevs.netns_of_pid(client.pid)
        links = []
        for port in self._visible(client):
            active = port_state(self.netdevs, port)[0] == "4: ACTIVE"
            entry = {
                "ifindex": port.rdma.index,
                "port": 1,
                "ifname": port.rdma.name,
                "state": "ACTIVE" if active else "DOWN",
                "physical_state": "LINK_UP" if active else "DISABLED",
            }
            place = self.netdevs.where(port.netdev)
            if place and place[0] == netns:  # fill_port_info tells of interfaces of the caller's namespace only
                entry |= {"netdev": port.netdev.name, "netdev_index": place[1]}
            links.append(entry)
        return links

    def _rdma_system_set_netns(self, client: Client, request: dict) -> None:
        self._privileged(client)
        mode = request["mode"]
        if mode not in (SHARED, EXCLUSIVE):
            raise failure(errno.EINVAL)
        if mode == self.devices.mode:
            return
        if self._other_namespaces(client):
            raise failure(errno.EBUSY)
        self.devices.set_mode(mode)
        time.sleep(REMEMBERED)  # the caller goes on when no cache of names knows the old mode any more

    def _rdma_dev_set_netns(self, client: Client, request: dict) -> None:
        self._privileged(client)
        port = self.devices.by_rdma_name(request["dev"])
        if port is None:
            raise failure(errno.EINVAL)
        fd = os.dup(client.fds[0]) if client.fds else self._open_netns(client, request["netns"])
        try:
            target = self.netdevs.netns_of_fd(fd)
        finally:
            os.close(fd)
        self.devices.move(port, target, self.netdevs.netns_of_pid(client.pid))

    def _link_add(self, client: Client, request: dict) -> dict:
        self._privileged(client)
        mtu, mac = request.get("mtu"), request.get("mac")
        if not re.fullmatch(r"[^\s/:]{1,15}", request["name"]) or not (mtu is None or isinstance(mtu, int)):
            raise failure(errno.EINVAL)
        if mac is not None and not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", mac):
            raise failure(errno.EINVAL)
        fd = os.dup(client.fds[0]) if client.fds else self._open_netns(client, request["netns"])
        try:
            child = self.children.add(request["lower"], request["name"], request["kind"], fd, mtu, mac)
        finally:
            os.close(fd)
        return {"mac": child.netdev.mac, "mtu": child.netdev.mtu, "interface_id": child.interface_id}

    def _port_of(self, client: Client, name: str) -> Port:
        """The PF whose interface has this name where the caller is; a VF has no DCB of its own."""
        netns = self.netdevs.netns_of_pid(client.pid)
        for port in self.devices.pfs:
            place = self.netdevs.where(port.netdev)
            if place and place[0] == netns and port.netdev.name == name:
                return port
        raise failure(errno.EOPNOTSUPP)

    def _dcb_get(self, client: Client, request: dict) -> dict:
        return self._port_of(client, request["netdev"]).dcb.state()

    def _dcb_set_pfc(self, client: Client, request: dict) -> dict:
        self._privileged(client)
        port = self._port_of(client, request["netdev"])
        port.dcb.set_pfc(request["pfc"])
        return port.dcb.state()

    def _service_started(self, client: Client, request: dict) -> None:
        self._privileged(client)
        if not re.fullmatch(r"[a-z0-9-]{1,32}", request["service"]) or not isinstance(request["pid"], int):
            raise failure(errno.EINVAL)
        self.services[request["service"]] = request["pid"]

    def _verbs_start(self, client: Client, request: dict) -> dict:
        netns = self.netdevs.netns_of_pid(client.pid)
        return self.fabric.start(
            id(client), netns, request["device"], int(request["gid_index"]), int(request["tclass"]) & 0xFF
        )

    def _verbs_flows(self, _client: Client, request: dict) -> dict:
        return self.fabric.treatment(request["flow"], request["tclass"])

    def _verbs_transfer(self, _client: Client, request: dict) -> dict:
        names = ("near", "far", "seconds", "queue_pairs", "both", "pair")
        return transfer(**{name: request[name] for name in names})

    def _verbs_count(self, _client: Client, request: dict) -> None:
        self.fabric.count(request["flow"], request.get("sent") or {}, request.get("received") or {})

    def _ethtool_statistics(self, client: Client, request: dict) -> dict[str, int]:
        return self.fabric.statistics(self.netdevs.netns_of_pid(client.pid), request["netdev"])

    @staticmethod
    def _privileged(client: Client) -> None:
        if client.uid != 0:
            raise failure(errno.EPERM)

    @staticmethod
    def _open_netns(client: Client, netns: str | int) -> int:
        """By name, or by a process id as this process sees it."""
        if isinstance(netns, int) or netns.isdecimal():
            return os.open(f"/proc/{int(netns)}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        if "/" in netns or netns in ("", ".", ".."):
            raise failure(errno.EINVAL)
        return os.open(f"{_named(client)}/{netns}", os.O_RDONLY | os.O_CLOEXEC)

    def _other_namespaces(self, client: Client) -> bool:
        """Whether the node has any network namespace besides its own: named ones, and those of its processes."""
        try:
            if os.listdir(_named(client)):
                return True
        except FileNotFoundError:
            pass
        node = _pid_namespace(client.pid)
        if node == _pid_namespace(os.getpid()):
            return False  # no PID namespace of its own, so its processes cannot be told from the machine's
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        return any(_pid_namespace(p) == node and self.netdevs.netns_of_pid(p) != self.netdevs.home for p in pids)


def _named(client: Client) -> str:
    return f"/proc/{client.pid}/root/run/netns"


def _pid_namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None
