# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""operator_prepare and operator_ready against an API server over HTTP; what Helm would have left is put there by hand."""

from __future__ import annotations

import base64
import functools
import gzip
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
import yaml
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError
from ansible_collections.railyard.rdma.plugins.modules import operator_prepare, operator_ready

CHART = Path(__file__).parents[3] / "rehearsal" / "charts" / "network-operator"
NAMESPACE = "nvidia-network-operator"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SRIOV = "/apis/sriovnetwork.openshift.io/v1"
CONFIG = {"disablePlugins": ["mellanox"], "disableDrain": False, "configurationMode": "daemon"}
VALUES = {"nfd": {"enabled": False}, "sriovNetworkOperator": {"enabled": True}}


def record(revision, status, version="26.7.1", values=None):
    """A record of Helm as a Secret."""
    body = {
        "version": revision,
        "info": {"status": status, "last_deployed": "2026-11-29T10:00:00Z"},
        "chart": {"metadata": {"name": "network-operator", "version": version}},
        "config": values or {},
    }
    packed = base64.b64encode(gzip.compress(json.dumps(body).encode()))
    labels = {"owner": "helm", "name": "network-operator", "status": status, "version": str(revision)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {"name": f"sh.helm.release.v1.network-operator.v{revision}", "labels": labels},
        "data": {"release": base64.b64encode(packed).decode()},
    }


@pytest.fixture
def helm(cluster):
    """Puts records into the cluster, and takes them and all CRDs of the chart away at the end."""
    api = cluster.api()
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    if NAMESPACE not in [n["metadata"]["name"] for n in api.list_items("/api/v1/namespaces")]:
        api.request("POST", "/api/v1/namespaces", body=body)

    def put(*records):
        for secret in records:
            api.request("POST", path, body=secret)

    yield put
    for secret in api.list_items(path):
        api.request("DELETE", f"{path}/{secret['metadata']['name']}")
    for crd in api.list_items(CRDS):
        if crd["metadata"]["name"] != "rails.railyard.io":
            api.request("DELETE", f"{CRDS}/{crd['metadata']['name']}")


def prepare(cluster, capsys, check=False, **more):
    options = {"chart": str(CHART), "version": "26.7.1", "values": VALUES, "nfd_enabled": "false", **more}
    return cluster.run(capsys, operator_prepare, check=check, diff=True, **options)


def names(cluster):
    return {crd["metadata"]["name"] for crd in cluster.api().list_items(CRDS)} - {"rails.railyard.io"}


def test_a_bare_cluster_gets_everything_from_helm(cluster, capsys, helm):
    with cluster.requests() as seen:
        result = prepare(cluster, capsys, nfd_enabled="auto")
    assert (result["action"], result["changed"], result["crds"]) == ("install", False, [])
    assert result["nfd"]["enabled"] is True and result["chart_values"]["nfd"] == {"enabled": True}
    assert result["chart"] == {"name": "network-operator", "version": "26.7.1", "path": str(CHART), "fetched": None}
    assert "chart" in {row["path"] for row in result["fields"]}
    assert {method for method, _path in seen} == {"GET"}


def test_the_rule_is_left_out_where_nobody_serves_it(cluster, capsys, helm):
    result = prepare(cluster, capsys)
    assert result["chart_values"]["nfd"] == {"enabled": False, "deployNodeFeatureRules": False}
    assert "the chart's NodeFeatureRule is left out" in json.dumps(result["warnings"])


def test_kinds_come_before_an_upgrade_and_only_once(cluster, capsys, helm):
    helm(record(1, "deployed", "26.4.1", VALUES))
    dry = prepare(cluster, capsys, check=True)
    assert dry["action"] == "upgrade" and dry["changed"] and names(cluster) == set()
    done = prepare(cluster, capsys)
    assert {row["action"] for row in done["crds"]} == {"create"} and names(cluster) == {r["name"] for r in done["crds"]}
    old = f"{CRDS}/nicclusterpolicies.mellanox.com"
    versions = cluster.api().get(old)["spec"]["versions"]
    versions[0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    change = {"spec": {"versions": versions}}
    cluster.api().request("PATCH", old, body=change, content_type="application/merge-patch+json")
    again = prepare(cluster, capsys)
    assert [row["name"] for row in again["crds"] if row["action"] == "update"] == ["nicclusterpolicies.mellanox.com"]
    with cluster.requests() as seen:
        last = prepare(cluster, capsys)
    assert not last["changed"] and {method for method, _path in seen} == {"GET"}


def test_a_kind_of_somebody_else_is_updated_before_an_installation(cluster, capsys, helm):
    other = yaml.safe_load((CHART / "crds" / "k8s.cni.cncf.io.yaml").read_text())
    other["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "of another Multus"
    cluster.api().request("POST", CRDS, body=other)
    result = prepare(cluster, capsys)
    assert result["action"] == "install" and result["changed"]
    assert result["crds"] == [{"name": other["metadata"]["name"], "action": "update"}]
    assert names(cluster) == {other["metadata"]["name"]}
    assert prepare(cluster, capsys)["crds"] == [{"name": other["metadata"]["name"], "action": "none"}]


def test_nothing_to_do_is_told_in_few_requests(cluster, capsys, helm):
    values = {**VALUES, "nfd": {"enabled": False, "deployNodeFeatureRules": False}}
    helm(record(1, "superseded", "26.4.1", VALUES), record(2, "deployed", "26.7.1", values))
    with cluster.requests() as seen:
        # Not even the chart is needed: a repository that does not answer is not asked.
        result = prepare(cluster, capsys, chart="network-operator", chart_repository="http://127.0.0.1:9/x")
    assert (result["action"], result["fields"], result["chart"]["path"]) == ("none", [], None)
    assert result["requests"] == 5 and len(seen) <= 10


@pytest.mark.parametrize(
    "records, options, said",
    [
        ([record(1, "pending-install")], {}, "pending-install (revision 1"),
        ([record(1, "deployed", "26.1.0")], {}, "an upgrade goes to the next release only"),
        ([record(1, "deployed", "26.10.0")], {}, "does not go back"),
        ([], {"user_values": {"operator": {"resorces": {}}}}, "did you mean operator.resources?"),
        ([], {"user_values": {"nfd": {"enabled": True}}}, "use network_operator_nfd_enabled"),
        ([], {"user_values": {"nfd": {"deployNodeFeatureRules": True}}}, "the cluster has no nodefeaturerules"),
        ([], {"version": "26.7.0"}, "holds version 26.7.1, network_operator_version is 26.7.0"),
        ([], {"chart": "/absent/network-operator-26.7.1.tgz"}, "/absent/network-operator-26.7.1.tgz does not exist"),
        ([], {"chart": str(CHART.parent)}, "is a folder without Chart.yaml"),
        ([], {"chart": "oci://127.0.0.1:9/network-operator", "helm_binary": "/absent/helm"}, "/absent/helm cannot be run"),
        ([], {"chart": "network-operator", "helm_binary": "helm-that-is-not-there"}, "is not on the PATH"),
    ],
    ids=[
        "pending", "release left out", "way back", "typo", "own variable", "rule without kind", "other version", "no file",
        "no chart in the folder", "no Helm at the path", "no Helm",
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_nothing_is_written(cluster, capsys, helm, records, options, said):
    helm(*records)
    with cluster.requests() as seen:
        result = prepare(cluster, capsys, **options)
    assert result["failed"] and said in result["msg"] and len(result["mistakes"]) >= 1
    assert {method for method, _path in seen} == {"GET"} and names(cluster) == set()


def test_all_mistakes_come_at_once(cluster, capsys, helm):
    helm(record(1, "deployed", "26.1.0"), record(2, "pending-upgrade"))
    result = prepare(cluster, capsys, user_values={"operator": {"resorces": {}}, "disablePlugins": []})
    assert len(result["mistakes"]) == 4


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """A repository of charts over HTTP with our chart in it: (its address, folder, Helm)."""
    helm = Path(__file__).parents[3] / ".cache" / "bin" / "helm"
    program = str(helm) if helm.exists() else shutil.which("helm")
    if program is None:
        pytest.skip("no Helm: run scripts/fetch_helm.py .cache/bin")
    folder = tmp_path_factory.mktemp("mirror")
    subprocess.run([program, "package", str(CHART), "--destination", str(folder)], check=True, capture_output=True)
    subprocess.run([program, "repo", "index", str(folder)], check=True, capture_output=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_words: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder, program
    server.shutdown()
    thread.join(10)


@pytest.mark.parametrize("way", ["mirror", "address", "file"])
def test_each_way_to_the_chart(cluster, capsys, helm, mirror, way):
    address, folder, program = mirror
    chart = {
        "mirror": {"chart": "network-operator", "chart_repository": address},
        "address": {"chart": f"{address}/network-operator-26.7.1.tgz"},
        "file": {"chart": str(folder / "network-operator-26.7.1.tgz")},
    }[way]
    result = prepare(cluster, capsys, helm_binary=program, **chart)
    assert result["action"] == "install" and Path(result["chart"]["path"]).is_file()
    if way == "file":
        assert result["chart"]["fetched"] is None
    else:
        assert Path(result["chart"]["path"]).parent == Path(result["chart"]["fetched"])
        shutil.rmtree(result["chart"]["fetched"])


def test_an_address_that_holds_what_is_installed_leaves_nothing(cluster, capsys, helm, mirror):
    helm(record(1, "deployed", "26.7.1", {**VALUES, "nfd": {"enabled": False, "deployNodeFeatureRules": False}}))
    before = set(Path(tempfile.gettempdir()).glob("railyard-chart-*"))
    address = f"{mirror[0]}/network-operator-26.7.1.tgz"
    result = prepare(cluster, capsys, helm_binary=mirror[2], chart=address)
    assert (result["action"], result["chart"]["path"], result["chart"]["fetched"]) == ("none", None, None)
    assert set(Path(tempfile.gettempdir()).glob("railyard-chart-*")) <= before


@pytest.mark.parametrize(
    "options, said",
    [
        ({"chart": "network-operator", "version": "9.9.9"}, "has no version 9.9.9"),
        ({"chart": "network-operatr"}, "has no version 26.7.1"),
        ({"chart": "network-operator", "chart_repository": "http://127.0.0.1:9"}, "does not answer"),
        ({"chart": "oci://127.0.0.1:9/network-operator"}, "does not answer"),
        ({"chart": "nowhere/network-operator"}, "helm repo add nowhere"),
    ],
    ids=["no such version", "no such chart", "no mirror", "no registry", "no alias"],
)
def test_a_chart_that_is_not_there_is_told_and_leaves_nothing(cluster, capsys, helm, mirror, options, said):
    address, _folder, program = mirror
    before = set(Path(tempfile.gettempdir()).glob("railyard-chart-*"))
    result = prepare(cluster, capsys, helm_binary=program, **{"chart_repository": address, **options})
    assert result["failed"] and said in result["msg"], result["msg"]
    assert set(Path(tempfile.gettempdir()).glob("railyard-chart-*")) <= before


def ready(cluster, capsys, **more):
    return cluster.run(capsys, operator_ready, timeout=1, interval=0.1, **more)


@pytest.fixture
def config(cluster, helm):
    """Sets the spec of SriovOperatorConfig default."""
    api = cluster.api()
    for document in yaml.safe_load_all(
        (CHART / "charts/sriov-network-operator/crds/sriovnetwork.openshift.io.yaml").read_text()
    ):
        api.request("POST", CRDS, body=document)
    limit = time.monotonic() + 30
    while "sriovnetwork.openshift.io" not in str(api.get("/apis")):
        assert time.monotonic() < limit, "the kinds are not served"
        time.sleep(0.02)

    def put(spec):
        body = {
            "apiVersion": "sriovnetwork.openshift.io/v1",
            "kind": "SriovOperatorConfig",
            "metadata": {"name": "default"},
        }
        api.request("POST", f"{SRIOV}/namespaces/{NAMESPACE}/sriovoperatorconfigs", body={**body, "spec": spec})

    return put


@pytest.mark.parametrize(
    "spec, said",
    [
        ({}, "disablePlugins is []"),
        ({"disablePlugins": ["mellanox"], "disableDrain": True}, "disableDrain is True"),
        ({"disablePlugins": ["mellanox"], "configurationMode": "systemd"}, "configurationMode is systemd"),
    ],
    ids=["plugin on", "no drain", "systemd"],
)
def test_a_configuration_that_is_not_as_asked_stops_at_once(cluster, capsys, config, spec, said):
    config(spec)
    result = cluster.run(capsys, operator_ready, timeout=600, sriov_config=CONFIG)
    assert result["failed"] and said in result["msg"] and result["waited"] < 600


def test_the_configuration_as_asked_and_kinds_that_are_served(cluster, capsys, config):
    config(CONFIG)
    kinds = ["sriovoperatorconfigs.sriovnetwork.openshift.io"]
    assert ready(cluster, capsys, sriov_config=CONFIG, crds=kinds)["ready"] is True


def test_what_is_not_there_is_named(cluster, capsys, helm):
    policy = {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": "nic-cluster-policy"},
    }
    result = ready(cluster, capsys, sriov_config=CONFIG, policy=policy, crds=["nicclusterpolicies.mellanox.com"])
    assert result["failed"]
    for said in (
        "CustomResourceDefinition nicclusterpolicies.mellanox.com: does not exist",
        "since 24.10",
        "does nothing",
    ):
        assert said in result["msg"]
    looked = cluster.run(capsys, operator_ready, check=True, sriov_config=CONFIG, policy=policy)
    assert not looked.get("failed") and looked["ready"] is False and len(looked["pending"]) == 2


def test_a_look_tells_everything_and_fails_for_nothing(cluster, capsys, helm):
    helm(record(1, "pending-install"))
    result = ready(cluster, capsys, look_only=True, crds=["nicclusterpolicies.mellanox.com"])
    assert result["operator"]["release"]["latest"]["status"] == "pending-install"
    assert result["operator"]["reasons"] == {}
    assert result["operator"]["crds"] == {"nicclusterpolicies.mellanox.com": False}


@pytest.mark.parametrize(
    "wrong", [{"disablePlugins": ["mellanox"]}, {**CONFIG, "disableDrain": "no"}, {**CONFIG, "more": 1}], ids=str
)
def test_a_wrong_expectation_is_refused(cluster, capsys, wrong):
    assert "sriov_config" in ready(cluster, capsys, sriov_config=wrong)["msg"]


class Flaky(Api):
    """An API that does not answer for a while."""

    def __init__(self, api, refusals, status=0):
        super().__init__(None)
        self.api, self.left, self.status = api, refusals, status

    def request(self, *words, **more):
        if self.left:
            self.left -= 1
            raise ApiError(self.status, "the API server does not answer")
        return self.api.request(*words, **more)


def test_a_server_that_comes_back_is_waited_for(cluster):
    params = {"namespace": NAMESPACE, "crds": ["rails.railyard.io"], "sriov_config": None, "policy": None, "hosts": {}}
    params |= {"timeout": 600, "interval": 0}
    _seen, pending, _second = operator_ready.wait(Flaky(cluster.api(), 3), params)
    assert pending == []
    with pytest.raises(ApiError):
        operator_ready.wait(Flaky(cluster.api(), 1, status=403), params)
    with pytest.raises(ApiError):
        operator_ready.wait(Flaky(cluster.api(), 9), {**params, "timeout": 0})
