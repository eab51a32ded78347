# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a process in a pod may do and has: locked memory, device files, GPUs, variables of NCCL and UCX."""

from __future__ import annotations

import re

_IPC_LOCK = 14  # linux/capability.h
_OPEN = "open/"
_GPUS = "/proc/driver/nvidia/gpus"
_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")


def limit(text):
    """A limit as ``ulimit -l`` prints it: KiB, "unlimited", or None when the shell does not tell."""
    text = text.strip()
    if text == "unlimited":
        return text
    return int(text) if text.isascii() and text.isdigit() and len(text) < 32 else None


def memory_lock(tree):
    """``{soft_kib, hard_kib, ipc_lock}``: limits of locked memory in KiB (or "unlimited", None when not known), and
    whether the process has the capability that makes them meaningless (None when not known)."""
    lines = [*tree.lines("memlock"), "", ""]
    words = [line.split() for line in tree.lines("status")]
    effective = next((row[1] for row in words if len(row) == 2 and row[0] == "CapEff:"), None)
    try:
        ipc_lock = None if effective is None else bool(int(effective, 16) >> _IPC_LOCK & 1)
    except ValueError:
        ipc_lock = None
    return {"soft_kib": limit(lines[0]), "hard_kib": limit(lines[1]), "ipc_lock": ipc_lock}


def device_files(tree):
    """{name in /dev/infiniband: {device, opens, reason}} of the files that verbs and RDMA CM open.

    device is the RDMA device that the file belongs to, None for rdma_cm and where sysfs does not tell.
    """
    found = {}
    for path in tree.paths(_OPEN):
        name = path[len(_OPEN) :]
        answer = " ".join(tree.lines(path)).strip()
        device = tree.text(f"/sys/class/infiniband_verbs/{name}/ibdev")
        opens = answer == "yes"
        found[name] = {"device": device, "opens": opens, "reason": None if opens else answer or "no reason given"}
    return found


def gpus(tree):
    """(PCI addresses of the GPUs whose device files the process has, reason why they are not known).

    An NVIDIA driver lists all GPUs of the node under /proc; a pod has those with a /dev/nvidiaN. AMD GPUs have a render
    node each. No GPU at all is an empty list.
    """
    found, odd = [], []
    files = set(tree.lines("nvidia"))
    for name in tree.names(_GPUS):
        facts = {}
        for line in tree.lines(f"{_GPUS}/{name}/information"):
            key, _colon, value = line.partition(":")
            facts[key.strip()] = value.strip()
        address = short_address(facts.get("Bus Location", name))
        minor = facts.get("Device Minor")
        if address is None or minor is None:
            odd.append(name)
        elif f"nvidia{minor}" in files:
            found.append(address)
            files.discard(f"nvidia{minor}")
    # Without /proc/driver/nvidia nothing says which GPU /dev/nvidiaN is.
    odd += sorted(files)
    for name in tree.names("/dev/dri"):
        if name.startswith("renderD"):
            address = short_address(tree.link_name(f"/sys/class/drm/{name}/device") or "")
            if address is None:
                odd.append(name)
            elif address not in found:
                found.append(address)
    if odd:
        return None, f"nothing tells the PCI address of {', '.join(sorted(odd))}"
    return sorted(found), None


def short_address(text):
    """A PCI address with a domain of four digits where that is enough, as sysfs writes it; None for anything else."""
    match = _PCI.fullmatch(text.strip().lower())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}"


def environment(tree):
    """{NAME: value} of the NCCL_ and UCX_ variables of a process that is started in the container."""
    pairs = (line.partition("=") for line in tree.lines("env"))
    return {name: value for name, equals, value in pairs if equals and re.fullmatch(r"[A-Z0-9_]+", name)}
