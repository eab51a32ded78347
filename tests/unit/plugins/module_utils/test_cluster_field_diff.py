# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import (
    PartialFailure,
    apply_objects,
    delete_objects,
)
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.field_diff import conflicts, field_diff, predicted
from hypothesis import given
from hypothesis import strategies as st

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=5), DATA, max_size=4)


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        ({"a": None}, {}, [("a", None, None)]),
        ({"spec": {"numVfs": 1, "mtu": 4220}}, {"spec": {"numVfs": 2, "mtu": 4220}}, [("spec.numVfs", 1, 2)]),
        ({"l": ["x"]}, {"l": ["x", "y"]}, [("l", ["x"], ["x", "y"])]),
        ({"l": [{"a": 1}]}, {"l": [{"a": 2}, {"a": 3}]}, [("l[0].a", 1, 2), ("l[1]", None, {"a": 3})]),
        ({"labels": {"a.b/c": "1"}}, {"labels": {"a.b/c": "2"}}, [('labels["a.b/c"]', "1", "2")]),
        ({"config": '{"mtu": 1, "x": 1}'}, {"config": '{"x":1,"mtu":2}'}, [("config.mtu", 1, 2)]),
        ({"metaPlugins": '{"t": 1}, {"u": 1}'}, {"metaPlugins": '{"t": 1}, {"u": 2}'}, [("metaPlugins[1].u", 1, 2)]),
        ({"config": "{"}, {"config": "{}"}, [("config", "{", "{}")]),
        ({"config": '{"a": 1}'}, {"config": '{"a":1}'}, [("config", '{"a": 1}', '{"a":1}')]),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_fields(before, after, rows):
    found = [(row["path"], row["before"], row["after"]) for row in field_diff(before, after)]
    assert json.dumps(found) == json.dumps(rows)


@given(OBJECTS, OBJECTS)
def test_no_rows_mean_equal_objects(before, after):
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)
    assert (field_diff(before, after) == []) == same
    assert field_diff(before, before) == []


def live(spec, *records):
    entries = [
        {"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields}
        for manager, operation, fields in records
    ]
    return {"metadata": {"name": "p", "namespace": "op", "managedFields": entries}, "spec": spec}


def owned(*names):
    return {"f:spec": {f"f:{name}": {} for name in names}}


def wanted(**spec):
    return {"apiVersion": "x/v1", "kind": "Policy", "metadata": {"name": "p", "namespace": "op"}, "spec": spec}


def test_fields_of_ours_that_are_no_longer_wanted_go_and_foreign_ones_stay():
    have = live({"a": 1, "b": 2, "c": 3}, ("railyard", "Apply", owned("a", "b")), ("kubectl", "Update", owned("c")))
    kept = copy.deepcopy(have)
    assert predicted(have, wanted(a=5), "railyard")["spec"] == {"a": 5, "c": 3}
    assert have == kept


def test_a_field_that_another_manager_owns_as_well_stays():
    have = live({"a": 1, "b": 2}, ("railyard", "Apply", owned("a", "b")), ("argocd", "Apply", owned("b")))
    assert predicted(have, wanted(a=1), "railyard")["spec"] == {"a": 1, "b": 2}


def test_lists_are_replaced_unless_the_server_merges_them():
    assert predicted(live({"l": [1, 2]}, ("railyard", "Apply", owned("l"))), wanted(l=[3]), "railyard")["spec"] == {
        "l": [3]
    }
    keyed = {"f:spec": {"f:l": {'k:{"name":"x"}': {"f:v": {}}}}}
    have = live({"l": [{"name": "x", "v": 1}, {"name": "y"}]}, ("railyard", "Apply", keyed))
    assert predicted(have, wanted(l=[{"name": "x", "v": 2}]), "railyard")["spec"]["l"] == [
        {"name": "x", "v": 2},
        {"name": "y"},
    ]


def test_conflicts_name_field_and_owner():
    have = live({"a": 1, "b": 2}, ("argocd", "Apply", owned("a", "b")))
    (one,) = conflicts(have, wanted(a=9, b=2), "railyard")
    assert (one["field"], "argocd" in one["message"]) == (".spec.a", True)
    assert conflicts(have, wanted(a=1), "railyard") == []


class ReadOnly:
    """A server whose account may read only."""

    def __init__(self, objects, reviews=True):
        self.objects, self.writes, self.reviews = objects, 0, reviews

    def __call__(self, method, path, query, body, content_type):
        if path.endswith("/selfsubjectaccessreviews"):
            if not self.reviews:
                raise ApiError(404, "not found", "NotFound")
            asked = body["spec"]["resourceAttributes"]
            assert (asked["group"], asked["resource"], asked["namespace"]) == ("x", "policies", "op")
            return {"status": {"allowed": False}}
        if method != "GET":
            self.writes += 1
            raise ApiError(403, "policies is forbidden", "Forbidden")
        if path == "/apis/x/v1":
            return {"resources": [{"name": "policies", "kind": "Policy", "namespaced": True}]}
        if path.endswith("/policies"):
            return {"items": self.objects}
        name = path.rpartition("/")[2]
        found = next((o for o in self.objects if o["metadata"]["name"] == name), None)
        if found is None:
            raise ApiError(404, "not found", "NotFound")
        return found


@pytest.mark.parametrize(("reviews", "writes"), [(True, 0), (False, 1)], ids=["asked", "tried once"])
def test_an_account_that_may_only_read_gets_an_answer(reviews, writes):
    have = live({"a": 1, "b": 2}, ("railyard", "Apply", owned("a", "b")))
    server = ReadOnly([have], reviews)
    fresh = wanted(a=1)
    fresh["metadata"] = {"name": "q", "namespace": "op"}
    results = apply_objects(Api(server), [wanted(a=5, b=2), fresh], "railyard", dry_run=True, reader=True)
    assert [(r["name"], r["action"], r["validated"]) for r in results] == [
        ("p", "changed", False),
        ("q", "created", False),
    ]
    assert field_diff(results[0]["before"], results[0]["after"]) == [{"path": "spec.a", "before": 1, "after": 5}]
    assert server.writes == writes


def test_a_conflict_is_foreseen_without_the_right_to_write():
    have = live({"a": 1}, ("argocd", "Apply", owned("a")))
    with pytest.raises(PartialFailure) as caught:
        apply_objects(Api(ReadOnly([have])), [wanted(a=5)], "railyard", dry_run=True, reader=True)
    assert "argocd" in caught.value.errors[0]
    assert (
        apply_objects(Api(ReadOnly([have])), [wanted(a=5)], "railyard", force=True, dry_run=True, reader=True)[0][
            "action"
        ]
        == "changed"
    )


def test_a_deletion_is_foreseen_without_the_right():
    have = live({"a": 1}, ("railyard", "Apply", owned("a")))
    server = ReadOnly([have])
    (result,) = delete_objects(Api(server), [wanted(a=1)], "railyard", dry_run=True)
    assert (result["action"], result["validated"], server.writes) == ("deleted", False, 0)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_real_run_without_the_right_fails_in_its_dry_run_as_well(dry_run):
    """The dry run before an earlier layout goes must see what the real one would meet."""
    with pytest.raises(PartialFailure, match="no permission"):
        apply_objects(Api(ReadOnly([])), [wanted(a=5)], "railyard", dry_run=dry_run)
