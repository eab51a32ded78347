# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node that the other field cases change: nothing is found on it."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import FieldNode, context, found, layout

INTENTS = {
    "sriov": {},
    "exclusive": {"netns_mode": "exclusive"},
    "ipvlan": {"network": "ipvlan"},
    "host_network": {"network": "host_network"},
    "host_device": {"network": "host_device"},
    "keep": {"netns_mode": "keep", "rdma_cni": False},
}


@pytest.mark.parametrize("name", INTENTS)
def test_a_healthy_node_has_no_finding(tmp_path, name):
    intent = layout(**INTENTS[name])
    mode = "exclusive" if name == "exclusive" else "shared"
    assert found(context(FieldNode(tmp_path, mode), intent)) == []


def test_two_healthy_nodes_do_not_differ(tmp_path):
    nodes = [FieldNode(tmp_path / name) for name in ("a", "b")]
    assert found(*(context(node, name=f"node-{place}") for place, node in enumerate(nodes))) == []
