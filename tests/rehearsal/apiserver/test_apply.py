# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-side apply: who owns what, conflicts, removal, and that an apply of the same thing changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal.apiserver import fields

from .conftest import CRDS, WIDGETS, configmap, deployment, widget, widget_crd

CM = "/api/v1/namespaces/default/configmaps/a"
WEB = "/apis/apps/v1/namespaces/default/deployments/web"
W = f"{WIDGETS}/w"


def owned(obj: dict, manager: str, operation: str = "Apply") -> dict | None:
    found = [e for e in obj["metadata"]["managedFields"] if e["manager"] == manager and e["operation"] == operation]
    return found[0]["fieldsV1"] if found else None


async def test_apply_creates_and_records_what_was_applied(widgets):
    status, made = await widgets.apply(W, widget(size=2, rows=[{"name": "a", "value": 1}], tags=["x"], plain=["y"]))
    assert status == 201
    assert owned(made, "railyard") == {
        "f:spec": {
            "f:size": {},
            "f:rows": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:value": {}}},
            "f:tags": {'v:"x"': {}},
            "f:plain": {},
        }
    }
    assert made["spec"]["colour"] == "red"  # a default is there, but nobody owns it


async def test_apply_again_changes_nothing(widgets):
    body = widget(size=2, rows=[{"name": "a"}], labels={"x": "y"}, free={"k": [1, {"z": 2}]})
    first = (await widgets.apply(W, body))[1]
    status, second = await widgets.apply(W, body)
    assert status == 200 and second == first


@pytest.mark.parametrize("path", [WEB])
async def test_apply_again_of_a_builtin_kind_changes_nothing(kube, path):
    body = deployment(
        ports=[{"containerPort": 80}], resources={"limits": {"cpu": 1}}, env=[{"name": "A", "value": "b"}]
    )
    first = (await kube.apply(path, body))[1]
    assert (await kube.apply(path, body))[1] == first


async def test_apply_needs_a_manager(widgets):
    status, body = await widgets.call("PATCH", W, widget(), "application/apply-patch+yaml")
    assert status == 422 and "fieldManager: Required value" in body["message"]


async def test_conflict_names_the_manager_and_the_field(widgets):
    await widgets.apply(W, widget(size=2), manager="one")
    status, body = await widgets.apply(W, widget(size=3), manager="two")
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"] == 'Apply failed with 1 conflict: conflict with "one": .spec.size'
    assert body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".spec.size"}
    ]


async def test_conflict_with_an_update_tells_its_version_and_time(kube):
    made = (await kube.post("/api/v1/namespaces/default/configmaps", configmap(x="1", y="1"), fieldManager="kubectl"))[
        1
    ]
    status, body = await kube.apply(CM, configmap(x="2", y="2"))
    time = made["metadata"]["managedFields"][0]["time"]
    who = f'"kubectl" using v1 at {time}'
    assert status == 409
    assert body["message"] == f"Apply failed with 2 conflicts: conflicts with {who}:\n- .data.x\n- .data.y"


async def test_equal_values_are_shared_without_conflict(widgets):
    await widgets.apply(W, widget(size=2), manager="one")
    status, both = await widgets.apply(W, widget(size=2), manager="two")
    assert status == 200 and owned(both, "one") == owned(both, "two") == {"f:spec": {"f:size": {}}}
    # A shared field stays when one of the two no longer applies it.
    status, kept = await widgets.apply(W, {**widget(), "spec": {"colour": "blue"}}, manager="one")
    assert status == 200 and kept["spec"] == {"size": 2, "colour": "blue"}


async def test_force_takes_the_field_over(widgets):
    await widgets.apply(W, widget(size=2, colour="blue"), manager="one")
    status, body = await widgets.apply(W, widget(size=3), manager="two", force="true")
    assert status == 200 and body["spec"]["size"] == 3
    assert owned(body, "one") == {"f:spec": {"f:colour": {}}} and owned(body, "two") == {"f:spec": {"f:size": {}}}


async def test_update_takes_ownership_of_what_it_changes(widgets):
    await widgets.apply(W, widget(size=2, colour="blue"), manager="one")
    changed = (await widgets.patch(W, {"spec": {"size": 3}}, fieldManager="two"))[1]
    assert owned(changed, "one") == {"f:spec": {"f:colour": {}}}
    assert owned(changed, "two", "Update") == {"f:spec": {"f:size": {}}}
    assert (await widgets.apply(W, widget(size=2, colour="blue"), manager="one"))[0] == 409


async def test_fields_no_longer_applied_go_away(widgets):
    rows = [{"name": "a", "value": 1}, {"name": "b"}]
    await widgets.apply(W, widget(code="x", rows=rows, tags=["t", "u"], labels={"k": "v"}, plain=["p"]))
    less = (await widgets.apply(W, widget(rows=[{"name": "a"}], tags=["u"])))[1]
    assert less["spec"] == {"size": 1, "colour": "red", "rows": [{"name": "a"}], "tags": ["u"]}


async def test_removed_default_comes_back(widgets):
    await widgets.apply(W, widget(colour="blue"))
    assert (await widgets.apply(W, widget()))[1]["spec"] == {"size": 1, "colour": "red"}


async def test_fields_of_others_are_kept(widgets):
    await widgets.apply(W, widget(rows=[{"name": "a", "value": 1}]), manager="one")
    await widgets.patch(W, {"metadata": {"labels": {"mine": "yes"}}, "spec": {"code": "abc"}}, fieldManager="two")
    merged = (await widgets.apply(W, widget(size=5), manager="one"))[1]
    assert merged["spec"]["code"] == "abc" and merged["spec"]["size"] == 5 and "rows" not in merged["spec"]
    assert merged["metadata"]["labels"] == {"mine": "yes"}


async def test_list_items_merge_by_key(widgets):
    await widgets.apply(W, widget(rows=[{"name": "a", "value": 1}, {"name": "b", "value": 2}]), manager="one")
    rows = [{"name": "c", "value": 3}, {"name": "b", "mode": "x"}]
    status, merged = await widgets.apply(W, {**widget(), "spec": {"rows": rows}}, manager="two")
    assert status == 200
    assert {row["name"]: row for row in merged["spec"]["rows"]} == {
        "a": {"name": "a", "value": 1},
        "b": {"name": "b", "value": 2, "mode": "x"},
        "c": {"name": "c", "value": 3},
    }
    # "one" gives up b: only what "two" holds of it stays.
    kept = (await widgets.apply(W, widget(rows=[{"name": "a", "value": 1}]), manager="one"))[1]
    assert {"name": "b", "mode": "x"} in kept["spec"]["rows"] and len(kept["spec"]["rows"]) == 3


async def test_applied_order_of_a_list_holds(widgets):
    await widgets.apply(W, widget(rows=[{"name": "a"}, {"name": "b"}, {"name": "c"}]))
    turned = (await widgets.apply(W, widget(rows=[{"name": "c"}, {"name": "a"}, {"name": "d"}])))[1]
    assert [row["name"] for row in turned["spec"]["rows"]] == ["c", "a", "d"]


async def test_atomic_list_is_replaced_and_conflicts_as_a_whole(widgets):
    await widgets.apply(W, widget(plain=["a", "b"]), manager="one")
    status, body = await widgets.apply(W, widget(plain=["a"]), manager="two")
    assert status == 409 and body["details"]["causes"][0]["field"] == ".spec.plain"
    assert (await widgets.apply(W, widget(plain=["c"]), manager="one"))[1]["spec"]["plain"] == ["c"]


async def test_containers_and_ports_merge_by_their_keys(kube):
    await kube.apply(WEB, deployment(ports=[{"containerPort": 80}]), manager="one")
    extra = deployment()
    del extra["spec"]["replicas"], extra["spec"]["selector"]
    extra["spec"]["template"]["spec"]["containers"] = [
        {"name": "c", "ports": [{"containerPort": 80, "protocol": "UDP"}]},
        {"name": "side", "image": "x:1"},
    ]
    status, merged = await kube.apply(WEB, extra, manager="two")
    assert status == 200, merged
    first, second = merged["spec"]["template"]["spec"]["containers"]
    assert first["image"] == "nginx:1" and second["name"] == "side"
    assert {(port["containerPort"], port["protocol"]) for port in first["ports"]} == {(80, "TCP"), (80, "UDP")}
    conflict = await kube.apply(WEB, deployment(image="nginx:2"), manager="three")
    assert conflict[1]["details"]["causes"][0]["field"] == '.spec.template.spec.containers[name="c"].image'


async def test_unknown_field_is_refused_by_the_typed_merge(widgets):
    status, body = await widgets.apply(W, widget(rows=[{"name": "a", "vlaue": 1}]), fieldValidation="Ignore")
    assert status == 500
    assert body["message"] == (
        "failed to create typed patch object (default/w; example.com/v1, Kind=Widget): "
        '.spec.rows[name="a"].vlaue: field not declared in schema'
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"name": "a"}, {"name": "a"}], 'duplicate entries for key [name="a"]'),
        ([{"value": 1}], 'an element that omits key field "name"'),
    ],
)
async def test_bad_associative_lists(widgets, rows, message):
    status, body = await widgets.apply(W, widget(rows=rows))
    assert status == 500 and message in body["message"]


async def test_applied_object_is_validated(widgets):
    status, body = await widgets.apply(W, widget(size=99))
    assert status == 422 and body["details"]["causes"][0]["field"] == "spec.size"
    assert (await widgets.get(W))[0] == 404


async def test_status_is_applied_apart(widgets):
    await widgets.apply(W, {**widget(), "status": {"phase": "no"}}, manager="one")
    assert "status" not in (await widgets.get(W))[1]
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "status": {"phase": "ok"}}
    status, reported = await widgets.apply(f"{W}/status", body, manager="operator")
    assert status == 200 and reported["status"] == {"phase": "ok"}
    entry = next(e for e in reported["metadata"]["managedFields"] if e["manager"] == "operator")
    assert entry["subresource"] == "status" and entry["fieldsV1"] == {"f:status": {"f:phase": {}}}
    # The main endpoint neither owns nor disturbs it.
    again = (await widgets.apply(W, widget(size=4), manager="one"))[1]
    assert again["status"] == {"phase": "ok"}


async def test_dry_run_shows_the_result_and_stores_nothing(widgets):
    await widgets.apply(W, widget(size=2))
    before = (await widgets.get(W))[1]
    shown = (await widgets.apply(W, widget(size=3), dryRun="All"))[1]
    assert shown["spec"]["size"] == 3 and shown["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert (await widgets.get(W))[1] == before


async def test_version_precondition(widgets):
    made = (await widgets.apply(W, widget()))[1]
    body = widget(size=2)
    body["metadata"]["resourceVersion"] = str(int(made["metadata"]["resourceVersion"]) - 1)
    assert (await widgets.apply(W, body))[0] == 409
    body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
    assert (await widgets.apply(W, body))[0] == 200


async def test_apply_of_a_crd_twice_changes_nothing(kube):
    path = f"{CRDS}/widgets.example.com"
    first = (await kube.apply(path, widget_crd()))[1]
    assert (await kube.apply(path, widget_crd()))[1] == first


_steps = st.one_of(
    st.text("abc./", min_size=1, max_size=4).map("f:{}".format),
    st.text("abc", min_size=1, max_size=3).map('k:{{"name":"{}"}}'.format),
    st.integers(0, 3).map("v:{}".format),
)


@given(st.sets(st.lists(_steps, min_size=1, max_size=4).map(tuple), max_size=12))
def test_fields_v1_round_trips(paths):
    assert fields.decode(fields.encode(paths)) == paths


_json = st.recursive(
    st.one_of(st.booleans(), st.integers(-5, 5), st.text("xyz", max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=10,
)
_objects = st.dictionaries(st.text("abc", min_size=1, max_size=2), _json, max_size=4)


@given(_objects, _objects)
def test_merge_holds_what_was_applied_and_is_stable(live, applied):
    merged = fields.merge(live, applied, None)
    assert fields.merge(merged, applied, None) == merged
    wanted = fields.leaves(applied, None)
    got = fields.leaves(merged, None)
    assert all(got[path] == value for path, value in wanted.items() if value is not fields.ITEM)
