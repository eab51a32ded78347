# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A chart as folder, archive or something broken, and values that it does not know."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest
import yaml
from ansible_collections.railyard.rdma.plugins.module_utils.operator import chart, chart_values, sources
from hypothesis import given
from hypothesis import strategies as st

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.org"},
    "spec": {"group": "example.org"},
}
SUB = {
    "Chart.yaml": {"name": "daemon", "version": "0.1.0"},
    "values.yaml": {"operatorConfig": {"deploy": False, "selector": {}, "plugins": []}, "imagePullSecrets": []},
    "templates/a.yaml": "{{ .Values.nameOverride }}",
    "crds/things.yaml": CRD,
}
FILES = {
    "Chart.yaml": {
        "name": "network-operator",
        "version": "26.7.1",
        "appVersion": "v26.7.1",
        "kubeVersion": ">= 1.32.0-0",
        "dependencies": [{"name": "daemon", "alias": "sriov", "condition": "daemon.enabled", "version": "0.1.0"}],
    },
    "values.yaml": {
        "daemon": {"enabled": False},
        "operator": {"resources": {"limits": {"memory": "128Mi"}}, "image": "x", "nodeSelector": {}, "useDTK": True},
        "sriov": {"operatorConfig": {"deploy": True, "selector": {"os": "linux"}}},
        "imagePullSecrets": [],
    },
    "templates/operator.yaml": "{{ .Values.operator.tag | default .Chart.AppVersion }} {{ $.Values.operator.imagePullSecrets }}",
    **{f"charts/daemon/{name}": content for name, content in SUB.items()},
}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner),
)


def texts(files):
    return {name: (c if isinstance(c, str) else yaml.safe_dump(c)).encode() for name, c in files.items()}


def as_folder(path, files=FILES):
    for name, data in texts(files).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return str(path)


def as_archive(path, files=FILES, top="network-operator"):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in texts(files).items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return str(path)


@pytest.fixture
def known():
    return chart.assemble(texts(FILES), "chart")


def test_folder_and_archive_are_the_same_chart(tmp_path):
    folder = chart.read(as_folder(tmp_path / "c"), "folder")
    packed = chart.read(as_archive(tmp_path / "c.tgz"), "archive")
    assert folder == packed
    assert (folder["name"], folder["version"], folder["kube_version"]) == ("network-operator", "26.7.1", ">= 1.32.0-0")
    # The parent's values go over those of the sub-chart, key by key.
    assert folder["values"]["sriov"]["operatorConfig"] == {"deploy": True, "selector": {"os": "linux"}, "plugins": []}
    assert [(row["name"], row["sub_chart"]) for row in folder["crds"]] == [("things.example.org", "sriov")]
    assert folder["sub_charts"] == {"sriov": "daemon.enabled"}


def test_a_packed_sub_chart_is_read_too(tmp_path):
    files = {name: content for name, content in FILES.items() if not name.startswith("charts/")}
    path = as_folder(tmp_path / "c", files)
    (tmp_path / "c" / "charts").mkdir()
    as_archive(tmp_path / "c" / "charts" / "daemon-0.1.0.tgz", SUB, "daemon")
    assert chart.read(path, "folder")["sub_charts"] == {"sriov": "daemon.enabled"}


@pytest.mark.parametrize(
    "broken, said",
    [
        ({"Chart.yaml": None}, "without Chart.yaml"),
        ({"Chart.yaml": {"version": "1"}}, "Chart.yaml has no name"),
        ({"Chart.yaml": {"name": "x", "version": 26.7}}, "Chart.yaml has no version"),
        ({"Chart.yaml": "a: [b"}, "is no YAML"),
        ({"Chart.yaml": "- a"}, "expected a mapping"),
        ({"values.yaml": "- a"}, "values.yaml holds list"),
        ({"charts/daemon/Chart.yaml": None}, "lacks its sub-charts sriov"),
    ],
    ids=["no description", "no name", "version is a number", "no yaml", "a list", "values are a list", "no sub-chart"],
)
def test_a_broken_chart_is_told(tmp_path, broken, said):
    files = {name: content for name, content in {**FILES, **broken}.items() if content is not None}
    for path, kind in (
        (as_folder(tmp_path / "c", files), "folder"),
        (as_archive(tmp_path / "c.tgz", files), "archive"),
    ):
        with pytest.raises(chart.ChartError, match=said):
            chart.read(path, kind)


def test_what_is_no_archive_is_told(tmp_path):
    whole = as_archive(tmp_path / "whole.tgz")
    data = (tmp_path / "whole.tgz").read_bytes()
    cases = {
        "cut.tgz": data[: len(data) // 2],
        "empty.tgz": b"",
        "page.tgz": b"<html>Not Found</html>",
        "flipped.tgz": data[:40] + bytes(255 - b for b in data[40:60]) + data[60:],
        "nothing.tgz": gzip.compress(b""),
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(chart.ChartError, match=name):
            chart.read(str(tmp_path / name), "archive")
    with pytest.raises(chart.ChartError, match="does not exist"):
        chart.read(str(tmp_path / "absent.tgz"), "archive")
    assert chart.read(whole, "archive")["name"] == "network-operator"


def test_a_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "bomb.tgz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("network-operator/values.yaml")
        member.size = chart.LARGEST_FILE + 1
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(chart.ChartError, match="too many"):
        chart.read(str(path), "archive")


def test_how_a_chart_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    assert chart.kind_of("network-operator") == "name"
    assert chart.kind_of("nvidia/network-operator") == "name"
    assert chart.kind_of("oci://registry.example/network-operator") == "oci"
    assert chart.kind_of("https://mirror.example/network-operator-26.7.1.tgz") == "url"
    assert chart.kind_of("folder") == "folder" == chart.kind_of(str(tmp_path / "folder"))
    assert chart.kind_of("network-operator-26.7.1.tgz") == "archive" == chart.kind_of("/absent")


def said(values, known):
    return "\n".join(chart_values.mistakes(values, known))


def test_known_values_pass(known):
    values = {
        "operator": {
            "tag": "x",
            "imagePullSecrets": ["a"],
            "nodeSelector": {"any": "thing"},
            "resources": {"requests": {}},
        },
        "sriov": {"operatorConfig": {"selector": {"more": "x"}, "plugins": ["mellanox"]}, "nameOverride": "n"},
        "global": {"anything": 1},
    }
    assert chart_values.mistakes(values, known) == []
    assert chart_values.mistakes({}, known) == []


@pytest.mark.parametrize(
    "values, text",
    [
        ({"operator": {"resorces": {}}}, "no value operator.resorces; did you mean operator.resources?"),
        ({"plugins": []}, "no value plugins; did you mean sriov.operatorConfig.plugins?"),
        ({"operator": {"zzz": 1}}, "it knows image, imagePullSecrets"),
        ({"operator": {"useDTK": "false"}}, "expected true or false without quotes"),
        ({"operator": []}, "operator is [], expected a mapping"),
        ({"operator": {"image": {"a": 1}}}, "operator.image is a dict, expected a single value"),
        ({"imagePullSecrets": "a"}, "expected a list"),
        ({"imagePullSecrets": [{"name": "a"}]}, "plain names of secrets"),
        ({"sriov": {"operatorConfig": {"selector": {"os": None}}}}, "can only be added or changed"),
        ({"sriov": {"operatorConfig": {"selector": None}}}, "can only be added or changed"),
        ({"operator": {"nodeSelector": {"a": None}}}, "can only be added or changed"),
        ({1: 2}, "quote it"),
    ],
    ids=str,
)
def test_a_value_that_the_chart_would_swallow_is_refused(known, values, text):
    assert text in said(values, known)


@given(VALUES)
def test_no_value_breaks_the_check(value):
    known = chart.assemble(texts(FILES), "chart")
    found = chart_values.mistakes(value, known)
    assert all(isinstance(text, str) for text in found)
    if isinstance(value, dict) and set(value) - {"global", *known["values"]}:
        assert found


def test_what_has_its_own_variable_is_refused():
    decided = {
        "nfd": {"enabled": False},
        "sriov-network-operator": {"sriovOperatorConfig": {"disablePlugins": ["mellanox"]}},
    }
    user = {"nfd": {"enabled": True}, "sriov-network-operator": {"sriovOperatorConfig": {"disablePlugins": []}}}
    found = "\n".join(chart_values.contradictions(user, decided))
    assert "use network_operator_nfd_enabled" in found and "reboots every node" in found
    assert chart_values.contradictions(decided, decided) == []


@pytest.mark.parametrize(
    "chart_name, kind, text, hint",
    [
        (
            "network-operator",
            "name",
            '"https://m" is not a valid chart repository or cannot be reached',
            "HTTPS_PROXY",
        ),
        (
            "network-operator",
            "name",
            'chart "network-operator" version "9.9.9" not found in https://m repository',
            "no version 26.7.1",
        ),
        ("nvidia/network-operator", "name", "repo nvidia not found", "helm repo add nvidia"),
        ("oci://r.example/x", "oci", "failed to authorize: 401 Unauthorized", "helm registry login"),
        ("oci://r.example/x", "oci", "tls: failed to verify certificate: x509: unknown authority", "SSL_CERT_FILE"),
        ("oci://r.example/x", "oci", "r.example/x:26.7.1: not found", "no version 26.7.1"),
        ("oci://r.example/x", "oci", "something new", "something new"),
    ],
    ids=["unreachable", "no version", "no alias", "no login", "certificate", "not in the registry", "anything else"],
)
def test_each_failed_way_has_its_remedy(chart_name, kind, text, hint):
    found = sources.explain_pull(chart_name, kind, "https://m", "26.7.1", f"Error: {text}")
    assert found.startswith("network_operator_chart: ") and hint in found


def test_a_repository_that_helm_knows_keeps_its_own_address():
    assert "--repo" in sources.pull_command("helm", "network-operator", "name", "https://m", "26.7.1", "/t")
    assert "--repo" not in sources.pull_command("helm", "nvidia/network-operator", "name", "https://m", "26.7.1", "/t")
    assert "--version" not in sources.pull_command("helm", "https://m/x.tgz", "url", "https://m", "26.7.1", "/t")
