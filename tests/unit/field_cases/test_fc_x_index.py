# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kind X: GID indexes, and which row to use."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.gid import best_gid_index, gid_row
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import usable_rails
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import Context
from ansible_collections.railyard.rdma.tests.unit.field_cases import field_pod
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import (
    PCI,
    FieldNode,
    address,
    context,
    findings,
    found,
    layout,
    mapped,
    only,
)
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import LINK_LOCAL, four_rows

HOST = {"network": "host_network"}
PLACEHOLDER, ROUTED = "fd01:0:0:100::7", "2001:db8:0:a1:2aa:ff:fe00:107"
LONG = {
    PLACEHOLDER: "fd01:0000:0000:0100:0000:0000:0000:0007",
    ROUTED: "2001:0db8:0000:00a1:02aa:00ff:fe00:0107",
}


@pytest.fixture
def node(tmp_path):
    return FieldNode(tmp_path)


def test_fc07_einval_rows_are_not_ours_and_the_scan_goes_on(node):
    """Rows 0 to 3 are zero and their types answer EINVAL; 4 to 7 are good."""
    node.gids(0, four_rows("rdma0", mapped("198.51.100.6"), first=4))
    facts = node.facts()
    assert facts["rails"][0]["gid_index"] == 7
    assert found(context(facts)) == [("GID-005", "info", 0)]


def test_fc08_link_local_rows_do_not_reach_other_nodes(node):
    node.gids(0, {0: (LINK_LOCAL, "IB/RoCE v1", "rdma0"), 1: (LINK_LOCAL, "RoCE v2", "rdma0")})
    item = only("GID-003", context(node, layout(**HOST)))
    assert (item["severity"], item["rail"]) == ("error", 0)
    assert [row["scope"] for row in item["evidence"]["gids"]] == ["link_local", "link_local"]
    assert node.facts()["rails"][0]["gid_index"] is None


def test_fc08_the_row_of_the_address_is_chosen(node):
    assert node.facts()["rails"][0]["gid_index"] == 3
    assert found(context(node, layout(**HOST))) == []


def test_fc08_children_of_a_rail_without_advertisements_have_none_either(node):
    node.gids(1, {1: (LINK_LOCAL, "RoCE v2", "rdma1")})
    intent = layout(network="ipvlan", ip_family="ipv6_slaac")
    assert ("GID-003", "warning", 1) in found(context(node, intent))


def test_fc09_an_index_that_moved_between_two_runs_is_told(node):
    before = node.facts()
    rows = four_rows("rdma0", mapped("198.51.100.6"), first=5)
    node.gids(0, {**rows, 3: (LINK_LOCAL, "RoCE v2", "rdma0")})
    items = {item["id"]: item for item in findings(context(node, before=before))}
    assert set(items) == {"GID-005", "GID-006"}
    item = items["GID-006"]
    assert item["summary"] == "The index of 198.51.100.6 moved 3 -> 8 on rail 0 (rdma0)"
    (moved,) = item["evidence"]["moved"]
    assert moved["at_the_old_index"].startswith("fe80"), "what a fixed index would use now"
    assert item["evidence"]["gathered_before"] == before["gathered_at"]


def test_fc09_the_same_table_and_an_address_that_is_gone_have_not_moved(node):
    before = node.facts()
    assert found(context(node, before=before)) == []
    node.gids(0, four_rows("rdma0", mapped("198.51.100.77")))
    assert found(context(node, before=before)) == []


def test_fc10_the_first_usable_row_of_a_bonded_device_is_the_thirteenth(tmp_path):
    class Bonded(FieldNode):
        def rail(self, number, pci, netdev=None, device=None):
            super().rail(number, pci, netdev, "mlx5_bond_0" if number == 0 else device)

    node = Bonded(tmp_path)
    port = f"/sys/devices/pci0000:00/0000:00:01.1/{PCI[0]}/infiniband/mlx5_bond_0/ports/1"
    for index in range(12):
        node.write(f"{port}/gids/{index}", mapped(f"203.0.113.{index + 30}"))
        for name in ("types", "ndevs"):
            (node.root / f"{port}/gid_attrs/{name}/{index}".lstrip("/")).unlink(missing_ok=True)
            node.add(f"{port}/gid_attrs/{name}/{index} ! EINVAL")
    for index, kind in ((12, "IB/RoCE v1"), (13, "RoCE v2")):
        node.write(f"{port}/gids/{index}", mapped("203.0.113.22"))
        for name, text in (("types", kind), ("ndevs", "rdma0")):
            node.errors.pop(f"{node.root}{port}/gid_attrs/{name}/{index}", None)
            node.write(f"{port}/gid_attrs/{name}/{index}", text)
    item = only("GID-005", context(node))
    assert (item["evidence"]["gid_index"], item["evidence"]["first_usable"]) == (13, 12)
    assert len(item["evidence"]["before"]) == 12


def row(index: int, text: str, netdev: str = "net1") -> dict:
    return gid_row(index, LONG.get(text) or mapped(text), "RoCE v2", netdev, {"eth0", netdev})


def pod(rows: list[dict], *addresses: dict) -> dict:
    """A pod with an IPvlan child of rail 0 of these GID rows and addresses; the other rails' children are not there."""
    traffic_class = {"state": "unset", "value": None, "rules": []}
    port = {"gids": rows, "gid_table": {"length": 16, "zero": 8}, "traffic_class": traffic_class}
    return {
        "name": "trainer-0",
        "running": True,
        "reachable": True,
        "reason": None,
        "netns_mode": "shared",
        "networks": [{"name": "default/rdma-ipvlan-0", "interface": "net1"}],
        "devices": {"mlx5_4": {"pci": PCI[0], "netdev": None, "ports": {"1": port}}},
        "netdevs": {
            "eth0": {"pci": None},
            "net1": {"pci": None, "mtu": 4220, "addresses": list(addresses), "sysctls": field_pod.SYSCTLS},
        },
        "addresses_unknown": [],
        **field_pod.process("mlx5_4"),
    }


def ipvlan(**changes) -> dict:
    intent = layout(network="ipvlan", rails=[{"pci": PCI[0], "netdev": "rdma0"}], **changes)
    return {**intent, "rails": [{**intent["rails"][0], "network": "rdma-ipvlan-0"}]}


def pod_findings(*contexts: Context) -> list[tuple]:
    return [(item["id"], item["severity"], item["rail"]) for item in evaluate(contexts, ["pod"])]


def test_fc06_two_pods_of_a_job_have_other_indexes():
    contexts = [
        Context(name, ipvlan(), pod=pod([row(index, text)], address(f"{text}/24")))
        for name, index, text in (("node-a", 5, "192.0.2.11"), ("node-b", 7, "192.0.2.12"))
    ]
    items = [item for item in evaluate(contexts, ["pod"]) if item["id"] == "GID-007"]
    assert [item["evidence"]["indexes"] for item in items] == [{"5": ["node-a rail 0"], "7": ["node-b rail 0"]}]
    assert "unset" in items[0]["remedy"]
    same = [
        Context(one.node, one.layout, pod=pod([row(5, "192.0.2.11")], address("192.0.2.11/24"))) for one in contexts
    ]
    assert pod_findings(*same) == []


def test_fc11_the_placeholder_is_not_the_row_to_use():
    """Both addresses look global; only the advertised one is routed."""
    rows = [row(5, PLACEHOLDER), row(9, ROUTED)]
    addresses = [address(f"{PLACEHOLDER}/112"), address(f"{ROUTED}/64", dynamic=True)]
    given = Context("node-a", ipvlan(ip_family="ipv6_slaac"), pod=pod(rows, *addresses))
    (item,) = evaluate([given], ["pod"])
    assert (item["id"], item["severity"]) == ("GID-008", "info")
    assert "NCCL_IB_GID_INDEX=9 and UCX_IB_GID_INDEX=9" in item["remedy"]
    assert usable_rails(given) == {0: 9}, "what the table of a run shows"


def test_fc11_a_placeholder_alone_is_no_address():
    given = pod([row(5, PLACEHOLDER)], address(f"{PLACEHOLDER}/112"))
    alone = Context("node-a", ipvlan(ip_family="ipv6_slaac"), pod=given)
    assert (pod_findings(alone), usable_rails(alone)) == ([("GID-008", "error", 0)], {0: None})
    routed = pod([row(9, ROUTED)], address(f"{ROUTED}/64"))
    assert pod_findings(Context("node-a", ipvlan(ip_family="ipv6_slaac"), pod=routed)) == []


def test_fc12_the_index_comes_from_the_table_and_not_from_the_kind_of_network():
    """A moved VF has its address at 3; an IPvlan child of a device whose host rows come first has it at 7."""
    text = "2001:db8:0:a1:2aa:0:100:1"
    gid = "2001:0db8:0000:00a1:02aa:0000:0100:0001"
    moved = [gid_row(3, gid, "RoCE v2", "net1", {"net1"})]
    hidden = [gid_row(index, "0000:0000:0000:0000:0000:0000:0000:0000", None, None, {"net1"}) for index in range(4)]
    child = [*hidden, gid_row(7, gid, "RoCE v2", "net1", {"net1"})]
    assert (best_gid_index(moved, text), best_gid_index(child, text)) == (3, 7)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"pci": PCI[0]}, None),
        ({"pci": PCI[1]}, ("error", "net1 is a child of rail 1 (mlx5_4)")),
        ({"pci": "0000:9d:00.0"}, ("error", "net1 is a child of a NIC that is no rail (mlx5_4)")),
        # A child of a VF of the rail is fine.
        ({"pci": "0000:0c:00.2", "parent_pci": PCI[0]}, None),
        ({"pci": None}, ("unknown", "The PCI address of mlx5_4, which has the GIDs of net1, is not known")),
    ],
)
def test_fc53_the_device_that_has_the_childs_rows_must_be_the_rails(device, expected):
    """Kind L, told by the table that the child's rows are in."""
    intent = layout(network="ipvlan")
    names = ["rdma-ipvlan-0", "rdma-ipvlan-1"]
    intent = {**intent, "rails": [{**rail, "network": name} for rail, name in zip(intent["rails"], names, strict=True)]}
    given = pod([row(5, "192.0.2.11")], address("192.0.2.11/24"))
    given["devices"]["mlx5_4"].update(device)
    items = [item for item in evaluate([Context("node-a", intent, pod=given)], ["pod"]) if item["id"] == "CNI-003"]
    assert [(item["severity"], item["summary"]) for item in items] == ([] if expected is None else [expected])
    assert [item["rail"] for item in items] == [0] * len(items)
