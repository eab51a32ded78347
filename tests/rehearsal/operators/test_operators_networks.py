# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SriovNetwork rendering, the networks annotation, and what Multus makes of both."""

from __future__ import annotations

import json

import pytest

from rehearsal.operators.kubelet import AdmissionError, allocate_devices, attachments
from rehearsal.operators.networks import NetworkError, parse_networks, render_nad

TUNING = '{ "type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_ignore": "1"} }'


def network(namespace="nvidia-network-operator", **spec):
    base = {
        "resourceName": "rdma-vf",
        "networkNamespace": "default",
        "ipam": '{ "type": "nv-ipam",\n "poolName": "sriov-pool" }',
    }
    return {"metadata": {"name": "rdma-vf", "namespace": namespace}, "spec": {**base, **spec}}


def render(**spec):
    return render_nad(network(**spec), "nvidia.com", "nvidia-network-operator")


def test_the_attachment_of_a_network():
    nad = render(metaPlugins=TUNING + ',\n{"type": "sbr", "addSourceHints": true}\n')
    assert nad["metadata"]["namespace"] == "default"
    assert nad["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"] == "nvidia.com/rdma-vf"
    config = json.loads(nad["spec"]["config"])
    assert (config["cniVersion"], config["name"]) == ("1.0.0", "rdma-vf")
    assert [plugin["type"] for plugin in config["plugins"]] == ["sriov", "tuning", "sbr"]
    assert config["plugins"][0]["ipam"] == {"type": "nv-ipam", "poolName": "sriov-pool"}


def test_network_namespace_counts_in_the_operators_namespace_only():
    nad = render_nad(network(namespace="team"), "nvidia.com", "nvidia-network-operator")
    assert nad["metadata"]["namespace"] == "team"


@pytest.mark.parametrize("wrong", ["{'type': 'rdma'}", '[{"type": "rdma"}]', '{"type": "rdma"', '{"type":"rdma"},'])
def test_meta_plugins_that_are_no_objects_in_a_row(wrong):
    with pytest.raises(NetworkError):
        render(metaPlugins=wrong)


def test_ipam_loses_white_space_even_inside_strings():
    assert json.loads(render(ipam='{"type": "nv ipam"}')["spec"]["config"])["plugins"][0]["ipam"]["type"] == "nvipam"


def test_both_forms_of_the_annotation():
    rows = parse_networks("rdma-vf, other/rdma-vf-1@rail1,rdma-vf", "default")
    assert [(row["namespace"], row["name"], row["interface"]) for row in rows] == [
        ("default", "rdma-vf", "net1"),
        ("other", "rdma-vf-1", "rail1"),
        ("default", "rdma-vf", "net3"),
    ]
    assert parse_networks('[{"name": "a", "interface": "x", "ips": ["10.0.0.1"]}]', "default")[0]["ips"] == ["10.0.0.1"]
    assert parse_networks("", "default") == [] and parse_networks(None, "default") == []


@pytest.mark.parametrize("wrong", ["a,,b", "/a", "a/", "[{]", '[{"namespace": "x"}]'])
def test_annotations_that_follow_no_form(wrong):
    with pytest.raises(NetworkError):
        parse_networks(wrong, "default")


def pod(text):
    return {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u",
            "annotations": {"k8s.v1.cni.cncf.io/networks": text},
        }
    }


def test_devices_go_to_the_networks_of_their_resource_in_order():
    rows = attachments(
        pod("a,a,a"), lambda space, name: render(), {"nvidia.com/rdma-vf": ["0000:0c:00.2", "0000:0c:00.3"]}
    )
    assert [row["device"] for row in rows] == ["0000:0c:00.2", "0000:0c:00.3", None]


def test_a_network_with_another_prefix_gets_no_device():  # FC-40
    nad = render_nad(network(), "openshift.io", "nvidia-network-operator")
    assert attachments(pod("a"), lambda space, name: nad, {"nvidia.com/rdma-vf": ["0000:0c:00.2"]})[0]["device"] is None


def test_a_missing_network_is_told_by_name():
    with pytest.raises(
        NetworkError, match=r"cannot find a network-attachment-definition \(a\) in namespace \(default\)"
    ):
        attachments(pod("a"), lambda space, name: None, {})


def test_devices_come_in_no_order_but_each_once():
    offers = {"nvidia.com/rdma-vf": [f"0000:0c:00.{i}" for i in range(8)] + [f"0000:0d:00.{i}" for i in range(8)]}
    one = allocate_devices({"nvidia.com/rdma-vf": 8, "cpu": 4}, offers, set(), "pod-1")["nvidia.com/rdma-vf"]
    two = allocate_devices({"nvidia.com/rdma-vf": 8}, offers, set(one), "pod-2")["nvidia.com/rdma-vf"]
    assert sorted(one + two) == sorted(offers["nvidia.com/rdma-vf"])
    assert one != sorted(one)
    with pytest.raises(AdmissionError, match="Requested: 1, Available: 0"):
        allocate_devices({"nvidia.com/rdma-vf": 1}, offers, {*one, *two}, "pod-3")
