# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.modules import cluster_facts, pod_rdma_facts, rail_objects, rail_wait


def rail(name, **spec):
    return {
        "apiVersion": "railyard.io/v1",
        "kind": "Rail",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def path(name):
    return f"/apis/railyard.io/v1/namespaces/default/rails/{name}"


def versions(cluster, *names):
    return [cluster.api().get(path(n))["metadata"]["resourceVersion"] for n in names]


def test_second_apply_writes_nothing(cluster, capsys):
    objects = [rail("a", mtu=4220, devices=["0000:0c:00.0"]), rail("b", mtu=1500)]
    first = cluster.run(capsys, rail_objects, objects=objects)
    assert (first["changed"], first["counts"]["created"]) == (True, 2)
    before = versions(cluster, "a", "b")
    with cluster.requests() as seen:
        second = cluster.run(capsys, rail_objects, objects=objects)
    assert (second["changed"], second["counts"]["unchanged"]) == (False, 2)
    assert {method for method, _path in seen} == {"GET"}
    assert versions(cluster, "a", "b") == before


def test_server_agrees_that_the_skipped_apply_would_have_changed_nothing(cluster, capsys):
    """The shortcut is judged by the server: the same apply, sent, does not move the resource version."""
    wanted = rail("agree", mtu=1, devices=["x", "y"])
    cluster.run(capsys, rail_objects, objects=[wanted])
    before = versions(cluster, "agree")
    query = [("fieldManager", "railyard"), ("fieldValidation", "Strict")]
    cluster.api().request("PATCH", path("agree"), query, wanted, "application/apply-patch+yaml")
    assert versions(cluster, "agree") == before


def test_check_mode_tells_and_changes_nothing(cluster, capsys):
    result = cluster.run(capsys, rail_objects, check=True, diff=True, objects=[rail("dry", mtu=1)])
    assert (result["changed"], result["objects"][0]["action"]) == (True, "created")
    assert result["diff"][0]["after"]["spec"] == {"mtu": 1, "priority": 99}
    with pytest.raises(Exception, match="not found"):
        cluster.api().get(path("dry"))


def test_change_removes_what_is_no_longer_wanted_and_keeps_foreign_fields(cluster, capsys):
    cluster.run(capsys, rail_objects, objects=[rail("c", mtu=1, devices=["x"])])
    cluster.api().request(
        "PATCH",
        path("c"),
        [("fieldManager", "kubectl-edit")],
        {"spec": {"priority": 7}},
        "application/merge-patch+json",
    )
    result = cluster.run(capsys, rail_objects, diff=True, objects=[rail("c", mtu=2)])
    assert result["diff"][0]["before"]["spec"] == {"mtu": 1, "devices": ["x"], "priority": 7}
    assert result["diff"][0]["after"]["spec"] == {"mtu": 2, "priority": 7}


def test_conflict_names_the_other_owner_until_it_is_forced(cluster, capsys):
    query = [("fieldManager", "argocd"), ("force", "true")]
    cluster.api().request("PATCH", path("d"), query, rail("d", mtu=1), "application/apply-patch+yaml")
    refused = cluster.run(capsys, rail_objects, objects=[rail("d", mtu=2)])
    assert refused["failed"]
    for part in ("Rail default/d", ".spec.mtu", "argocd", "force_conflicts=true"):
        assert part in refused["msg"]
    forced = cluster.run(capsys, rail_objects, objects=[rail("d", mtu=2)], force_conflicts=True)
    assert forced["changed"]


@pytest.mark.parametrize(("spec", "text"), [({"mtv": 1}, "mtv"), ({"mtu": "big"}, "mtu")])
def test_wrong_objects_are_refused_with_their_field_and_the_rest_is_not_applied(cluster, capsys, spec, text):
    result = cluster.run(capsys, rail_objects, objects=[rail("bad", **spec), rail("later", mtu=1)])
    assert result["failed"] and not result["changed"]
    assert "Rail default/bad" in result["msg"] and text in result["msg"]
    assert result["not_done"] == ["Rail default/bad", "Rail default/later"]
    with pytest.raises(Exception, match="not found"):
        cluster.api().get(path("later"))


def test_kind_that_is_not_served(cluster, capsys):
    pool = {"apiVersion": "nv-ipam.nvidia.com/v1alpha1", "kind": "IPPool", "metadata": {"name": "p", "namespace": "x"}}
    result = cluster.run(capsys, rail_objects, objects=[rail("never", mtu=1), pool])
    assert "IPPool (nv-ipam.nvidia.com/v1alpha1)" in result["msg"]
    checked = cluster.run(capsys, rail_objects, check=True, objects=[pool])
    assert (checked["changed"], checked["objects"][0]["validated"]) == (True, False)
    assert checked["warnings"]


def test_absent_deletes_once(cluster, capsys):
    objects = [rail("e", mtu=1), rail("f", mtu=1)]
    cluster.run(capsys, rail_objects, objects=objects)
    dry = cluster.run(capsys, rail_objects, check=True, objects=objects, state="absent")
    assert dry["counts"]["deleted"] == 2
    assert cluster.run(capsys, rail_objects, objects=objects, state="absent")["counts"]["deleted"] == 2
    again = cluster.run(capsys, rail_objects, objects=objects, state="absent")
    assert (again["changed"], again["counts"]["unchanged"]) == (False, 2)


def test_wait_tells_what_is_missing(cluster, capsys):
    done = cluster.run(capsys, rail_wait, crds=["rails.railyard.io"], timeout=30)
    assert done["ready"] and done["pending"] == []
    late = cluster.run(capsys, rail_wait, crds=["rails.railyard.io", "pools.example.com"], timeout=0)
    assert late["failed"]
    assert "CustomResourceDefinition pools.example.com: does not exist" in late["msg"]
    looked = cluster.run(capsys, rail_wait, check=True, crds=["pools.example.com"], timeout=600)
    assert (looked["ready"], looked["waited"] < 60) == (False, True)


def test_cluster_facts_of_a_server_and_of_none(cluster, capsys, tmp_path):
    found = cluster.run(
        capsys, cluster_facts, helm_binary=str(tmp_path / "no-helm"), libraries=["kubernetes", "no-such"]
    )
    assert found["cluster"]["version"].count(".") == 2
    assert found["python"]["libraries"]["kubernetes"] and found["python"]["libraries"]["no-such"] is None
    assert "no-helm" in found["helm"]["reason"]
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text((tmp_path / "x").name)
    cluster_kubeconfig, cluster.kubeconfig = cluster.kubeconfig, str(nowhere)
    try:
        lost = cluster.run(capsys, cluster_facts)
    finally:
        cluster.kubeconfig = cluster_kubeconfig
    assert lost["cluster"]["version"] is None
    assert "K8S_AUTH_KUBECONFIG" in lost["cluster"]["reason"]


def start_pod(cluster, node, name, phase="Running"):
    api = cluster.api()
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "probe", "image": "busybox"}]},
    }
    api.request("POST", "/api/v1/namespaces/default/pods", body=body)
    state = {"running": {}} if phase == "Running" else {"waiting": {"reason": "ContainerCreating"}}
    status = {
        "phase": phase,
        "containerStatuses": [
            {"name": "probe", "state": state, "ready": True, "restartCount": 0, "image": "busybox", "imageID": ""}
        ],
    }
    api.request(
        "PATCH",
        f"/api/v1/namespaces/default/pods/{name}/status",
        body={"status": status},
        content_type="application/merge-patch+json",
    )


def test_pods_are_read_through_exec(cluster, node, capsys):
    start_pod(cluster, node, "good")
    start_pod(cluster, node, "broken")
    start_pod(cluster, node, "stuck", "Pending")
    result = cluster.run(
        capsys, pod_rdma_facts, namespace="default", names=["good", "broken", "stuck", "absent"], wait_timeout=1
    )
    good = result["pods"]["good"]
    assert (good["reachable"], good["node"]) == (True, node), good
    # The probe ran on this machine: it saw its interfaces.
    assert "lo" in good["netdevs"]
    assert result["not_read"] == ["broken", "stuck", "absent"]
    reasons = {name: pod["reason"] for name, pod in result["pods"].items()}
    assert reasons["absent"] == "the pod does not exist"
    assert "ContainerCreating" in reasons["stuck"]
    assert reasons["broken"]


def test_absent_waits_for_finalizers_and_names_what_stays(cluster, capsys):
    held = rail("held", mtu=1)
    held["metadata"]["finalizers"] = ["railyard.io/hold"]
    cluster.run(capsys, rail_objects, objects=[held])
    result = cluster.run(capsys, rail_objects, objects=[held], state="absent", wait_gone=1)
    assert result["failed"] and "Rail default/held is still there after 1 s" in result["msg"]
    release = {"metadata": {"finalizers": None}}
    cluster.api().request("PATCH", path("held"), body=release, content_type="application/merge-patch+json")
    assert not cluster.run(capsys, rail_objects, objects=[held], state="absent", wait_gone=5).get("failed")
