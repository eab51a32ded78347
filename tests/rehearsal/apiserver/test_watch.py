# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watch streams."""

from __future__ import annotations

import pytest

from rehearsal.apiserver import watch
from rehearsal.apiserver.store import Store

from .conftest import WIDGETS, configmap, pod, widget

CMS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def test_changes_arrive_in_order(kube):
    async with kube.watch(CMS) as event:
        made = (await kube.post(CMS, configmap(x="1")))[1]
        changed = (await kube.patch(f"{CMS}/a", {"data": {"x": "2"}}))[1]
        await kube.delete(f"{CMS}/a")
        assert await event() == ("ADDED", made)
        assert await event() == ("MODIFIED", changed)
        kind, last = await event()
        assert kind == "DELETED" and int(last["metadata"]["resourceVersion"]) > int(
            changed["metadata"]["resourceVersion"]
        )


async def test_without_version_the_state_comes_first(kube):
    made = (await kube.post(CMS, configmap()))[1]
    async with kube.watch(CMS) as event:
        assert await event() == ("ADDED", made)


async def test_from_a_version_only_later_changes_come(kube):
    first = (await kube.post(CMS, configmap("a")))[1]
    second = (await kube.post(CMS, configmap("b")))[1]
    async with kube.watch(CMS, resourceVersion=first["metadata"]["resourceVersion"]) as event:
        assert await event() == ("ADDED", second)


async def test_label_selector_turns_changes_into_added_and_deleted(kube):
    version = kube.api.store.version
    async with kube.watch(CMS, labelSelector="in=yes", resourceVersion=str(version)) as event:
        await kube.post(CMS, configmap(x="1"))
        joined = (await kube.patch(f"{CMS}/a", {"metadata": {"labels": {"in": "yes"}}}))[1]
        left = (await kube.patch(f"{CMS}/a", {"metadata": {"labels": {"in": "no"}}}))[1]
        assert await event() == ("ADDED", joined)
        kind, last = await event()
        assert kind == "DELETED" and last["metadata"]["labels"] == {"in": "yes"}
        assert last["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_field_selector_sees_a_pod_come_to_its_node(kube):
    version = str(kube.api.store.version)
    async with kube.watch("/api/v1/pods", fieldSelector="spec.nodeName=n1", resourceVersion=version) as event:
        await kube.post(PODS, pod("other", nodeName="n2"))
        await kube.post(PODS, pod("p"))
        status, _ = await kube.post(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n1"}})
        assert status == 201
        kind, obj = await event()
        assert (kind, obj["metadata"]["name"], obj["spec"]["nodeName"]) == ("ADDED", "p", "n1")


async def test_one_object_by_name(kube):
    version = str(kube.api.store.version)
    async with kube.watch(CMS, fieldSelector="metadata.name=b", resourceVersion=version) as event:
        await kube.post(CMS, configmap("a"))
        await kube.post(CMS, configmap("b"))
        assert (await event())[1]["metadata"]["name"] == "b"


async def test_other_namespaces_are_not_seen(kube):
    version = str(kube.api.store.version)
    async with kube.watch(CMS, resourceVersion=version) as event:
        await kube.post("/api/v1/namespaces/kube-system/configmaps", configmap("other"))
        await kube.post(CMS, configmap("mine"))
        assert (await event())[1]["metadata"]["name"] == "mine"


async def test_streaming_list(kube):
    for name in ("a", "b"):
        await kube.post(CMS, configmap(name))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with kube.watch(CMS, **query) as event:
        assert [(await event())[1]["metadata"]["name"] for _ in range(2)] == ["a", "b"]
        kind, mark = await event()
        assert kind == "BOOKMARK" and mark["kind"] == "ConfigMap"
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert mark["metadata"]["resourceVersion"] == str(kube.api.store.version)
        await kube.post(CMS, configmap("c"))
        assert (await event())[1]["metadata"]["name"] == "c"


async def test_streaming_list_needs_its_match(kube):
    status, body = await kube.get(CMS, watch="true", sendInitialEvents="true")
    assert status == 422 and "resourceVersionMatch" in body["message"]


async def test_bookmarks_while_nothing_happens(kube, monkeypatch):
    monkeypatch.setattr(watch, "BOOKMARK_SECONDS", 0.01)
    version = kube.api.store.version
    async with kube.watch(CMS, resourceVersion=str(version), allowWatchBookmarks="true") as event:
        kind, mark = await event()
        assert (kind, mark["metadata"]["resourceVersion"]) == ("BOOKMARK", str(version))


async def test_timeout_ends_the_stream(kube):
    version = str(kube.api.store.version)
    async with kube.watch(CMS, resourceVersion=version, timeoutSeconds="0.05") as event:
        assert (await event())[0] == "END"
    assert not kube.api.store.kind(("", "configmaps")).watchers


async def test_too_old_version_is_gone(kube):
    kube.api.store._history = 3
    first = (await kube.post(CMS, configmap()))[1]["metadata"]["resourceVersion"]
    for index in range(6):
        await kube.patch(f"{CMS}/a", {"data": {"x": str(index)}})
    async with kube.watch(CMS, resourceVersion=first) as event:
        kind, status = await event()
        assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert "too old resource version" in status["message"]
        assert (await event())[0] == "END"
    newest = kube.api.store.version
    async with kube.watch(CMS, resourceVersion=str(newest - 1)) as event:
        assert (await event())[1]["data"] == {"x": "5"}


async def test_custom_resources(widgets):
    async with widgets.watch("/apis/example.com/v1/widgets") as event:
        await widgets.post(WIDGETS, widget())
        kind, obj = await event()
        assert (kind, obj["kind"], obj["apiVersion"]) == ("ADDED", "Widget", "example.com/v1")


async def test_table_rows(kube):
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    await kube.post(CMS, configmap("a", x="1"))
    await kube.post(CMS, configmap("b"))
    async with kube.client.get(CMS, params={"watch": "1"}, headers=headers) as response:
        import json

        first, second = [json.loads(await response.content.readline())["object"] for _ in range(2)]
    assert first["rows"][0]["cells"][:2] == ["a", "1"] and [c["name"] for c in first["columnDefinitions"]] == [
        "Name",
        "Data",
        "Age",
    ]
    assert second["columnDefinitions"] == [] and second["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_streams_can_be_closed_by_a_fault(kube):
    async with kube.watch(CMS, resourceVersion=str(kube.api.store.version)) as event:
        status, body = await kube.post("/rehearsal/faults", {"close_watches": "configmaps"})
        assert (status, body) == (200, {"closed": 1})
        assert (await event())[0] == "END"


@pytest.mark.parametrize("size", [1, 4])
def test_history_is_bounded(size):
    store = Store(history=size)
    for index in range(10):
        store.put(("", "x"), {"metadata": {"name": "a", "uid": "u"}, "value": index})
    kind = store.kind(("", "x"))
    assert len(kind.history) == size and kind.forgotten == store.version - size
