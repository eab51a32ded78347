# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules about the operator: each one on a faulty input and on its healthy twin."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import RULES

sys.path.insert(0, str(Path(__file__).parents[2] / "field_cases"))
import field_operator as field

PENDING = {
    "revision": 2,
    "status": "pending-upgrade",
    "updated": "2026-11-29T10:00:00Z",
    "description": "Preparing upgrade",
}
DEPLOYED = field.snapshot()["release"]["deployed"]
OTHER_TAINT = {"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}
DRIVER = field.daemon("mofed-ubuntu24.04", "mofed-container", selector={"kernel": "another"})
DRIVER["metadata"]["labels"] = {"nvidia.network-operator.state": "state-OFED"}
NFD = {"namespace": "nfd", "name": "nfd-worker", "release": None}
# id: (changes, what the summary must name, severity)
FAULTY = {
    "HELM-001": ({"release": {"latest": PENDING, "deployed": DEPLOYED}}, ("pending-upgrade", "revision 2"), "error"),
    "HELM-002": ({"config": {"spec": {"disablePlugins": []}}}, ("disablePlugins is []",), "error"),
    "HELM-003": ({"nfd": [NFD, {**NFD, "namespace": "gpu-operator"}]}, ("2 Node", "gpu-operator/nfd-worker"), "error"),
    "HELM-004": ({"crds": {field.KIND: field.crd(False), "x.example": None}}, (field.KIND, "x.example"), "error"),
    "HELM-005": ({"policies": [field.policy("notReady", state_multus_cni="notReady")]}, ("state-multus-cni",), "error"),
    "HELM-006": ({"nodes": [field.node("node-a", {}), field.node("node-b")]}, ("node-a", "pci-15b3.present"), "error"),
    "HELM-007": ({"daemon_sets": [field.multus(memory="50Mi")]}, ("50Mi",), "warning"),
    "RESOURCE-012": (
        {"nodes": [field.node("node-a"), field.node("node-b", taints=[OTHER_TAINT])]},
        ("amd.com/gpu", "node-b"),
        "error",
    ),
    "RESOURCE-013": (
        {"pods": [field.pod("m", "node-b", "OOMKilled", ready=False)]},
        ("kube-multus", "50Mi", "3 restarts"),
        "error",
    ),
}
OURS = sorted(name for name, rule in RULES.items() if rule.needs == ("operator",))


def test_the_healthy_operator_has_no_finding():
    assert field.judged() == []


def test_every_rule_about_the_operator_has_a_faulty_input():
    assert sorted(FAULTY) == OURS


@pytest.mark.parametrize("name", OURS)
def test_a_fault_is_found_once_and_nothing_else(name):
    changes, texts, severity = FAULTY[name]
    found = field.judged(**changes)
    assert [(row["id"], row["severity"]) for row in found] == [(name, severity)], found
    for text in texts:
        assert text in found[0]["summary"], found[0]
    assert found[0]["remedy"] and found[0]["evidence"]


PARTS = {"release": "HELM-001", "config": "HELM-002", "nfd": "HELM-003", "crds": "HELM-004", "policies": "HELM-005",
         "nodes": "HELM-006", "daemon_sets": "HELM-007", "pods": "RESOURCE-013"}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_what_could_not_be_read_is_unknown_and_says_why(part):
    found = field.judged(**{part: None, "reasons": {part: "HTTP status 403: forbidden"}})
    assert PARTS[part] in {row["id"] for row in found}
    assert {row["severity"] for row in found} == {"unknown"}
    assert all("forbidden" in row["summary"] for row in found)


@pytest.mark.parametrize(
    "changes",
    [
        {"network": "ipvlan", "config": None},
        {"release": {"latest": None, "deployed": None}},
        {"nfd": []},
        {"pods": [field.pod("m", "somewhere", "OOMKilled")]},
        {"nodes": [field.node("node-a"), field.node("node-b"), field.node("other", {})]},
        {"daemon_sets": [DRIVER]},
        {"daemon_sets": [field.multus(selector={"sriovnetwork.openshift.io/device-plugin": "Enabled"})]},
    ],
    ids=[
        "no SR-IOV",
        "not by Helm",
        "no NFD to be seen",
        "another node's pod",
        "a node without rails",
        "a driver of another system",
        "operator's own label",
    ],
)
def test_what_is_no_fault(changes):
    assert field.judged(**changes) == []


def test_a_container_that_came_back_is_a_warning():
    found = field.judged(pods=[field.pod("m", "node-a", "OOMKilled")])
    assert [(row["id"], row["severity"], row["node"]) for row in found] == [("RESOURCE-013", "warning", "node-a")]


def test_one_cause_on_many_nodes_is_one_finding():
    found = field.judged(nodes=[field.node("node-a", {}), field.node("node-b", {})])
    assert len(found) == 1 and found[0]["evidence"]["nodes"] == ["node-a", "node-b"]
