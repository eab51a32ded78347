# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the shape and the rails: which PCI functions, how many, and their interfaces."""

from __future__ import annotations

import re
from collections import Counter

from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_intent import CHILD_NETWORKS, Intent
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_mistakes import NOT_SET, Mistake, mistake
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_names import NETDEV

PCI_FORM = 'a lower-case address with domain, such as "0000:0c:00.0"'


def shape(intent: Intent) -> list[Mistake]:
    """A shape of the catalogue that has RoCE rails, or a list of rails in its place."""
    name = intent.given["rails_shape"]
    if intent.shape_fault:
        return [mistake("rails_shape", name, f"a usable shape of the catalogue; {intent.shape_fault}")]
    if name is None and "rails" not in intent.explicit and intent.usable("rails_shape"):
        return [mistake("rails_shape", NOT_SET, "a shape of the catalogue, or a list of rails in `rails`")]
    return []


def pci_addresses(intent: Intent) -> list[Mistake]:
    """Well-formed, lower case, unique, none of a front-end NIC."""
    found = []
    front_end = (intent.shape or {}).get("front_end_nics") or []
    for rail in intent.rails:
        for part in ("pci", "gpu_pci"):
            text = rail[part]
            path = f"rails[{rail['rail']}].{part}"
            if text is None or catalogue.PCI_ADDRESS.fullmatch(text):
                continue
            proposal = _proposal(text)
            found.append(mistake(path, text, PCI_FORM + (f"; here {proposal}" if proposal else "")))
        if rail["pci"] in front_end:
            found.append(
                mistake(
                    f"rails[{rail['rail']}].pci",
                    rail["pci"],
                    f"a rail; {rail['pci']} is a front-end NIC of {intent.shape['name']}, "
                    "and VFs on it would take the node off its network",
                )
            )
    for pci, count in Counter(rail["pci"] for rail in intent.rails if rail["pci"]).items():
        if count > 1:
            numbers = ", ".join(str(rail["rail"]) for rail in intent.rails if rail["pci"] == pci)
            found.append(mistake("rails", pci, f"every PCI address once; rails {numbers} share it"))
    return found


def count(intent: Intent) -> list[Mistake]:
    """As many rails as the shape has, and at least one."""
    if "rails" not in intent.explicit or not isinstance(intent.given["rails"], list):
        return []
    got = len(intent.given["rails"])
    wanted = intent.shape["rails"] if intent.shape else None
    if wanted is not None and got != wanted:
        return [Mistake("rails", f"{got} rails", f"{wanted} rails, as {intent.shape['name']} has")]
    return [mistake("rails", [], "at least one rail")] if got == 0 else []


def netdevs(intent: Intent) -> list[Mistake]:
    """Interfaces with a name that Linux takes, unique, and known where a child interface needs its parent."""
    found = []
    pattern = intent.given["rails_netdev_pattern"]
    if pattern is not None and "{rail}" not in pattern:
        return [mistake("rails_netdev_pattern", pattern, "a name that contains {rail}, such as rdma{rail}")]
    for rail in intent.rails:
        if rail["netdev"] is not None and not NETDEV.fullmatch(rail["netdev"]):
            name = "rails_netdev_pattern" if pattern else f"rails[{rail['rail']}].netdev"
            found.append(mistake(name, rail["netdev"], "an interface name of 1 to 15 characters without space, / or :"))
    # Rails that share an address share the interface too, and the address is reported.
    by_address = {rail["pci"]: rail["netdev"] for rail in intent.rails}
    for netdev, times in Counter(by_address.values()).items():
        if netdev and times > 1:
            found.append(mistake("rails", netdev, "every interface (netdev) on one rail only"))
    missing = [str(rail["rail"]) for rail in intent.rails if rail["netdev"] is None]
    if intent.network in CHILD_NETWORKS and missing and intent.usable("rails", "rails_netdev_pattern"):
        # An ipvlan or macvlan network without master silently hangs on the interface of the default route.
        found.append(
            mistake(
                "rails_netdev_pattern",
                NOT_SET,
                f"the interface names of rails {', '.join(missing)}, or `netdev` in each entry of `rails`: "
                f"{intent.network} needs the parent of each child",
            )
        )
    return found


def _proposal(text: str) -> str | None:
    """Return the address that was most likely meant, or nothing."""
    lower = text.strip().lower()
    if re.fullmatch(r"[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", lower):
        lower = f"0000:{lower}"
    return lower if catalogue.PCI_ADDRESS.fullmatch(lower) else None


RULES = (shape, pci_addresses, count, netdevs)
