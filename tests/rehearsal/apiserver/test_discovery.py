# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovery, OpenAPI and the other forms of answers; the request log and ordered faults."""

from __future__ import annotations

import json

import pytest

from .conftest import WIDGETS, configmap, widget

CMS = "/api/v1/namespaces/default/configmaps"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@pytest.mark.parametrize("path", ["/readyz", "/livez", "/healthz"])
async def test_health(kube, path):
    async with kube.client.get(path) as response:
        assert (response.status, await response.text()) == (200, "ok")


async def test_version(kube):
    status, body = await kube.get("/version")
    assert status == 200 and body["gitVersion"].startswith("v1.36.") and (body["major"], body["minor"]) == ("1", "36")


async def test_groups_and_resources(widgets):
    assert (await widgets.get("/api"))[1]["versions"] == ["v1"]
    groups = {row["name"]: row for row in (await widgets.get("/apis"))[1]["groups"]}
    assert {"apps", "batch", "policy", "example.com", "apiextensions.k8s.io"} <= set(groups)
    assert groups["example.com"]["preferredVersion"] == {"groupVersion": "example.com/v1", "version": "v1"}
    assert (await widgets.get("/apis/example.com"))[1]["kind"] == "APIGroup"
    rows = {row["name"]: row for row in (await widgets.get("/apis/example.com/v1"))[1]["resources"]}
    assert set(rows) == {"widgets", "widgets/status"} and rows["widgets"]["namespaced"] is True
    core = {row["name"]: row for row in (await widgets.get("/api/v1"))[1]["resources"]}
    assert core["nodes"]["namespaced"] is False and core["pods"]["shortNames"] == ["po"]
    assert (core["pods/eviction"]["kind"], core["pods/eviction"]["group"]) == ("Eviction", "policy")
    assert (await widgets.get("/apis/none.com"))[0] == (await widgets.get("/apis/none.com/v1"))[0] == 404


async def test_aggregated_discovery(widgets):
    async with widgets.client.get("/apis", headers={"Accept": AGGREGATED}) as response:
        body, etag = await response.json(), response.headers["ETag"]
    assert body["kind"] == "APIGroupDiscoveryList" and body["apiVersion"] == "apidiscovery.k8s.io/v2"
    found = {item["metadata"]["name"]: item["versions"] for item in body["items"]}
    (row,) = found["example.com"][0]["resources"]
    assert (row["resource"], row["scope"], row["responseKind"]["kind"]) == ("widgets", "Namespaced", "Widget")
    async with widgets.client.get("/apis", headers={"Accept": AGGREGATED, "If-None-Match": etag}) as response:
        assert response.status == 304


async def test_openapi(widgets):
    index = (await widgets.get("/openapi/v3"))[1]["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/example.com/v1"} <= set(index)
    document = (await widgets.get(index["apis/example.com/v1"]["serverRelativeURL"].partition("?")[0]))[1]
    kind = {"group": "example.com", "version": "v1", "kind": "Widget"}
    schemas = [
        s for s in document["components"]["schemas"].values() if kind in s.get("x-kubernetes-group-version-kind", [])
    ]
    assert schemas[0]["properties"]["spec"]["properties"]["colour"]["enum"] == ["red", "blue"]
    (path,) = document["paths"].values()
    assert {"fieldValidation", "dryRun"} <= {row["name"] for row in path["patch"]["parameters"]}
    old = (await widgets.get("/openapi/v2"))[1]
    assert "io.k8s.api.core.v1.Pod" in old["definitions"]
    text = json.dumps(old)
    references = {part.partition('"')[0] for part in text.split('"#/definitions/')[1:]}
    assert references and references <= set(old["definitions"])


async def test_table(widgets):
    await widgets.post(WIDGETS, widget())
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    async with widgets.client.get(WIDGETS, headers=headers) as response:
        body = await response.json()
    assert [column["name"] for column in body["columnDefinitions"]] == ["Name", "Age"]
    assert body["rows"][0]["cells"] == ["w", "0s"] and body["metadata"]["resourceVersion"]


async def test_metadata_only(kube):
    await kube.post(CMS, configmap(x="1"))
    headers = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    async with kube.client.get(CMS, headers=headers) as response:
        body = await response.json()
    assert body["kind"] == "PartialObjectMetadataList" and "data" not in body["items"][0]


async def test_request_log(kube, tmp_path):
    await kube.get(f"{CMS}/nope", pretty="true")
    rows = [json.loads(line) for line in (tmp_path / "apiserver.jsonl").read_text().splitlines()]
    row = rows[-1]
    assert (row["method"], row["path"], row["query"], row["status"]) == ("GET", f"{CMS}/nope", "pretty=true", 404)
    assert row["ms"] >= 0 and "aiohttp" in row["user_agent"]


async def test_ordered_faults(kube):
    order = {"method": "POST", "path": "configmaps", "status": 429, "retryAfter": 1, "count": 2}
    assert (await kube.post("/rehearsal/faults", order))[0] == 200
    assert (await kube.get(CMS))[0] == 200
    for _ in range(2):
        status, body = await kube.post(CMS, configmap())
        assert (status, body["reason"], kube.headers["Retry-After"]) == (429, "TooManyRequests", "1")
    assert (await kube.post(CMS, configmap()))[0] == 201
    await kube.post("/rehearsal/faults", {"status": 500})
    assert (await kube.delete("/rehearsal/faults"))[1] == []
    assert (await kube.get(CMS))[0] == 200
    status, body = await kube.post("/rehearsal/faults", {"status": 200})
    assert status == 400 and "a fault has keys" in body["message"]
