# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import pod_exec, pods
from ansible_collections.railyard.rdma.plugins.modules import pod_rdma_facts as module

PROBE = "@ dir /sys/class/net\n|eth0\n@ dir /sys/class/infiniband\n@ dir /dev/infiniband\n@ end\n"


def pod(name, phase="Running", state=None, **status):
    state = {"running": {}} if state is None else state
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "annotations": {module.NETWORK_STATUS: '[{"name": "default/r"}]'},
        },
        "spec": {"nodeName": "gpu-1"},
        "status": {"phase": phase, "containerStatuses": [{"name": "probe", "state": state}], **status},
    }


class FakeApi:
    def __init__(self, *answers, events=()):
        self.answers = list(answers)
        self.events = list(events)

    def path(self, api_version, kind, namespace):
        return kind

    def list_items(self, path, query=()):
        if path == "Event":
            return self.events
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def look(api, execute, *names, **changes):
    params = {"namespace": "default", "names": list(names), "wait_timeout": 0, "threads": 4, "report_interval": 15}
    params.update({"placeholders": [], "address_timeout": 0, "earlier": 0, **changes})
    now = [0.0]
    return module.look(
        api, execute, params, clock=lambda: now[0], pause=lambda s: now.__setitem__(0, now[0] + max(s, 0.1))
    )


def gather(api, execute, *names):
    return look(api, execute, *names)["pods"]


def test_running_pods_are_read():
    found = gather(FakeApi([pod("a"), pod("b"), pod("foreign")]), lambda name: PROBE, "a", "b")
    assert sorted(found) == ["a", "b"]
    assert found["a"]["reachable"] and found["a"]["running"]
    assert (found["a"]["node"], list(found["a"]["netdevs"])) == ("gpu-1", ["eth0"])
    assert found["a"]["networks"] == [{"name": "default/r"}]


def test_pod_that_refuses_exec_is_unreachable_with_the_reason():
    def execute(name):
        raise pod_exec.ExecError("exec refused: 403")

    found = gather(FakeApi([pod("a")]), execute, "a")
    assert (found["a"]["running"], found["a"]["reachable"], found["a"]["reason"]) == (True, False, "exec refused: 403")
    assert "devices" not in found["a"]


def test_cut_output_is_unreachable_and_the_other_pod_is_read():
    found = gather(
        FakeApi([pod("a"), pod("b")]), lambda name: PROBE if name == "b" else PROBE.removesuffix("@ end\n"), "a", "b"
    )
    assert "ends early" in found["a"]["reason"]
    assert found["b"]["reachable"]


def test_absent_pod_is_unreachable():
    found = gather(FakeApi([]), lambda name: PROBE, "a")
    assert (found["a"]["running"], found["a"]["reachable"], found["a"]["reason"]) == (
        False,
        False,
        "the pod does not exist",
    )


def test_stuck_pod_tells_what_the_cni_said():
    events = [
        {
            "type": "Normal",
            "reason": "Scheduled",
            "involvedObject": {"uid": "uid-a"},
            "lastTimestamp": "2026-01-01T00:00:09Z",
        },
        {
            "type": "Warning",
            "reason": "FailedCreatePodSandBox",
            "message": "RDMA subsystem namespace awareness mode is set to shared",
            "involvedObject": {"uid": "uid-a"},
            "lastTimestamp": "2026-01-01T00:00:05Z",
        },
        {"type": "Warning", "reason": "Other", "message": "x", "involvedObject": {"uid": "uid-z"}},
    ]
    stuck = pod("a", "Pending", {"waiting": {"reason": "ContainerCreating"}})
    found = gather(FakeApi([stuck], events=events), lambda name: PROBE, "a")
    assert found["a"]["reason"] == (
        "Pending: FailedCreatePodSandBox: RDMA subsystem namespace awareness mode is set to shared"
    )


@pytest.mark.parametrize(
    ("stuck", "reason"),
    [
        (
            pod("a", "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}),
            "ImagePullBackOff: no such image",
        ),
        (
            pod(
                "a",
                "Pending",
                {},
                conditions=[{"type": "PodScheduled", "status": "False", "message": "Insufficient x"}],
            ),
            "not scheduled: Insufficient x",
        ),
        (pod("a", "Failed", {"terminated": {"reason": "Error"}}), "Failed: container probe: Error"),
        (pod("a", "Pending", {"waiting": {"reason": "ContainerCreating"}}), "container probe: ContainerCreating"),
        ({"metadata": {}, "status": {}}, "no phase yet"),
    ],
)
def test_reason_of_a_stuck_pod(stuck, reason):
    assert reason in pods.stuck_reason(stuck)


def test_waiting_ends_as_soon_as_all_run_or_cannot_run_any_more():
    now = [0.0]
    api = FakeApi([pod("a", "Pending", {})], [pod("a"), pod("b", "Failed", {"terminated": {"reason": "Error"}})])
    found, _waited, over = module.wait_for_pods(
        api, "default", ["a", "b"], 100, clock=lambda: now[0], pause=lambda s: now.__setitem__(0, now[0] + s)
    )
    assert over and pods.is_running(found["a"]) and not pods.is_running(found["b"])
    assert now[0] < 2


def test_each_pod_is_asked_once():
    """The load is one exec a pod, however many there are; what is not final is asked again, and only that."""
    names = [f"pod-{number}" for number in range(40)]
    asked = []

    def execute(name):
        asked.append(name)
        return PROBE

    result = look(FakeApi([pod(name) for name in names]), execute, *names, threads=8)
    assert sorted(asked) == sorted(names)
    assert (result["executions"], result["not_read"], result["finished"]) == (40, [], True)


def test_a_wait_is_interrupted_to_tell_what_is_missing():
    api = FakeApi(
        [pod("a"), pod("b", "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})]
    )
    asked = []
    result = look(api, asked.append, "a", "b", wait_timeout=100, report_interval=10)
    assert (result["finished"], result["executions"], asked) == (False, 0, [])
    assert list(result["pending"]) == ["b"] and "no such image" in result["pending"]["b"]
    assert 10 <= result["waited"] < 20
    later = look(api, lambda name: PROBE, "a", "b", wait_timeout=100, report_interval=10, earlier=95.0)
    assert (later["finished"], later["not_read"], later["executions"]) == (True, ["b"], 1)


@pytest.mark.parametrize(
    ("pending", "text"),
    [
        ({"b": "Pending", "a": "no node"}, "a: no node; b: Pending"),
        (dict.fromkeys("abcde", "x"), "a: x; b: x; c: x; and 2 more"),
    ],
)
def test_progress_is_one_line(pending, text):
    assert pods.in_short(pending) == text


def test_terminating_pod_does_not_count_as_running():
    leaving = pod("a")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not pods.is_running(leaving)


def test_without_permission_for_events_the_reason_is_only_shorter():
    class Forbidden(FakeApi):
        def list_items(self, path, query=()):
            if path == "Event":
                raise module.ApiError(403, "forbidden")
            return super().list_items(path, query)

    found = gather(Forbidden([pod("a", "Pending", {})]), lambda name: PROBE, "a")
    assert found["a"]["reason"] == "Pending"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", None),
        ('{"status": "Success"}', None),
        ('{"status": "Failure", "message": "exec: sh: not found"}', "exec: sh: not found"),
        ("not json", "not json"),
    ],
)
def test_error_channel(text, message):
    assert pod_exec.status_message(text) == message


def test_handshake_error_is_told_by_its_body():
    class Refused(Exception):
        reason = (
            "Handshake status 404 Not Found -+-+- {'a': 'b'} -+-+- b'{\"message\": \"pods \\\\\"a\\\\\" not found\"}'"
        )

    assert pod_exec.handshake_message(Refused()).startswith("Handshake status 404 Not Found")


def test_parallel_keeps_the_order():
    assert pod_exec.in_parallel(lambda n: n * 2, range(20), 5) == [n * 2 for n in range(20)]
    assert pod_exec.in_parallel(lambda n: n, [], 5) == []


def settled(*outputs, timeout=10, placeholders=("fd01:0:0:100::/112",)):
    """What read_settled returns when a pod answers with these addresses one after the other, and how often it asked."""
    asked, now = [], [0.0]

    def read(name):
        asked.append(name)
        rows = outputs[min(len(asked), len(outputs)) - 1]
        keys = ("address", "scope", "tentative")
        return {"netdevs": {"net1": {"addresses": [dict(zip(keys, row)) for row in rows]}}}

    def pause(seconds):
        now[0] += max(seconds, 0.1)

    params = {"placeholders": list(placeholders), "address_timeout": timeout, "threads": 1}
    found = module.read_settled(read, ["a"], params, clock=lambda: now[0], pause=pause)
    return [row["address"] for row in found["a"]["netdevs"]["net1"]["addresses"]], len(asked)


PLACEHOLDER = ("fd01:0:0:100::7", "global", False)
LINK = ("fe80::1:2", "link", True)
TENTATIVE, ROUTED = (("2001:db8:0:a1::107", "global", flag) for flag in (True, False))


def test_addresses_of_advertisements_are_waited_for():
    """FC-17: nothing, then tentative, then usable; the placeholder alone is not enough."""
    history = ([PLACEHOLDER, LINK], [PLACEHOLDER, TENTATIVE], [PLACEHOLDER, ROUTED])
    assert settled(*history) == ([PLACEHOLDER[0], ROUTED[0]], 3)


def test_the_wait_for_addresses_ends():
    addresses, asked = settled([PLACEHOLDER, LINK], timeout=3)
    assert addresses == [PLACEHOLDER[0], LINK[0]]
    assert asked > 1
    assert settled([PLACEHOLDER], timeout=0)[1] == 1


@pytest.mark.parametrize("rows", [[], [("192.0.2.1", "global", False)], [LINK], [PLACEHOLDER, ROUTED]])
def test_final_addresses_are_read_once(rows):
    assert settled(rows)[1] == 1
    assert settled(rows, placeholders=())[1] == 1


def test_an_unreadable_pod_is_not_asked_again():
    params = {"placeholders": [], "address_timeout": 9, "threads": 1}
    assert module.read_settled(lambda name: {"reason": "gone"}, ["a"], params) == {"a": {"reason": "gone"}}
