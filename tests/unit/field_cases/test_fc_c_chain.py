# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kind C, as far as it shows on a node or in a pod: plugins that do not fit the mode, and names that a VF kept."""

from __future__ import annotations

import json

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_model
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.attachments import types_of_plugins
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import (
    BRIDGE,
    PCI,
    FieldNode,
    context,
    found,
    layout,
    only,
)

SHARED, EXCLUSIVE = ["sriov", "tuning", "sbr"], ["sriov", "tuning", "rdma", "sbr"]


@pytest.fixture
def node(tmp_path):
    return FieldNode(tmp_path)


# FC-45 ---------------------------------------------------------------------------------------------------------------


def judged(live: str | None, chains: dict | None, wanted: str = "keep", **changes) -> list[dict]:
    """The findings about the plugins of the networks that a node in a mode would give to its pods."""
    intent = {**layout(**changes), "netns_mode": wanted}
    intent["rails"] = [{**rail, "network": "rdma-vf"} for rail in intent["rails"]]
    given = Context("node-a", intent, facts={"netns_mode": {"live": live}}, kubernetes={"chains": chains})
    return [row for row in evaluate([given], ["facts", "kubernetes"]) if row["id"] == "CNI-002"]


def nad(*plugins: str, name: str = "rdma-vf") -> dict:
    config = json.dumps({"cniVersion": "1.0.0", "plugins": [{"type": kind} for kind in plugins]})
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"config": config}}


@pytest.mark.parametrize(
    ("live", "chain", "words"),
    [
        ("shared", EXCLUSIVE, "Take the rdma plugin out of the network"),
        ("exclusive", SHARED, "Add the rdma plugin"),
        ("shared", SHARED, None),
        ("exclusive", EXCLUSIVE, None),
    ],
)
def test_fc45_the_rdma_plugin_is_for_exclusive_mode_only(live, chain, words):
    rows = judged(live, types_of_plugins([nad(*chain)]))
    if words is None:
        assert rows == []
    else:
        (row,) = rows
        assert (row["severity"], row["rail"]) == ("error", None)
        assert row["evidence"] == {"network": "default/rdma-vf", "plugins": chain, "netns_mode": live}
        assert row["remedy"].startswith(words)


@pytest.mark.parametrize(("wanted", "chain"), [("shared", SHARED), ("exclusive", EXCLUSIVE)])
def test_fc45_a_node_that_is_in_the_wrong_mode_is_told_once(wanted, chain):
    """The network is what the intent makes; NETNS-001 is about the node."""
    other = {"shared": "exclusive", "exclusive": "shared"}[wanted]
    assert judged(other, types_of_plugins([nad(*chain)]), wanted) == []


@pytest.mark.parametrize(
    ("live", "chains", "words"),
    [
        (None, {"default/rdma-vf": SHARED}, "mode is not known"),
        ("shared", None, "networks were not listed"),
        ("shared", {"default/rdma-vf": None}, "default/rdma-vf is not JSON"),
    ],
)
def test_fc45_what_could_not_be_looked_at_is_unknown(live, chains, words):
    (row,) = judged(live, chains)
    assert row["severity"] == "unknown"
    assert words in row["summary"]


def test_fc45_other_networks_are_no_business_of_it():
    assert judged("shared", {"default/other": EXCLUSIVE}) == []
    assert judged("shared", {"default/rdma-vf": EXCLUSIVE}, network="ipvlan") == []


@pytest.mark.parametrize("text", ["{", "[]", "null", "7", '{"plugins": {"type": "rdma"}}', '{"plugins": "rdma"}'])
def test_fc45_a_configuration_that_is_none_gives_no_chain(text):
    item = {"metadata": {"namespace": "default", "name": "a"}, "spec": {"config": text}}
    assert types_of_plugins([item])["default/a"] in (None, [])


@pytest.mark.parametrize(("mode", "rendered"), [("shared", SHARED), ("exclusive", EXCLUSIVE)])
def test_fc45_the_chain_follows_the_mode_of_the_intent(mode, rendered):
    rails = [{"pci": pci, "netdev": f"rdma{number}"} for number, pci in enumerate(PCI)]
    intent = {
        "rails": rails, "rails_network": "sriov", "rails_netns_mode": mode, "rails_mtu": 4220, "rails_ip_family": "ipv4",
        "rails_traffic_class": 41, "rails_node_selector": {"rails": "yes"},
    }  # fmt: skip
    model, _mistakes = rail_model.build({"node-a": intent})
    networks = [row for part in model["documents"] if part["kind"] == "SriovNetwork" for row in part["objects"]]
    assert networks
    for network in networks:
        assert ["sriov", *(plugin["type"] for plugin in network["meta_plugins"])] == rendered


# FC-46 ---------------------------------------------------------------------------------------------------------------


def add_vf(node: FieldNode, name: str = "rdma0v0", altnames=()) -> None:
    """VF 0 of the first rail, on the node."""
    home = f"{BRIDGE}/0000:0c:00.2"
    node.add(f"{home}/physfn -> ../{PCI[0]}\n{BRIDGE}/{PCI[0]}/virtfn0 -> ../0000:0c:00.2\n{home}/vendor = 0x15b3")
    node.add(f"/sys/bus/pci/devices/0000:0c:00.2 -> ../../..{home.removeprefix('/sys')}")
    node.add(f"{home}/net/{name}/address = 02:00:00:00:00:01\n{home}/net/{name}/mtu = 4220")
    node.add(f"{home}/net/{name}/device -> ../../../0000:0c:00.2")
    node.add(f"/sys/class/net/{name} -> ../..{home.removeprefix('/sys')}/net/{name}")
    node.sysctls(name)
    node.links[name] = {"altnames": altnames}


@pytest.mark.parametrize(
    ("name", "altnames"),
    [("rdma0v0", ["net1"]), ("net3", []), ("temp_41", ["net1", "enp12s0f0v0"]), ("net1", ["rdma0v0"])],
)
def test_fc46_a_vf_that_kept_the_name_of_a_pod(node, name, altnames):
    add_vf(node, name, altnames)
    item = only("NAMING-005", context(node))
    assert (item["severity"], item["rail"]) == ("warning", 0)
    assert item["evidence"] == {
        "pf": PCI[0],
        "vfs": [{"vf": "0000:0c:00.2", "netdev": name, "altnames": altnames}],
    }


@pytest.mark.parametrize("altnames", [[], ["enp12s0f0v0"], ["network1", "net1x", "anet1"]])
def test_fc46_names_of_the_node_are_fine(node, altnames):
    add_vf(node, altnames=altnames)
    assert found(context(node)) == []


def test_fc46_a_name_that_only_looks_so_on_another_nic_is_not_ours(node):
    node.links["rdma1"]["altnames"] = ["net1"]
    assert found(context(node)) == []


def test_fc46_without_alternative_names_it_is_unknown(node):
    add_vf(node, altnames=None)
    item = only("NAMING-005", context(node))
    assert (item["severity"], item["rail"]) == ("unknown", 0)
