# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/sys/module, /sys/kernel (lockdown, configfs of the RDMA CM) and the mount points that a system expects in /sys."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator

from ..devices import SHARED, Devices
from ..errors import failure, kernel_integer
from ..gids import ROCE_V2, TYPES
from ..tree import Caller, Dir, File, Live, Node, Tree

OFED_VERSION = "26.07-1.0.0"
MODULES = ("ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "rdma_ucm", "iw_cm", "ib_cm", "mlx5_core", "mlx5_ib")
LOCKDOWN = ("none", "integrity", "confidentiality")


def build(tree: Tree, devices: Devices, cmdline: str, services: dict[str, int]) -> None:
    loaded = [module for module in MODULES if module not in devices.spec.not_loaded]
    for module in loaded:
        tree.files(f"module/{module}", {"initstate": "live", "refcnt": "1"})
    mode = File(lambda _caller: "Y" if devices.mode == SHARED else "N")
    tree.put("module/ib_core/parameters/netns_mode", mode)
    if devices.spec.driver == "doca_ofed":
        # MODULE_VERSION is gone from the kernel's own mlx5_core; mlx_compat exists in the vendor's package only.
        tree.files("module/mlx5_core", {"version": OFED_VERSION})
        tree.files("module/ib_core", {"version": OFED_VERSION})
        tree.files("module/mlx_compat", {"initstate": "live", "refcnt": "9", "version": OFED_VERSION})
    tree.files("kernel/security", {"lockdown": lockdown_text(devices.spec.lockdown, cmdline)})
    tree.dir("kernel/config")
    if "rdma_cm" in loaded:
        tree.put("kernel/config/rdma_cm", RdmaCm(devices))
    for mount_point in ("fs/cgroup", "fs/bpf", "kernel/debug", "kernel/tracing", "firmware", "block", "power"):
        tree.dir(mount_point)
    tree.put("fs/cgroup/system.slice", Live(lambda _caller: _cgroups(services)))
    _processors(tree)


def _cgroups(services: dict[str, int]) -> Iterator[tuple[str, Node]]:
    for name, pid in services.items():
        yield f"{name}.service", Dir({"cgroup.procs": File(str(pid))}, lifetime=0.0)


def lockdown_text(default: str, cmdline: str) -> str:
    """security/lockdown/lockdown.c: lockdown= on the kernel line, the chosen level in brackets."""
    given = [word.partition("=")[2] for word in cmdline.split() if word.startswith("lockdown=")]
    level = given[-1] if given and given[-1] in LOCKDOWN else default
    return " ".join(f"[{name}]" if name == level else name for name in LOCKDOWN)


def _processors(tree: Tree) -> None:
    """glibc and others count processors here."""
    count = os.cpu_count() or 1
    span = f"0-{count - 1}" if count > 1 else "0"
    tree.files("devices/system/cpu", {"online": span, "possible": span, "present": span, "offline": ""})
    for number in range(count):
        tree.dir(f"devices/system/cpu/cpu{number}")
    # Two sockets, each with one half of the processors; the other one is 3.2 times as far (ACPI SLIT of such machines).
    tree.files("devices/system/node", {"online": "0-1", "possible": "0-1", "has_memory": "0-1"})
    for node, processors in ((0, range((count + 1) // 2)), (1, range((count + 1) // 2, count))):
        here = f"{processors[0]}-{processors[-1]}" if len(processors) > 1 else "".join(map(str, processors))
        distance = "10 32" if node == 0 else "32 10"
        tree.files(f"devices/system/node/node{node}", {"cpulist": here, "distance": distance})


class RdmaCm(Dir):
    """configfs of the RDMA CM (drivers/infiniband/core/cma_configfs.c): mkdir DEV makes the port's defaults."""

    def __init__(self, devices: Devices) -> None:
        super().__init__()
        self.devices = devices

    def make_dir(self, name: str, caller: Caller) -> Node:
        if name in self.children:
            raise failure(errno.EEXIST)
        if not re.fullmatch(r"[^/]{1,63}", name) or self.devices.by_rdma_name(name) is None:
            raise failure(errno.ENODEV)
        port = Dir({"default_roce_tos": self._tos(name), "default_roce_mode": self._mode(name)})
        # Anyone may rmdir it, so nobody's cache may keep it.
        self.children[name] = Dir({"ports": Dir({"1": port})}, lifetime=0.0)
        return self.children[name]

    def remove_dir(self, name: str, caller: Caller) -> None:
        if self.children.pop(name, None) is None:
            raise failure(errno.ENOENT)

    def _device(self, name: str):
        port = self.devices.by_rdma_name(name)
        if port is None:
            raise failure(errno.ENODEV)
        return port.rdma

    def _setting(self, name: str, attribute: str, accept: Callable[[str], object]) -> File:
        def store(_caller: Caller, text: str) -> None:
            device = self._device(name)
            setattr(device, attribute, accept(text))

        return File(lambda _caller: str(getattr(self._device(name), attribute)), store)

    def _tos(self, name: str) -> File:
        return self._setting(name, "cm_tos", lambda text: kernel_integer(text, 0xFF))

    def _mode(self, name: str) -> File:
        def accept(text: str) -> str:
            mode = text.strip()
            if mode not in TYPES:
                raise failure(errno.EINVAL)
            return mode

        return self._setting(name, "cm_mode", accept)


__all__ = ["ROCE_V2", "RdmaCm", "build", "lockdown_text"]
