# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finalizers, owner references, namespaces, CRDs and pods on their way out."""

from __future__ import annotations

import pytest
import yaml

from rehearsal.apiserver import crds
from rehearsal.apiserver.kinds import Registry, _version_order
from rehearsal.apiserver.server import build

from .conftest import CRDS, WIDGETS, Kube, configmap, pod, widget, widget_crd

CMS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def owned_by(owner: dict, name: str, **reference) -> dict:
    body = configmap(name)
    meta = owner["metadata"]
    row = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        **reference,
    }
    body["metadata"]["ownerReferences"] = [row]
    return body


async def names(kube, path: str = CMS) -> list[str]:
    await kube.settle()
    return [item["metadata"]["name"] for item in (await kube.get(path))[1]["items"]]


async def test_finalizer_holds_the_object(kube):
    body = configmap()
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await kube.post(CMS, body)
    status, held = await kube.delete(f"{CMS}/a")
    assert status == 200 and held["metadata"]["deletionTimestamp"]
    stamp = held["metadata"]["deletionTimestamp"]
    assert (await kube.delete(f"{CMS}/a"))[1]["metadata"]["deletionTimestamp"] == stamp
    async with kube.watch(CMS, resourceVersion=str(kube.api.store.version)) as event:
        assert (await kube.patch(f"{CMS}/a", {"metadata": {"finalizers": None}}))[0] == 200
        assert (await event())[0] == "DELETED"
    assert (await kube.get(f"{CMS}/a"))[0] == 404


async def test_dependents_go_with_their_owner(kube):
    owner = (await kube.post(CMS, configmap("owner")))[1]
    child = (await kube.post(CMS, owned_by(owner, "child")))[1]
    await kube.post(CMS, owned_by(child, "grandchild"))
    await kube.post(CMS, configmap("stranger"))
    await kube.delete(f"{CMS}/owner")
    assert await names(kube) == ["stranger"]


async def test_a_second_owner_keeps_the_dependent(kube):
    one, two = [(await kube.post(CMS, configmap(name)))[1] for name in ("one", "two")]
    body = owned_by(one, "child")
    body["metadata"]["ownerReferences"] += owned_by(two, "x")["metadata"]["ownerReferences"]
    await kube.post(CMS, body)
    await kube.delete(f"{CMS}/one")
    assert await names(kube) == ["child", "two"]
    left = (await kube.get(f"{CMS}/child"))[1]["metadata"]["ownerReferences"]
    assert [row["name"] for row in left] == ["two"]


async def test_orphan_frees_the_dependents(kube):
    owner = (await kube.post(CMS, configmap("owner")))[1]
    await kube.post(CMS, owned_by(owner, "child"))
    await kube.delete(f"{CMS}/owner", {"propagationPolicy": "Orphan"})
    assert await names(kube) == ["child"]
    assert "ownerReferences" not in (await kube.get(f"{CMS}/child"))[1]["metadata"]


async def test_foreground_waits_for_blocking_dependents(kube):
    owner = (await kube.post(CMS, configmap("owner")))[1]
    body = owned_by(owner, "child", blockOwnerDeletion=True)
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await kube.post(CMS, body)
    await kube.delete(f"{CMS}/owner", {"propagationPolicy": "Foreground"})
    assert await names(kube) == ["child", "owner"]
    await kube.patch(f"{CMS}/child", {"metadata": {"finalizers": None}})
    assert await names(kube) == []


async def test_an_object_whose_owner_never_was_is_collected(kube):
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    await kube.post(CMS, owned_by(ghost, "child"))
    assert await names(kube) == []


async def test_namespace_takes_its_objects_along(kube):
    await kube.post("/api/v1/namespaces", {"metadata": {"name": "ns"}})
    held = configmap("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await kube.post("/api/v1/namespaces/ns/configmaps", configmap("free"))
    await kube.post("/api/v1/namespaces/ns/configmaps", held)
    status, gone = await kube.delete("/api/v1/namespaces/ns")
    assert status == 200 and gone["status"]["phase"] == "Terminating"
    assert await names(kube, "/api/v1/namespaces/ns/configmaps") == ["held"]
    status, body = await kube.post("/api/v1/namespaces/ns/configmaps", configmap("late"))
    assert (status, body["reason"]) == (403, "Forbidden")
    assert body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await kube.patch("/api/v1/namespaces/ns/configmaps/held", {"metadata": {"finalizers": None}})
    await kube.settle()
    assert (await kube.get("/api/v1/namespaces/ns"))[0] == 404


async def test_first_namespaces(kube):
    found = await names(kube, "/api/v1/namespaces")
    assert {"default", "kube-system", "kube-public"} <= set(found)
    labels = (await kube.get("/api/v1/namespaces/default"))[1]["metadata"]["labels"]
    assert labels == {"kubernetes.io/metadata.name": "default"}


async def test_pod_on_a_node_waits_for_its_kubelet(kube):
    await kube.post(PODS, pod(nodeName="n", terminationGracePeriodSeconds=7))
    status, body = await kube.delete(f"{PODS}/p")
    assert status == 200 and body["metadata"]["deletionGracePeriodSeconds"] == 7
    assert (await kube.get(f"{PODS}/p"))[0] == 200
    status, _ = await kube.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert status == 200 and (await kube.get(f"{PODS}/p"))[0] == 404


@pytest.mark.parametrize("phase", [None, "Succeeded", "Failed"])
async def test_pod_without_node_or_at_its_end_goes_at_once(kube, phase):
    await kube.post(PODS, pod(nodeName="n") if phase else pod())
    if phase:
        await kube.patch(f"{PODS}/p/status", {"status": {"phase": phase}})
    await kube.delete(f"{PODS}/p")
    assert (await kube.get(f"{PODS}/p"))[0] == 404


async def test_crd_is_served_at_once_and_established(kube):
    assert (await kube.get(WIDGETS))[0] == 404
    made = (await kube.post(CRDS, widget_crd()))[1]
    conditions = {row["type"]: row["status"] for row in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert made["status"]["acceptedNames"]["listKind"] == "WidgetList" and made["status"]["storedVersions"] == ["v1"]
    assert (await kube.get(WIDGETS))[1]["kind"] == "WidgetList"


async def test_crd_deletion_waits_for_its_objects(widgets):
    body = widget("held")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await widgets.post(WIDGETS, body)
    await widgets.post(WIDGETS, widget("free"))
    await widgets.delete(f"{CRDS}/widgets.example.com")
    assert await names(widgets, WIDGETS) == ["held"]
    assert (await widgets.get(f"{CRDS}/widgets.example.com"))[1]["metadata"]["deletionTimestamp"]
    await widgets.patch(f"{WIDGETS}/held", {"metadata": {"finalizers": None}})
    await widgets.settle()
    assert (await widgets.get(f"{CRDS}/widgets.example.com"))[0] == 404
    assert (await widgets.get(WIDGETS))[0] == 404


async def test_crd_update_changes_the_schema(widgets):
    await widgets.post(WIDGETS, widget())
    crd = (await widgets.get(f"{CRDS}/widgets.example.com"))[1]
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["extra"] = {"type": "string"}
    assert (await widgets.put(f"{CRDS}/widgets.example.com", crd))[0] == 200
    assert (await widgets.post(WIDGETS, widget("x", extra="y"), fieldValidation="Strict"))[0] == 201


async def test_versions_of_a_crd_share_their_objects(kube):
    crd = widget_crd()
    newer = {**crd["spec"]["versions"][0], "name": "v2", "storage": False}
    crd["spec"]["versions"].append(newer)
    await kube.post(CRDS, crd)
    await kube.post(WIDGETS, widget())
    status, shown = await kube.get(f"{WIDGETS.replace('/v1/', '/v2/')}/w")
    assert status == 200 and shown["apiVersion"] == "example.com/v2" and shown["spec"]["size"] == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"group": "other.com"}, "metadata.name"),
        ({"scope": "Galaxy"}, "spec.scope"),
        ({"versions": [{"name": "v1", "served": True, "storage": True}]}, "spec.versions[0].schema.openAPIV3Schema"),
        (
            {
                "versions": [
                    {"name": "v1", "served": True, "storage": False, "schema": {"openAPIV3Schema": {"type": "object"}}}
                ]
            },
            "spec.versions",
        ),
    ],
)
async def test_bad_crds(kube, change, field):
    status, body = await kube.post(CRDS, widget_crd(**change))
    assert status == 422 and field in [cause["field"] for cause in body["details"]["causes"]]


async def test_schemas_of_a_folder_replace_permissive_ones(serve, tmp_path):
    (tmp_path / "widgets.yaml").write_text(yaml.safe_dump(widget_crd()))
    crds.folder_schemas.cache_clear()
    kube = Kube(await serve(build(tmp_path)))
    assert (await kube.get(WIDGETS))[0] == 404  # the folder alone serves nothing
    crd = widget_crd()
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = free
    made = (await kube.post(CRDS, crd))[1]
    assert made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == free  # what a client wrote is what it reads
    assert (await kube.post(WIDGETS, widget(size=99)))[0] == 422
    assert (await kube.post(WIDGETS, widget(nope=1), fieldValidation="Strict"))[0] == 400


def test_version_order():
    versions = ["v1beta1", "v2", "v1", "v1alpha1", "v10", "v1beta2", "odd"]
    assert sorted(versions, key=_version_order) == ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "odd"]


def test_every_builtin_kind_has_a_typed_schema():
    registry = Registry()
    for group, versions in {"": ["v1"], **registry.groups()}.items():
        for version in versions:
            for resource in registry.of_group_version(group, version):
                assert resource.schema.get("properties"), resource
