# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ToS and the RoCE mode that RDMA CM gives to its connections (storage, ``rping``), from configfs.

It is another switch than the class that a device forces on queue pairs (Mellanox/network-operator#179). A device's
directory exists in configfs only after somebody made it (``mkdir``, as ``cma_roce_tos`` does), and making it is a change
of the system, so reading never does. Without the directory the values are unknown, not the kernel's defaults: they stay
as they were set when the directory is removed again (drivers/infiniband/core/cma_configfs.c keeps them in the device).
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

_CONFIGFS = "/sys/kernel/config"
_MODES = ("IB/RoCE v1", "RoCE v2")


def read_rdma_cm(tree: Tree, device: str, port: str) -> dict:
    """Return ``{tos, mode, reasons}`` of one port; reasons (keys ``rdma_cm_tos``, ``rdma_cm_mode``) say why a value is
    None.

    tos is 0-255, mode is ``IB/RoCE v1`` or ``RoCE v2`` (the type of the GIDs that connections use).
    """
    result: dict = {"tos": None, "mode": None, "reasons": {}}
    home = f"{_CONFIGFS}/rdma_cm/{device}/ports/{port}"
    tos, mode = tree.read(f"{home}/default_roce_tos"), tree.read(f"{home}/default_roce_mode")
    if tos.absent and mode.absent:
        reason = missing(tree, device)
        result["reasons"] = {"rdma_cm_tos": reason, "rdma_cm_mode": reason}
        return result
    number, word = (tos.value or "").strip(), (mode.value or "").strip()
    if number.isascii() and number.isdigit() and len(number) <= 3 and int(number) <= 255:
        result["tos"] = int(number)
    else:
        result["reasons"]["rdma_cm_tos"] = tos.reason or f"not a ToS: {number!r:.40}"
    if word in _MODES:
        result["mode"] = word
    else:
        result["reasons"]["rdma_cm_mode"] = mode.reason or f"not a RoCE mode: {word!r:.40}"
    return result


def missing(tree: Tree, device: str) -> str:
    """Say why configfs shows nothing for a device, from what is most basic to what is most usual."""
    if not tree.exists(_CONFIGFS + "/rdma_cm"):
        if not tree.exists("/sys/module/rdma_cm"):
            return "module rdma_cm is not loaded"
        if not tree.exists(_CONFIGFS):
            return "the kernel offers no configfs (module configfs is not loaded)"
        mounts = tree.read("/proc/self/mounts").value or ""
        if f" {_CONFIGFS} configfs " not in mounts:
            return f"configfs is not mounted on {_CONFIGFS}"
        return "the kernel has no rdma_cm in configfs (CONFIG_INFINIBAND_ADDR_TRANS_CONFIGFS)"
    if not tree.exists(f"{_CONFIGFS}/rdma_cm/{device}"):
        return "nobody made the device's directory in configfs, and reading must not"
    return "configfs does not show this port"
