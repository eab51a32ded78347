# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""playbooks/nccl.yml over one fleet: whole nodes, two jobs at once, without an MPI operator, and jobs that fail.

The fleet is first without an MPI operator, then with one; the tests run in this order.
"""

from __future__ import annotations

import json

import pytest
from nccl_fleet import HOSTS, RAILS, Cluster

from rehearsal.fleet import checks

pytestmark = pytest.mark.fleet
IMAGE = {"rdma_nccl_image": "registry.example/nccl-tests:1", "rdma_nccl_interval": 1}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    lacking = checks.missing()
    if lacking:
        pytest.skip("; ".join(lacking))
    found = Cluster(tmp_path_factory.mktemp("nccl"))
    try:
        found.up()
        for playbook in ("install_operator", "apply_rails"):
            code, text = found.play(f"playbooks/{playbook}.yml")
            assert code == 0, text[-6000:]
        yield found
    finally:
        found.down()


def run(cluster, **variables):
    """(exit code, result, findings, output) of the playbook."""
    path = cluster.folder / "result.json"
    path.unlink(missing_ok=True)
    code, text = cluster.play("tests/rehearsal/nccl/nccl.yml", nccl_file=str(path), **IMAGE, **variables)
    assert path.exists(), text[-8000:]
    told = json.loads(path.read_text())
    for kind in ("pods", "services", "configmaps", "secrets"):
        left = cluster.items(f"/api/v1/namespaces/default/{kind}")
        assert [item["metadata"]["name"] for item in left if item["metadata"]["name"].startswith("railyard-nccl")] == []
    return code, told["result"], told["findings"]["findings"], text


def half(job):
    return job["sizes"][-1]["out_of_place"]


def test_plain_pods_where_no_mpi_operator_is(cluster):
    code, result, findings, text = run(cluster, rdma_nccl_min_bytes="8G")
    assert code == 0 and findings == [], text[-6000:]
    (job,) = result["jobs"]
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


def test_an_mpi_job_and_variables_that_do_not_fit(cluster):
    cluster.mpi_operator()
    fixed = {"NCCL_IB_HCA": "mlx5_", "NCCL_IB_GID_INDEX": 1}
    code, result, findings, text = run(cluster, rdma_nccl_environment=fixed)
    (job,) = result["jobs"]
    found = {item["id"] for item in findings}
    # Index 1 is the row of a link-local address; the start of a name takes the devices of the node, too (shared mode).
    assert code == 2 and job["verdict"] == "failed" and {"NCCL-002", "NCCL-008", "NCCL-009"} <= found, text[-6000:]
    assert job["errors"][0]["kind"] in ("unreachable", "gid")


def test_two_jobs_at_once_share_the_ports(cluster):
    code, result, findings, text = run(cluster, rdma_nccl_jobs_per_node=2)
    assert code == 0 and findings == [], text[-6000:]
    assert [(job["part"], job["verdict"], job["gpus_per_node"]) for job in result["jobs"]] == [
        ("a", "pass", 1),
        ("b", "pass", 1),
    ]
    # Each has all rails, and half of each port.
    assert [job["expected_gbs"] for job in result["jobs"]] == [12.5] * 2
    assert all(11.7 < half(job)["busbw"] < 12 for job in result["jobs"])
    devices = [{row["device"] for row in job["pods"][0]["rails"]} for job in result["jobs"]]
    assert len(devices[0] | devices[1]) == 2 * len(RAILS)


def test_a_dry_run_asks_the_server_and_makes_nothing(cluster):
    path = cluster.folder / "dry.json"
    code, text = cluster.play("tests/rehearsal/nccl/nccl.yml", "--check", nccl_file=str(path), **IMAGE)
    assert code == 0, text[-6000:]
    assert "the job was not started" in text
    assert not any(item["metadata"]["name"].startswith("railyard-nccl") for item in cluster.items("/api/v1/pods"))
