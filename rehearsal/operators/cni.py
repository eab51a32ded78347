# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CNI chains: plugins in order at ADD, in reverse at DEL, with what ADD must remember for DEL.

Each plugin is ``add(call, conf, prev) -> result`` and ``delete(call, conf)``; it acts on the node by commands. What
ADD must remember goes to ``call.notes`` (the plugins' own cache under /var/lib/cni).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rehearsal.operators.cni_call import Call, CniError
from rehearsal.operators.cni_main import (
    child_delete,
    host_device_add,
    ipvlan_add,
    macvlan_add,
    moved_delete,
    sriov_add,
)
from rehearsal.operators.cni_meta import rdma_add, rdma_delete, sbr_add, sbr_delete, tuning_add
from rehearsal.operators.machines import MachineError

__all__ = ["Call", "CniError", "add_chain", "delete_chain"]


async def _nothing(call: Call, conf: dict) -> None:
    """tuning has nothing to undo that outlives the namespace."""


Add = Callable[[Call, dict, "dict | None"], Awaitable[dict]]
Delete = Callable[[Call, dict], Awaitable[None]]
PLUGINS: dict[str, tuple[Add, Delete]] = {
    "sriov": (sriov_add, moved_delete),
    "host-device": (host_device_add, moved_delete),
    "ipvlan": (ipvlan_add, child_delete),
    "macvlan": (macvlan_add, child_delete),
    "tuning": (tuning_add, _nothing),
    "rdma": (rdma_add, rdma_delete),
    "sbr": (sbr_add, sbr_delete),
}


async def add_chain(call: Call, chain: list[dict], installed: set[str], notes: list[dict]) -> dict:
    """Run a chain of plugins; ``notes`` (one dict a plugin) is filled, so ``delete_chain`` can undo a half-done one.

    :raises CniError: a plugin is missing on the node or failed.
    """
    result: dict | None = None
    for conf in chain:
        kind = conf["type"]
        for needed in (kind, (conf.get("ipam") or {}).get("type")):
            if needed and (needed not in installed or (needed == kind and kind not in PLUGINS)):
                raise CniError(f'failed to find plugin "{needed}" in path [/opt/cni/bin]')
        call.notes = {}
        notes.append(call.notes)
        try:
            result = await PLUGINS[kind][0](call, conf, result)
        except (CniError, MachineError) as error:
            raise CniError(f'plugin type="{kind}" failed (add): {error}') from error
    return result or {}


async def delete_chain(call: Call, chain: list[dict], notes: list[dict]) -> list[str]:
    """DEL in reverse order; errors are collected, since the rest must still be undone."""
    errors = []
    for conf, kept in reversed(list(zip(chain, notes))):
        call.notes = kept
        try:
            await PLUGINS[conf["type"]][1](call, conf)
        except MachineError as error:
            errors.append(f'plugin type="{conf["type"]}" failed (delete): {error}')
    call.ipam.release(call.owner)
    return errors
