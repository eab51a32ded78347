# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kinds H and R: Helm, kinds, labels, and the daemons of the operator; and the driver of the firmware's VFs (31)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.operator import crds, nfd, operands
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_operator

sys.path.insert(0, str(Path(__file__).parent))
import field_operator as field

MODEL = {"layouts": [{"network": "sriov"}], "operator": {"resource_prefix": "nvidia.com"}}
AMD = {"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}
GPU_ONLY = [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def test_fc31_the_plugin_that_writes_the_firmware_is_off_and_it_is_checked():
    """With it, numVfs above the firmware's number means a change of firmware and a reboot."""
    sriov = rail_operator.helm_values(MODEL)["sriov-network-operator"]["sriovOperatorConfig"]
    assert sriov["disablePlugins"] == ["mellanox"]
    on = {"spec": {"disablePlugins": [], "configurationMode": "daemon"}}
    assert [row["id"] for row in field.judged(config=on)] == ["HELM-002"]
    assert field.judged() == []


@pytest.mark.parametrize("ready, severity", [(False, "error"), (True, "warning")], ids=["down", "came back"])
def test_fc42_a_killed_multus_is_told_with_its_limit(ready, severity):
    found = field.judged(pods=[field.pod("kube-multus-ds-abc", "node-a", "OOMKilled", ready=ready)])
    assert [(row["id"], row["severity"]) for row in found] == [("RESOURCE-013", severity)]
    assert found[0]["evidence"]["containers"][0]["limit"] == "50Mi"


def test_fc42_the_policy_raises_the_limit_and_it_must_stick():
    values, mistakes = rail_operator.check({})
    assert mistakes == []
    asked = {"name": "kube-multus", **values["network_operator_multus_resources"]}
    section = {"image": "multus-cni", "containerResources": [asked]}
    policy = {"spec": {"secondaryNetwork": {"multus": section}}}
    has = field.multus(memory="512Mi")
    has["spec"]["template"]["spec"]["containers"][0]["resources"] = {k: asked[k] for k in ("requests", "limits")}
    assert operands.resources_pending(policy, [has]) == []
    # What the next look of the operator has taken back, and a name that matches no container.
    assert "limits.memory" in operands.resources_pending(policy, [field.multus(memory="50Mi")])[-1]["reason"]
    section["containerResources"] = [{**asked, "name": "multus"}]
    assert "no container is named" in operands.resources_pending(policy, [has])[0]["reason"]


def test_fc43_every_daemon_is_checked_against_the_taints_of_the_nodes():
    daemons = [field.multus(tolerations=GPU_ONLY), field.config_daemon()]
    found = field.judged(nodes=[field.node("node-a", taints=[AMD]), field.node("node-b")], daemon_sets=daemons)
    assert [(row["id"], row["node"]) for row in found] == [("RESOURCE-012", "node-a")]
    assert found[0]["evidence"] == {"daemon_sets": ["kube-multus-ds"], "taints": ["amd.com/gpu=present:NoSchedule"]}
    both = [field.multus(tolerations=[*GPU_ONLY, {"key": "amd.com/gpu", "operator": "Exists"}]), field.config_daemon()]
    assert field.judged(nodes=[field.node("node-a", taints=[AMD]), field.node("node-b")], daemon_sets=both) == []


def test_fc66_the_rule_is_left_out_or_its_kind_comes_first():
    bare = nfd.look([], [], [], "op/network-operator")
    assert nfd.rules(None, False, bare) == (False, [])
    document = {"metadata": {"name": nfd.RULE_CRD}, "spec": {"versions": [{"name": "v1alpha1"}]}}
    rows, mistakes = crds.plan([{"name": nfd.RULE_CRD, "document": document}], {nfd.RULE_CRD: None})
    assert ([row["action"] for row in rows], mistakes) == (["create"], [])
    served = nfd.look([], [nfd.RULE_CRD], [], "op/network-operator")
    assert nfd.rules(None, False, served) == (None, [])


def test_fc67_a_chart_alone_does_nothing():
    found = field.judged(policies=[])
    assert [row["id"] for row in found] == ["HELM-005"] and "does not exist" in found[0]["summary"]
    assert field.judged() == []


@pytest.mark.parametrize(
    "key", ["feature.node.kubernetes.io/pci-0200_15b3.present", "feature.node.kubernetes.io/pci-0207_15b3.present"]
)
def test_fc68_the_other_form_of_the_label_is_printed(key):
    found = field.judged(nodes=[field.node("node-a", {key: "true"}), field.node("node-b")])
    assert [(row["id"], row["node"]) for row in found] == [("HELM-006", "node-a")]
    assert f"{key}=true" in found[0]["summary"] and operands.CONFIG_DAEMON in found[0]["summary"]
    assert nfd.nic_labels({key: "true", "feature.node.kubernetes.io/pci-10de.present": "true"}) == {key: "true"}


@pytest.mark.parametrize("live", [None, field.crd(False)], ids=["absent", "not established"])
def test_fc69_a_kind_is_waited_for(live):
    wanted = {"crds": [field.KIND], "config": None, "policy": None}
    assert len(operands.pending(field.snapshot(crds={field.KIND: live}), wanted)) == 1
    assert operands.pending(field.snapshot(), wanted) == []
    assert [row["id"] for row in field.judged(crds={field.KIND: live})] == ["HELM-004"]


def test_fc68_one_missing_label_is_one_finding_for_all_daemons():
    plugin = field.daemon("network-operator-sriov-device-plugin", "kube-sriovdp", selector=field.LABELS)
    found = field.judged(
        nodes=[field.node("node-a", {}), field.node("node-b")], daemon_sets=[plugin, field.config_daemon()]
    )
    assert [row["id"] for row in found] == ["HELM-006"]
    assert found[0]["evidence"]["daemon_sets"] == ["network-operator-sriov-device-plugin", operands.CONFIG_DAEMON]
