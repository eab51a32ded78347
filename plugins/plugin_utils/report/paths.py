# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs and rails hang on which PCIe root of a node."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import mapping, rows, whole, words


def paths(context: Context) -> tuple[dict | None, str | None]:
    """``{node, roots: [{root, numa, gpus: [PCI address], rails: [rail], nics: {PCI address: [rail]}}]}`` of one node, or
    None with a reason.

    root is the address of the root port, the first of the PCIe path: what shares it is joined below the processor. A
    function without one (passed through to a virtual machine) stands at its bus.
    """
    facts = mapping(context.facts)
    if not facts:
        return None, "there are no facts of the node"
    devices = mapping(facts.get("devices")).values()
    place = {row.get("pci"): row for row in devices if isinstance(row, dict) and words(row.get("pci_path"))}
    roots: dict[str, dict] = {}

    def at(row: dict) -> dict:
        root = _root(row["pci_path"])
        entry = roots.setdefault(
            root, {"root": root, "numa": whole(row.get("numa_node")), "gpus": [], "rails": [], "nics": {}}
        )
        if entry["numa"] is None:
            entry["numa"] = whole(row.get("numa_node"))
        return entry

    for gpu in rows(facts.get("gpus")):
        if words(gpu.get("pci")) and words(gpu.get("pci_path")):
            at(gpu)["gpus"].append(gpu["pci"])
    lost = []
    found = {row.get("rail"): row for row in rows(facts.get("rails"))}
    for rail in context.layout["rails"]:
        pci = words(rail.get("pci")) or words(mapping(found.get(rail["rail"])).get("pci"))
        if pci not in place:
            lost.append(rail["rail"])
            continue
        entry = at(place[pci])
        entry["rails"].append(rail["rail"])
        entry["nics"].setdefault(pci, []).append(rail["rail"])
    if not roots:
        return None, "the facts tell no PCIe path"
    reason = f"no PCIe path of the rails {', '.join(map(str, lost))}" if lost else None
    ordered = sorted(roots.values(), key=lambda entry: (entry["rails"] or [1 << 20], entry["root"]))
    return {"node": context.node, "roots": ordered}, reason


def _root(path: str) -> str:
    parts = path.split("/")
    return parts[0] if len(parts) > 1 else parts[0].rpartition(":")[0]
