# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan reads, from a server that refuses, fails or does not know a kind."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import plan_facts
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError

KINDS = {
    "/api/v1": [("pods", "Pod", True)],
    "/apis/apps/v1": [("deployments", "Deployment", True)],
    "/apis/policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget", True)],
}
BUDGET = {
    "metadata": {"namespace": "jobs", "name": "pdb"},
    "spec": {"selector": {"matchLabels": {"app": "x"}}},
    "status": {"disruptionsAllowed": 0},
}


def pod(name, **spec):
    meta = {"namespace": "jobs", "name": name, "labels": {"app": "x"}}
    return {"metadata": meta, "spec": {"nodeName": "n1", "containers": [], **spec}, "status": {"phase": "Running"}}


def deployment(*variables):
    env = [{"name": name, "value": value} for name, value in variables]
    return {"spec": {"template": {"spec": {"containers": [{"env": env}]}}}}


class Server:
    """Lists by plural; ``failures`` maps a plural to the ApiError that its list answers with."""

    def __init__(self, failures=None, **lists):
        self.lists, self.failures, self.asked = lists, failures or {}, []

    def __call__(self, method, path, query, body, content_type):
        assert method == "GET"
        self.asked.append((path, dict(query)))
        if path in KINDS and not getattr(self, "served", KINDS):
            raise ApiError(404, "not found")
        if path in KINDS:
            return {"resources": [{"name": n, "kind": k, "namespaced": scoped} for n, k, scoped in KINDS[path]]}
        plural = path.rpartition("/")[2]
        if plural in self.failures:
            raise self.failures[plural]
        return {"items": self.lists.get(plural, [])}


def gather(server, pods=None, reason=None):
    return plan_facts.gather(Api(server, pause=lambda seconds: None), "op", pods, reason)


def test_pods_are_those_that_are_known_and_budgets_are_one_list():
    pods = [pod("a"), pod("b"), pod("waits", nodeName=None), {**pod("over"), "status": {"phase": "Succeeded"}}]
    server = Server(poddisruptionbudgets=[BUDGET], deployments=[deployment(("RESOURCE_PREFIX", "x.com"))])
    found = gather(server, pods)
    assert [row["name"] for row in found["pods"]] == ["a", "b"] and "jobs/pdb" in found["pods"][0]["blocked"]
    assert found["resource_prefix"] == "x.com" and found["unknown"] == {}
    assert [path for path, _query in server.asked if path not in KINDS] == [
        "/apis/apps/v1/namespaces/op/deployments",
        "/apis/policy/v1/poddisruptionbudgets",
    ]


@pytest.mark.parametrize(
    ("status", "text"),
    [(403, "HTTP status 403: no"), (500, "HTTP status 500: no"), (0, "no answer: no")],
    ids=["403", "500", "none"],
)
@pytest.mark.parametrize("part", ["budgets", "resource_prefix"])
def test_what_cannot_be_read_is_unknown_and_the_rest_is_told(part, status, text):
    plural = {"budgets": "poddisruptionbudgets", "resource_prefix": "deployments"}[part]
    found = gather(Server({plural: ApiError(status, "no")}), [pod("a")])
    assert list(found["unknown"]) == [part] and found["unknown"][part].startswith(text) and len(found["pods"]) == 1


def test_pods_that_are_not_known_are_unknown_with_the_reason():
    found = gather(Server(), None, "pods is forbidden")
    assert (found["pods"], found["unknown"]) == (None, {"pods": "pods is forbidden"})
    assert gather(Server(), [])["unknown"] == {}


def test_a_kind_that_is_not_served_has_no_objects():
    server = Server()
    server.served = {}
    assert gather(server, [pod("a")])["resource_prefix"] is None


@pytest.mark.parametrize(
    ("deployments", "prefix"),
    [
        ([], None),
        ([{}], None),
        ([deployment(("A", "b"))], None),
        ([deployment(("RESOURCE_PREFIX", ""))], "openshift.io"),
        ([deployment(("A", "b")), deployment(("RESOURCE_PREFIX", "nvidia.com"))], "nvidia.com"),
    ],
    ids=["none", "empty", "another", "default", "set"],
)
def test_the_prefix_of_the_running_operator(deployments, prefix):
    assert plan_facts.prefix_of(deployments) == prefix


def test_parts_that_are_missing_stay_missing():
    cluster = plan_facts.cluster_of({"reasons": {"node_states": "forbidden"}, "node_states": None}, {})
    assert (cluster["states"], cluster["nodes"], cluster["pods"], cluster["unknown"]) == (
        None,
        None,
        None,
        {"states": "forbidden"},
    )
