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
        if path in KINDS:
            return {"resources": [{"name": n, "kind": k, "namespaced": scoped} for n, k, scoped in KINDS[path]]}
        plural = path.rpartition("/")[2]
        if plural in self.failures:
            raise self.failures[plural]
        return {"items": self.lists.get(plural, [])}


def gather(server):
    return plan_facts.gather(Api(server, pause=lambda seconds: None), "op")


def test_pods_and_budgets_are_one_list_each():
    server = Server(
        pods=[pod("a"), pod("b")], poddisruptionbudgets=[BUDGET], deployments=[deployment(("RESOURCE_PREFIX", "x.com"))]
    )
    found = gather(server)
    assert [row["name"] for row in found["pods"]] == ["a", "b"] and "jobs/pdb" in found["pods"][0]["blocked"]
    assert found["resource_prefix"] == "x.com" and found["unknown"] == {}
    lists = [path for path, _query in server.asked if path.count("/") > 3 or path.endswith("pods")]
    assert len(lists) == 3
    query = next(query for path, query in server.asked if path.endswith("/pods"))
    assert query["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="


@pytest.mark.parametrize(
    ("status", "text"),
    [(403, "HTTP status 403: no"), (500, "HTTP status 500: no"), (0, "no answer: no")],
    ids=["403", "500", "none"],
)
@pytest.mark.parametrize("part", ["pods", "budgets", "resource_prefix"])
def test_what_cannot_be_read_is_unknown_and_the_rest_is_told(part, status, text):
    plural = {"pods": "pods", "budgets": "poddisruptionbudgets", "resource_prefix": "deployments"}[part]
    found = gather(Server({plural: ApiError(status, "no")}, pods=[pod("a")]))
    assert found["unknown"][part].startswith(text) and set(found["unknown"]) == {part}
    assert (found["pods"] is None) == (part == "pods")


def test_a_kind_that_is_not_served_has_no_objects():
    assert plan_facts.Reader(Api(Server())).list("x", "apps/v1", "Nothing") == []


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
