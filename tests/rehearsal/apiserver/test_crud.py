# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create, read, update, delete, and what the server adds to objects."""

from __future__ import annotations

import pytest

from .conftest import CRDS, WIDGETS, configmap, deployment, pod, widget, widget_crd

CMS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def test_create_fills_metadata_in(kube):
    status, made = await kube.post(CMS, configmap(x="1"))
    assert status == 201
    meta = made["metadata"]
    assert meta["namespace"] == "default" and len(meta["uid"]) == 36
    assert meta["creationTimestamp"].endswith("Z") and int(meta["resourceVersion"]) > 0
    assert meta["managedFields"][0]["operation"] == "Update"
    assert (await kube.get(f"{CMS}/a"))[1] == made


async def test_resource_versions_grow_over_all_kinds(kube):
    first = (await kube.post(CMS, configmap()))[1]["metadata"]["resourceVersion"]
    second = (await kube.post("/api/v1/namespaces/default/pods", pod()))[1]["metadata"]["resourceVersion"]
    listed = (await kube.get(CMS))[1]["metadata"]["resourceVersion"]
    assert int(first) < int(second) == int(listed)


async def test_create_twice_conflicts(kube):
    await kube.post(CMS, configmap())
    status, body = await kube.post(CMS, configmap())
    assert (status, body["reason"]) == (409, "AlreadyExists")
    assert body["message"] == 'configmaps "a" already exists'
    assert body["details"] == {"name": "a", "kind": "configmaps"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"{CMS}/nope", 'configmaps "nope" not found'),
        (f"{DEPLOYMENTS}/nope", 'deployments.apps "nope" not found'),
    ],
)
async def test_not_found(kube, path, message):
    status, body = await kube.get(path)
    assert (status, body["reason"], body["message"]) == (404, "NotFound", message)


@pytest.mark.parametrize(
    "path",
    ["/apis/example.com/v1/widgets", "/api/v1/namespaces/default/pods/p/nonsense", "/api/v1/pods/p", "/nonsense"],
)
async def test_paths_that_are_not_served(kube, path):
    assert await kube.get(path) == (404, "404 page not found\n")


async def test_generate_name(kube):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "cm-"}}
    names = {(await kube.post(CMS, body))[1]["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5 and all(name.startswith("cm-") and len(name) == 8 for name in names)


@pytest.mark.parametrize(
    ("name", "field"),
    [("", "metadata.name"), ("Upper", "metadata.name"), ("a_b", "metadata.name"), ("x" * 254, "metadata.name")],
)
async def test_bad_names(kube, name, field):
    status, body = await kube.post(CMS, configmap(name))
    assert status == 422 and body["details"]["causes"][0]["field"] == field


async def test_bad_label(kube):
    body = configmap()
    body["metadata"]["labels"] = {"a b": "c"}
    status, answer = await kube.post(CMS, body)
    assert status == 422 and answer["details"]["causes"][0]["field"] == "metadata.labels"


async def test_namespace_must_exist_and_match(kube):
    status, body = await kube.post("/api/v1/namespaces/nowhere/configmaps", configmap())
    assert (status, body["message"]) == (404, 'namespaces "nowhere" not found')
    other = configmap()
    other["metadata"]["namespace"] = "kube-system"
    status, body = await kube.post(CMS, other)
    assert status == 400 and "does not match the namespace sent on the request" in body["message"]


async def test_update_needs_the_newest_version(kube):
    old = (await kube.post(CMS, configmap(x="1")))[1]
    status, new = await kube.put(f"{CMS}/a", {**old, "data": {"x": "2"}})
    assert status == 200 and new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]
    status, body = await kube.put(f"{CMS}/a", {**old, "data": {"x": "3"}})
    assert (status, body["reason"]) == (409, "Conflict")
    assert "the object has been modified; please apply your changes to the latest version" in body["message"]
    # Without a version a built-in kind is replaced unconditionally.
    status, body = await kube.put(f"{CMS}/a", configmap(x="4"))
    assert status == 200 and body["data"] == {"x": "4"} and body["metadata"]["uid"] == old["metadata"]["uid"]


async def test_custom_resources_need_a_version_to_update(widgets):
    await widgets.post(WIDGETS, widget())
    status, body = await widgets.put(f"{WIDGETS}/w", widget(size=2))
    assert status == 422 and body["details"]["causes"][0]["field"] == "metadata.resourceVersion"


async def test_update_that_changes_nothing_keeps_the_version(kube):
    old = (await kube.post(CMS, configmap(x="1")))[1]
    assert (await kube.put(f"{CMS}/a", old))[1] == old


async def test_generation_counts_spec_changes_only(widgets):
    made = (await widgets.post(WIDGETS, widget()))[1]
    assert made["metadata"]["generation"] == 1
    labelled = (await widgets.patch(f"{WIDGETS}/w", {"metadata": {"labels": {"a": "b"}}}))[1]
    assert labelled["metadata"]["generation"] == 1
    grown = (await widgets.patch(f"{WIDGETS}/w", {"spec": {"size": 3}}))[1]
    assert grown["metadata"]["generation"] == 2
    reported = (await widgets.patch(f"{WIDGETS}/w/status", {"status": {"phase": "ok"}}))[1]
    assert reported["metadata"]["generation"] == 2 and reported["status"] == {"phase": "ok"}


async def test_status_is_apart_from_the_rest(widgets):
    made = (await widgets.post(WIDGETS, {**widget(), "status": {"phase": "early"}}))[1]
    assert "status" not in made
    kept = (await widgets.patch(f"{WIDGETS}/w", {"status": {"phase": "x"}, "spec": {"size": 2}}))[1]
    assert "status" not in kept and kept["spec"]["size"] == 2
    body = {"status": {"phase": "late"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}
    changed = (await widgets.patch(f"{WIDGETS}/w/status", body))[1]
    assert changed["status"] == {"phase": "late"} and changed["spec"]["size"] == 2
    assert "labels" not in changed["metadata"]


async def test_without_status_subresource_status_is_plain_data(kube):
    crd = widget_crd()
    del crd["spec"]["versions"][0]["subresources"]
    await kube.post(CRDS, crd)
    made = (await kube.post(WIDGETS, {**widget(), "status": {"phase": "early"}}))[1]
    assert made["status"] == {"phase": "early"}
    assert (await kube.patch(f"{WIDGETS}/w/status", {}))[0] == 404


async def test_node_is_registered_with_status_and_reports_it_apart(kube):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": 4}}}
    made = (await kube.post("/api/v1/nodes", node))[1]
    assert made["status"]["capacity"] == {"cpu": "4"}
    changed = (await kube.patch("/api/v1/nodes/n/status", {"status": {"allocatable": {"nvidia.com/rdma-vf": 16}}}))[1]
    assert changed["status"]["allocatable"] == {"nvidia.com/rdma-vf": "16"}
    kept = (await kube.patch("/api/v1/nodes/n", {"status": {"allocatable": None}, "spec": {"unschedulable": True}}))[1]
    assert kept["status"] == changed["status"] and kept["spec"]["unschedulable"] is True


async def test_dry_run_changes_nothing(kube):
    status, made = await kube.post(CMS, configmap(), dryRun="All")
    assert status == 201 and made["metadata"]["uid"]
    assert (await kube.get(f"{CMS}/a"))[0] == 404
    stored = (await kube.post(CMS, configmap(x="1")))[1]
    changed = (await kube.patch(f"{CMS}/a", {"data": {"x": "2"}}, dryRun="All"))[1]
    assert changed["data"] == {"x": "2"}
    assert (await kube.delete(f"{CMS}/a", dryRun="All"))[0] == 200
    assert (await kube.get(f"{CMS}/a"))[1] == stored


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (WIDGETS, widget(colour="blue", sise=3), "spec.sise"),
        (WIDGETS, widget(rows=[{"name": "a"}, {"name": "b", "vlaue": 1}]), "spec.rows[1].vlaue"),
        (DEPLOYMENTS, deployment(imagePullPolice="Always"), "spec.template.spec.containers[0].imagePullPolice"),
        (CMS, {**configmap(), "dta": {}}, "dta"),
        (CMS, {**configmap(), "metadata": {"name": "a", "lables": {}}}, "metadata.lables"),
    ],
)
async def test_field_validation(widgets, path, body, field):
    status, answer = await widgets.post(path, body, fieldValidation="Strict")
    assert (status, answer["reason"]) == (400, "BadRequest")
    kind = body["kind"]
    assert answer["message"] == (
        f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: unknown field "{field}"'
    )
    status, made = await widgets.post(path, body)  # Warn is the default
    assert status == 201 and widgets.headers["Warning"] == f'299 - "unknown field \\"{field}\\""'
    assert field.rpartition(".")[2] not in str({key: made[key] for key in made if key != "metadata"})
    name = body["metadata"]["name"]
    await widgets.delete(f"{path}/{name}")
    status, _ = await widgets.post(path, body, fieldValidation="Ignore")
    assert status == 201 and "Warning" not in widgets.headers


async def test_strict_accepts_what_is_known_or_free(widgets):
    body = widget(free={"any": {"thing": 1}}, labels={"x": "y"}, amount="5%")
    status, made = await widgets.post(WIDGETS, body, fieldValidation="Strict")
    assert status == 201, made
    assert made["spec"]["free"] == {"any": {"thing": 1}}


async def test_schema_defaults(widgets):
    made = (await widgets.post(WIDGETS, widget(nested={}, colour=None)))[1]
    assert made["spec"]["colour"] == "red" and made["spec"]["nested"] == {"deep": True}
    assert "free" not in made["spec"]


@pytest.mark.parametrize(
    ("spec", "field", "reason", "message"),
    [
        ({"size": 0}, "spec.size", "FieldValueInvalid", "spec.size in body should be greater than or equal to 1"),
        ({"size": 11}, "spec.size", "FieldValueInvalid", "spec.size in body should be less than or equal to 10"),
        ({"size": "1"}, "spec.size", "FieldValueTypeInvalid", 'must be of type integer: "string"'),
        (
            {"colour": "green"},
            "spec.colour",
            "FieldValueNotSupported",
            'Unsupported value: "green": supported values: "red", "blue"',
        ),
        ({"code": "A1"}, "spec.code", "FieldValueInvalid", "spec.code in body should match '^[a-z]+$'"),
        ({"amount": True}, "spec.amount", "FieldValueTypeInvalid", "must be of type integer,string"),
        (
            {"rows": [{"value": 1, "name": "a"}, {"value": 2}]},
            "spec.rows[1].name",
            "FieldValueRequired",
            "Required value",
        ),
    ],
)
async def test_schema_validation(widgets, spec, field, reason, message):
    status, body = await widgets.post(WIDGETS, widget(**spec))
    assert (status, body["reason"]) == (422, "Invalid")
    (cause,) = body["details"]["causes"]
    assert (cause["field"], cause["reason"]) == (field, reason) and message in cause["message"]
    assert body["message"].startswith('Widget.example.com "w" is invalid: ')


async def test_all_mistakes_are_told_at_once(widgets):
    status, body = await widgets.post(WIDGETS, widget(size=0, colour="x"))
    assert status == 422 and {cause["field"] for cause in body["details"]["causes"]} == {"spec.size", "spec.colour"}


async def test_missing_required_field(widgets):
    body = widget()
    del body["spec"]["size"]
    status, answer = await widgets.post(WIDGETS, body)
    assert status == 422 and answer["details"]["causes"][0]["field"] == "spec.size"


async def test_builtin_type_errors_do_not_decode(kube):
    status, body = await kube.post(CMS, configmap(x=1))
    assert (
        status == 400
        and "cannot unmarshal integer into Go struct field ConfigMap.data.x of type string" in body["message"]
    )


async def test_builtin_defaults_and_rules(kube):
    made = (await kube.post(DEPLOYMENTS, deployment(resources={"limits": {"nvidia.com/rdma-vf": 1}})))[1]
    container = made["spec"]["template"]["spec"]["containers"][0]
    assert made["spec"]["strategy"]["type"] == "RollingUpdate" and made["spec"]["progressDeadlineSeconds"] == 600
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"] == {"limits": {"nvidia.com/rdma-vf": "1"}, "requests": {"nvidia.com/rdma-vf": "1"}}
    broken = deployment("other")
    broken["spec"]["template"]["metadata"]["labels"] = {}
    assert (await kube.post(DEPLOYMENTS, broken))[0] == 422
    moved = {"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}}}}
    status, body = await kube.patch(f"{DEPLOYMENTS}/web", moved)
    assert status == 422 and body["details"]["causes"][0]["field"] == "spec.selector"


async def test_pod_spec_is_fixed_but_for_the_image(kube):
    pods = "/api/v1/namespaces/default/pods"
    made = (await kube.post(pods, pod()))[1]
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    image = {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}
    assert (await kube.patch(f"{pods}/p", image, "strategic-merge-patch"))[0] == 200
    status, body = await kube.patch(f"{pods}/p", {"spec": {"hostNetwork": True}})
    assert status == 422 and "pod updates may not change fields other than" in body["message"]


async def test_secret_string_data(kube):
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    made = (await kube.post("/api/v1/namespaces/default/secrets", body))[1]
    assert made["data"] == {"a": "Yg=="} and "stringData" not in made and made["type"] == "Opaque"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=a", {"one", "two"}),
        ("app==a,tier!=db", {"one"}),
        ("app in (a, b)", {"one", "two", "three"}),
        ("app notin (a)", {"three", "four"}),
        ("tier", {"one", "two"}),
        ("!tier,app", {"three"}),
        ("rank>1", {"three"}),
    ],
)
async def test_label_selectors(kube, selector, expected):
    labels = {
        "one": {"app": "a", "tier": "web"},
        "two": {"app": "a", "tier": "db"},
        "three": {"app": "b", "rank": "2"},
        "four": {},
    }
    for name, marks in labels.items():
        body = configmap(name)
        body["metadata"]["labels"] = marks
        await kube.post(CMS, body)
    status, listed = await kube.get(CMS, labelSelector=selector)
    assert status == 200 and {item["metadata"]["name"] for item in listed["items"]} == expected


async def test_field_selectors(kube):
    pods = "/api/v1/namespaces/default/pods"
    await kube.post(pods, pod("a", nodeName="n1"))
    await kube.post(pods, pod("b"))
    names = [item["metadata"]["name"] for item in (await kube.get(pods, fieldSelector="spec.nodeName=n1"))[1]["items"]]
    assert names == ["a"]
    listed = await kube.get("/api/v1/pods", fieldSelector="status.phase=Pending,metadata.name!=a")
    assert [item["metadata"]["name"] for item in listed[1]["items"]] == ["b"]
    status, body = await kube.get(pods, fieldSelector="spec.nonsense=1")
    assert status == 400 and "field label not supported: spec.nonsense" in body["message"]


async def test_broken_selector(kube):
    assert (await kube.get(CMS, labelSelector="a in (b"))[0] == 400


async def test_list_items_have_their_type_only_for_custom_resources(widgets):
    await widgets.post(CMS, configmap())
    await widgets.post(WIDGETS, widget())
    (typed,), (free,) = [(await widgets.get(path))[1]["items"] for path in (CMS, WIDGETS)]
    assert "kind" not in typed and "apiVersion" not in typed
    assert (free["kind"], free["apiVersion"]) == ("Widget", "example.com/v1")


async def test_limit_and_continue(kube):
    for index in range(5):
        await kube.post(CMS, configmap(f"c{index}"))
    seen, token = [], None
    while True:
        page = (await kube.get(CMS, limit=2, **({"continue": token} if token else {})))[1]
        seen += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue")
        if not token:
            break
        assert page["metadata"]["remainingItemCount"] == 5 - len(seen)
    assert seen == [f"c{index}" for index in range(5)]


async def test_delete_collection_by_label(kube):
    for name in ("a", "b"):
        body = configmap(name)
        body["metadata"]["labels"] = {"name": name}
        await kube.post(CMS, body)
    status, gone = await kube.delete(CMS, labelSelector="name=a")
    assert status == 200 and [item["metadata"]["name"] for item in gone["items"]] == ["a"]
    assert [item["metadata"]["name"] for item in (await kube.get(CMS))[1]["items"]] == ["b"]


async def test_delete_answers_a_status_with_the_uid(kube):
    made = (await kube.post(CMS, configmap()))[1]
    status, body = await kube.delete(f"{CMS}/a", {"preconditions": {"uid": "other"}})
    assert (status, body["reason"]) == (409, "Conflict")
    status, body = await kube.delete(f"{CMS}/a")
    assert (status, body["status"]) == (200, "Success")
    assert body["details"] == {"name": "a", "group": "", "kind": "configmaps", "uid": made["metadata"]["uid"]}


async def test_reviews_are_answered(kube):
    body = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    status, answer = await kube.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert status == 201 and answer["status"]["allowed"] is True
    status, answer = await kube.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert status == 201 and answer["status"]["userInfo"]["username"]


async def test_scale(kube):
    await kube.post(DEPLOYMENTS, deployment())
    assert (await kube.get(f"{DEPLOYMENTS}/web/scale"))[1]["spec"] == {"replicas": 2}
    status, body = await kube.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 5}})
    assert status == 200 and body["kind"] == "Scale" and body["status"]["selector"] == "app=web"
    assert (await kube.get(f"{DEPLOYMENTS}/web"))[1]["spec"]["replicas"] == 5


async def test_broken_bodies(kube):
    async with kube.client.post(CMS, data=b"{", headers={"Content-Type": "application/json"}) as response:
        assert response.status == 400
    async with kube.client.post(
        CMS, data=b"k8s\x00\xff", headers={"Content-Type": "application/vnd.kubernetes.protobuf"}
    ) as r:
        assert r.status == 400
    assert (await kube.post(CMS, {"apiVersion": "v2", "kind": "ConfigMap"}))[0] == 400
    assert (await kube.post(CMS, []))[0] == 400
