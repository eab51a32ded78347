# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge patch, JSON patch and strategic merge patch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal.apiserver.errors import ApiError
from rehearsal.apiserver.patches import json_patch, merge_patch

from .conftest import WIDGETS, configmap, deployment, widget

WEB = "/apis/apps/v1/namespaces/default/deployments/web"


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [  # rows of RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "foo"}, "bar", "bar"),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        (["a", "b"], {"a": "b"}, {"a": "b"}),
    ],
)
def test_merge_patch(target, patch, expected):
    assert merge_patch(target, patch) == expected


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/a", "value": 1}], {"x": [1, 2], "a": 1}),
        ([{"op": "add", "path": "/x/1", "value": 9}], {"x": [1, 9, 2]}),
        ([{"op": "add", "path": "/x/-", "value": 9}], {"x": [1, 2, 9]}),
        ([{"op": "remove", "path": "/x/0"}], {"x": [2]}),
        ([{"op": "replace", "path": "/x/0", "value": 7}], {"x": [7, 2]}),
        ([{"op": "move", "from": "/x", "path": "/y"}], {"y": [1, 2]}),
        ([{"op": "copy", "from": "/x/1", "path": "/x/0"}], {"x": [2, 1, 2]}),
        (
            [{"op": "test", "path": "/x/0", "value": 1}, {"op": "add", "path": "/a~1b", "value": 0}],
            {"x": [1, 2], "a/b": 0},
        ),
    ],
)
def test_json_patch(operations, expected):
    target = {"x": [1, 2]}
    assert json_patch(target, operations) == expected
    assert target == {"x": [1, 2]}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/x", "value": 2},
        {"op": "remove", "path": "/nope"},
        {"op": "replace", "path": "/nope", "value": 1},
        {"op": "add", "path": "/x/9", "value": 1},
        {"op": "dance", "path": "/x"},
        {"op": "add", "path": "x", "value": 1},
        {"path": "/x"},
    ],
)
def test_json_patch_refusals(operation):
    with pytest.raises(ApiError) as error:
        json_patch({"x": [1]}, [operation])
    assert error.value.code == 422


@given(st.dictionaries(st.text("ab/~", max_size=3), st.integers()), st.text("ab/~", max_size=3), st.integers())
def test_json_patch_add_then_remove(target, key, value):
    path = "/" + key.replace("~", "~0").replace("/", "~1")
    added = json_patch(target, [{"op": "add", "path": path, "value": value}])
    assert added == {**target, key: value}
    assert json_patch(added, [{"op": "remove", "path": path}]) == {k: v for k, v in target.items() if k != key}


async def test_json_patch_over_http(kube):
    await kube.post("/api/v1/namespaces/default/configmaps", configmap(x="1"))
    path = "/api/v1/namespaces/default/configmaps/a"
    status, body = await kube.patch(path, [{"op": "replace", "path": "/data/x", "value": "2"}], "json-patch")
    assert status == 200 and body["data"] == {"x": "2"}
    assert (await kube.patch(path, [{"op": "test", "path": "/data/x", "value": "1"}], "json-patch"))[0] == 422


async def test_patch_of_a_version_that_is_gone_conflicts(kube):
    made = (await kube.post("/api/v1/namespaces/default/configmaps", configmap(x="1")))[1]
    path, version = "/api/v1/namespaces/default/configmaps/a", made["metadata"]["resourceVersion"]
    assert (await kube.patch(path, {"metadata": {"resourceVersion": version}, "data": {"x": "2"}}))[0] == 200
    assert (await kube.patch(path, {"metadata": {"resourceVersion": version}, "data": {"x": "3"}}))[0] == 409


async def strategic(kube, change: dict) -> dict:
    status, body = await kube.patch(WEB, {"spec": {"template": {"spec": change}}}, "strategic-merge-patch")
    assert status == 200, body
    return body["spec"]["template"]["spec"]


@pytest.fixture
async def web(kube):
    await kube.post(WEB.rpartition("/")[0], deployment(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]))
    return kube


async def test_strategic_merges_lists_by_key(web):
    env = [{"name": "B", "value": "9"}, {"name": "C", "value": "3"}]
    spec = await strategic(web, {"containers": [{"name": "c", "env": env}]})
    assert spec["containers"][0]["image"] == "nginx:1"
    assert {row["name"]: row["value"] for row in spec["containers"][0]["env"]} == {"A": "1", "B": "9", "C": "3"}


async def test_strategic_directives(web):
    spec = await strategic(web, {"containers": [{"name": "c", "env": [{"name": "A", "$patch": "delete"}]}]})
    assert spec["containers"][0]["env"] == [{"name": "B", "value": "2"}]
    new = [{"$patch": "replace"}, {"name": "only", "image": "x:1"}]
    assert [row["name"] for row in (await strategic(web, {"containers": new}))["containers"]] == ["only"]
    spec = await strategic(web, {"containers": [{"name": "two", "image": "y:1"}], "$setElementOrder/containers": []})
    assert [row["name"] for row in spec["containers"]] == ["only", "two"]


async def test_strategic_replaces_lists_without_a_key(web):
    await strategic(web, {"tolerations": [{"key": "a", "operator": "Exists"}]})
    spec = await strategic(web, {"tolerations": [{"key": "b", "operator": "Exists"}]})
    assert spec["tolerations"] == [{"key": "b", "operator": "Exists"}]


async def test_strategic_delete_from_primitive_list(kube):
    body = configmap()
    body["metadata"]["finalizers"] = ["example.com/a", "example.com/b"]
    await kube.post("/api/v1/namespaces/default/configmaps", body)
    change = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    changed = (await kube.patch("/api/v1/namespaces/default/configmaps/a", change, "strategic-merge-patch"))[1]
    assert changed["metadata"]["finalizers"] == ["example.com/b"]


async def test_strategic_is_not_for_custom_resources(widgets):
    await widgets.post(WIDGETS, widget())
    status, body = await widgets.patch(f"{WIDGETS}/w", {"spec": {"size": 2}}, "strategic-merge-patch")
    assert (status, body["reason"]) == (415, "UnsupportedMediaType")
