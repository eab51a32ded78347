# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects that go by themselves when nobody removes them: rail_objects with a lifetime."""

from __future__ import annotations

import time

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import lifetime
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError
from ansible_collections.railyard.rdma.plugins.modules import rail_objects

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


WANTED = [config_map("first"), config_map("second")]


def there(cluster):
    items = cluster.api().list_items("/api/v1/namespaces/default/configmaps")
    return sorted({item["metadata"]["name"] for item in items} & {"first", "second"})


def jobs(cluster):
    return [job for job in cluster.api().list_items(JOBS) if lifetime.LABEL in (job["metadata"].get("labels") or {})]


@pytest.fixture(autouse=True)
def _nothing_left(cluster, capsys):
    yield
    cluster.run(capsys, rail_objects, objects=WANTED, state="absent")
    assert (there(cluster), jobs(cluster)) == ([], [])


def test_one_job_owns_them_and_takes_them_along(cluster, capsys):
    made = cluster.run(capsys, rail_objects, objects=WANTED, lifetime=100)
    assert made["counts"]["created"] == 2 and there(cluster) == ["first", "second"]
    (job,) = jobs(cluster)
    assert (job["spec"]["parallelism"], job["spec"]["activeDeadlineSeconds"]) == (0, 100)
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
    cluster.api().request("DELETE", f"{JOBS}/{job['metadata']['name']}", body=body)
    deadline = time.monotonic() + 20
    while there(cluster):
        assert time.monotonic() < deadline, "the owner is gone, and they stay"
        time.sleep(0.02)


def test_the_job_goes_with_them(cluster, capsys):
    cluster.run(capsys, rail_objects, objects=WANTED[:1], lifetime=100)
    cluster.run(capsys, rail_objects, objects=WANTED[1:], lifetime=100)
    assert len(jobs(cluster)) == 2
    gone = cluster.run(capsys, rail_objects, objects=WANTED, state="absent", wait_gone=20)
    assert gone["counts"]["deleted"] == 2 and jobs(cluster) == []


def test_without_a_lifetime_there_is_no_job(cluster, capsys):
    cluster.run(capsys, rail_objects, objects=WANTED)
    assert there(cluster) == ["first", "second"] and jobs(cluster) == []


def test_a_dry_run_makes_none(cluster, capsys):
    result = cluster.run(capsys, rail_objects, check=True, objects=WANTED, lifetime=100)
    assert result["counts"]["created"] == 2 and (there(cluster), jobs(cluster)) == ([], [])


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "everywhere"}}
KIND = {"api_version": "nv-ipam.nvidia.com/v1alpha1", "kind": "IPPool"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"objects": [NAMESPACE], "lifetime": 10}, "lifetime: Namespace everywhere has no namespace"),
        ({"objects": WANTED, "lifetime": -1}, "lifetime: got -1, must be seconds"),
        ({"objects": WANTED, "lifetime": 10, "prune": [KIND]}, "lifetime: prune is for objects that stay"),
    ],
    ids=["cluster-scoped", "negative", "prune"],
)
def test_what_cannot_have_one_is_refused(cluster, capsys, options, text):
    result = cluster.run(capsys, rail_objects, **options)
    assert result["failed"] and text in result["msg"]


@pytest.mark.parametrize("broken", [{"kind": "Unknown"}, {"data": {"key": 1}}], ids=["kind", "content"])
def test_where_nothing_could_be_made_the_job_goes(cluster, capsys, broken):
    result = cluster.run(capsys, rail_objects, objects=[{**config_map("first"), **broken}], lifetime=100)
    assert result["failed"] and jobs(cluster) == []


def test_where_a_part_was_made_the_job_stays_with_it(cluster, capsys):
    objects = [config_map("first"), {**config_map("second"), "data": {"key": 1}}]
    result = cluster.run(capsys, rail_objects, objects=objects, lifetime=100)
    assert result["failed"] and there(cluster) == ["first"] and len(jobs(cluster)) == 1


def test_who_may_not_make_jobs_is_told(cluster):
    send = cluster.api()._transport

    def transport(method, path, *rest):
        if (method, path) == ("POST", JOBS):
            raise ApiError(403, "jobs.batch is forbidden", "Forbidden")
        return send(method, path, *rest)

    owned, owners, told = lifetime.limit(Api(transport), WANTED, 10)
    assert (owned, owners) == (WANTED, []) and "namespace default would stay if it were killed" in told[0]


def test_jobs_of_others_are_not_ours():
    ours = {"apiVersion": "batch/v1", "kind": "Job", "name": "railyard-lifetime-x", "uid": "1"}
    others = [
        {**ours, "uid": "2", "controller": True},
        {**ours, "uid": "3", "name": "their-job"},
        {**ours, "uid": "4", "kind": "MPIJob"},
    ]
    pods = [
        {"metadata": {"namespace": "a", "ownerReferences": [*others, ours]}},
        {"metadata": {"namespace": "a", "ownerReferences": [ours]}},
        {"metadata": {"namespace": "b"}},
    ]
    assert lifetime.owners_of(pods) == [("a", ours)]


def test_the_job_names_an_image_that_the_cluster_has_to_allow():
    deep = {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"image": "mine:1"}]}}}}}}
    assert lifetime._image({"kind": "MPIJob", **deep}) == "mine:1"
    assert lifetime._image({"kind": "Service", "spec": {}}) is None
