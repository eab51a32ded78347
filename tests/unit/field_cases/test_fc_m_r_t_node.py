# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kinds M, R, P and T as far as the node itself shows them: locked memory, device files, firmware, topology."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.tests.unit.field_cases.field_node import (
    BRIDGE,
    GPU,
    PCI,
    UNIT,
    FieldNode,
    context,
    findings,
    found,
    layout,
    only,
)


@pytest.fixture
def node(tmp_path):
    return FieldNode(tmp_path)


def limit(node, soft, service="containerd"):
    node.write(UNIT.format(service), f"[Service]\nLimitMEMLOCK={soft}")


def crio(node, drop_in=None):
    """A node whose runtime is CRI-O with the limit of 8 MiB."""
    (node.root / UNIT.format("containerd").lstrip("/")).unlink()
    node.write("/etc/crio/crio.conf", '[crio]\n[crio.runtime]\nlog_level = "info"')
    limit(node, 8388608, "crio")
    if drop_in:
        node.write("/etc/crio/crio.conf.d/99-memlock.conf", drop_in)
    return node


@pytest.mark.parametrize(
    ("soft", "expected"),
    [
        (65536, [("MEMLOCK-001", "error", None)]),
        (8388608, [("MEMLOCK-001", "error", None)]),
        (1 << 40, [("MEMLOCK-001", "warning", None)]),
        ("infinity", []),
    ],
)
def test_fc63_fc65_what_containers_of_containerd_may_lock(node, soft, expected):
    limit(node, soft)
    assert found(context(node)) == expected


def test_fc63_crio_without_default_ulimits(node):
    item = only("MEMLOCK-001", context(crio(node)))
    assert item["severity"] == "error" and "8192 KiB" in item["summary"] and "default_ulimits" in item["remedy"]


def test_fc63_crio_with_default_ulimits_gives_containers_more_than_it_has_itself(node):
    drop_in = '[crio.runtime]\ndefault_ulimits = [\n    "memlock=-1:-1",\n]'
    assert found(context(crio(node, drop_in))) == []


def test_fc63_without_a_runtime_the_limit_is_unknown(node):
    (node.root / UNIT.format("containerd").lstrip("/")).unlink()
    assert found(context(node)) == [("MEMLOCK-001", "unknown", None)]


def test_fc41_device_files_that_the_plugin_looks_for(node):
    node.device_files = ["uverbs0", "uverbs1"]
    item = only("RESOURCE-004", context(node))
    assert item["severity"] == "error" and "rdma_ucm" in item["remedy"] and "ib_uverbs" not in item["remedy"]
    node.device_files = []
    assert "uverbs* and rdma_cm" in only("RESOURCE-004", context(node))["summary"]


def test_fc41_device_files_that_cannot_be_listed_are_unknown(node):
    node.device_files = None
    assert found(context(node)) == [("RESOURCE-004", "unknown", None)]


def test_fc74_cdi_files_from_before_the_reboot(node):
    node.stale_cdi = [{"path": "/var/run/cdi/nvidia.yaml", "missing": ["uverbs10"]}]
    item = only("RESOURCE-008", context(node))
    assert item["severity"] == "warning" and "/var/run/cdi/nvidia.yaml" in item["summary"]


def test_fc32_lockdown_is_told_and_firmware_that_is_right_does_not_need_to_change(node):
    node.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality")
    item = only("RESOURCE-005", context(node))
    assert item["severity"] == "info" and item["evidence"]["vfs_possible"] == {"0": 8, "1": 8}


def test_fc31_fc32_firmware_that_allows_fewer_vfs(node):
    node.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality")
    node.write(f"{BRIDGE}/{PCI[1]}/sriov_totalvfs", "1")
    items = {item["id"]: item for item in findings(context(node, layout(vfs_per_pf=2)))}
    assert set(items) == {"RESOURCE-005", "RESOURCE-006"}
    item = items["RESOURCE-006"]
    assert (item["severity"], item["rail"]) == ("error", 1)
    assert item["evidence"] == {"vfs_possible": 1, "wanted": 2, "lockdown": "integrity"}


def test_fc31_a_function_without_sriov(node):
    (node.root / f"{BRIDGE}/{PCI[0]}/sriov_totalvfs".lstrip("/")).unlink()
    assert found(context(node)) == [("RESOURCE-006", "error", 0)]
    assert found(context(node, layout(network="ipvlan"))) == [], "nobody wants VFs"


def test_fc35_vfs_that_something_else_should_have_made(node):
    intent = layout(externally_managed=True)
    assert found(context(node, intent)) == [("RESOURCE-007", "error", None)]
    for pci in PCI:
        node.write(f"{BRIDGE}/{pci}/sriov_numvfs", "1")
    assert found(context(node, intent)) == []


def test_fc70_a_gpu_of_the_same_numa_node_below_another_switch(tmp_path):
    class Apart(FieldNode):
        def function(self, pci, netdev=None, physfn=None, index=0):
            if pci != GPU:
                return super().function(pci, netdev, physfn, index)
            home = f"/sys/devices/pci0000:00/0000:00:03.1/{pci}"
            self.add(f"{home}/numa_node = 0\n/sys/bus/pci/devices/{pci} -> ../../..{home[len('/sys') :]}")
            return home

    item = only("TOPOLOGY-001", context(Apart(tmp_path)))
    assert (item["severity"], item["rail"]) == ("warning", None)
    assert [each["distance"] for each in item["evidence"]["each"]] == ["PHB", "PHB"]


def test_fc70_a_gpu_that_is_not_there(node):
    intent = layout(rails=[{"pci": pci, "netdev": f"rdma{n}", "gpu_pci": "0000:50:00.0"} for n, pci in enumerate(PCI)])
    item = only("TOPOLOGY-001", context(node, intent))
    assert "no GPU" in item["summary"] and item["evidence"]["each"][0]["gpus"][0]["distance"] == "PIX"


def test_fc70_rails_without_a_gpu_in_the_intent_are_not_judged(node):
    intent = layout(rails=[{"pci": pci, "netdev": f"rdma{number}"} for number, pci in enumerate(PCI)])
    assert found(context(node, intent)) == []
