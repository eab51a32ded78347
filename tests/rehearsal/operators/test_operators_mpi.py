# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MPI operator's objects and conditions, mpirun's placement, and what ranks of NCCL reach together."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.debug import channel_counts, parse_debug
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.errors import find_errors
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.lines import lines_of
from ansible_collections.railyard.rdma.plugins.plugin_utils.nccl.output import parse_table

from rehearsal.operators import kinds, mpi_operator, nccl_world
from rehearsal.operators.mpirun import MpiError, parse, placed
from rehearsal.operators.scheduler import avoided, choose

TEMPLATE = {"metadata": {"labels": {"own": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def job(**spec):
    replicas = {
        "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": TEMPLATE},
        "Worker": {"replicas": 2, "restartPolicy": "Never", "template": TEMPLATE},
    }
    metadata = {"name": "job", "namespace": "n", "uid": "12345678-1"}
    policy = {"backoffLimit": 0, "cleanPodPolicy": "Running"}
    return {
        "metadata": metadata,
        "spec": {"slotsPerWorker": 8, "runPolicy": policy, "mpiReplicaSpecs": replicas, **spec},
    }


def test_a_job_becomes_service_host_file_keys_and_workers():
    made = mpi_operator.children(job())
    assert [kind.kind for kind, _obj in made] == ["Service", "ConfigMap", "Secret", "Pod", "Pod"]
    assert made[1][1]["data"]["hostfile"] == "job-worker-0.job.n.svc slots=8\njob-worker-1.job.n.svc slots=8\n"
    worker = made[3][1]
    assert (worker["spec"]["hostname"], worker["spec"]["subdomain"]) == ("job-worker-0", "job")
    assert worker["spec"]["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    assert worker["metadata"]["labels"]["own"] == "x" and worker["metadata"]["labels"][mpi_operator.ROLE] == "worker"
    launcher = mpi_operator.launcher_pod(job(), 0)
    mounts = [row["mountPath"] for row in launcher["spec"]["containers"][0]["volumeMounts"]]
    assert mounts == ["/root/.ssh", "/etc/mpi"]
    assert TEMPLATE["spec"] == {"containers": [{"name": "c", "image": "i"}]}


def pods(*phases):
    return [{"status": {"phase": phase, "reason": "r", "message": "m"}} for phase in phases]


@pytest.mark.parametrize(
    ("launchers", "workers", "wanted"),
    [
        ([], [], ["Created"]),
        (["Running"], ["Running", "Pending"], ["Created"]),
        (["Running"], ["Running", "Running"], ["Created", "Running"]),
        (["Succeeded"], ["Running", "Running"], ["Created", "Succeeded"]),
        (["Failed"], ["Running", "Running"], ["Created", "Failed"]),
    ],
    ids=["new", "starting", "running", "succeeded", "failed"],
)
def test_conditions(launchers, workers, wanted):
    status = mpi_operator.status_of(job(), pods(*launchers), pods(*workers))
    assert [row["type"] for row in status["conditions"]] == wanted
    assert ("completionTime" in status) == (wanted[-1] in mpi_operator.FINISHED)


def test_a_condition_keeps_its_time_and_running_ends_with_the_job():
    first = {**job(), "status": mpi_operator.status_of(job(), pods("Running"), pods("Running", "Running"))}
    first["status"]["conditions"][0]["lastTransitionTime"] = "before"
    status = mpi_operator.status_of(first, pods("Succeeded"), pods())
    assert [(row["type"], row["status"]) for row in status["conditions"]] == [
        ("Created", "True"), ("Succeeded", "True"), ("Running", "False")
    ]  # fmt: skip
    assert status["conditions"][0]["lastTransitionTime"] == "before"


HOSTS = "a slots=8\nb slots=8\n"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("-np 2 --map-by ppr:1:node x", [("a", 1), ("b", 1)]),
        ("--allow-run-as-root -np 16 -npernode 8 --mca coll ^hcoll -x A --bind-to numa x -y", [("a", 8), ("b", 8)]),
        ("x", [("a", 8), ("b", 8)]),
        ("-np 9 x", [("a", 8), ("b", 1)]),
    ],
    ids=["one-each", "article", "all", "fill"],
)
def test_mpirun_places_ranks(words, wanted):
    assert placed(parse(words.split(), HOSTS)) == wanted


@pytest.mark.parametrize(
    ("words", "text"),
    [("-np 17 x", "not enough slots"), ("--what x", "unknown option"), ("-np 2", "find anything to do")],
    ids=["slots", "option", "nothing"],
)
def test_mpirun_refuses(words, text):
    with pytest.raises(MpiError, match=text):
        placed(parse(words.split(), HOSTS))


def test_a_job_has_one_worker_a_node():
    term = {"labelSelector": {"matchLabels": {"job": "j"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def one(uid, node=None, **spec):
        metadata = {"uid": uid, "namespace": "n", "name": uid, "labels": {"job": "j"}}
        return {
            "metadata": metadata,
            "spec": {"containers": [], **({"nodeName": node} if node else {}), **spec},
            "status": {},
        }

    new = one("new", affinity=affinity)
    assert avoided(new, [new, one("old", "gpu-1"), one("waits")]) == {"gpu-1"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "10"}}
    nodes = [{"metadata": {"name": name}, "spec": {}, "status": ready} for name in ("gpu-1", "gpu-2")]
    assert choose(new["spec"], nodes, {}, {"gpu-1"}) == ("gpu-2", "")
    assert "anti-affinity" in choose(new["spec"], nodes, {}, {"gpu-1", "gpu-2"})[1]
    assert kinds.MPI_JOB.path("n", "job") == "/apis/kubeflow.org/v2beta1/namespaces/n/mpijobs/job"


ROOT = "/sys/devices/pci0000:00/0000:00:01.0"


def pod(number, cards=("0c", "16"), gpus=("0f", "15"), far=False, **device):
    """A worker with two cards of two ports, each below a switch with a GPU."""
    devices = []
    for place, card in enumerate(cards):
        for port in (0, 1):
            path = f"{'/sys/devices/pci0000:80' if far else ROOT}/0000:{place + 1:02x}:00.0/0000:{card}:00.{port}"
            traffic = {"rate": 100, "lossless": True, "limit": None, "filtered": False, "cut": False}
            row = {"name": f"mlx5_{len(devices)}", "path": path, "pf": f"0000:{card}:00.{port}", "index": 3}
            row |= {"gid": f"0000:0000:0000:0000:0000:ffff:c0a8:0{number}0{port}", "traffic": {**traffic, **device}}
            devices.append(row)
    argv = ["-b", "4G", "-e", "8G", "-f", "2", "-g", "1", "-c", "1"]
    ranks = []
    for place, gpu in enumerate(gpus):
        path = f"{ROOT}/0000:{place + 1:02x}:00.0/0000:{gpu}:00.0"
        env = {"NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_IB_HCA": "=x"}
        ranks.append({"gpu": f"0000:{gpu}:00.0", "gpu_path": path, "argv": argv, "env": env, "memlock": None})
    ranks[0]["devices"] = devices
    return nccl_world.Pod(f"worker-{number}", f"gpu-{number}", ranks, number * len(gpus))


def reach(*workers, sharing=None):
    code, lines = nccl_world.run(list(workers), sharing or {})
    return code, lines_of("\n".join(lines))


def test_healthy_ranks_reach_what_was_measured_and_say_how():
    code, lines = reach(pod(0), pod(1))
    sizes = parse_table(lines)["sizes"]
    assert code == 0 and [row["bytes"] for row in sizes] == [4 << 30, 8 << 30]
    # Four ports of 100 Gb/s: 95.3 % of 50 GB/s.
    assert 47.4 < sizes[-1]["out_of_place"]["busbw"] < 47.7
    said = parse_debug(lines)
    assert channel_counts(said["channels"]) == {"channels": 4, "with_gdrdma": 4}
    assert said["nics"]["worker-0"][4] == {
        "name": "mlx5_0+mlx5_1",
        "devices": ["mlx5_0", "mlx5_1"],
        "speed_mbps": 200000,
    }
    assert {(row["gpu"], row["nic"]) for row in said["channels"]} == {(0, 4), (1, 5)}
    assert find_errors(lines) == []


def test_two_jobs_on_the_same_ports_have_half():
    ports = {
        (f"gpu-{number}", f"0000:{card}:00.{port}"): 2 for number in (0, 1) for card in ("0c", "16") for port in (0, 1)
    }
    _code, lines = reach(pod(0), pod(1), sharing=ports)
    assert 23.6 < parse_table(lines)["sizes"][-1]["out_of_place"]["busbw"] < 23.9


def test_far_nics_have_no_gpudirect_rdma_and_slow_all_channels():
    _code, lines = reach(pod(0), pod(1, far=True))
    counts = channel_counts(parse_debug(lines)["channels"])
    assert counts == {"channels": 4, "with_gdrdma": 0} and parse_table(lines)["sizes"][-1]["out_of_place"]["busbw"] < 10


def test_a_lossy_priority_costs_with_few_queue_pairs():
    workers = [pod(0, lossless=False), pod(1, lossless=False)]
    assert parse_table(reach(*copy.deepcopy(workers))[1])["sizes"][-1]["out_of_place"]["busbw"] > 47
    for worker in workers:
        worker.ranks[0]["env"]["NCCL_IB_QPS_PER_CONNECTION"] = "1"
    assert parse_table(reach(*workers)[1])["sizes"][-1]["out_of_place"]["busbw"] < 28


def test_a_pod_without_devices_falls_back_to_sockets():
    bare = pod(1)
    bare.ranks[0]["devices"] = []
    code, lines = reach(pod(0), bare)
    assert code == 0 and parse_debug(lines)["networks"] == ["Socket"]
    assert parse_debug(lines)["no_device"] == ["worker-1"]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"traffic": None, "error": "No such device", "errno": 19}, "gid"),
        ({"gid": "fe80:0000:0000:0000:0000:0000:0000:0001"}, "unreachable"),
        ({"filtered": True}, "completion"),
        ({"cut": True}, "unreachable"),
    ],
    ids=["hidden", "link-local", "filtered", "cut"],
)
def test_what_cannot_be_connected_ends_the_job_with_its_cause(change, kind):
    broken = pod(0)
    device = broken.devices[1]
    for key, value in change.items():
        if value is None:
            device.pop(key)
        elif key in ("filtered", "cut"):
            device["traffic"][key] = value
        else:
            device[key] = value
    code, lines = reach(broken, pod(1))
    errors = find_errors(lines)
    assert code == 3 and errors[0]["kind"] == kind, errors
    assert parse_table(lines)["sizes"] == []


def test_memory_that_cannot_be_locked_ends_the_job():
    broken = pod(0)
    broken.ranks[0]["memlock"] = False
    code, lines = reach(broken, pod(1))
    assert code == 3 and find_errors(lines)[0]["kind"] == "memlock"
