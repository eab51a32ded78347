# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All ways of inventories/examples in one cluster: what each is, and a fleet with a node for each.

A node has the intent of its example, with the first two rails of the shape: two show what sixteen do, and a shape is all or
nothing, so its values stand in the intent. Names that would be one object for the whole cluster are the node's own: that is
what a site with several ways must do as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_intent import IP_FAMILIES

from tests.rehearsal.site_support import ROOT, Site

EXAMPLES = ROOT / "inventories/examples"
RAILS = 2


@dataclass(frozen=True)
class Way:
    """What must come of an example; figures are those that the source articles measured.

    :param failing: ids of the findings that fail it; empty for a way that passes.
    :param index: GID index of each rail's address in the pod, None where no row can be used.
    :param table: scopes of the RoCE v2 rows that are usable in the pod, by index.
    :param others: findings that do not fail.
    :param later: more of them in the second run: what the first one's pod left.
    """

    verdict: str
    mode: str
    index: int | None
    table: dict[int, str]
    failing: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()
    interfaces: tuple[str, ...] = ("net1", "net2")


VF = {1: "link_local", 3: "ipv4"}
WAYS = {
    "a100-sriov-node": Way("pass", "shared", 3, VF),
    "a100-sriov-rails": Way("pass", "shared", 3, VF),
    # The RDMA CNI reads an empty traffic class as 0 and writes that back; it stays on the idle VF.
    "a100-sriov-exclusive": Way("pass", "exclusive", 3, VF, later=frozenset({"QOS-002"})),
    "a100-ipvlan": Way("pass", "shared", 5, {5: "ipv4"}),
    # The placeholder comes first; the address of the router's advertisement is the one to use.
    "b300-ipvlan-ipv6": Way(
        "pass", "shared", 9, {5: "unique_local", 7: "link_local", 9: "global"}, others=frozenset({"GID-008"})
    ),
    # The cloud's agent sets ARP and source rules for the host's rails; a rehearsed node has no such agent.
    "a100-host-network": Way(
        "pass", "shared", 3, VF, others=frozenset({"ARP-001", "ARP-003"}), interfaces=("rdma0", "rdma1")
    ),
    "b300-host-device": Way("fail", "shared", None, {}, failing=frozenset({"GID-001"}), interfaces=()),
}


def hosts() -> dict[str, dict[str, Any]]:
    """Host variables by node; a node has the name of its example."""
    found = {}
    for name in WAYS:
        intent = yaml.safe_load((EXAMPLES / name / "group_vars/gpu_nodes.yml").read_text(encoding="utf-8"))
        shape = catalogue.get(intent.pop("rails_shape"))
        rails = [{key: row[key] for key in ("pci", "gpu_pci")} for row in shape["pfs"][:RAILS]]
        found[name] = {
            **intent,
            "rails": [{**row, "netdev": f"rdma{number}"} for number, row in enumerate(rails)],
            "rails_mtu": shape["mtu"],
            "rails_ip_family": IP_FAMILIES[shape["ip_family"]],
            "rails_max_unavailable": "100%",  # one batch of nodes: the order of batches is no way's business
            "rails_node_selector": {"rehearsal/way": name},
            "rehearsal_initial_mode": WAYS[name].mode,
            **names(name, intent),
        }
        if shape["qos"]:
            found[name]["rails_traffic_class"] = shape["qos"]["default_tclass"]
    return found


def names(name: str, intent: dict[str, Any]) -> dict[str, Any]:
    """Names of the way's own objects."""
    own = {"rails_resource_name": f"vf-{name}"} if intent["rails_network"] == "sriov" else {}
    if intent["rails_network"] in ("host_device", "host_network"):
        return own
    subnet = "fd01:0:0:100::/112" if name == "b300-ipvlan-ipv6" else f"192.168.{len(name)}.0/24"
    # Without a selector every node of the cluster gets a block, whatever it is.
    pool = {
        "name": f"pool-{name}",
        "subnet": subnet,
        "per_node_block_size": 16,
        "node_selector": {"rehearsal/way": name},
    }
    own |= {"rails_pools": [pool]}
    if intent["rails_network"] != "sriov":
        own["rails_network_name"] = f"net-{name}"
    return own


class Cluster(Site):
    """A fleet of all ways and the plays over it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, hosts(), shared={})
