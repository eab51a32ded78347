# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.filter.verify_pods import verify_pods as filter_of_pods
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.test_pods import HOST_LABEL, LABEL
from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_model
from ansible_collections.railyard.rdma.plugins.plugin_utils.verify_pods import NETWORKS, pod_name, pods, shares
from hypothesis import given, settings
from hypothesis import strategies as st

NODES = [{"metadata": {"name": "10.0.0.1", "labels": {}}, "status": {"addresses": [{"address": "10.0.0.1"}]}}]
OPTIONS = {"image": "busybox", "command": ["sleep", "1"], "tolerations": [{"key": "nvidia.com/gpu"}]}
SRIOV = {"rails_network": "sriov", "rails_netns_mode": "shared"}


def layout(rails: int = 4, **intent) -> dict:
    """A layout of the rail model, made from an intent."""
    found = {
        "rails": [{"pci": f"0000:{0x10 + n:02x}:00.0", "netdev": f"rdma{n}"} for n in range(rails)],
        "rails_mtu": 4220, "rails_ip_family": "ipv4", "rails_traffic_class": 41, "rails_node_selector": {"rails": "yes"},
        "rails_networks_namespace": "rails", **SRIOV, **intent,
    }  # fmt: skip
    model, mistakes = rail_model.build({"gpu-1": found, "GPU_2.example": found})
    assert mistakes == []
    return model["layouts"][0]


def made(given_layout: dict | None = None, nodes=None, addresses=None, **options) -> list[dict]:
    nodes = NODES if nodes is None else nodes
    return pods({"layouts": [given_layout or layout()]}, nodes, addresses or {}, {**OPTIONS, **options})


def test_a_pod_carries_what_the_layout_says():
    first, second = made(addresses={"gpu-1": "10.0.0.1"})
    assert (first["host"], first["node"], first["part"], second["node"]) == ("gpu-1", "10.0.0.1", "", None)
    assert (first["rails"], first["count"]) == ([0, 1, 2, 3], 4)
    meta, spec = first["pod"]["metadata"], first["pod"]["spec"]
    assert (meta["name"], meta["namespace"]) == ("railyard-verify-gpu-1", "rails")
    assert meta["annotations"][NETWORKS] == "rdma-vf,rdma-vf,rdma-vf,rdma-vf"
    assert meta["labels"][LABEL] == "railyard-verify" and len(meta["labels"][HOST_LABEL]) == 16
    (container,) = spec["containers"]
    assert container["resources"] == {key: {"nvidia.com/rdma-vf": "4"} for key in ("requests", "limits")}
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms[0]["matchFields"][0]["values"] == ["10.0.0.1"]
    assert "hostNetwork" not in spec and "priorityClassName" not in spec and spec["activeDeadlineSeconds"] == 3600


def test_a_pod_has_no_privileges():
    security = made()[0]["pod"]["spec"]["containers"][0]["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "RuntimeDefault"},
        "capabilities": {"drop": ["ALL"]},
    }
    security = made(ipc_lock=True)[0]["pod"]["spec"]["containers"][0]["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    security = made(run_as_user=1000)[0]["pod"]["spec"]["containers"][0]["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 1000)


def test_what_else_a_pod_may_be_given():
    found = made(
        extra_resources={"nvidia.com/gpu": 8}, priority_class="low", pull_secrets=["pull"], prefix="railyard-bandwidth",
        deadline=7200,
    )[0]["pod"]  # fmt: skip
    (container,) = found["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/rdma-vf": "4", "nvidia.com/gpu": "8"}
    assert (found["spec"]["priorityClassName"], found["spec"]["activeDeadlineSeconds"]) == ("low", 7200)
    assert found["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert found["metadata"]["name"] == "railyard-bandwidth-gpu-1"
    assert found["metadata"]["labels"][LABEL] == "railyard-bandwidth"


def test_pods_of_the_host_network():
    found = made(layout(rails_network="host_network", rails_netns_mode="shared"), pods_per_node=2)
    assert [row["pod"]["spec"]["hostNetwork"] for row in found] == [True] * 4
    assert {tuple(row["rails"]) for row in found} == {(0, 1, 2, 3)}


def test_networks_are_named_with_their_namespace_from_another_one():
    found = made(namespace="railyard-verify")[0]["pod"]["metadata"]
    assert found["namespace"] == "railyard-verify"
    assert found["annotations"][NETWORKS].split(",")[0] == "rails/rdma-vf"
    assert made(namespace="rails")[0]["pod"]["metadata"]["annotations"][NETWORKS].startswith("rdma-vf,")


# The articles' cases: 2 VFs a PF serve two pods on every rail; with 1 VF each gets half of the node's. -------------------


def test_two_pods_get_every_rail_where_every_rail_has_two_vfs():
    found = made(layout(rails_vfs_per_pf=2), pods_per_node=2)
    assert [(row["host"], row["part"], row["rails"]) for row in found[:2]] == [
        ("gpu-1", "a", [0, 1, 2, 3]),
        ("gpu-1", "b", [0, 1, 2, 3]),
    ]
    assert found[0]["pod"]["metadata"]["annotations"][NETWORKS] == "rdma-vf-0,rdma-vf-1,rdma-vf-2,rdma-vf-3"
    assert found[0]["pod"]["metadata"]["name"] == "railyard-verify-gpu-1-a"


def test_two_pods_share_the_devices_of_one_resource():
    first, second, *_rest = made(pods_per_node=2)
    for row in (first, second):
        assert (row["rails"], row["count"]) == (None, 2)
        (container,) = row["pod"]["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/rdma-vf": "2"}
        assert row["pod"]["metadata"]["annotations"][NETWORKS] == "rdma-vf,rdma-vf"


def test_two_pods_divide_the_rails_where_each_has_a_resource_of_its_own():
    first, second, *_rest = made(layout(5, rails_resource_scope="rail"), pods_per_node=2)
    assert (first["rails"], second["rails"]) == ([0, 1], [2, 3, 4])
    (container,) = second["pod"]["spec"]["containers"]
    assert set(container["resources"]["limits"]) == {f"nvidia.com/rdma-vf-{n}" for n in (2, 3, 4)}
    assert second["pod"]["metadata"]["annotations"][NETWORKS] == "rdma-vf-2,rdma-vf-3,rdma-vf-4"


@settings(max_examples=50, deadline=None)
@given(
    rails=st.integers(1, 12), parts=st.integers(1, 4), vfs=st.integers(1, 3), scope=st.sampled_from(["node", "rail"])
)
def test_no_device_is_asked_for_twice_and_all_rails_have_a_pod(rails, parts, vfs, scope):
    given_layout = layout(rails, rails_vfs_per_pf=vfs, rails_resource_scope=scope)
    if rails < parts and vfs < parts:
        with pytest.raises(ValueError, match="rails to divide"):
            shares(given_layout, parts)
        return
    found = shares(given_layout, parts)
    assert len(found) == parts
    for row in given_layout["resources"]:
        assert sum(int(share["resources"].get(row["full_name"], 0)) for share in found) <= row["count"]
    assert sum(share["count"] for share in found) >= rails
    assert all(
        len(share["networks"]) == share["count"] == sum(map(int, share["resources"].values())) for share in found
    )


def test_names_are_labels_and_differ():
    hosts = ("gpu-1", "gpu.1", "GPU-1", "x" * 80, "x" * 81)
    names = [pod_name(host, part=part) for host in hosts for part in ("", "a", "b")]
    assert names[0] == "railyard-verify-gpu-1"
    assert len(set(names)) == 15
    assert all(len(n) <= 63 and n.replace("-", "").isalnum() and n == n.lower() for n in names)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("pods_per_node", 0), ("pods_per_node", "2"), ("pods_per_node", True), ("pods_per_node", 17), ("deadline", 0),
        ("run_as_user", -1), ("prefix", "Upper"), ("prefix", "x" * 31), ("prefix", "a/b"), ("command", []), ("image", " "),
        ("extra_resources", {"nvidia.com/gpu": "-1"}), ("no_such", 1),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_options_are_named(option, value):
    with pytest.raises(ValueError, match=option):
        made(**{option: value})


def test_the_filter_tells_a_wrong_option():
    model = {"layouts": [layout()], "hosts": {"gpu-1": "l"}}
    assert len(filter_of_pods(model, {}, NODES, "busybox")) == 2
    with pytest.raises(AnsibleFilterError, match="verify_pods: pods_per_node: got 9, but"):
        filter_of_pods(model, {}, NODES, "busybox", pods_per_node=9)
