# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which RDMA driver stack is there: NVIDIA's DOCA-OFED (formerly MLNX_OFED) or the kernel's own (inbox), which of its
modules are loaded, and which character devices user programs find.

The flavour decides which checks are possible at all: forced traffic classes, trust and ECN files exist with DOCA-OFED
only, and DOCA-OFED hides the GIDs of other network namespaces from sysfs and from queue pairs while the upstream kernel
does not.
"""

from __future__ import annotations

import os
import re
import stat

from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

MODULES = (
    "ib_core",
    "ib_uverbs",
    "ib_umad",
    "rdma_cm",
    "rdma_ucm",
    "mlx5_core",
    "mlx5_ib",
    "irdma",
    "bnxt_re",
    "rdma_rxe",
    "siw",
    "nvidia_peermem",
)
_CORE = ("mlx5_core", "ib_core")
_CHECK = b" rdma_check_gid_user_access\t[ib_core]"
_ANY_SYMBOL = b"\t[ib_core]"
_LOCKDOWN = re.compile(r"\[(none|integrity|confidentiality)\]")
_DEVICES = "/dev/infiniband"
_CDI = ("/etc/cdi", "/run/cdi")
_IN_CDI = re.compile(r"/dev/infiniband/([A-Za-z0-9_.-]{1,64})")


def read_driver(tree: Tree) -> dict:
    """Return ``{flavour, version, srcversion, out_of_tree, gid_netns_check, lockdown, modules, character_devices,
    stale_cdi, reasons}``.

    flavour is ``doca_ofed``, ``inbox``, ``none`` (no RDMA module is loaded) or ``unknown``. DOCA-OFED is told by
    ``mlx_compat``, the module that carries its backports and that no kernel has. srcversion identifies the source of
    mlx5_core (or ib_core); out_of_tree tells of both, where loaded, whether they were built outside the kernel
    (Documentation/admin-guide/tainted-kernels.rst, flag O). gid_netns_check tells whether the loaded ib_core contains
    the function that compares a GID's namespace with the caller's; None when the symbol table cannot tell. lockdown is
    ``none``, ``integrity`` or ``confidentiality``. modules are described by :func:`module_states`, stale_cdi by
    :func:`stale_cdi`.
    """
    reasons: dict = {}
    result: dict = {"flavour": "unknown", "version": None, "srcversion": None, "out_of_tree": None}
    result.update({"gid_netns_check": None, "lockdown": None})
    if tree.names("/sys/module"):
        _loaded_stack(tree, result, reasons)
    else:
        reasons["flavour"] = "no /sys/module"
    lockdown = tree.read("/sys/kernel/security/lockdown")
    result["lockdown"] = parse_lockdown(lockdown.value)
    if result["lockdown"] is None:
        reasons["lockdown"] = (
            "the kernel has no lockdown, or securityfs is not mounted"
            if lockdown.absent
            else lockdown.reason or "format not understood"
        )
    result["modules"], why = module_states(tree)
    reasons.update({"modules": why} if why else {})
    result["character_devices"], why = read_character_devices(tree)
    reasons.update({"character_devices": why} if why else {})
    result["stale_cdi"] = stale_cdi(tree)
    if result["stale_cdi"] is None:
        reasons["stale_cdi"] = "device files belong to the running system, and this is another root"
    result["reasons"] = reasons
    return result


def _loaded_stack(tree: Tree, result: dict, reasons: dict) -> None:
    loaded = [name for name in ("mlx_compat", *_CORE) if tree.exists(f"/sys/module/{name}")]
    result["out_of_tree"] = {name: _out_of_tree(tree, name) for name in _CORE if name in loaded}
    if None in result["out_of_tree"].values():
        reasons["out_of_tree"] = "a module has no file taint"
    if "mlx_compat" in loaded:
        result["flavour"] = "doca_ofed"
    elif any(result["out_of_tree"].values()):
        reasons["flavour"] = "modules were built outside the kernel, but mlx_compat is not loaded"
    else:
        result["flavour"] = "inbox" if loaded else "none"
    result["version"] = tree.text("/sys/module/mlx5_core/version") or tree.text("/sys/module/mlx_compat/version")
    places = (f"/sys/module/{name}/srcversion" for name in _CORE)
    result["srcversion"] = next((text for text in map(tree.text, places) if text), None)
    absent = "no RDMA module is loaded"
    if result["version"] is None:
        reasons["version"] = "the module states no version" if loaded else absent
    if result["srcversion"] is None:
        reasons["srcversion"] = "the modules state none" if loaded else absent
    if result["flavour"] == "inbox":
        result["gid_netns_check"] = False
    elif not loaded:
        reasons["gid_netns_check"] = absent
    else:
        result["gid_netns_check"], why = _gid_check(tree)
        reasons.update({"gid_netns_check": why} if why else {})


def _out_of_tree(tree: Tree, module: str) -> bool | None:
    taint = tree.read(f"/sys/module/{module}/taint").value
    return None if taint is None else "O" in taint


def parse_lockdown(text: str | None) -> str | None:
    """Return ``integrity`` of ``none [integrity] confidentiality``, None for anything else."""
    match = _LOCKDOWN.search(text or "")
    return match.group(1) if match else None


def module_states(tree: Tree) -> tuple[dict[str, str | None], str | None]:
    """Return the state of each module of :data:`MODULES`, and a reason when some are None.

    ``loaded``; ``builtin`` in the kernel (such a module has a directory in /sys/module at most for its parameters, but
    no ``initstate``); ``available`` in /lib/modules of the kernel; ``absent``; None when the lists of the kernel's
    modules cannot be read.
    """
    states: dict[str, str | None] = {}
    for name in MODULES:
        if tree.exists(f"/sys/module/{name}/initstate"):
            states[name] = "loaded"
    missing = [name for name in MODULES if name not in states]
    builtin, available, reason = _module_lists(tree)
    for name in missing:
        if name in (builtin or ()):
            states[name] = "builtin"
        elif name in (available or ()):
            states[name] = "available"
        else:
            states[name] = None if builtin is None or available is None else "absent"
    return {name: states[name] for name in MODULES}, reason if None in states.values() else None


def _module_lists(tree: Tree) -> tuple[set[str] | None, set[str] | None, str | None]:
    """Return the names in modules.builtin and in modules.dep of the kernel that runs (in another root: of its only
    kernel)."""
    if tree.live:
        release: str | None = os.uname().release
    else:
        kernels = [name for name in tree.names("/lib/modules") if tree.exists(f"/lib/modules/{name}/modules.dep")]
        release = kernels[0] if len(kernels) == 1 else None
        if release is None:
            return None, None, f"{len(kernels)} kernels have modules in /lib/modules, and none of them runs"
    lists = []
    for name in ("modules.builtin", "modules.dep"):
        reading = tree.read(f"/lib/modules/{release}/{name}")
        if reading.value is None:
            return None, None, f"/lib/modules/{release}/{name}: {reading.reason}"
        lists.append(parse_module_list(reading.value))
    return lists[0], lists[1], None


def parse_module_list(text: str) -> set[str]:
    """Return the module names in a modules.builtin or modules.dep text, with underscores, as the kernel has them.

    The first word of a line is the path of a module (``kernel/drivers/infiniband/core/ib_core.ko.zst:``); what follows
    are those that it depends on.
    """
    names = set()
    for line in text.split("\n"):
        path = line.partition(":")[0].strip()
        file, dot_ko, _packed = path.rpartition("/")[2].partition(".ko")
        if dot_ko:
            names.add(file.replace("-", "_"))
    return names


def read_character_devices(tree: Tree) -> tuple[list[str] | None, str | None]:
    """Return the character devices in ``/dev/infiniband`` (``rdma_cm``, ``uverbs0``), or None with a reason.

    An entry that is no character device (a bind mount of a container made a file or a folder where the device was
    missing) is left out and named in the reason: programs that open it fail. The folders by-ibdev and by-path of udev
    hold links to the same devices.
    """
    if not tree.live:
        return None, "device files belong to the running system, and this is another root"
    devices, strange = [], []
    for name in tree.names(_DEVICES):
        try:
            mode = os.stat(tree.path(f"{_DEVICES}/{name}")).st_mode
        except OSError:
            continue
        if stat.S_ISCHR(mode):
            devices.append(name)
        elif not name.startswith("by-"):
            strange.append(name)
    return devices, f"no character devices: {', '.join(strange)}" if strange else None


def stale_cdi(tree: Tree) -> list[dict] | None:
    """Return the CDI files that name devices of ``/dev/infiniband`` which are not there: ``[{path, missing}]``; None
    for another root.

    The numbers of uverbs devices may change with a reboot, and a CDI file from before keeps pods from starting ("failed
    to stat CDI host device"). The directories are those of the CDI specification, /run/cdi also known as /var/run/cdi.
    """
    if not tree.live:
        return None
    there = set(tree.names(_DEVICES))
    stale = []
    for directory in _CDI:
        for name in tree.names(directory):
            path = f"{directory}/{name}"
            if name.endswith((".json", ".yaml", ".yml")):
                wanted = set(_IN_CDI.findall(tree.read(path).value or ""))
                if wanted - there:
                    stale.append({"path": path, "missing": sorted(wanted - there)})
    return stale


def _gid_check(tree: Tree) -> tuple[bool | None, str | None]:
    seen = False
    tail = b""
    try:
        with open(tree.path("/proc/kallsyms"), "rb", buffering=0) as symbols:
            while True:
                data = symbols.read(1 << 20)
                if not data:
                    break
                data = tail + data
                if _CHECK in data:
                    return True, None
                seen = seen or _ANY_SYMBOL in data
                tail = data[-len(_CHECK) :]
    except OSError as error:
        return None, f"/proc/kallsyms: {error.strerror}"
    return (False, None) if seen else (None, "/proc/kallsyms lists no symbol of ib_core")
