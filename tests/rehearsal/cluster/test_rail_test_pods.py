# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Test pods over the API alone: leftovers of killed runs, Pod Security levels, a namespace that comes and goes."""

from __future__ import annotations

import itertools
import time

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import test_pods as life
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import PartialFailure
from ansible_collections.railyard.rdma.plugins.modules import rail_test_pods
from ansible_collections.railyard.rdma.plugins.plugin_utils.verify_pods import pods

NETWORKS = "k8s.v1.cni.cncf.io/networks"
LAYOUT = {
    "name": "b4",
    "hosts": ["gpu-1", "gpu-2"],
    "namespaces": {"networks": "default"},
    "rails": [{"rail": number, "network": "rdma-vf"} for number in range(4)],
    "resources": [{"full_name": "nvidia.com/rdma-vf", "count": 4, "rails": [0, 1, 2, 3]}],
    "pod": {
        "namespace": "default",
        "annotations": {NETWORKS: "rdma-vf,rdma-vf,rdma-vf,rdma-vf"},
        "resources": {"nvidia.com/rdma-vf": "4"},
        "host_network": False,
    },
}
NUMBERS = itertools.count()


def made(hosts=("gpu-1", "gpu-2"), **options) -> list[dict]:
    layout = {**LAYOUT, "hosts": list(hosts)}
    return [row["pod"] for row in pods({"layouts": [layout]}, [], {}, {"image": "busybox", **options})]


def named(cluster, namespace="default") -> list[str]:
    items = cluster.api().list_items(f"/api/v1/namespaces/{namespace}/pods")
    return sorted(item["metadata"]["name"] for item in items if life.LABEL in (item["metadata"].get("labels") or {}))


def jobs(cluster, namespace="default") -> list[dict]:
    return cluster.api().list_items(f"/apis/batch/v1/namespaces/{namespace}/jobs")


def time_is_over(cluster, namespace="default") -> None:
    """What the cluster does with Jobs that own test pods when their time is over: it deletes them in the foreground."""
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
    for job in jobs(cluster, namespace):
        cluster.api().request(
            "DELETE", f"/apis/batch/v1/namespaces/{namespace}/jobs/{job['metadata']['name']}", body=body
        )
    deadline = time.monotonic() + 20
    while jobs(cluster, namespace) or named(cluster, namespace):
        assert time.monotonic() < deadline, "something stays"
        time.sleep(0.02)


def namespace(cluster, level=None, **labels) -> str:
    """A namespace of somebody else."""
    name = f"theirs-{next(NUMBERS)}"
    labels = {**labels, **({life.ENFORCE: level} if level else {})}
    cluster.api().request("POST", "/api/v1/namespaces", body={"metadata": {"name": name, "labels": labels}})
    return name


@pytest.fixture(autouse=True)
def _nothing_left(cluster):
    yield
    for name in named(cluster):
        cluster.api().request("DELETE", f"/api/v1/namespaces/default/pods/{name}")
    time_is_over(cluster)


def test_pods_come_and_go(cluster, capsys):
    wanted = made()
    result = cluster.run(capsys, rail_test_pods, pods=wanted)
    assert (result["changed"], result["removed"], result["level"]) == (True, [], "baseline")
    assert named(cluster) == ["railyard-verify-gpu-1", "railyard-verify-gpu-2"]
    (job,) = jobs(cluster)
    # As long as the pods may run, and before that to start.
    assert (job["spec"]["parallelism"], job["spec"]["activeDeadlineSeconds"]) == (0, 3600 + 300)
    assert job["spec"]["ttlSecondsAfterFinished"] == 0
    gone = cluster.run(capsys, rail_test_pods, pods=wanted, state="absent")
    assert gone["removed"] == ["default/railyard-verify-gpu-1", "default/railyard-verify-gpu-2"]
    again = cluster.run(capsys, rail_test_pods, pods=wanted, state="absent")
    assert (again["changed"], again["removed"], named(cluster)) == (False, [], [])
    assert jobs(cluster) == []


def test_what_a_killed_run_left_goes_whatever_it_is_called(cluster, capsys):
    """Two pods a node before, one now; hosts of another run and pods of another purpose stay."""
    cluster.run(capsys, rail_test_pods, pods=made(pods_per_node=2))
    cluster.run(capsys, rail_test_pods, pods=made(["gpu-3"]))
    cluster.run(capsys, rail_test_pods, pods=made(prefix="railyard-bandwidth"))
    result = cluster.run(capsys, rail_test_pods, pods=made())
    assert result["removed"] == [f"default/railyard-verify-gpu-{n}-{part}" for n in (1, 2) for part in "ab"]
    assert named(cluster) == [
        "railyard-bandwidth-gpu-1",
        "railyard-bandwidth-gpu-2",
        "railyard-verify-gpu-1",
        "railyard-verify-gpu-2",
        "railyard-verify-gpu-3",
    ]


def test_pods_of_a_run_on_more_hosts_stay_there(cluster, capsys):
    """The other run may still work. Only the pods on the hosts of both go, as each host has one run's pods at most."""
    cluster.run(capsys, rail_test_pods, pods=made(["gpu-1", "gpu-2"]))
    cluster.run(capsys, rail_test_pods, pods=made(["gpu-1"]))
    assert named(cluster) == ["railyard-verify-gpu-1", "railyard-verify-gpu-2"] and len(jobs(cluster)) == 2
    cluster.run(capsys, rail_test_pods, pods=made(["gpu-1"]), state="absent")
    assert named(cluster) == ["railyard-verify-gpu-2"] and len(jobs(cluster)) == 1
    cluster.run(capsys, rail_test_pods, pods=made(["gpu-1", "gpu-2"]), state="absent")
    assert (named(cluster), jobs(cluster)) == ([], [])


class Killed(Exception):
    """The run ends here, as by SIGKILL: nobody catches it."""


def interrupted(cluster, number):
    """An Api whose request ``number`` is never sent."""
    send, counter = cluster.api()._transport, itertools.count()

    def transport(*request):
        if next(counter) == number:
            raise Killed
        return send(*request)

    return Api(transport)


@pytest.mark.parametrize("own", [False, True], ids=["networks namespace", "own namespace"])
def test_a_run_that_is_killed_anywhere_leaves_nothing_after_the_next_one(cluster, own):
    where = f"mine-{next(NUMBERS)}" if own else ""
    wanted = made(namespace=where, pods_per_node=2)
    for number in itertools.count():
        api = interrupted(cluster, number)
        try:
            life.make(api, wanted, own, 20)
            life.take_away(api, wanted, 20)
            break
        except Killed:
            pass
        if number % 2:
            # No run follows.
            time_is_over(cluster, where or "default")
            continue
        life.make(cluster.api(), made(namespace=where), own, 20)
        life.take_away(cluster.api(), made(namespace=where), 20)
        assert named(cluster, where or "default") == []
        assert cluster.api().find(f"/api/v1/namespaces/{where}") is None if own else True
    assert number > 8


def test_a_namespace_of_their_own_comes_and_goes_with_its_level(cluster, capsys):
    wanted = made(namespace="railyard-verify", ipc_lock=True)
    refused = cluster.run(capsys, rail_test_pods, pods=wanted)
    assert refused["failed"] and "Namespace railyard-verify of the test pods does not exist" in refused["msg"]
    result = cluster.run(capsys, rail_test_pods, pods=wanted, make_namespace=True)
    assert result["level"] == "privileged"
    found = cluster.api().get("/api/v1/namespaces/railyard-verify")
    assert found["metadata"]["labels"][life.ENFORCE] == "privileged"
    assert wanted[0]["metadata"]["annotations"][NETWORKS].startswith("default/rdma-vf,")
    cluster.run(capsys, rail_test_pods, pods=wanted, state="absent")
    assert cluster.api().find("/api/v1/namespaces/railyard-verify") is None


@pytest.mark.parametrize(
    ("level", "options", "why"),
    [
        ("baseline", {"ipc_lock": True}, "enforces the Pod Security level baseline, and the test pods need privileged"),
        ("restricted", {}, "need baseline because of a process that may be root"),
        ("restricted", {"run_as_user": 1000}, None),
        ("baseline", {}, None),
        ("privileged", {"ipc_lock": True}, None),
        (None, {"ipc_lock": True}, None),
        ("no-level", {"ipc_lock": True}, None),
    ],
    ids=str,
)
def test_the_level_of_a_foreign_namespace_is_read_and_never_changed(cluster, capsys, level, options, why):
    """FC-64: the pods would be refused at admission."""
    where = namespace(cluster, level)
    before = cluster.api().get(f"/api/v1/namespaces/{where}")["metadata"]["labels"]
    wanted = made(namespace=where, **options)
    result = cluster.run(capsys, rail_test_pods, pods=wanted, make_namespace=True)
    assert bool(result.get("failed")) == (why is not None)
    if why:
        assert why in result["msg"] and where in result["msg"]
        assert named(cluster, where) == []
    cluster.run(capsys, rail_test_pods, pods=wanted, state="absent")
    after = cluster.api().get(f"/api/v1/namespaces/{where}")["metadata"]["labels"]
    assert after == before, "it is somebody else's, so it stays as it is"


def test_our_own_namespace_gets_the_level_that_is_needed_now(cluster, capsys):
    wanted = made(namespace="grown")
    cluster.run(capsys, rail_test_pods, pods=wanted, make_namespace=True)
    cluster.run(capsys, rail_test_pods, pods=made(namespace="grown", ipc_lock=True), make_namespace=True)
    assert cluster.api().get("/api/v1/namespaces/grown")["metadata"]["labels"][life.ENFORCE] == "privileged"
    cluster.run(capsys, rail_test_pods, pods=wanted, state="absent")


@pytest.mark.parametrize("status", [403, 422], ids=["no right", "a policy refuses it"])
def test_without_the_job_the_pods_run_all_the_same(cluster, status):
    told = life.make(refusing(cluster, status, "POST", "/jobs"), made(["gpu-1"]), False, 20)
    assert len(told["unknown"]) == 1 and "would stay if it were killed" in told["unknown"][0]
    assert named(cluster) == ["railyard-verify-gpu-1"] and jobs(cluster) == []
    assert life.take_away(cluster.api(), made(["gpu-1"]), 20)["removed"]


def test_a_server_that_fails_makes_nothing(cluster):
    with pytest.raises(ApiError):
        life.make(refusing(cluster, 500, "POST", "/jobs"), made(["gpu-1"]), False, 20)
    assert named(cluster) == []


def test_pods_that_are_refused_leave_no_job(cluster):
    with pytest.raises(PartialFailure):
        life.make(refusing(cluster, 403, "PATCH", "/pods/"), made(), False, 20)
    assert jobs(cluster) == []


def test_a_job_that_cannot_be_deleted_goes_by_itself(cluster):
    life.make(cluster.api(), made(["gpu-1"]), False, 20)
    assert life.take_away(refusing(cluster, 403, "DELETE", "/jobs/"), made(["gpu-1"]), 20)["removed"]
    assert named(cluster) == [] and len(jobs(cluster)) == 1


def refusing(cluster, status, *when):
    """An Api that answers requests whose method and path hold the given words with an error."""
    send = cluster.api()._transport

    def transport(method, path, *rest):
        if all(word in f"{method} {path}" for word in when):
            raise ApiError(status, "no", "Forbidden" if status == 403 else "")
        return send(method, path, *rest)

    return Api(transport, pause=lambda seconds: None, attempts=2)


def test_who_may_not_look_at_the_namespace_is_told_and_goes_on(cluster):
    told = life.make(refusing(cluster, 403, "GET", "/namespaces/default", ""), [], False, 5)
    assert told["unknown"] == []
    send = cluster.api()._transport

    def blind(method, path, *rest):
        if (method, path) == ("GET", "/api/v1/namespaces/default"):
            raise ApiError(403, "namespaces default is forbidden", "Forbidden")
        return send(method, path, *rest)

    told = life.make(Api(blind), made(), False, 20)
    assert len(told["unknown"]) == 1 and "was not looked at" in told["unknown"][0]
    assert life.take_away(Api(blind), made(), 20)["removed"]


@pytest.mark.parametrize("status", [403, 500, 429, 0])
def test_pods_that_cannot_be_deleted_are_named(cluster, status):
    wanted = made(["gpu-1"])
    life.make(cluster.api(), wanted, False, 20)
    with pytest.raises(life.TestPodsError, match="1 test pods cannot be deleted: default/railyard-verify-gpu-1"):
        life.take_away(refusing(cluster, status, "DELETE", "/pods/"), wanted, 5)
    life.take_away(cluster.api(), wanted, 20)


def test_pods_that_do_not_go_are_named(cluster):
    wanted = made(["gpu-1"])
    life.make(cluster.api(), wanted, False, 20)
    send, now = cluster.api()._transport, [0.0]

    def deaf(method, path, *rest):
        return {} if method == "DELETE" else send(method, path, *rest)

    def pause(seconds):
        now[0] += max(seconds, 0.1)

    with pytest.raises(life.TestPodsError, match=r"1 test pods are still there after 30 s: railyard-verify-gpu-1"):
        life.remove(Api(deaf), wanted, 30, clock=lambda: now[0], pause=pause)
    life.take_away(cluster.api(), wanted, 20)


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        ({"kind": "Pod"}, "is no Pod with a name"),
        ({"kind": "Service", "metadata": {"name": "a", "namespace": "b"}}, "is no Pod"),
        ({"kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}, "has no labels"),
        ({"kind": "Pod", "metadata": "x"}, "is no Pod"),
    ],
    ids=str,
)
def test_what_is_no_test_pod_is_refused(cluster, capsys, odd, text):
    result = cluster.run(capsys, rail_test_pods, pods=[odd])
    assert result["failed"] and text in result["msg"]


def test_check_mode_makes_nothing(cluster, capsys):
    result = cluster.run(capsys, rail_test_pods, check=True, pods=made())
    assert (result["changed"], result["level"], named(cluster)) == (False, "baseline", [])
