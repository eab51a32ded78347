# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The jobs of a model, and the environment with its reasons."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.filter.nccl_jobs import nccl_jobs
from ansible_collections.railyard.rdma.plugins.filter.nccl_result import nccl_result
from ansible_collections.railyard.rdma.plugins.filter.nccl_workers import nccl_workers
from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl import environment, jobs
from ansible_collections.railyard.rdma.tests.unit.plugins.plugin_utils.nccl_samples import (
    HOSTS,
    OPTIONS,
    model,
    node,
    plan,
)
from hypothesis import given
from hypothesis import strategies as st


def container(template):
    return template["spec"]["containers"][0]


def env_of(template):
    return {row["name"]: row["value"] for row in container(template)["env"]}


def test_an_mpi_job_takes_all_gpus_and_rails_of_its_hosts():
    _model, (job,) = plan()
    (obj,) = job["objects"]
    replicas = obj["spec"]["mpiReplicaSpecs"]
    assert (obj["apiVersion"], obj["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert obj["spec"]["slotsPerWorker"] == 8 and replicas["Worker"]["replicas"] == 2
    assert container(replicas["Worker"]["template"])["resources"]["limits"] == {
        "nvidia.com/rdma-vf": "16",
        "nvidia.com/gpu": "8",
    }
    networks = replicas["Worker"]["template"]["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"]
    assert networks.count("rdma-vf") == 16
    terms = replicas["Worker"]["template"]["spec"]["affinity"]["nodeAffinity"]
    values = [term["matchFields"][0]["values"] for term in next(iter(terms.values()))["nodeSelectorTerms"]]
    assert values == [["gpu-1"], ["gpu-2"]]  # a field selector takes one value
    launcher = env_of(replicas["Launcher"]["template"])
    assert launcher["RAILYARD_INTERFACES"].split() == [f"net{number}" for number in range(1, 17)]
    assert launcher["NCCL_IB_TC"] == "41" and launcher["NCCL_IB_QPS_PER_CONNECTION"] == "4"
    assert "NCCL_IB_GID_INDEX" not in launcher and "NCCL_IB_HCA" not in launcher  # found out in each pod
    assert "privileged" not in str(obj) and "IPC_LOCK" not in str(obj)


def test_without_an_operator_there_are_a_service_a_launcher_and_workers_that_get_its_key():
    _model, (job,) = plan(mpi_operator=False)
    assert [obj["kind"] for obj in job["objects"]] == ["Service", "Pod"]
    workers = jobs.with_key(job["workers"], "ssh-ed25519 AAAA")
    names = [pod["metadata"]["name"] for pod in workers]
    assert names == jobs.worker_names(job) and all(pod["spec"]["hostname"] in names for pod in workers)
    assert {env_of(pod)["RAILYARD_KEY"] for pod in workers} == {"ssh-ed25519 AAAA"}
    assert env_of(job["objects"][1])["RAILYARD_HOSTS"].split() == [f"{name}.{job['name']}" for name in names]
    assert "RAILYARD_KEY" not in env_of(job["workers"][0])  # the plan itself stays as it was


@pytest.mark.parametrize(
    ("rails", "count", "resources", "shared"),
    [
        ({}, 8, {"nvidia.com/rdma-vf": "8"}, False),
        ({"rails_vfs_per_pf": 2}, 16, {f"nvidia.com/rdma-vf-{number}": "1" for number in range(16)}, True),
    ],
    ids=["one-vf", "two-vfs"],
)
def test_two_jobs_a_node_divide_gpus_and_have_all_rails_where_there_are_vfs(rails, count, resources, shared):
    _model, planned = plan(rails, jobs_per_node=2)
    assert [job["part"] for job in planned] == ["a", "b"] and len({job["name"] for job in planned}) == 2
    for job in planned:
        worker = job["objects"][0]["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
        assert container(worker)["resources"]["limits"] == {**resources, "nvidia.com/gpu": "4"}
        assert (job["rails_per_node"], job["shares_ports"]) == (count, shared)
        apart = worker["spec"]["affinity"]["podAntiAffinity"]
        (term,) = apart["requiredDuringSchedulingIgnoredDuringExecution"]
        labels = term["labelSelector"]["matchLabels"]  # a job has one worker a node, wherever its launcher is
        assert labels.items() <= worker["metadata"]["labels"].items()
        launcher = job["objects"][0]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["metadata"]["labels"]
        assert not labels.items() <= launcher.items()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hosts": ("gpu-1",)}, "the cluster has no node for gpu-2"),
        ({"gpus": "1", "jobs_per_node": 2}, "too few for 2 jobs"),
        ({"rails": {"rails_network": "host_network"}, "jobs_per_node": 2}, "cannot divide"),
    ],
    ids=["no-node", "one-gpu", "host-network"],
)
def test_a_job_that_cannot_be_says_why(arguments, text):
    _model, planned = plan(**arguments)
    assert all(text in job["reason"] and job["objects"] == [] for job in planned)


def test_the_catalogue_tells_the_gpus_where_nodes_do_not():
    _model, (job,) = plan(gpus="")
    assert job["gpus_per_node"] == 8
    _model, (job,) = plan(gpus="", rails={"rails_network": "host_network"})
    worker = job["objects"][0]["spec"]["mpiReplicaSpecs"]
    assert worker["Worker"]["template"]["spec"]["hostNetwork"] is True
    launcher = env_of(worker["Launcher"]["template"])
    assert launcher["RAILYARD_INTERFACES"].startswith("0000:0c:00.0 ") and "NCCL_SOCKET_IFNAME" not in launcher
    # Port 22 of the host is the node's own.
    assert launcher["RAILYARD_SSH_PORT"] == env_of(worker["Worker"]["template"])["RAILYARD_SSH_PORT"] == "2222"


def test_a_single_host_uses_no_rail():
    found = model()
    found["layouts"][0]["hosts"] = ["gpu-1"]
    (job,) = jobs.plan(found, [node("gpu-1")], {}, catalogue.load(), OPTIONS)
    assert "only host" in job["reason"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"image": ""}, "rdma_nccl_image: got ''"),
        ({"image": None}, "rdma_nccl_image: got None"),
        ({"jobs_per_node": 3}, "rdma_nccl_jobs_per_node: got 3, must be 1 or 2"),
        ({"iterations": 0}, "rdma_nccl_iterations: got 0"),
        ({"gpus": 65}, "rdma_nccl_gpus: got 65"),
        ({"min_bytes": "8X"}, "rdma_nccl_min_bytes: got '8X', must be a size"),
        ({"min_bytes": "9G"}, "must be at most rdma_nccl_max_bytes"),
        ({"mpi_arguments": ["--x; rm"]}, "rdma_nccl_mpi_arguments"),
        ({"programs": ["$(x)"]}, "rdma_nccl_programs"),
        ({"environment": {"A B": 1}}, "got the name 'A B'"),
        ({"environment": {"A": "x;y"}}, "rdma_nccl_environment.A: got 'x;y'"),
        ({"environment": {"A": None}}, "rdma_nccl_environment.A: got None"),
    ],
    ids=str,
)
def test_wrong_options_are_refused_with_what_is_allowed(options, text):
    with pytest.raises(ValueError, match="rdma_nccl") as error:
        jobs.plan(model(), [], {}, catalogue.load(), {**OPTIONS, **options})
    assert text in str(error.value)


@given(st.text(max_size=80), st.sampled_from(["", "a", "b"]))
def test_names_are_dns_labels_with_room_for_what_the_operator_adds(layout, part):
    name = jobs.job_name(layout, part)
    assert len(f"{name}-launcher-abcde") <= 63 and name.strip("-") == name
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert name != jobs.job_name(layout + "x", part)


def pod(name, *rows):
    return {"pod": name, "rails": [{"device": device, "gid_index": index} for device, index in rows]}


def advice(*pods, **extra):
    found = model()
    return environment.recommend(found["layouts"][0], catalogue.get("BM.GPU.B4.8"), list(pods), extra)


def values(found):
    return {row["name"]: row["value"] for row in found["variables"]}


def test_what_fits_all_pods_is_set_with_an_exact_match():
    found = advice(pod("a", ("mlx5_18", 3), ("mlx5_19", 3)), pod("b", ("mlx5_18", 3), ("mlx5_19", 3)))
    told = values(found)
    assert told["NCCL_IB_HCA"] == "=mlx5_18,mlx5_19" and told["UCX_NET_DEVICES"] == "mlx5_18:1,mlx5_19:1"
    assert told["NCCL_IB_GID_INDEX"] == told["UCX_IB_GID_INDEX"] == "3"
    assert told["NCCL_IB_TC"] == told["UCX_IB_TRAFFIC_CLASS"] == "41" and told["NCCL_SOCKET_IFNAME"] == "eth0"
    place = found["lines"].index("export NCCL_IB_HCA==mlx5_18,mlx5_19")
    assert found["lines"][place - 1].startswith("# the value starts with '='")
    assert all(row["reason"] for row in found["variables"]) and found["left_out"] == []


def test_what_differs_is_left_out_with_the_pods_that_differ():
    found = advice(pod("a", ("mlx5_18", 5), ("mlx5_19", 7)), pod("b", ("mlx5_20", 5)))
    left = {row["name"]: row["reason"] for row in found["left_out"]}
    assert {"NCCL_IB_HCA", "UCX_NET_DEVICES", "NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX"} == set(left)
    assert "a has mlx5_18,mlx5_19, b has mlx5_20" in left["NCCL_IB_HCA"]
    assert "5 in a, b; 7 in a" in left["NCCL_IB_GID_INDEX"]
    assert "paste -sd, -" in found["lines"][-1]


def test_without_pods_nothing_is_guessed_and_what_a_test_forced_is_no_advice():
    found = advice(NCCL_IB_GID_INDEX=9, NCCL_DEBUG="WARN", NCCL_IB_TIMEOUT=20)
    left = {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "UCX_NET_DEVICES", "UCX_IB_GID_INDEX"}
    assert {row["name"] for row in found["left_out"]} == left
    assert values(found)["NCCL_IB_TIMEOUT"] == "20" and values(found)["NCCL_DEBUG"] == "WARN"
    forced = environment.fixed(model()["layouts"][0], None, {"NCCL_IB_GID_INDEX": 9})
    assert {"NCCL_IB_GID_INDEX", "NCCL_IB_TC"} <= {row["name"] for row in forced}


def test_the_index_of_the_catalogue_is_that_of_hosts_and_does_not_count():
    names = {row["name"] for row in environment.fixed(model()["layouts"][0], catalogue.get("BM.GPU.B4.8"))}
    assert "NCCL_IB_GID_INDEX" not in names and {"NCCL_IB_TIMEOUT", "NCCL_IB_SL"} <= names


def test_the_filters_refuse_with_their_names():
    hostvars = {host: {} for host in HOSTS}
    nodes = [node(host) for host in HOSTS]
    assert len(nccl_jobs(model(), hostvars, nodes, **OPTIONS)) == 1
    with pytest.raises(AnsibleFilterError, match="nccl_jobs: rdma_nccl_image: got ''"):
        nccl_jobs(model(), hostvars, nodes, image="")
    with pytest.raises(AnsibleFilterError, match="nccl_jobs: imege: no such option"):
        nccl_jobs(model(), hostvars, nodes, imege="x")
    with pytest.raises(AnsibleFilterError, match="nccl_workers: key: got None"):
        nccl_workers({"workers": []}, None)
    with pytest.raises(AnsibleFilterError, match="must be numbers"):
        nccl_result([], {}, model(), hostvars, ratio="much")
    assert nccl_result([], {}, model(), hostvars)["jobs"] == []
