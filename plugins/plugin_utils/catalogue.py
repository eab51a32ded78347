# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The catalogue of GPU machine shapes: which PCI functions are rails, in which order, and what their network needs.

The data is C(roles/rails/files/shapes.yml), package data with the source of every entry beside it. It is checked
when it is loaded, so a slip in the data stops the run and never reaches a node.
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from pathlib import Path

import yaml

SHAPES_FILE = Path(__file__).resolve().parents[2] / "roles" / "rails" / "files" / "shapes.yml"

# domain:bus:device.function as the kernel prints it: "%04x:%02x:%02x.%d" in pci_setup_device(), drivers/pci/probe.c.
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")

# The SR-IOV operator and the traffic class file of DOCA-OFED know this vendor's NICs only (Mellanox, now NVIDIA).
RAIL_VENDOR = "15b3"


class CatalogueError(ValueError):
    """The catalogue's data is wrong, or it holds no such shape; the text says what and where."""


@lru_cache(maxsize=4)
def load(path: Path | str = SHAPES_FILE) -> dict[str, dict]:
    """Read and check the catalogue.

    :returns: shape name to its entry as in the file, plus C(name), C(cloud_instance_type) (true when nodes of the
        shape carry the name in their label C(node.kubernetes.io/instance-type)) and C(pfs): the rails in order as
        C({rail, pci, netdev, rdma, gpu, gpu_pci}), null where the sources say nothing.
    :raises CatalogueError: every fault of the data, one a line.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with open(path, encoding="utf-8") as stream:
        data = yaml.load(stream, Loader=loader)
    shapes: dict[str, dict] = {}
    faults: list[str] = []
    for section in ("shapes", "other_platforms"):
        for name, entry in data.get(section, {}).items():
            if name in shapes:
                faults.append(f"{name}: listed twice")
            shape = {**entry, "name": name, "cloud_instance_type": section == "shapes"}
            faults.extend(f"{name}: {fault}" for fault in faults_of(shape, data.get("sources", {})))
            shape["pfs"] = _pfs(shape)
            shapes[name] = shape
    if faults:
        raise CatalogueError(f"{path}:\n" + "\n".join(faults))
    return shapes


def faults_of(shape: dict, sources: dict | None = None) -> list[str]:
    """Return what is wrong with one entry of the catalogue, in words; an empty list when it is sound."""
    faults = []
    devices = shape.get("root_devices") or []
    front_end = shape.get("front_end_nics") or []
    for address in [*devices, *front_end]:
        if not isinstance(address, str):
            faults.append(f"PCI address {address!r} is not a string: quote it (YAML 1.1 reads some as numbers)")
        elif not PCI_ADDRESS.fullmatch(address):
            faults.append(f"PCI address {address!r} is not a lower-case domain:bus:device.function")
    if len(set(map(str, devices))) != len(devices):
        faults.append("root_devices lists an address twice")
    for address in sorted(set(map(str, devices)) & set(map(str, front_end))):
        faults.append(f"{address} is both a rail and a front-end NIC")
    if devices and len(devices) != shape.get("rails"):
        faults.append(f"root_devices has {len(devices)} entries, rails says {shape.get('rails')}")
    faults.extend(_port_faults(shape, devices))
    rail_map = shape.get("rail_map") or []
    if rail_map and [(row.get("rail"), row.get("pci")) for row in rail_map] != list(enumerate(devices)):
        faults.append("rail_map does not follow root_devices")
    usable = devices and (shape.get("nic") or {}).get("vendor") == RAIL_VENDOR
    if not usable and not shape.get("refused"):
        faults.append(f"has no PCI map or another vendor than {RAIL_VENDOR}, but no reason in 'refused'")
    if not shape.get("sources"):
        faults.append("names no source")
    elif sources is not None:
        faults.extend(f"source {key!r} is not described" for key in shape["sources"] if key not in sources)
    return faults


def get(name: str, shapes: dict[str, dict] | None = None) -> dict:
    """Return the entry of a shape, refused ones too (see its key C(refused)).

    :raises CatalogueError: no such shape; the text proposes the nearest names.
    """
    shapes = load() if shapes is None else shapes
    if name in shapes:
        return shapes[name]
    raise CatalogueError(f"no shape {name!r} in the catalogue{did_you_mean(name, shapes)}")


def did_you_mean(word: str, known) -> str:
    """Return C("; did you mean 'a' or 'b'?") for the nearest known words whatever their case, else an empty string."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(str(word).lower(), by_lower, n=2, cutoff=0.7)
    return "; did you mean " + " or ".join(f"'{by_lower[hit]}'" for hit in near) + "?" if near else ""


def usable_names(shapes: dict[str, dict] | None = None) -> list[str]:
    """Return the names a site can write in C(rails_shape), in the order of the catalogue."""
    return [name for name, shape in (load() if shapes is None else shapes).items() if not shape.get("refused")]


def _port_faults(shape: dict, devices: list) -> list[str]:
    """A two-port card shows as functions .0 and .1, a one-port card as .0 only; else the list was copied wrongly."""
    ports = (shape.get("nic") or {}).get("ports_per_card")
    if not ports:
        return []
    cards: dict[str, set[str]] = {}
    for address in map(str, devices):
        card, _dot, function = address.rpartition(".")
        cards.setdefault(card, set()).add(function)
    wanted = {str(port) for port in range(ports)}
    return [
        f"card {card} of {ports} port(s) appears with function(s) {', '.join(sorted(functions))}"
        for card, functions in cards.items()
        if functions != wanted
    ]


def _pfs(shape: dict) -> list[dict]:
    addresses = shape.get("root_devices") or []
    rows = shape.get("rail_map") or [{"rail": rail, "pci": pci} for rail, pci in enumerate(addresses)]
    # Platforms without a rail map may list their verbs devices in rail order.
    devices = shape.get("rdma_devices") or []
    return [
        {
            "rail": row["rail"],
            "pci": row["pci"],
            "netdev": row.get("netdev"),
            "rdma": row.get("rdma") or (devices[row["rail"]] if row["rail"] < len(devices) else None),
            "gpu": row.get("gpu"),
            "gpu_pci": row.get("gpu_pci"),
        }
        for row in rows
    ]
