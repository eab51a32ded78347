# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/sys/class/infiniband and its relatives (drivers/infiniband/core/sysfs.c, uverbs_main.c, user_mad.c).

In shared mode other network namespaces see a copy of each device (add_one_compat_dev, core/device.c) that lacks what
belongs to the driver: no counters and no traffic class folder. In exclusive mode a device is in one namespace only.
"""

from __future__ import annotations

import errno

from ..devices import SHARED, Devices, Port
from ..errors import failure, kernel_integer
from ..gids import ZERO, Row
from ..netdevs import Netdevs
from ..tree import Caller, Dir, File, Table, Tree

_COUNTERS = (
    *("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "port_xmit_wait"),
    *("port_xmit_discards", "port_rcv_errors", "unicast_xmit_packets", "unicast_rcv_packets"),
    *("multicast_xmit_packets", "multicast_rcv_packets", "link_downed", "symbol_error"),
)
_HW_COUNTERS = (
    *("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "duplicate_request", "implied_nak_seq_err"),
    *("rnr_nak_retry_err", "out_of_buffer", "rx_icrc_encapsulated", "req_cqe_error", "resp_cqe_error"),
    *("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled", "rp_cnp_ignored", "roce_adp_retrans"),
    *("roce_adp_retrans_to", "roce_slow_restart", "rx_write_requests", "rx_read_requests", "rx_atomic_requests"),
)
REMEMBERED = 1.0
MODELS = {"1017": "MT4119", "1019": "MT4121", "101b": "MT4123", "101d": "MT4125", "1021": "MT4129", "1023": "MT4131"}
FIRMWARE = {"MT4119": "16.35.4030", "MT4121": "16.35.4030", "MT4125": "22.43.1014", "MT4129": "28.43.1014"}


def device_path(port: Port) -> str:
    return f"{port.function.path}/infiniband/{port.rdma.name}"


def firmware(port: Port) -> str:
    parent = port.function.parent or port.function
    return FIRMWARE.get(MODELS.get(parent.device, ""), "40.45.1020")


def add_port(tree: Tree, devices: Devices, netdevs: Netdevs, port: Port) -> None:
    rdma, path, pci = port.rdma, device_path(port), port.function.path
    parent = port.function.parent or port.function

    def seen(caller: Caller) -> bool:
        return devices.mode == SHARED or devices.shows(rdma, caller.netns)

    def driver_part(caller: Caller) -> bool:
        return caller.netns == rdma.netns

    tree.dir(f"{pci}/infiniband")
    tags = {"visible": seen, "lifetime": _lifetime(devices, port)}
    tree.put(path, Dir(**tags))
    tree.link(f"class/infiniband/{rdma.name}", path, **tags)
    model = MODELS.get(parent.device, f"MT{parent.device}")
    tree.files(
        path,
        {
            "node_guid": rdma.guid,
            "sys_image_guid": devices.image_guid(port),
            "node_type": "1: CA",
            "node_desc": f"{devices.spec.name} {rdma.name}",
            "fw_ver": firmware(port),
            "hca_type": model,
            "hw_rev": "0",
            "board_id": "ORC0000000007",
        },
    )
    tree.link(f"{path}/device", pci)
    tree.link(f"{path}/subsystem", "class/infiniband")
    _ib_port(tree, devices, netdevs, port, f"{path}/ports/1", driver_part)
    if devices.spec.driver == "doca_ofed":
        tree.put(f"{path}/tc", Dir(visible=driver_part))
        tree.put(f"{path}/tc/1/traffic_class", _traffic_class(devices, port))
    for kind, folder in (("uverbs", "infiniband_verbs"), ("umad", "infiniband_mad")):
        _char_device(tree, port, folder, f"{kind}{rdma.index}")


def mode_changed(tree: Tree, devices: Devices) -> None:
    """Let everybody's cache follow the mode; what was remembered before is forgotten after REMEMBERED seconds."""
    for port in devices.ports():
        tree.dir(device_path(port)).lifetime = _lifetime(devices, port)
        tree.dir("class/infiniband").children[port.rdma.name].lifetime = _lifetime(devices, port)


def _lifetime(devices: Devices, port: Port) -> float:
    """In shared mode everybody sees a PF's device, so it may be remembered, briefly since the mode can be switched."""
    return REMEMBERED if devices.mode == SHARED and not port.is_vf else 0.0


def remove_port(tree: Tree, port: Port) -> None:
    """The device's own directory goes with its PCI function."""
    tree.drop(f"class/infiniband/{port.rdma.name}")
    tree.drop(f"class/infiniband_verbs/uverbs{port.rdma.index}")
    tree.drop(f"class/infiniband_mad/umad{port.rdma.index}")


def port_state(netdevs: Netdevs, port: Port) -> tuple[str, str]:
    """(state, physical state) as a RoCE port takes them from its interface (mlx5_query_port_roce)."""
    link = netdevs.link(port.netdev)
    active = link is not None and link.up and link.carrier
    return ("4: ACTIVE", "5: LinkUp") if active else ("1: DOWN", "3: Disabled")


def visible_row(devices: Devices, netdevs: Netdevs, port: Port, index: int, caller: Caller) -> Row | None:
    """A row of the GID table as the caller may see it.

    DOCA-OFED compares the namespace of the row's interface with the caller's (rdma_check_gid_user_access); upstream
    shows every row to everybody.
    """
    netdevs.refresh()
    row = port.rdma.gids.rows[index]
    if row is not None and devices.spec.driver == "doca_ofed" and row.owner[0] != caller.netns:
        return None
    return row


def _ib_port(tree: Tree, devices: Devices, netdevs: Netdevs, port: Port, path: str, driver_part) -> None:
    size = len(port.rdma.gids.rows)

    def row_file(show) -> Table:
        return Table(size, lambda index: File(lambda caller: show(index, caller)))

    def gid(index: int, caller: Caller) -> str:
        row = visible_row(devices, netdevs, port, index, caller)
        return row.gid if row else ZERO

    def attribute(index: int, caller: Caller) -> Row:
        row = visible_row(devices, netdevs, port, index, caller)
        if row is None:
            raise failure(errno.EINVAL)  # the kernel's answer for an empty row as well as for a hidden one
        return row

    def interface(index: int, caller: Caller) -> str:
        netns, ifindex = attribute(index, caller).owner
        link = netdevs.links(netns).get(ifindex)
        if link is None:
            raise failure(errno.EINVAL)
        return link.name

    tree.files(
        path,
        {
            "state": lambda _caller: port_state(netdevs, port)[0],
            "phys_state": lambda _caller: port_state(netdevs, port)[1],
            "rate": devices.spec.rate,
            "link_layer": "Ethernet",
            "lid": "0x0",
            "sm_lid": "0x0",
            "sm_sl": "0",
            "lid_mask_count": "0",
            "cap_mask": "0x04010000",
            "pkeys/0": "0xffff",
        },
    )
    tree.put(f"{path}/gids", row_file(gid))
    tree.put(f"{path}/gid_attrs/types", row_file(lambda index, caller: attribute(index, caller).type))
    tree.put(f"{path}/gid_attrs/ndevs", row_file(interface))
    tree.put(f"{path}/counters", Dir(visible=driver_part))
    tree.put(f"{path}/hw_counters", Dir(visible=driver_part))

    def counter(name: str):
        return lambda _caller: str(port.rdma.counters.get(name, 0))

    # What the tools of the node send is counted by fabric.py.
    tree.files(f"{path}/counters", {name: counter(name) for name in _COUNTERS})
    tree.files(f"{path}/hw_counters", {"lifespan": "10", **{name: counter(name) for name in _HW_COUNTERS}})


def _traffic_class(devices: Devices, port: Port) -> File:
    """DOCA-OFED's forced class: empty until it was written once; then ``Global tclass=N``, also for 0."""

    def show(_caller: Caller) -> str:
        value = port.rdma.traffic_class
        return "" if value is None else f"Global tclass={value}"

    def store(caller: Caller, text: str) -> None:
        if caller.netns != devices.home:
            raise failure(errno.EPERM)
        try:
            port.rdma.traffic_class = kernel_integer(text, 0xFF)
        except OSError:
            raise failure(errno.EINVAL) from None

    return File(show, store)


def _char_device(tree: Tree, port: Port, folder: str, name: str) -> None:
    path = f"{port.function.path}/{folder}/{name}"
    # The class is not divided by network namespaces: /dev/infiniband is what keeps users apart. A VF can go away.
    lifetime = {"lifetime": 0.0} if port.is_vf else {}
    minor = port.rdma.index + (192 if folder == "infiniband_verbs" else 0)
    tree.put(path, Dir(**lifetime))
    tree.files(path, {"ibdev": port.rdma.name, "dev": f"231:{minor}"})
    if folder == "infiniband_verbs":
        tree.files(path, {"abi_version": "1"})
    else:
        tree.files(path, {"port": "1"})
    tree.link(f"{path}/device", port.function.path)
    tree.link(f"class/{folder}/{name}", path, **lifetime)
