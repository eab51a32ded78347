# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Helm and the cluster know before an installation: releases, versions, Node Feature Discovery, kinds."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.operator import crds, nfd, releases, versions

NOW = "2026-11-29T10:00:00Z"


def record(revision, status, version="26.7.1", values=None, **more):
    """A Secret as Helm writes it."""
    body = {
        "name": "network-operator",
        "version": revision,
        "info": {"status": status, "last_deployed": NOW, "description": "Upgrade"},
        "chart": {"metadata": {"name": "network-operator", "version": version, "appVersion": f"v{version}"}},
        "config": values or {},
        **more,
    }
    packed = base64.b64encode(gzip.compress(json.dumps(body).encode()))
    data = {"release": base64.b64encode(packed).decode()}
    return {"metadata": {"name": f"sh.helm.release.v1.network-operator.v{revision}"}, "data": data}


def test_the_newest_record_and_the_one_in_force():
    found = releases.state([record(3, "failed"), record(2, "deployed", values={"a": 1}), record(1, "superseded")])
    assert (found["latest"]["revision"], found["latest"]["status"]) == (3, "failed")
    assert (found["deployed"]["revision"], found["deployed"]["values"]) == (2, {"a": 1})
    assert releases.state([]) == {"latest": None, "deployed": None}
    assert releases.state([record(1, "uninstalled")])["latest"] is None


@pytest.mark.parametrize(
    "secret",
    [
        {"metadata": {"name": "x"}},
        {"metadata": {"name": "x"}, "data": {"release": "!!"}},
        {"metadata": {"name": "x"}, "data": {"release": base64.b64encode(base64.b64encode(b"\x1f\x8bcut")).decode()}},
        {"metadata": {"name": "x"}, "data": {"release": base64.b64encode(base64.b64encode(b"[1]")).decode()}},
    ],
    ids=["empty", "no base64", "damaged", "a list"],
)
def test_a_secret_that_is_no_record_is_told(secret):
    with pytest.raises(releases.Unreadable, match="Secret x"):
        releases.state([secret])


def test_a_record_that_unpacks_to_too_much_is_not_read(monkeypatch):
    monkeypatch.setattr(releases, "LARGEST_RECORD", 100)
    with pytest.raises(releases.Unreadable, match="more than"):
        releases.state([record(1, "deployed", values={"text": "x" * 1000})])


@pytest.mark.parametrize(
    "secrets, cure",
    [
        ([record(1, "pending-install")], "delete secret sh.helm.release.v1.network-operator.v1"),
        ([record(1, "deployed"), record(2, "pending-upgrade")], "rollback network-operator 1"),
        ([record(2, "deployed"), record(4, "pending-rollback")], "rollback network-operator 2"),
        ([record(1, "uninstalling")], "uninstall network-operator"),
    ],
    ids=["install", "upgrade", "rollback", "uninstall"],
)
def test_a_pending_release_is_explained(secrets, cure):
    text = releases.obstacle(releases.state(secrets), "network-operator", "ns")
    assert text.endswith(cure) and NOW in text and "Wait for it" in text


@pytest.mark.parametrize("status", ["deployed", "failed", "superseded"])
def test_other_states_are_no_obstacle(status):
    assert releases.obstacle(releases.state([record(1, status)]), "network-operator", "ns") is None


def test_what_helm_has_to_do():
    chart, values = {"name": "network-operator", "version": "26.7.1"}, {"a": 1}
    now = releases.state([record(1, "deployed", values=values)])
    assert releases.action(releases.state([]), chart, values) == "install"
    assert releases.action(now, chart, values) == "none"
    assert releases.action(now, {**chart, "version": "26.7.2"}, values) == "upgrade"
    assert releases.action(now, chart, {"a": 2}) == "upgrade"
    failed = releases.state([record(1, "deployed", values=values), record(2, "failed", values=values)])
    assert releases.action(failed, chart, values) == "upgrade"
    assert releases.action(releases.state([record(1, "failed")]), chart, values) == "install"


@pytest.mark.parametrize(
    "operator, cluster, constraint, mistakes, warnings",
    [
        ("26.7.1", "1.31.9", ">= 1.32.0-0", 1, 0),
        ("26.7.1", "1.32.0", ">= 1.32.0-0", 0, 0),
        ("26.7.1", "1.31.9", None, 1, 0),
        ("26.4.1", "1.36.4", ">= 1.21.0-0", 0, 1),
        ("26.4.1", "1.30.0", ">= 1.21.0-0", 1, 0),
        ("25.10.0", "1.34.2", None, 0, 0),
        ("27.1.0", "1.40.0", ">= 1.34.0-0, < 1.41", 0, 0),
        ("27.1.0", "1.41.0", ">= 1.34.0-0, < 1.41", 1, 0),
        ("26.7.1", "1.36.0", ">= 1.32 || ~1.30", 0, 0),
    ],
    ids=str,
)
def test_kubernetes_against_gate_and_table(operator, cluster, constraint, mistakes, warnings):
    found = versions.kubernetes(operator, cluster, constraint)
    assert tuple(map(len, found)) == (mistakes, warnings)


@pytest.mark.parametrize(
    "installed, wanted, good",
    [
        ("26.4.1", "26.7.1", True),
        ("26.7.0", "26.7.1", True),
        ("26.7.0-rc.2", "26.7.1", True),
        ("26.7.1", "26.7.0", True),
        ("26.1.0", "26.7.1", False),
        ("25.10.0", "26.1.0", True),
        ("25.7.0", "26.1.0", False),
        ("26.7.1", "26.4.1", False),
        ("26.7.1", "26.10.0", True),
        ("26.4.1", "26.10.0", False),
        ("24.10.1", "25.1.0", True),
        ("24.10.1", "25.4.0", False),
    ],
    ids=str,
)
def test_an_upgrade_leaves_no_release_out(installed, wanted, good):
    text = versions.upgrade(installed, wanted)
    assert (text is None) == good, text
    if text:
        assert "network_operator_version" in text


def worker(
    namespace, name="nfd-worker", release=None, image="registry.example/nfd/node-feature-discovery:v0.17.0", **more
):
    notes = {"meta.helm.sh/release-name": release[1], "meta.helm.sh/release-namespace": release[0]} if release else {}
    container = {"name": "worker", "image": image, **more}
    return {
        "metadata": {"namespace": namespace, "name": name, "annotations": notes},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


LABELLED = [{"metadata": {"name": "a", "labels": {"feature.node.kubernetes.io/pci-15b3.present": "true"}}}]
OURS = "nvidia-network-operator/network-operator"
OWN = worker("nvidia-network-operator", release=("nvidia-network-operator", "network-operator"))
GPU = worker("gpu-operator", "gpu-operator-node-feature-discovery-worker", ("gpu-operator", "gpu-operator"))
PLAIN = worker("node-feature-discovery", image="mirror.example:5000/x@sha256:0a")


@pytest.mark.parametrize(
    "wanted, daemon_sets, nodes, enabled, mistakes",
    [
        ("auto", [], [], True, 0),
        ("auto", [OWN], LABELLED, True, 0),
        ("auto", [GPU], [], False, 0),
        ("auto", [], LABELLED, False, 0),
        ("auto", [GPU, OWN], LABELLED, False, 0),
        ("auto", [GPU, PLAIN], LABELLED, False, 1),
        (True, [GPU], LABELLED, True, 1),
        (True, [OWN], LABELLED, True, 0),
        (False, [GPU], LABELLED, False, 0),
        (False, [GPU, PLAIN], LABELLED, False, 1),
    ],
    ids=[
        "bare cluster",
        "ours",
        "GPU Operator's",
        "labels of the provider",
        "ours and another",
        "two others",
        "wanted beside another",
        "wanted and ours",
        "not wanted, another",
        "not wanted, two others",
    ],
)
def test_exactly_one_nfd(wanted, daemon_sets, nodes, enabled, mistakes):
    found = nfd.look(daemon_sets, [], nodes, OURS)
    decided, texts, _warnings = nfd.decide(wanted, found)
    assert decided == enabled and len(texts) == mistakes


def test_other_daemons_of_nfd_are_no_second_one():
    topology = worker("nfd", "nfd-topology-updater", command=["nfd-topology-updater"])
    assert nfd.instances([topology, GPU]) == nfd.instances([GPU])
    assert nfd.instances([GPU]) == [
        {"namespace": "gpu-operator", "name": GPU["metadata"]["name"], "release": "gpu-operator/gpu-operator"}
    ]


def test_who_writes_the_labels():
    fields = {"f:metadata": {"f:labels": {"f:feature.node.kubernetes.io/pci-15b3.present": {}}}}
    node = {
        "metadata": {"name": "a", "managedFields": [{"manager": "nfd-master", "fieldsV1": fields}, {"manager": "x"}]}
    }
    assert nfd.label_owners([node, {"metadata": {}}]) == {"nfd-master": 1}


def test_no_rule_where_nobody_serves_its_kind():
    bare, with_crd = nfd.look([], [], [], OURS), nfd.look([], [nfd.RULE_CRD], [], OURS)
    assert nfd.rules(None, False, bare) == (False, [])
    assert nfd.rules(None, True, bare) == (None, []) == nfd.rules(None, False, with_crd)
    assert len(nfd.rules(True, False, bare)[1]) == 1


def crd(name="things.example.org", versions=("v1",), **schema):
    rows = [
        {"name": v, "served": True, "storage": v == versions[-1], "schema": {"openAPIV3Schema": schema}}
        for v in versions
    ]
    return {"metadata": {"name": name}, "spec": {"group": "example.org", "scope": "Namespaced", "versions": rows}}


def test_kinds_before_an_upgrade():
    wanted = [{"name": "things.example.org", "document": crd(type="object")}]
    defaulted = crd(type="object")
    defaulted["spec"]["conversion"] = {"strategy": "None"}
    actions = {
        "none": defaulted,
        "update": crd(type="object", properties={"old": {}}) | {"status": {"storedVersions": ["v1"]}},
        "create": None,
    }
    actions["update"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = "array"
    for action, live in actions.items():
        rows, mistakes = crds.plan(wanted, {"things.example.org": live})
        assert ([row["action"] for row in rows], mistakes) == ([action], [])


def test_before_an_installation_only_what_is_there_is_updated():
    wanted = [
        {"name": name, "document": crd(name, type="object")}
        for name in ("a.example.org", "b.example.org", "c.example.org")
    ]
    # One more field inside of the versions is a conflict for Helm 4, though nothing of the chart is missing.
    more = crd("b.example.org", type="object", description="of somebody else")
    live = {"a.example.org": None, "b.example.org": more, "c.example.org": crd("c.example.org", type="object")}
    rows, mistakes = crds.plan(wanted, live, create=False)
    assert [(row["name"], row["action"]) for row in rows] == [("b.example.org", "update"), ("c.example.org", "none")]
    assert mistakes == []


def test_a_kind_that_would_lose_stored_objects_is_refused():
    live = crd(versions=("v1alpha1", "v1")) | {"status": {"storedVersions": ["v1alpha1", "v1"]}}
    wanted = [{"name": "things.example.org", "document": crd()}]
    _rows, mistakes = crds.plan(wanted, {"things.example.org": live})
    assert len(mistakes) == 1 and "v1alpha1" in mistakes[0]
