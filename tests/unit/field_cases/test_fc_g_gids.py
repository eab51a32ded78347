# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kind G: which GIDs are visible and usable on the node. What pods see of them is tested beside the pod facts."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import (
    BRIDGE,
    PCI,
    FieldNode,
    context,
    findings,
    found,
    layout,
    mapped,
    only,
)
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import four_rows

HOST = {"network": "host_network"}
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def node(tmp_path):
    return FieldNode(tmp_path)


def test_fc01_fc03_an_active_port_and_usable_gids_are_two_facts(node):
    """The row shows, its netdev is in another namespace: the port is ACTIVE and LinkUp all the same."""
    node.gids(0, {4: (mapped("198.51.100.9"), "RoCE v2", "net1")})
    item = only("GID-004", context(node, layout(**HOST)))
    assert (item["severity"], item["rail"]) == ("error", 0)
    assert item["evidence"]["state"] == "ACTIVE"
    assert item["evidence"]["gids"][0]["reason"] == "netdev net1 is not in this network namespace"


def test_fc02_usable_follows_from_sysfs_and_no_program_is_asked(node):
    """ibv_devinfo would print the GID: its query is not filtered."""
    node.gids(0, {3: (mapped("198.51.100.7"), None, None)})
    (row,) = only("GID-004", context(node, layout(**HOST)))["evidence"]["gids"]
    assert row["usable"] is False and "another network namespace" in row["reason"]
    code = [path for path in (ROOT / "plugins").rglob("*.py") if "run_command" in path.read_text(encoding="utf-8")]
    assert not [path for path in code if 'ibv_devinfo"' in path.read_text(encoding="utf-8")]


def test_fc03_a_port_that_is_down_is_told_apart_from_its_gids(node):
    node.write(f"{BRIDGE}/{PCI[1]}/infiniband/mlx5_1/ports/1/state", "1: DOWN")
    node.write(f"{BRIDGE}/{PCI[1]}/infiniband/mlx5_1/ports/1/phys_state", "3: Disabled")
    item = only("LINK-001", context(node))
    assert (item["severity"], item["rail"], item["evidence"]["phys_state"]) == ("error", 1, "Disabled")


def test_fc05_a_table_without_any_gid_is_a_finding_and_no_failure(node):
    node.gids(0, {})
    node.gids(1, {})
    item = only("GID-004", context(node, layout(**HOST)))
    assert item["rail"] is None and item["evidence"]["rails"] == [0, 1]
    assert item["evidence"]["each"][0]["gid_table"]["zero"] == 16


def test_with_vfs_the_rows_of_the_pf_are_a_hint_only(node):
    node.gids(0, {})
    assert found(context(node)) == [("GID-004", "info", 0)]


def test_a_table_that_cannot_be_read_is_unknown(node):
    for index in range(16):
        node.add(f"{BRIDGE}/{PCI[0]}/infiniband/mlx5_0/ports/1/gids/{index} ! EIO")
    assert found(context(node, layout(**HOST))) == [("GID-004", "unknown", 0)]


def test_the_healthy_twin_has_its_four_rows(node):
    node.gids(0, four_rows("rdma0", mapped("198.51.100.6")))
    assert findings(context(node, layout(**HOST))) == []
