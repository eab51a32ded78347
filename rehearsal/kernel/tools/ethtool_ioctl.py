# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SIOCETHTOOL as Python programs of a rehearsal node have it: a rail is a veth there, which counts nothing by priority.

Part of the node's sitecustomize, so it must cost nothing where nobody asks. Statistics of an interface that is a function's
come from the node's kernel; all other ioctls go to this machine's. Layouts: linux/ethtool.h.
"""

import fcntl


def _with_statistics(kernel_ioctl):
    siocethtool, gstrings, gstats, gsset_info = 0x8946, 0x1B, 0x1D, 0x37

    def statistics(name):
        import json
        import os
        import socket

        place = os.environ.get("REHEARSAL_RDMA_SOCKET", "/run/rehearsal/rdma.sock")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(place)
                client.sendall(json.dumps({"op": "ethtool_statistics", "netdev": name}).encode() + b"\n")
                reply = json.loads(client.makefile().readline())
        except (OSError, ValueError):
            return None
        return reply["result"] if reply["ok"] else None

    def ioctl(fd, request, arg=0, mutate_flag=True):
        if request != siocethtool or not isinstance(arg, bytes) or len(arg) < 24:
            return kernel_ioctl(fd, request, arg, mutate_flag)
        import ctypes
        import struct

        raw, address = struct.unpack("=16sQ", arg[:24])
        command = struct.unpack("=I", ctypes.string_at(address, 4))[0]
        found = statistics(raw.rstrip(b"\0").decode()) if command in (gstrings, gstats, gsset_info) else None
        if found is None:
            return kernel_ioctl(fd, request, arg, mutate_flag)
        if command == gsset_info:
            ctypes.memmove(address + 8, struct.pack("=QI", 2, len(found)), 12)
        elif command == gstrings:
            names = b"".join(name.encode().ljust(32, b"\0") for name in found)
            ctypes.memmove(address + 8, struct.pack("=I", len(found)) + names, 4 + len(names))
        else:
            ctypes.memmove(
                address + 4, struct.pack(f"=I{len(found)}Q", len(found), *found.values()), 4 + 8 * len(found)
            )
        return arg

    return ioctl


fcntl.ioctl = _with_statistics(fcntl.ioctl)
