# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NCCL test over one fleet: plain pods, an MPI job with variables that do not fit, and two MPI jobs at once; before
them a run that is killed while its pods run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nccl_fleet import HOSTS, RAILS, Cluster

from rehearsal.fleet import checks
from tests.rehearsal.site_support import ROOT

pytestmark = pytest.mark.fleet
VARIABLES = {"rdma_nccl_image": "registry.example/nccl-tests:1", "rdma_nccl_interval": 1}


PLACES = {
    **dict.fromkeys(("pods", "services", "configmaps", "secrets"), "/api/v1"),
    "mpijobs": "/apis/kubeflow.org/v2beta1",
}


def of_jobs(cluster, *kinds):
    """Names of what there is of jobs of ours, a killed run's too."""
    there = [item for kind in kinds for item in cluster.items(f"{PLACES[kind]}/namespaces/default/{kind}")]
    return [item["metadata"]["name"] for item in there if item["metadata"]["name"].startswith("railyard-nccl")]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """{run: {result, findings, judged}}, what was left in the cluster, and the output of the play."""
    lacking = checks.missing()
    if lacking:
        pytest.skip("; ".join(lacking))
    cluster = Cluster(tmp_path_factory.mktemp("nccl"))
    try:
        cluster.up()
        cluster.mpi_operator()
        playbooks = ROOT / "playbooks"
        cluster.play(playbooks / "install_operator.yml", playbooks / "apply_rails.yml")
        cluster.kill_when(lambda: of_jobs(cluster, "pods"), playbooks / "nccl.yml", **VARIABLES)
        assert of_jobs(cluster, "mpijobs"), "nothing was left for the next run to remove"
        # This one must not ask for MPIJobs, so it cannot remove what belongs to one.
        told = cluster.play(playbooks / "nccl.yml", code=2, rdma_nccl_mpi_operator="absent", **VARIABLES)
        assert "belong to an MPIJob of an earlier run" in " ".join(told.split()) and of_jobs(cluster, "mpijobs")
        text = cluster.play(Path(__file__).parent / "nccl.yml", nccl_folder=str(cluster.folder), **VARIABLES)
        left = of_jobs(cluster, *PLACES)
        runs = {
            name: json.loads((cluster.folder / f"{name}.json").read_text()) for name in ("plain", "fixed", "halves")
        }
        return runs, left, text
    finally:
        cluster.down()


def half(job):
    return job["sizes"][-1]["out_of_place"]


def test_plain_pods(outcome):
    run, text = outcome[0]["plain"], outcome[2]
    assert run["judged"] is True and run["findings"] == [], text[-6000:]
    (job,) = run["result"]["jobs"]
    assert (job["verdict"], job["gpus_per_node"], job["expected_gbs"]) == ("pass", 2, 25.0)
    assert 23.5 < half(job)["busbw"] < 24 and job["gdrdma"]["channels"] == job["gdrdma"]["with_gdrdma"] == 4
    assert sorted(pod["host"] for pod in job["pods"]) == list(HOSTS)
    for pod in job["pods"]:
        assert [(row["rail"], row["gid_index"]) for row in pod["rails"]] == [(0, 3), (1, 3)]
    assert {(row["gpu"], tuple(row["rails"])) for row in job["channels"]} == {
        ("0000:0f:00.0", (0,)),
        ("0000:15:00.0", (1,)),
    }
    assert "export NCCL_IB_GID_INDEX=3" in text and "export NCCL_IB_TC=41" in text


def test_an_mpi_job_with_variables_that_do_not_fit(outcome):
    run = outcome[0]["fixed"]
    (job,) = run["result"]["jobs"]
    found = {item["id"] for item in run["findings"]}
    # Index 1 is the row of a link-local address; the start of a name takes the devices of the node, too (shared mode).
    assert run["judged"] is False and job["verdict"] == "failed" and {"NCCL-002", "NCCL-008", "NCCL-009"} <= found
    assert job["errors"][0]["kind"] in ("unreachable", "gid")
    assert {item["name"] for item in job["advice"]["variables"]} >= {"NCCL_IB_GID_INDEX", "NCCL_IB_TC"}


def test_two_jobs_at_once_share_the_ports(outcome):
    run = outcome[0]["halves"]
    assert run["judged"] is True and run["findings"] == []
    jobs = run["result"]["jobs"]
    assert [(job["part"], job["verdict"], job["gpus_per_node"]) for job in jobs] == [("a", "pass", 1), ("b", "pass", 1)]
    # Each has all rails, and half of each port.
    assert [job["expected_gbs"] for job in jobs] == [12.5, 12.5]
    assert all(11.7 < half(job)["busbw"] < 12 for job in jobs)
    # A device belongs to a node: names repeat from one node to the other, and each job lists its pods in its own order.
    held = [(pod["host"], row["device"]) for job in jobs for pod in job["pods"] for row in pod["rails"]]
    assert len(held) == len(set(held)) == len(jobs) * len(HOSTS) * len(RAILS)


def test_nothing_is_left_after_a_killed_run_and_three_whole_ones(outcome):
    assert outcome[1] == []
