# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's sysfs as files: many RDMA devices with long GID tables, most rows empty, as on a GPU node with VFs."""

from __future__ import annotations

from pathlib import Path

ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
KINDS = ("IB/RoCE v1", "RoCE v2")


class Node:
    """Writes the tree below ``root``.

    :param devices: RDMA devices: PFs, each with a VF, two functions a rail; at least 2.
    :param rows: rows of each GID table.
    :param addresses: addresses of each netdev; each fills two rows (RoCE v1 and v2).
    """

    def __init__(self, root: Path, devices: int = 34, rows: int = 256, addresses: int = 2) -> None:
        self.root = root
        for rail in range(devices // 2):
            pf = f"0000:{0x10 + rail:02x}:00.0"
            vf = f"0000:{0x10 + rail:02x}:00.2"
            self._function(rail, pf, f"rdma{rail}", f"mlx5_{rail}", rows, addresses, rail)
            self._function(rail, vf, f"rdma{rail}v0", f"mlx5_{devices // 2 + rail}", rows, addresses, 100 + rail)
            self._link(f"{self._home(rail)}/{vf}/physfn", f"../{pf}")
            self._link(f"{self._home(rail)}/{pf}/virtfn0", f"../{vf}")
            self._files(f"{self._home(rail)}/{pf}", {"sriov_totalvfs": "16", "sriov_numvfs": "1"})
            net = f"{self._home(rail)}/{pf}/net/rdma{rail}/qos"
            self._files(net, {"trust": "dscp", "dscp2prio": "0:1 10:0 26:5 46:6"})
        self._files("sys/module/ib_core/parameters", {"netns_mode": "Y"})
        self._files("sys/module/mlx_compat", {"version": "24.10-1.1.4"})
        self._files("sys/module/mlx5_core", {"version": "24.10-1.1.4"})
        self._conf("all")

    def _home(self, rail: int) -> str:
        return f"sys/devices/pci0000:{rail:02x}/0000:{rail:02x}:01.0"

    def _function(self, rail: int, pci: str, netdev: str, device: str, rows: int, addresses: int, number: int) -> None:
        home = f"{self._home(rail)}/{pci}"
        self._files(home, {"numa_node": str(rail % 2), "vendor": "0x15b3", "class": "0x020000"})
        self._link(f"{home}/driver", "../../../../bus/pci/drivers/mlx5_core")
        self._link(f"sys/bus/pci/devices/{pci}", f"../../../../{home}")
        net = f"{home}/net/{netdev}"
        mac = f"02:00:00:00:00:{number:02x}"
        files = {"address": mac, "mtu": "4220", "operstate": "up", "ifindex": str(number + 10), "iflink": "x"}
        self._files(net, {**files, "iflink": str(number + 10), "phys_port_name": "p0", "dev_port": "0"})
        self._link(f"{net}/device", f"../../../{pci}")
        self._link(f"sys/class/net/{netdev}", f"../../../{net}")
        self._conf(netdev)
        place = f"{home}/infiniband/{device}"
        self._link(f"sys/class/infiniband/{device}", f"../../../{place}")
        self._link(f"{place}/device", f"../../../{pci}")
        guid = f"0200:00ff:fe00:{number:04x}"
        self._files(place, {"fw_ver": "28.43.1014", "node_guid": guid, "node_desc": f"node {device}"})
        port = f"{place}/ports/1"
        link = {"link_layer": "Ethernet", "state": "4: ACTIVE", "phys_state": "5: LinkUp"}
        self._files(port, {**link, "rate": "400 Gb/sec (4X NDR)"})
        self._files(f"{place}/tc/1", {"traffic_class": "Global tclass=41"})
        gids = [f"fe80:0000:0000:0000:0000:00ff:fe00:{number:04x}"]
        gids += [f"0000:0000:0000:0000:0000:ffff:0a{extra:02x}:{number:04x}" for extra in range(1, addresses)]
        filled = [(gid, kind) for gid in gids for kind in KINDS]
        empty = rows - len(filled)
        self._rows(f"{port}/gids", [gid for gid, _kind in filled] + [ZERO] * empty)
        self._rows(f"{port}/gid_attrs/types", [kind for _gid, kind in filled] + [""] * empty)
        self._rows(f"{port}/gid_attrs/ndevs", [netdev] * len(filled) + [""] * empty)

    def _conf(self, name: str) -> None:
        four = ("arp_ignore", "arp_announce", "arp_filter", "rp_filter", "accept_local")
        six = ("disable_ipv6", "accept_ra", "accept_ra_defrtr", "forwarding", "autoconf")
        self._files(f"proc/sys/net/ipv4/conf/{name}", dict.fromkeys(four, "0"))
        self._files(f"proc/sys/net/ipv6/conf/{name}", dict.fromkeys(six, "1"))

    def _files(self, folder: str, files: dict[str, str]) -> None:
        place = self.root / folder
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (place / name).write_text(text + "\n", encoding="utf-8")

    def _rows(self, folder: str, texts: list[str]) -> None:
        place = self.root / folder
        place.mkdir(parents=True)
        for index, text in enumerate(texts):
            # sysfs answers EINVAL for the attributes of an empty row; an ordinary file is empty at least.
            (place / str(index)).write_text(text + "\n" if text else "", encoding="utf-8")

    def _link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
