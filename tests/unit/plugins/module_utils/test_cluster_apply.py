# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import apply
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError, error_from_body

KINDS = {
    "/api/v1": [{"name": "pods", "kind": "Pod", "namespaced": True}, {"name": "pods/exec", "kind": "PodExecOptions"}],
    "/apis/x.io/v1": [
        {"name": "rails", "kind": "Rail", "namespaced": True},
        {"name": "sites", "kind": "Site", "namespaced": False},
    ],
}


class Server:
    """An API server in memory: server-side apply that replaces our fields, and failures on demand.

    failures: {(method, name): [ApiError, …]} are raised first, one a request.
    """

    def __init__(self):
        self.objects = {}
        self.log = []
        self.failures = {}
        self.version = 0

    def __call__(self, method, path, query, body, content_type):
        self.log.append((method, path, dict(query)))
        if path in KINDS:
            return {"resources": KINDS[path]}
        if path.startswith("/apis/gone.io"):
            raise ApiError(404, "not found", "NotFound")
        name = path.rpartition("/")[2]
        waiting = self.failures.get((method, name))
        if waiting:
            raise waiting.pop(0)
        if method == "PATCH":
            return self.patch(path, json.loads(body), dict(query))
        if method == "DELETE":
            if path not in self.objects:
                raise ApiError(404, "not found", "NotFound")
            return self.objects[path] if "dryRun" in dict(query) else self.objects.pop(path)
        if path in self.objects:
            return copy.deepcopy(self.objects[path])
        if name in ("rails", "sites", "pods"):
            prefix = path + "/"
            items = [copy.deepcopy(o) for p, o in sorted(self.objects.items()) if p.startswith(prefix)]
            for item in items:  # As a real server: items of a list have no kind of their own.
                item.pop("kind", None)
                item.pop("apiVersion", None)
            return {"items": items, "metadata": {}}
        raise ApiError(404, "not found", "NotFound")

    def patch(self, path, wanted, query):
        old = self.objects.get(path)
        new = copy.deepcopy(wanted)
        fields = {"f:spec": {f"f:{k}": {} for k in wanted.get("spec", {})}}
        new["metadata"]["managedFields"] = [
            {
                "manager": query["fieldManager"],
                "operation": "Apply",
                "apiVersion": wanted["apiVersion"],
                "fieldsV1": fields,
            }
        ]
        new["status"] = {"phase": "Known"}
        same = old is not None and old.get("spec") == new.get("spec")
        self.version += 0 if same else 1
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"] if same else str(self.version)
        if "dryRun" not in query:
            self.objects[path] = new
        return copy.deepcopy(new)

    def writes(self):
        return [(m, p) for m, p, _q in self.log if m in ("PATCH", "DELETE")]


def rail(name, **spec):
    return {"apiVersion": "x.io/v1", "kind": "Rail", "metadata": {"name": name, "namespace": "ns"}, "spec": spec}


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def api(server):
    return Api(server, pause=lambda seconds: None)


def actions(results):
    return [r["action"] for r in results]


def test_first_apply_creates_and_second_writes_nothing(server, api):
    objects = [rail("a", mtu=1), rail("b", mtu=2)]
    assert actions(apply.apply_objects(api, objects, "railyard")) == ["created", "created"]
    server.log.clear()
    assert actions(apply.apply_objects(api, objects, "railyard")) == ["unchanged", "unchanged"]
    assert server.writes() == []
    # One list for both objects of the kind; the kinds are known already.
    assert [(m, p) for m, p, _q in server.log] == [("GET", "/apis/x.io/v1/namespaces/ns/rails")]


def test_a_changed_field_is_the_only_write_and_is_shown(server, api):
    objects = [rail("a", mtu=1), rail("b", mtu=2)]
    apply.apply_objects(api, objects, "railyard")
    server.log.clear()
    objects[1]["spec"]["mtu"] = 3
    results = apply.apply_objects(api, objects, "railyard")
    assert actions(results) == ["unchanged", "changed"]
    assert server.writes() == [("PATCH", "/apis/x.io/v1/namespaces/ns/rails/b")]
    assert results[1]["before"]["spec"] == {"mtu": 2}
    assert results[1]["after"]["spec"] == {"mtu": 3}
    assert "managedFields" not in results[1]["after"]["metadata"]
    assert "status" not in results[1]["after"]


def test_a_field_that_is_no_longer_wanted_is_written_away(server, api):
    apply.apply_objects(api, [rail("a", mtu=1, speed=2)], "railyard")
    results = apply.apply_objects(api, [rail("a", mtu=1)], "railyard")
    assert actions(results) == ["changed"]
    assert results[0]["after"]["spec"] == {"mtu": 1}


def test_requests_are_strict_and_carry_the_field_manager(server, api):
    apply.apply_objects(api, [rail("a", mtu=1)], "railyard")
    query = next(q for m, _p, q in server.log if m == "PATCH")
    assert query == {"fieldManager": "railyard", "fieldValidation": "Strict", "force": "false"}


def test_dry_run_sends_dry_runs_only_and_stores_nothing(server, api):
    results = apply.apply_objects(api, [rail("a", mtu=1)], "railyard", dry_run=True)
    assert actions(results) == ["created"]
    assert server.objects == {}
    assert next(q for m, _p, q in server.log if m == "PATCH")["dryRun"] == "All"


def test_kind_that_is_not_served_stops_before_any_write(server, api):
    foreign = {"apiVersion": "gone.io/v1", "kind": "Pool", "metadata": {"name": "p"}}
    with pytest.raises(apply.InputError, match=r"Pool \(gone\.io/v1\).*CustomResourceDefinition"):
        apply.apply_objects(api, [rail("a", mtu=1), foreign], "railyard")
    assert server.writes() == []


def test_kind_that_is_not_served_is_created_but_not_validated_in_a_dry_run(server, api):
    foreign = {"apiVersion": "gone.io/v1", "kind": "Pool", "metadata": {"name": "p"}}
    results = apply.apply_objects(api, [foreign, rail("a", mtu=1)], "railyard", dry_run=True)
    assert [(r["action"], r.get("validated")) for r in results] == [("created", False), ("created", None)]


def conflict(field=".spec.mtu", owner="kubectl"):
    cause = {"reason": "FieldManagerConflict", "field": field, "message": f'conflict with "{owner}" using x.io/v1'}
    return ApiError(409, "Apply failed with 1 conflict", "Conflict", [cause])


def test_conflict_names_object_field_owner_and_remedy_and_is_not_retried(server, api):
    server.failures[("PATCH", "a")] = [conflict()]
    with pytest.raises(apply.PartialFailure) as failure:
        apply.apply_objects(api, [rail("a", mtu=1)], "railyard")
    (text,) = failure.value.errors
    for part in ("Rail ns/a", ".spec.mtu", '"kubectl"', "force_conflicts=true"):
        assert part in text
    assert len(server.writes()) == 1


def test_after_a_failure_nothing_more_is_written_and_all_mistakes_are_told(server, api):
    server.failures[("PATCH", "b")] = [
        error_from_body(
            422,
            json.dumps(
                {"message": "invalid", "details": {"causes": [{"field": "spec.mtu", "message": "must be an integer"}]}}
            ),
        )
    ]
    server.failures[("PATCH", "d")] = [ApiError(400, 'strict decoding error: unknown field "spec.mut"')]
    with pytest.raises(apply.PartialFailure) as failure:
        apply.apply_objects(api, [rail(n, mtu=1) for n in "abcd"], "railyard")
    error = failure.value
    assert [r["name"] for r in error.done] == ["a"]
    assert error.not_done == ["Rail ns/b", "Rail ns/c", "Rail ns/d"]
    assert "spec.mtu: must be an integer" in error.errors[0]
    assert "spec.mut" in error.errors[1]
    assert [p.rpartition("/")[2] for p in server.objects] == ["a"]


@pytest.mark.parametrize("status", [0, 429, 500, 502, 503, 504])
def test_passing_failures_are_retried(server, api, status):
    server.failures[("PATCH", "a")] = [ApiError(status, "later"), ApiError(status, "later")]
    assert actions(apply.apply_objects(api, [rail("a", mtu=1)], "railyard")) == ["created"]
    assert api.retries == 2


def test_lost_optimistic_lock_is_retried(server, api):
    server.failures[("PATCH", "a")] = [ApiError(409, "the object has been modified", "Conflict")]
    assert actions(apply.apply_objects(api, [rail("a", mtu=1)], "railyard")) == ["created"]


def test_lasting_failure_ends_after_bounded_tries(server, api):
    server.failures[("PATCH", "a")] = [ApiError(503, "down") for try_number in range(50)]
    with pytest.raises(apply.PartialFailure, match=r"HTTP status 503: down \(tried 6 times in \d+ s\)"):
        apply.apply_objects(api, [rail("a", mtu=1)], "railyard")
    # Six tries of one object.
    assert len(server.writes()) == 6


def test_unknown_field_that_the_server_answers_with_500_is_no_passing_failure(server, api):
    server.failures[("PATCH", "a")] = [
        ApiError(500, "failed to create typed patch object: .spec.x: field not declared in schema")
    ]
    with pytest.raises(apply.PartialFailure, match=r"is refused by the API server.*\.spec\.x"):
        apply.apply_objects(api, [rail("a", mtu=1)], "railyard")
    assert len(server.writes()) == 1


def test_pauses_follow_retry_after_and_are_bounded(server):
    pauses = []
    api = Api(server, pause=pauses.append)
    server.failures[("PATCH", "a")] = [
        ApiError(429, "slow down", retry_after=3.0),
        ApiError(429, "slow", retry_after=900.0),
    ]
    apply.apply_objects(api, [rail("a", mtu=1)], "railyard")
    assert 2.4 <= pauses[0] <= 3.0
    assert pauses[1] <= 8.0


def test_delete_goes_backwards_and_leaves_absent_objects_alone(server, api):
    objects = [rail("a", mtu=1), rail("b", mtu=1), rail("c", mtu=1)]
    apply.apply_objects(api, objects[:2], "railyard")
    server.log.clear()
    results = apply.delete_objects(api, objects, "railyard")
    assert [(r["name"], r["action"]) for r in results] == [("c", "unchanged"), ("b", "deleted"), ("a", "deleted")]
    assert [p.rpartition("/")[2] for _m, p in server.writes()] == ["b", "a"]
    assert actions(apply.delete_objects(api, objects, "railyard")) == ["unchanged"] * 3


def test_delete_of_a_kind_that_is_not_served_has_nothing_to_do(api):
    foreign = {"apiVersion": "gone.io/v1", "kind": "Pool", "metadata": {"name": "p"}}
    assert actions(apply.delete_objects(api, [foreign], "railyard")) == ["unchanged"]


def test_documents_and_objects_are_flattened_in_order():
    document = {"file": "10-a.yml", "phase": "pools", "objects": [rail("a"), rail("b")]}
    assert [o["metadata"]["name"] for o in apply.flatten([document, rail("c")])] == ["a", "b", "c"]


def test_every_unusable_entry_is_named_at_once():
    entries = [rail("a"), {"kind": "Rail"}, {"file": "20-b.yml", "objects": ["text", rail("a")]}]
    with pytest.raises(apply.InputError) as error:
        apply.flatten(entries)
    text = str(error.value)
    assert "entry 2: apiVersion, metadata.name missing" in text
    assert "entry 3 (20-b.yml): got str" in text
    assert "Rail ns/a is already in entry 1" in text


def test_namespaced_object_without_namespace_is_refused(server, api):
    lone = rail("a")
    del lone["metadata"]["namespace"]
    with pytest.raises(apply.InputError, match=r"metadata\.namespace missing, Rail is namespaced"):
        apply.apply_objects(api, [lone], "railyard")
    assert server.writes() == []


def test_an_adopted_field_counts_as_a_change(server, api):
    """The content stays, the owner changes: the write is real and must not be called unchanged."""
    apply.apply_objects(api, [rail("a", mtu=1)], "somebody")
    results = apply.apply_objects(api, [rail("a", mtu=1)], "railyard")
    assert actions(results) == ["changed"]


def test_error_body_that_is_no_json_keeps_its_text():
    error = error_from_body(502, b"<html>Bad gateway</html>")
    assert (error.status, error.message) == (502, "<html>Bad gateway</html>")


def test_list_goes_on_to_the_last_page():
    pages = {"": ([1, 2], "next"), "next": ([3], "")}

    def transport(method, path, query, body, content_type):
        items, token = pages[dict(query).get("continue", "")]
        return {"items": items, "metadata": {"continue": token}}

    assert Api(transport).list_items("/api/v1/nodes") == [1, 2, 3]
