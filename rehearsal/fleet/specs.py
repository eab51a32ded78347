# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Specifications of the nodes (STATE/nodes/NAME/spec.json), from an inventory or from a number and a shape."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue

from rehearsal.fleet import installed
from rehearsal.fleet.errors import FleetError

GROUP = "gpu_nodes"
DRIVERS, MODES = ("doca_ofed", "inbox"), ("shared", "exclusive")
# Firmware of ConnectX cards comes with this many VFs enabled when nothing else is known of a shape.
DEFAULT_VFS_MAX = 8
# Where the inventory lists rails and names no shape: the label's value, a NIC that the SR-IOV operator knows, and the QoS
# that the cloud's agent sets on such machines.
OWN_SHAPE = "rails-of-the-inventory"
QOS = {
    "trust": "dscp", "pfc": [1, 1, 0, 0, 0, 1, 0, 0], "ip_dscp": 0, "ip_prio": 1, "rdma_dscp": 26, "rdma_prio": 5,
    "gpu_dscp": 10, "gpu_prio": 0, "cnp_dscp": 46, "cnp_prio": 6,
}  # fmt: skip
NIC = {"vendor": "15b3", "model": "ConnectX-5 Ex", "pf_device": "1019", "vf_device": "101a"}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


def from_shape(
    count: int,
    shape: str,
    driver: str = "doca_ofed",
    initial_mode: str = "exclusive",
    faults: dict[str, list[str]] | None = None,
) -> list[dict[str, Any]]:
    """``count`` nodes gpu-1, gpu-2 … of one shape. faults: names of faults by node."""
    if count < 1:
        raise FleetError(f"--nodes must be 1 or more, got {count}")
    nodes = [
        spec(f"gpu-{number}", number, shape, driver=driver, initial_mode=initial_mode) for number in range(1, count + 1)
    ]
    return with_faults(nodes, {node["name"]: {"rails_shape": shape} for node in nodes}, faults or {})


def from_inventory(
    paths: list[Path],
    driver: str = "doca_ofed",
    initial_mode: str = "exclusive",
    faults: dict[str, list[str]] | None = None,
) -> list[dict[str, Any]]:
    """One node per host of group gpu_nodes. Uses the hosts' rails_shape and rails, and, when there, the host variables
    rehearsal_driver, rehearsal_initial_mode, rehearsal_labels, rehearsal_faults and those of rehearsal.fleet.installed.

    A host without a shape needs rails; it gets the labels that rails_node_selector asks for, and rails_mtu and
    rails_ip_family in the shape's place.

    :param faults: names of faults by host, besides those of the inventory.
    """
    data = read_inventory(paths)
    hosts = hosts_of(data, GROUP)
    if not hosts:
        raise FleetError(
            f"inventory {', '.join(map(str, paths))} has no host in group {GROUP}: put the nodes to prepare there"
        )
    variables = data.get("_meta", {}).get("hostvars", {})
    nodes = []
    for number, host in enumerate(hosts, start=1):
        own = variables.get(host, {})
        nodes.append(
            spec(
                host,
                number,
                own.get("rails_shape"),
                rails=own.get("rails"),
                driver=own.get("rehearsal_driver", driver),
                initial_mode=own.get("rehearsal_initial_mode", initial_mode),
                labels=own.get("rehearsal_labels"),
                own=own,
            )
        )
    return with_faults(
        [installed.of_host(node, variables.get(node["name"], {})) for node in nodes], variables, faults or {}
    )


def with_faults(
    nodes: list[dict[str, Any]], variables: dict[str, dict[str, Any]], chosen: dict[str, list[str]]
) -> list[dict[str, Any]]:
    """The nodes with the faults that ``chosen`` and the host variable rehearsal_faults name, each once; FleetError for
    a node or a fault that does not exist.
    """
    names = [node["name"] for node in nodes]
    for name in chosen:
        if name not in names:
            raise FleetError(f"--fault {name}=…: there is no such node; the fleet has {', '.join(names)}")
    if not chosen and not any(own.get("rehearsal_faults") for own in variables.values()):
        return nodes
    # Brings all rules of the product, which a fleet without faults, its end and its status do not need.
    from rehearsal.fleet import faults as fault_catalogue

    catalogue_of_faults, result = fault_catalogue.Catalogue(), []
    for node in nodes:
        own = variables.get(node["name"], {})
        listed = own.get("rehearsal_faults") or []
        if not isinstance(listed, list):
            raise FleetError(
                f"host {node['name']}: rehearsal_faults: got {listed!r}, must be a list of names of faults"
            )
        found = [catalogue_of_faults.get(name) for name in dict.fromkeys([*listed, *chosen.get(node["name"], [])])]
        result.append(fault_catalogue.apply(node, found, own) if found else node)
    return result


def read_inventory(paths: list[Path]) -> dict[str, Any]:
    """What ``ansible-inventory --list`` prints for the inventories together, as data."""
    words = []
    for path in paths:
        if not path.exists():
            raise FleetError(f"there is no inventory at {path}")
        words += ["-i", str(path)]
    beside = Path(sys.executable).parent / "ansible-inventory"
    program = str(beside) if beside.exists() else shutil.which("ansible-inventory")
    if program is None:
        raise FleetError("ansible-inventory is missing: pip install ansible-core into the environment of this Python")
    environment = {**os.environ, "ANSIBLE_DEPRECATION_WARNINGS": "false", "ANSIBLE_LOCALHOST_WARNING": "false"}
    done = subprocess.run(
        [program, *words, "--list"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise FleetError(f"ansible-inventory cannot read {' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def hosts_of(data: dict[str, Any], group: str) -> list[str]:
    """Hosts of a group and of its children, in the inventory's order, each once."""
    found: dict[str, None] = {}
    seen: set[str] = set()

    def walk(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for host in data.get(name, {}).get("hosts", []):
            found.setdefault(host)
        for child in data.get(name, {}).get("children", []):
            walk(child)

    walk(group)
    return list(found)


def spec(
    name: str,
    number: int,
    shape_name: str | None,
    rails: list[dict[str, Any]] | None = None,
    driver: str = "doca_ofed",
    initial_mode: str = "exclusive",
    labels: dict[str, str] | None = None,
    own: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The specification of one node; FleetError names the host and what is allowed.

    :param own: the host's variables, read when it names no shape.
    """
    if not _NAME.fullmatch(name):
        raise FleetError(
            f"host {name!r} cannot be a node: lower-case letters, digits, '-' and '.', at most 63 characters"
        )
    for what, got, allowed in (("driver", driver, DRIVERS), ("initial mode", initial_mode, MODES)):
        if got not in allowed:
            raise FleetError(f"host {name}: {what} {got!r} is not one of {', '.join(allowed)}")
    if shape_name:
        shape = catalogue_shape(name, shape_name)
    elif rails is not None:
        own = own or {}
        shape = {
            "pfs": [],
            "nic": NIC,
            "qos": QOS,
            "mtu": own.get("rails_mtu"),
            "ip_family": own.get("rails_ip_family"),
        }
        labels = {**(own.get("rails_node_selector") or {}), **(labels or {})}
    else:
        raise FleetError(f"host {name} has no rails_shape: a rehearsal node needs a shape of the catalogue, or `rails`")
    return {
        "name": name,
        "shape": shape_name or OWN_SHAPE,
        "rails": node_rails(name, shape, rails),
        "front_end": list(shape.get("front_end_nics") or []),
        "nic": shape.get("nic") or {},
        "qos": shape.get("qos") or {},
        "mtu": shape.get("mtu"),
        "ip_family": shape.get("ip_family"),
        "num_vfs_max": shape.get("num_vfs_max_cloud") or DEFAULT_VFS_MAX,
        "driver": driver,
        "initial_mode": initial_mode,
        "address": f"10.140.{number // 250}.{number % 250 + 1 if number >= 250 else number}",
        "labels": labels or {},
    }


def catalogue_shape(host: str, name: str) -> dict[str, Any]:
    """A shape that has rails; FleetError."""
    try:
        shape = catalogue.get(name)
    except catalogue.CatalogueError as error:
        raise FleetError(f"host {host}: {error}") from None
    if shape.get("refused"):
        raise FleetError(f"host {host}: shape {name} has no rails that could be rehearsed: {shape['refused']}")
    return shape


def node_rails(name: str, shape: dict[str, Any], own: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The PFs of a node in rail order. Netdevs are named rdma0 … as the cloud's agent renames them; the inventory's
    own names win.
    """
    if own is not None and (
        not isinstance(own, list) or not all(isinstance(row, dict) and row.get("pci") for row in own)
    ):
        raise FleetError(f"host {name}: 'rails' must be a list of entries with 'pci', got {own!r}")
    known = {row["pci"]: row for row in shape["pfs"]}
    rows = own if own is not None else shape["pfs"]
    rails = []
    for number, row in enumerate(rows):
        shape_row = known.get(row["pci"], {})
        rails.append(
            {
                "pci": row["pci"],
                "netdev": (own is not None and row.get("netdev")) or f"rdma{number}",
                "rdma": row.get("rdma") or shape_row.get("rdma") or f"mlx5_{number}",
                "gpu_pci": row.get("gpu_pci") or shape_row.get("gpu_pci"),
            }
        )
    return rails
