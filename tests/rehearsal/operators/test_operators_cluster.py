# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scheduling, workload status, node objects and the network operator's view of its policy."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from rehearsal.operators.device_plugin import offers_of_plain_config
from rehearsal.operators.install import established, permissive_crd
from rehearsal.operators.inventory import Function, interface_status, nic_ids, parse, supported
from rehearsal.operators.kinds import IP_POOL
from rehearsal.operators.network_operator import (
    PARTS,
    container_resources,
    daemon_set,
    policy_status,
    rolled_out,
    wait_label,
)
from rehearsal.operators.nodes import node_object, status_patch, system_node_object
from rehearsal.operators.scheduler import choose, usage
from rehearsal.operators.selection import label_selector_matches, node_selector_matches, quantity, tolerated
from rehearsal.operators.workloads import daemon_set_status, deployment_status

SPEC = {
    "name": "gpu-1",
    "shape": "BM.GPU.B4.8",
    "address": "10.140.0.1",
    "nic": {"vendor": "15b3"},
    "rails": [{"gpu_pci": "0000:0f:00.0"}, {"gpu_pci": "0000:0f:00.0"}, {"gpu_pci": "0000:15:00.0"}],
}


def ready(node, up=True, **allocatable):
    status = {"conditions": [{"type": "Ready", "status": "True" if up else "Unknown"}]}
    return {**node, "status": {**status, "allocatable": {"cpu": "128", "pods": "110", **allocatable}}}


GPU = ready(node_object(SPEC), **{"nvidia.com/rdma-vf": "16"})
SYSTEM = ready(system_node_object("system-1"))
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def spec(amount=None, **more):
    resources = {"limits": {"nvidia.com/rdma-vf": amount}} if amount else {}
    return {"containers": [{"name": "c", "resources": resources}], **more}


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", "0.5"), ("256Mi", "268435456"), (16, "16"), ("1e3", "1000"), ("2k", "2000"), (None, "0")],
)
def test_quantities(text, value):
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "16 GB", "Mi", "1Kb"])
def test_texts_that_are_no_quantity(text):
    with pytest.raises(ValueError, match="quantity"):
        quantity(text)


def test_a_pod_goes_where_it_is_tolerated_and_fits():
    assert choose(spec(16, tolerations=[TOLERATION]), [GPU, SYSTEM], {}) == ("gpu-1", "")
    assert choose(spec(), [GPU, SYSTEM], {}) == ("system-1", "")


@pytest.mark.parametrize(
    ("pod", "node", "used", "reason"),
    [
        (spec(16), GPU, {}, "untolerated taint {nvidia.com/gpu: present}"),
        (spec(17, tolerations=[TOLERATION]), GPU, {}, "Insufficient nvidia.com/rdma-vf"),
        (spec(1, tolerations=[TOLERATION]), GPU, {"gpu-1": {"nvidia.com/rdma-vf": Decimal(16)}}, "Insufficient nvidia"),
        (spec(nodeSelector={"a": "b"}, tolerations=[TOLERATION]), GPU, {}, "didn't match Pod's node affinity/selector"),
        (spec(), ready(SYSTEM, up=False), {}, "not-ready"),
        (spec(), {**SYSTEM, "spec": {"unschedulable": True}}, {}, "node(s) were unschedulable"),
    ],
)
def test_why_a_pod_stays_pending(pod, node, used, reason):
    chosen, message = choose(pod, [node], used)
    assert chosen is None and message.startswith("0/1 nodes are available: 1 ") and reason in message


def test_finished_pods_use_nothing():
    pods = [
        {"spec": {"nodeName": "gpu-1", **spec(4)}, "status": {"phase": phase}} for phase in ("Running", "Succeeded")
    ]
    assert usage(pods)["gpu-1"]["nvidia.com/rdma-vf"] == 4


def test_selectors():
    labels = {"a": "1", "n": "5"}
    assert label_selector_matches({}, labels) and not label_selector_matches(None, labels)
    assert label_selector_matches({"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["4"]}]}, labels)
    assert not label_selector_matches(
        {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, labels
    )
    node = {"metadata": {"name": "x", "labels": labels}}
    term = {"matchExpressions": [{"key": "b", "operator": "Exists"}]}
    assert node_selector_matches(None, node) and not node_selector_matches({"nodeSelectorTerms": [term]}, node)
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
    assert node_selector_matches({"nodeSelectorTerms": [term, by_name]}, node)
    assert not node_selector_matches({"nodeSelectorTerms": [{}]}, node)
    assert not tolerated({"key": "amd.com/gpu", "effect": "NoSchedule"}, [TOLERATION])  # FC-43


def _workload(pod, **more):
    return {"metadata": {"name": "w", "generation": 2}, "spec": {"template": {"spec": pod}, **more}}


def test_workloads_follow_the_nodes():
    assert deployment_status(_workload(spec()), [GPU, SYSTEM])["availableReplicas"] == 1
    assert deployment_status(_workload(spec()), [GPU])["availableReplicas"] == 0
    daemon = _workload(spec(tolerations=[TOLERATION]))
    status = daemon_set_status(daemon, [GPU, SYSTEM, ready(system_node_object("s2"), up=False)])
    assert (status["desiredNumberScheduled"], status["numberAvailable"]) == (3, 2)


def test_a_part_without_nodes_is_never_ready():
    status = daemon_set_status(_workload(spec(nodeSelector={"a": "b"})), [GPU, SYSTEM])
    assert not rolled_out({**_workload(spec()), "status": status})
    status = daemon_set_status(_workload(spec()), [SYSTEM])
    assert rolled_out({**_workload(spec()), "status": status})
    assert not rolled_out({**_workload(spec()), "status": {**status, "observedGeneration": 1}})


def test_node_status_follows_the_machine():
    node = node_object(SPEC)
    change = status_patch(node, "10.140.0.1", 4711, "boot-1", "6.14", 2)["status"]
    assert change["conditions"][0]["status"] == "True" and change["nodeInfo"]["bootID"] == "boot-1"
    assert {"type": "ExternalDNS", "address": "127.0.0.1"} in change["addresses"]
    assert change["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 4711
    assert change["allocatable"]["nvidia.com/gpu"] == "2"
    node["status"] = change
    assert status_patch(node, "10.140.0.1", 4711, "boot-1", "6.14", 2) is None
    down = status_patch(node, "10.140.0.1", 4711, None, "6.14", 2)
    assert down["status"]["conditions"][0]["status"] == "Unknown" and "nodeInfo" not in down["status"]
    again = status_patch(node, "10.140.0.1", 4711, "boot-2", "6.14", 2)
    assert again["status"]["nodeInfo"]["bootID"] == "boot-2"


def test_the_label_that_lets_the_config_daemon_run():
    assert wait_label(GPU) == "false" and wait_label(SYSTEM) is None


def _policy(**section):
    return {"metadata": {"name": "nic-cluster-policy", "uid": "u", "generation": 3}, "spec": section}


def test_container_resources_are_replaced_as_a_whole():
    default = {"limits": {"memory": "50Mi"}}
    raised = {"name": "kube-multus", "limits": {"memory": "500Mi"}}
    assert container_resources({}, "kube-multus", default) == default
    assert container_resources({"containerResources": [raised]}, "kube-multus", default) == {
        "limits": {"memory": "500Mi"}
    }
    assert container_resources({"containerResources": [{**raised, "name": "multus"}]}, "kube-multus", default) == {}


def test_daemon_sets_of_a_policy_tolerate_gpus_and_what_is_asked():
    extra = {"key": "amd.com/gpu", "operator": "Exists"}
    policy = _policy(
        secondaryNetwork={"multus": {"image": "m", "repository": "r", "version": "v"}}, tolerations=[extra]
    )
    pod = daemon_set(policy, ("secondaryNetwork", "multus"), "ns")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "r/m:v" and extra in pod["tolerations"] and TOLERATION in pod["tolerations"]


def test_policy_status_has_conditions_of_this_generation():
    status = policy_status(_policy(nvIpam={}), {("nvIpam",): False})
    assert status["state"] == "notReady"
    assert {row["observedGeneration"] for row in status["conditions"]} == {3}
    assert {row["name"]: row["state"] for row in status["appliedStates"]}["state-nv-ipam-cni"] == "notReady"
    status = policy_status(_policy(nvIpam={}), {("nvIpam",): True})
    assert status["state"] == "ready"
    assert (
        sum(row["state"] == "ignore" for row in status["appliedStates"])
        == len(status["appliedStates"]) - 1
        >= len(PARTS)
    )


def test_crds_of_the_chart_are_open_and_those_of_nv_ipam_are_not_in_it():
    chart = Path(__file__).parents[3] / "rehearsal" / "charts" / "network-operator"
    paths = [*chart.glob("crds/*.yaml"), *chart.glob("charts/sriov-network-operator/crds/*.yaml")]
    names = [doc["metadata"]["name"] for path in paths for doc in yaml.safe_load_all(path.read_text())]
    assert len(names) == 13 and "sriovnetworks.sriovnetwork.openshift.io" in names
    crd = permissive_crd(IP_POOL, "ippool")
    assert crd["metadata"]["name"] == "ippools.nv-ipam.nvidia.com" and crd["metadata"]["name"] not in names
    assert not established(crd) and not established(None)


SYSFS = """0000:0c:00.0/vendor:0x15b3
0000:0c:00.0/device:0x1019
0000:0c:00.0/class:0x020000
0000:0c:00.0/sriov_totalvfs:127
0000:0c:00.0/sriov_numvfs:1
0000:0c:00.0/net/rdma0/mtu:4220
0000:0c:00.0/net/rdma0/address:0c:42:a1:00:01:00
0000:0c:00.0/net/rdma0/operstate:up
0000:0c:00.2/vendor:0x15b3
0000:0c:00.2/device:0x101a
0000:0c:00.2/class:0x020000
0000:0f:00.0/class:0x030200
0000:0c:00.0/infiniband/mlx5_5:
*/infiniband/*:
0000:0c:00.0/virtfn0:../0000:0c:00.2
0000:0c:00.2/physfn:../0000:0c:00.0
0000:0c:00.0/driver:../../../bus/pci/drivers/mlx5_core
"""


def test_inventory_of_a_node():
    table = parse(SYSFS)
    assert list(table) == ["0000:0c:00.0", "0000:0c:00.2"]  # the GPU is no network function
    pf = table["0000:0c:00.0"]
    assert (pf.vfs, pf.rdma, pf.driver, pf.mtu, pf.total_vfs) == ({0: "0000:0c:00.2"}, "mlx5_5", "mlx5_core", 4220, 127)
    listed = {"data": {"Nvidia_mlx5_ConnectX-5_Ex": "15b3 1019 101a"}}
    assert supported(table, nic_ids(listed)) == [pf]
    assert supported(table, nic_ids({"data": {"other": "8086 1572 154c"}})) == [] == supported(table, nic_ids(None))
    row = interface_status(pf, table)
    assert row["Vfs"] == [
        {"vfID": 0, "pciAddress": "0000:0c:00.2", "vendor": "15b3", "deviceID": "101a"}
    ]  # in a pod: no name
    assert "numVfs" not in interface_status(Function("0000:0c:00.0", num_vfs=0), {})


def test_a_plain_device_plugin_offers_pfs_without_vfs_and_never_those_with():
    functions = {
        "0000:0c:00.0": Function("0000:0c:00.0", "15b3", "1019", "020000", rdma="mlx5_5", netdev="rdma0"),
        "0000:0c:00.1": Function("0000:0c:00.1", "15b3", "1019", "020000", rdma="mlx5_6", vfs={0: "0000:0c:00.3"}),
        "0000:6b:00.0": Function("0000:6b:00.0", "15b3", "101d", "020000", rdma="mlx5_0", netdev="eth0"),
        "0000:0c:00.3": Function("0000:0c:00.3", "15b3", "101a", "020000", physfn="0000:0c:00.1"),
    }
    item = {"resourceName": "hostdev", "selectors": {"vendors": ["15b3"], "isRdma": True}}
    offers = offers_of_plain_config(json.dumps({"resourceList": [item]}), functions, set())
    assert offers == {"nvidia.com/hostdev": ["0000:0c:00.0", "0000:6b:00.0"]}  # vendor only: the front-end NIC too
    item = {**item, "resourcePrefix": "x", "selectors": [{"pfNames": ["rdma0"]}, {"rootDevices": ["0000:0c:00.1"]}]}
    offers = offers_of_plain_config(json.dumps({"resourceList": [item]}), functions, set())
    assert offers == {"x/hostdev": ["0000:0c:00.0", "0000:0c:00.3"]}
    with pytest.raises(ValueError, match="Expecting"):
        offers_of_plain_config("{resourceList: []}", functions, set())
