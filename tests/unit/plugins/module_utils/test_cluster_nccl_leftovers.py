# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is left of NCCL jobs goes, in an order in which nobody makes it again; what cannot go is told."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import nccl_leftovers
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError
from ansible_collections.railyard.rdma.plugins.modules import nccl_remove
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.timed_api import TimedServer

MPI_JOB_OWNER = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "j", "uid": "j", "controller": True}
LIFETIME = {"apiVersion": "batch/v1", "kind": "Job", "name": "railyard-lifetime-x", "uid": "x"}


def obj(kind, name, owner=None, **meta):
    owners = [owner] if owner else []
    return {"kind": kind, "metadata": {"name": name, "namespace": "n", "uid": name, "ownerReferences": owners, **meta}}


class Server(TimedServer):
    """An API of jobs. Objects go at once, those named in ``slow`` after so many looks at their kind. An MPI operator
    makes the pods in ``late`` when its job has gone."""

    def __init__(self, *objects, mpi=True, slow=None, late=(), faults=()):
        self.objects = {o["metadata"]["uid"]: o for o in objects}
        super().__init__(faults)
        self.slow, self.late = dict(slow or {}), list(late)
        self.kinds = {"pods": "Pod", "services": "Service", "jobs": "Job", **({"mpijobs": "MPIJob"} if mpi else {})}
        self.deleted, self.listed = [], []

    def answer(self, method, path, query, body, content_type):
        if path in ("/api/v1", "/apis/kubeflow.org/v2beta1", "/apis/batch/v1"):
            return {"resources": [{"name": n, "kind": k, "namespaced": True} for n, k in self.kinds.items()]}
        words = path.split("/")
        if method == "GET":
            kind = self.kinds[words[-1]]
            assert ("labelSelector", "railyard.io/nccl") in query and words[-2] == "n"
            self.listed.append(kind)
            found = [o for o in self.objects.values() if o["kind"] == kind]
            self.look(kind)
            return {"items": [{"metadata": o["metadata"]} for o in found]}
        kind, name = self.kinds[words[-2]], words[-1]
        assert method == "DELETE" and body["propagationPolicy"] == "Background"
        self.deleted.append(f"{kind} {name}")
        if kind != "Job":
            self.delete(name, body["preconditions"]["uid"])
        return {}

    def look(self, kind):
        for uid, target in list(self.objects.items()):
            if target["kind"] == kind and "deletionTimestamp" in target["metadata"]:
                self.slow[uid] -= 1
                if self.slow[uid] <= 0:
                    self.objects.pop(uid)

    def delete(self, name, uid):
        if uid not in self.objects:
            raise ApiError(404, f"{name} not found")
        if uid in self.slow:
            self.objects[uid] = {**self.objects[uid]}
            self.objects[uid]["metadata"] = {**self.objects[uid]["metadata"], "deletionTimestamp": "now"}
            return
        gone = self.objects.pop(uid)
        if gone["kind"] == "MPIJob":
            self.objects.update({o["metadata"]["uid"]: o for o in self.late})

    def remove(self, mpi_operator=True, timeout=60):
        return nccl_leftovers.remove(self.api, ["n"], mpi_operator, timeout, clock=lambda: self.clock, pause=self.sleep)


def test_nothing_is_deleted_where_nothing_is():
    server = Server()
    assert server.remove() == ([], [], []) and server.deleted == [] and server.clock == 0


def test_the_job_goes_before_its_pods():
    server = Server(obj("Pod", "p"), obj("Service", "s"), obj("MPIJob", "j"))
    assert server.remove() == (["MPIJob n/j", "Pod n/p", "Service n/s"], [], [])
    assert server.deleted == ["MPIJob j", "Pod p", "Service s"] and server.objects == {}


def test_a_pod_that_the_operator_was_about_to_make_goes_too():
    server = Server(obj("MPIJob", "j"), late=[obj("Pod", "late", MPI_JOB_OWNER)])
    assert server.remove() == (["MPIJob n/j", "Pod n/late"], [], [])


def test_a_pod_that_takes_its_time_is_waited_for_and_deleted_once():
    server = Server(obj("Pod", "p"), slow={"p": 5})
    assert server.remove() == (["Pod n/p"], [], [])
    assert server.deleted == ["Pod p"] and 0 < server.clock < 60


def test_what_does_not_go_is_told_and_keeps_its_lifetime():
    server = Server(obj("Pod", "p", LIFETIME), obj("Pod", "q", LIFETIME), slow={"p": 1000})
    assert server.remove(timeout=30) == (["Pod n/q"], ["Pod n/p"], [])
    assert 30 <= server.clock < 34 and server.deleted == ["Pod p", "Pod q"]


def test_the_job_that_limits_their_life_goes_with_them():
    server = Server(obj("Pod", "p", LIFETIME), obj("Service", "s", LIFETIME))
    server.remove()
    assert server.deleted == ["Pod p", "Service s", "Job railyard-lifetime-x"]


def test_without_the_operator_no_mpi_job_is_asked_for_and_its_pods_stay():
    server = Server(obj("MPIJob", "j"), obj("Pod", "theirs", MPI_JOB_OWNER), obj("Pod", "ours", LIFETIME))
    assert server.remove(mpi_operator=False) == (["Pod n/ours"], [], ["Pod n/theirs"])
    assert "MPIJob" not in server.listed and server.objects.keys() == {"j", "theirs"}


def test_a_kind_that_is_not_served_has_no_objects():
    server = Server(obj("Pod", "p"), mpi=False)
    assert server.remove() == (["Pod n/p"], [], [])


def test_another_of_that_name_is_looked_at_again():
    server = Server(obj("Pod", "p"))
    delete, server.delete = server.delete, None

    def conflict(name, uid):
        server.delete = delete
        raise ApiError(409, "the UID in the precondition does not match", reason="Conflict")

    server.delete = conflict
    assert server.remove() == (["Pod n/p"], [], []) and server.deleted == ["Pod p", "Pod p"]


@pytest.mark.parametrize("status", [0, 403, 500], ids=str)
def test_a_refusal_ends_it(status):
    with pytest.raises(ApiError):
        Server(obj("Pod", "p"), faults=[ApiError(status, "no")]).remove()


@pytest.mark.parametrize("mpi_operator", [True, False], ids=["with", "without"])
def test_a_dry_run_tells_what_there_is_and_deletes_nothing(mpi_operator):
    server = Server(obj("Pod", "theirs", MPI_JOB_OWNER), obj("Pod", "ours"))
    params = {"namespaces": ["n", "n"], "mpi_operator": mpi_operator, "timeout": 60}
    removed, left, kept = nccl_remove.work(server.api, params, check_mode=True)
    assert sorted(removed + kept) == ["Pod n/ours", "Pod n/theirs"] and left == [] and server.deleted == []
    assert kept == ([] if mpi_operator else ["Pod n/theirs"])
