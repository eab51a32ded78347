# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes cloned with their machine-id: their VFs have the same MAC addresses (ADDRESS-012)."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import report_table
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context

PF = ["0000:0c:00.0", "0000:0c:00.1"]
LAYOUT = {"name": "b4", "rails": [{"rail": number, "pci": pci} for number, pci in enumerate(PF)]}


def node(serial, clone_of=None, vfs=2):
    """Facts of a node; its PFs have addresses of their own, its VFs those that the machine-id gives them."""
    identity = serial if clone_of is None else clone_of
    devices, netdevs = {}, {}
    for rail, pci in enumerate(PF):
        devices[f"mlx5_{rail}"] = {"pci": pci, "function": "pf", "netdev": f"rdma{rail}", "ports": {}}
        netdevs[f"rdma{rail}"] = {"pci": pci, "vf_of": None, "mac": f"0c:42:a1:00:{serial:02x}:0{rail}"}
        for vf in range(vfs):
            mac = f"72:dc:34:{identity:02x}:0{rail}:0{vf}"
            netdevs[f"rdma{rail}v{vf}"] = {"pci": f"{pci[:-1]}{vf + 2}", "vf_of": pci, "mac": mac}
            netdevs[f"rep{rail}v{vf}"] = {"pci": pci, "vf_of": pci, "representor": True, "mac": "72:00:00:00:00:00"}
    return {"devices": devices, "netdevs": netdevs}


def judge(**nodes):
    contexts = [Context(name, LAYOUT, facts) for name, facts in nodes.items()]
    return evaluate(contexts, ("facts",), only=["ADDRESS-012"])


def test_nodes_with_a_machine_id_of_their_own_are_healthy():
    assert judge(a=node(1), b=node(2), c=node(3)) == []


def test_one_node_has_nobody_to_be_compared_with():
    assert judge(a=node(1)) == []


def test_a_clone_is_found_and_both_are_named():
    (item,) = judge(a=node(1), b=node(2, clone_of=1), c=node(3))
    assert (item["severity"], item["node"], item["rail"]) == ("error", "a", None)
    assert item["summary"].startswith(
        "2 nodes (a, b) have the same MAC addresses, 4 of them, such as 72:dc:34:01:00:00"
    )
    assert item["evidence"]["same"][0] == {
        "rail": 0,
        "mac": "72:dc:34:01:00:00",
        "netdevs": {"a": "rdma0v0", "b": "rdma0v0"},
    }
    assert "/etc/machine-id" in item["remedy"]


def test_clones_of_one_image_are_one_finding():
    nodes = {f"gpu-{number}": node(number, clone_of=0) for number in range(9)}
    (item,) = judge(**nodes)
    assert item["summary"].startswith("9 nodes (gpu-0, gpu-1, gpu-2, gpu-3 and 5 more)")


def test_two_families_of_clones_are_two_findings():
    assert [item["node"] for item in judge(a=node(1), b=node(2, 1), c=node(3), d=node(4, 3))] == ["a", "c"]


def test_the_same_address_on_another_rail_is_another_network():
    first, second = node(1, vfs=0), node(2, vfs=0)
    second["netdevs"]["rdma1"]["mac"] = first["netdevs"]["rdma0"]["mac"]
    assert judge(a=first, b=second) == []
    second["netdevs"]["rdma0"]["mac"] = first["netdevs"]["rdma0"]["mac"]
    assert [item["evidence"]["same"][0]["rail"] for item in judge(a=first, b=second)] == [0]


def test_an_address_that_is_not_known_is_unknown():
    second = node(2)
    second["netdevs"]["rdma1v0"]["mac"] = None
    (item,) = judge(a=node(1), b=second)
    assert (item["severity"], item["node"], item["rail"]) == ("unknown", "b", 1) and "rdma1v0" in item["summary"]


@pytest.mark.parametrize("part", ["devices", "netdevs"])
def test_a_node_that_cannot_be_read_does_not_hide_the_others(part):
    broken = {**node(4), part: None, "reasons": {part: "no /sys"}}
    items = judge(a=node(1), b=node(2, clone_of=1), c=broken)
    assert [(item["severity"], item["node"]) for item in items] == [("error", "a"), ("unknown", "c")]
    assert any("no /sys" in line for line in report_table.finding_lines(items))
