# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way from GPU over PCIe root and NIC to the rail as a drawing: places of boxes and lines, one drawing for each
distinct layout and NUMA node."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import visible

# CSS pixels. The whole is narrow enough for a telephone.
WIDTH, BOX, ROW, GAP = 338, 24, 30, 14
# Left edge and width of the four columns.
GPU, ROOT, NIC, RAIL = (0, 92), (122, 66), (218, 60), (296, 42)

HEADS = [
    (x + width / 2, word)
    for (x, width), word in zip((GPU, ROOT, NIC, RAIL), ("GPU", "root", "NIC", "rail"), strict=True)
]


def drawings(topology: list[dict]) -> list[dict]:
    """``[{nodes: [name], numas: [{numa, width, height, heads, boxes, lines}], alone: [rail]}]``, the most frequent layout first.

    boxes: [{x, y, width, kind: gpu|root|nic|rail, text, title}], lines: [(x1, y1, x2, y2)]. alone are rails on whose root
    there is no GPU, while the node has GPUs.
    """
    found: dict[tuple, list[dict]] = {}
    for entry in topology:
        found.setdefault(_signature(entry), []).append(entry)
    result = []
    for entries in sorted(found.values(), key=len, reverse=True):
        roots = entries[0]["roots"]
        numas: dict[int | None, list[dict]] = {}
        for root in roots:
            numas.setdefault(root["numa"], []).append(root)
        with_gpus = any(root["gpus"] for root in roots)
        order = sorted(numas, key=lambda numa: (numa is None, numa or 0))
        result.append(
            {
                "nodes": [entry["node"] for entry in entries],
                "numas": [{"numa": numa, **_draw(numas[numa])} for numa in order],
                "alone": sorted(rail for root in roots if with_gpus and not root["gpus"] for rail in root["rails"]),
            }
        )
    return result


def _signature(entry: dict) -> tuple:
    return tuple(
        (root["root"], root["numa"], tuple(root["gpus"]), tuple((pci, tuple(r)) for pci, r in root["nics"].items()))
        for root in entry["roots"]
    )


def _draw(roots: list[dict]) -> dict:
    boxes, lines, top = [], [], 0
    for root in roots:
        nics = [(pci, rail) for pci, rails in root["nics"].items() for rail in rails]
        deep = max(len(root["gpus"]), len(nics), 1)
        middle = top + deep * ROW / 2
        boxes.append(_box(ROOT, middle - BOX / 2, "root", short(root["root"]), f"PCIe root {root['root']}"))
        for row, gpu in enumerate(root["gpus"]):
            y = top + _offset(row, len(root["gpus"]), deep)
            boxes.append(_box(GPU, y - BOX / 2, "gpu", f"GPU {short(gpu)}", f"GPU {gpu}"))
            lines.append((sum(GPU), y, ROOT[0], middle))
        for row, (pci, rail) in enumerate(nics):
            y = top + _offset(row, len(nics), deep)
            boxes.append(_box(NIC, y - BOX / 2, "nic", short(pci), f"NIC {pci}"))
            boxes.append(_box(RAIL, y - BOX / 2, "rail", f"r{rail}", f"rail {rail}"))
            lines.append((sum(ROOT), middle, NIC[0], y))
            lines.append((sum(NIC), y, RAIL[0], y))
        top += deep * ROW + GAP
    return {"width": WIDTH, "height": max(top - GAP, BOX), "heads": HEADS, "boxes": boxes, "lines": lines}


def _offset(row: int, of: int, deep: int) -> float:
    """Middle of a row's box when fewer boxes than rows are centred."""
    return (row + 0.5 + (deep - of) / 2) * ROW


def _box(column: tuple[int, int], y: float, kind: str, text: str, title: str) -> dict:
    return {"x": column[0], "y": y, "width": column[1], "kind": kind, "text": visible(text), "title": visible(title)}


def short(pci: str) -> str:
    """A PCI address without its domain where that is 0000."""
    return pci.removeprefix("0000:")[:12]
