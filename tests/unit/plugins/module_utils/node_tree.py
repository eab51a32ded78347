# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's file system from a short description, and boot images, for tests of the node side.

Description, one entry a line::

    /sys/module/ib_core/parameters/netns_mode = N      a file; its content ends with a newline
    /etc/modprobe.d/a.conf = options a b=1\\noptions c  \\n stands for a line end
    /sys/class/net/rdma0 -> ../../devices/x/net/rdma0  a link
    /boot/                                             a directory
    /sys/.../gid_attrs/types/0 ! EINVAL                reading it fails with this error
"""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

from ansible_collections.railyard.rdma.plugins.module_utils.rdma.gid import ZERO_GID
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree, read_file

BRIDGE = "/sys/devices/pci0000:00/0000:00:01.1"
LINK_LOCAL = "fe80:0000:0000:0000:0a0b:0cff:fe0d:0e01"
RAIL_ADDRESS = "0000:0000:0000:0000:0000:ffff:0ae0:0c8f"


class NodeTree:
    """Builds the tree below ``root`` and reads it with the errors that were asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.errors: dict[str, int] = {}
        self.reads: list[str] = []

    def add(self, description: str) -> NodeTree:
        for line in description.strip().splitlines():
            line = line.strip()
            if " -> " in line:
                path, target = line.split(" -> ")
                self._place(path).symlink_to(target)
            elif " ! " in line:
                path, name = line.split(" ! ")
                self._place(path).write_text("")
                self.errors[os.path.realpath(self._place(path))] = getattr(errno, name)
            elif " = " in line or line.endswith(" ="):
                path, _equals, text = line.partition(" =")
                self._place(path).write_text(text[1:].replace("\\n", "\n") + "\n")
            else:
                (self.root / line.strip("/")).mkdir(parents=True, exist_ok=True)
        return self

    def tree(self) -> Tree:
        def read(path: str) -> bytes:
            self.reads.append(path[len(str(self.root)) :])
            number = self.errors.get(path)
            if number:
                raise OSError(number, os.strerror(number))
            return read_file(path)

        return Tree(str(self.root), read)

    def function(self, pci: str, netdev: str | None = None, physfn: str | None = None, index: int = 0) -> str:
        """Add a PCI function, with its netdev; ``physfn`` makes it VF ``index`` of that function. Returns its
        directory."""
        home = f"{BRIDGE}/{pci}"
        self.add(f"{home}/numa_node = 0\n{home}/driver -> ../../../../bus/pci/drivers/mlx5_core")
        self.add(f"/sys/bus/pci/devices/{pci} -> ../../../devices/pci0000:00/0000:00:01.1/{pci}")
        if physfn:
            self.add(f"{home}/physfn -> ../{physfn}\n{BRIDGE}/{physfn}/virtfn{index} -> ../{pci}")
        if netdev:
            self.netdev(home, netdev)
        return home

    def netdev(self, home: str, name: str, more: str = "") -> None:
        """Add a netdev below a device's directory."""
        self.add(f"{home}/net/{name}/mtu = 4220\n{home}/net/{name}/operstate = up\n{home}/net/{name}/device -> ../..")
        self.add(f"/sys/class/net/{name} -> ../..{home[len('/sys') :]}/net/{name}")
        for line in more.split():
            self.add(f"{home}/net/{name}/{line.replace('=', ' = ')}")

    def rdma(self, home: str | None, name: str, gids: dict, rows: int = 16, link_layer: str = "Ethernet") -> str:
        """Add an RDMA device with one port. gids: ``{index: (gid, type, netdev)}``; other rows answer zero and
        EINVAL."""
        place = f"{home}/infiniband/{name}" if home else f"/sys/devices/virtual/infiniband/{name}"
        self.add(f"/sys/class/infiniband/{name} -> ../..{place[len('/sys') :]}")
        if home:
            self.add(f"{place}/device -> ../..")
        port = f"{place}/ports/1"
        self.add(
            f"""{place}/fw_ver = 16.35.2000
            {place}/node_guid = b83f:d203:0012:3456
            {port}/link_layer = {link_layer}
            {port}/state = 4: ACTIVE
            {port}/phys_state = 5: LinkUp
            {port}/rate = 100 Gb/sec (4X EDR)"""
        )
        for index in range(rows):
            gid, kind, netdev = gids.get(index, (ZERO_GID, None, None))
            self.add(f"{port}/gids/{index} = {gid}")
            self.add(f"{port}/gid_attrs/types/{index} = {kind}" if kind else f"{port}/gid_attrs/types/{index} ! EINVAL")
            attribute = f"{port}/gid_attrs/ndevs/{index}"
            self.add(f"{attribute} = {netdev}" if netdev else f"{attribute} ! EINVAL")
        return place

    def _place(self, path: str) -> Path:
        place = self.root / path.strip().lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


class LiveTree:
    """A tree below another root that counts as the running system, for what is read of that only."""

    live = True

    def __init__(self, root: Path) -> None:
        self.tree = Tree(str(root))

    def __getattr__(self, name: str):
        return getattr(self.tree, name)


def four_rows(netdev: str, address: str = RAIL_ADDRESS, first: int = 0) -> dict:
    """The rows that one address of a netdev gives: link-local and its own, v1 and v2 each."""
    kinds = ((LINK_LOCAL, "IB/RoCE v1"), (LINK_LOCAL, "RoCE v2"), (address, "IB/RoCE v1"), (address, "RoCE v2"))
    return {first + place: (gid, kind, netdev) for place, (gid, kind) in enumerate(kinds)}


def cpio(files: dict[str, bytes]) -> bytes:
    """A newc archive of regular files."""
    data = b""
    for number, (name, content) in enumerate([*files.items(), ("TRAILER!!!", b"")], start=1):
        raw = name.encode() + b"\0"
        mode = 0 if name == "TRAILER!!!" else 0o100644
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(raw), 0)
        data += b"070701" + b"".join(b"%08x" % field for field in fields) + raw
        data += b"\0" * (-len(data) % 4) + content
        data += b"\0" * (-len(data) % 4)
    return data


def image(
    option: str | None,
    kernel: str = "6.8.0-1",
    ib_core: bool = True,
    modules: int = 10,
    pack=gzip.compress,
    microcode: bool = True,
) -> bytes:
    """A boot image: microcode uncompressed first, then the packed root file system with one modprobe.d file."""
    files = {f"usr/lib/modules/{kernel}/kernel/m{number}.ko": b"\x7fELF" * 50 for number in range(modules)}
    files["init"] = b"#!/bin/sh\n"
    if ib_core:
        files[f"usr/lib/modules/{kernel}/kernel/drivers/infiniband/core/ib_core.ko.zst"] = b"x" * 33
    if option is not None:
        files["etc/modprobe.d/ib_core.conf"] = option.encode()
    early = cpio({"kernel/x86/microcode/GenuineIntel.bin": b"m" * 777}) + b"\0" * 300 if microcode else b""
    return early + pack(cpio(files))
