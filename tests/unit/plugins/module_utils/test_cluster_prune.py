# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From one layout to the next: what goes, in which order, what stays, and that no failure leaves half of it unsaid."""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import foreign, layout_steps, prune
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import InputError, PartialFailure

SRIOV, IPAM, CNI = "sriovnetwork.openshift.io/v1", "nv-ipam.nvidia.com/v1alpha1", "k8s.cni.cncf.io/v1"
PLURALS = {
    "SriovNetwork": (SRIOV, "sriovnetworks"),
    "SriovNetworkNodePolicy": (SRIOV, "sriovnetworknodepolicies"),
    "SriovNetworkPoolConfig": (SRIOV, "sriovnetworkpoolconfigs"),
    "SriovNetworkNodeState": (SRIOV, "sriovnetworknodestates"),
    "NetworkAttachmentDefinition": (CNI, "network-attachment-definitions"),
    "IPPool": (IPAM, "ippools"),
    "CIDRPool": (IPAM, "cidrpools"),
}
KINDS = [{"api_version": version, "kind": kind} for kind, (version, _plural) in PLURALS.items() if "State" not in kind]
NODE = {"metadata": {"name": "gpu-1", "labels": {"type": "gpu"}}}


class Server:
    """Objects by (kind, namespace, name); every write is logged as (verb, kind, name), dry runs apart."""

    def __init__(self, *objects, nodes=(NODE,)):
        self.objects = {foreign.identity(o): copy.deepcopy(o) for o in objects}
        self.nodes, self.writes, self.dry, self.failures, self.log, self.finalizers = nodes, [], [], {}, [], {}

    def __call__(self, method, path, query, body, content_type):
        query = dict(query)
        self.log.append((method, path))
        if path in {f"/apis/{version}" for version, _plural in PLURALS.values()}:
            rows = [(k, p) for k, (v, p) in PLURALS.items() if path.endswith(v)]
            return {"resources": [{"kind": k, "name": p, "namespaced": True} for k, p in rows]}
        if path == "/api/v1/nodes":
            return {"items": list(self.nodes), "metadata": {}}
        if path.endswith("/selfsubjectaccessreviews"):
            return {"status": {"allowed": True}}
        parts = path.split("/")
        plural = next(p for p in parts if p in {row[1] for row in PLURALS.values()})
        kind = next(k for k, (_v, p) in PLURALS.items() if p == plural)
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else None
        name = parts[-1] if parts[-1] != plural else None
        key = (kind, namespace, name)
        if name is None:
            rows = [o for k, o in self.objects.items() if k[0] == kind and namespace in (None, k[1])]
            return {"items": [{a: b for a, b in o.items() if a not in ("kind", "apiVersion")} for o in rows]}
        if (method, name) in self.failures and (method != "PATCH" or self.failures[(method, name)][1](query)):
            raise self.failures[(method, name)][0]
        if method == "PATCH":
            (self.dry if "dryRun" in query else self.writes).append(("apply", kind, name))
            return self.store(key, json.loads(body), query)
        if method == "DELETE":
            (self.dry if "dryRun" in query else self.writes).append(("delete", kind, name))
            if "dryRun" not in query:
                if self.finalizers.get(name):
                    self.objects[key]["metadata"]["deletionTimestamp"] = "now"
                else:
                    self.objects.pop(key)
            return {}
        if key not in self.objects:
            raise ApiError(404, "not found")
        if self.finalizers.get(name):
            self.finalizers[name] -= 1
            if not self.finalizers[name]:
                self.objects.pop(key)
                raise ApiError(404, "not found")
        return copy.deepcopy(self.objects[key])

    def store(self, key, wanted, query):
        record = {"manager": query["fieldManager"], "operation": "Apply", "apiVersion": wanted["apiVersion"]}
        record["fieldsV1"] = {"f:spec": {f"f:{k}": {} for k in wanted.get("spec", {})}}
        new = {**wanted, "metadata": {**wanted["metadata"], "managedFields": [record]}}
        if "dryRun" not in query:
            self.objects[key] = new
        return copy.deepcopy(new)


def obj(kind, name, namespace="op", managers=(), **spec):
    made = {
        "apiVersion": PLURALS[kind][0],
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    if managers:
        made["metadata"]["managedFields"] = [
            {"manager": m, "operation": "Apply", "apiVersion": PLURALS[kind][0], "fieldsV1": {"f:spec": {}}}
            for m in managers
        ]
    return made


def policy(name, *devices, managers=(), **spec):
    selector = {"vendor": "15b3", "rootDevices": list(devices)}
    given = {"nicSelector": selector, "nodeSelector": {"type": "gpu"}, "numVfs": 1, "resourceName": "r", **spec}
    return obj("SriovNetworkNodePolicy", name, managers=managers, **given)


OURS = ("railyard",)
OLD = (
    obj("IPPool", "old-pool", managers=OURS),
    obj("SriovNetworkPoolConfig", "old-config", managers=OURS),
    policy("old", "0000:0c:00.0", managers=OURS),
    obj("SriovNetwork", "old-net", managers=OURS, networkNamespace="default"),
    obj("NetworkAttachmentDefinition", "old-nad", "default", managers=OURS),
)
NEW = [
    obj("CIDRPool", "new-pool", cidr="10.0.0.0/16"),
    obj("SriovNetworkPoolConfig", "new-config", nodeSelector={"matchLabels": {"type": "gpu"}}),
    policy("new", "0000:0c:00.0"),
    obj("SriovNetwork", "new-net", networkNamespace="default", resourceName="r"),
]


def change(server, objects=None, **options):
    objects = NEW if objects is None else objects
    api = Api(server, pause=lambda seconds: None)
    return prune.change_layout(api, objects, KINDS, "railyard", pause=lambda seconds: None, **options)


def test_new_policies_come_before_old_ones_go_and_pools_last():
    server = Server(*OLD)
    results, told = change(server)
    assert server.writes == [
        ("delete", "SriovNetwork", "old-net"),
        ("delete", "NetworkAttachmentDefinition", "old-nad"),
        ("delete", "SriovNetworkPoolConfig", "old-config"),
        ("apply", "CIDRPool", "new-pool"),
        ("apply", "SriovNetworkPoolConfig", "new-config"),
        ("apply", "SriovNetworkNodePolicy", "new"),
        ("delete", "SriovNetworkNodePolicy", "old"),
        ("apply", "SriovNetwork", "new-net"),
        ("delete", "IPPool", "old-pool"),
    ]
    assert [(r["kind"], r["name"]) for r in results] == [(kind, name) for _verb, kind, name in server.writes]
    assert told == []
    server.writes.clear()
    again, _told = change(server)
    assert {r["action"] for r in again} == {"unchanged"} and server.writes == []


def test_every_kind_is_read_once():
    for objects in ((), OLD, NEW):
        server = Server(*objects)
        change(server)
        reads = [path for method, path in server.log if method == "GET" and "namespaces" not in path]
        assert sorted(reads) == sorted(set(reads)), objects


def test_a_teardown_reads_no_single_object_but_attachments():
    """The attachments of a network go with it, so those are looked at again. The rights of teardown.yml say so."""
    server = Server(*OLD)
    change(server, [])
    assert server.objects == {}
    single = [path for method, path in server.log if method == "GET" and "/namespaces/" in path]
    assert all("/network-attachment-definitions" in path for path in single)


def test_check_mode_tells_the_same_rows_and_writes_nothing():
    server = Server(*OLD)
    planned, _told = change(server, dry_run=True)
    assert server.writes == [] and len(server.objects) == len(OLD)
    done, _told = change(server)
    keys = ("kind", "namespace", "name", "action")
    assert [[row[k] for k in keys] for row in planned] == [[row[k] for k in keys] for row in done]


def test_a_refused_new_object_leaves_the_old_layout_whole():
    server = Server(*OLD)
    server.failures[("PATCH", "new-net")] = (ApiError(422, "spec.vlan: Invalid value"), lambda query: True)
    with pytest.raises(PartialFailure) as failure:
        change(server)
    assert server.writes == []
    assert failure.value.done == [] and "spec.vlan" in failure.value.errors[0]
    assert "SriovNetwork op/old-net" in failure.value.not_done


@pytest.mark.parametrize(
    ("verb", "name", "done"),
    [
        ("DELETE", "old", ["old-net", "old-nad", "old-config", "new-pool", "new-config", "new"]),
        ("PATCH", "new", ["old-net", "old-nad", "old-config", "new-pool", "new-config"]),
        ("DELETE", "old-pool", ["old-net", "old-nad", "old-config", "new-pool", "new-config", "new", "old", "new-net"]),
    ],
    ids=["a-policy-stays", "a-policy-is-refused", "a-pool-stays"],
)
def test_a_failure_in_the_middle_tells_what_was_done_and_what_not(verb, name, done):
    server = Server(*OLD)
    server.failures[(verb, name)] = (ApiError(403, "forbidden"), lambda query: "dryRun" not in query)
    with pytest.raises(PartialFailure) as failure:
        change(server)
    error = failure.value
    assert [row["name"] for row in error.done] == done
    left = {label.rpartition("/")[2] for label in error.not_done}
    assert left | set(done) == {o["metadata"]["name"] for o in (*OLD, *NEW)} and not left & set(done)
    assert "forbidden" in error.errors[0]
    server.failures.clear()
    change(server)
    assert {k[2] for k in server.objects} == {o["metadata"]["name"] for o in NEW}


def test_the_next_run_finishes_what_a_killed_one_left():
    for kill_after in range(9):
        server = Server(*OLD)

        class Killed(BaseException):
            pass

        def dying(*request, server=server, limit=kill_after):
            if len(server.writes) >= limit and request[0] in ("PATCH", "DELETE") and "dryRun" not in dict(request[2]):
                raise Killed
            return server(*request)

        with pytest.raises(Killed):
            prune.change_layout(Api(dying), NEW, KINDS, "railyard")
        change(server)
        assert {k[2] for k in server.objects} == {o["metadata"]["name"] for o in NEW}, kill_after


def test_what_others_applied_stays_and_what_they_made_is_never_touched():
    server = Server(
        policy("shared", "0000:16:00.0", managers=("argocd", "railyard")),
        policy("by-hand", "0000:0c:00.0"),
        policy("elsewhere", "0000:0c:00.0", nodeSelector={"type": "cpu"}),
        obj("SriovNetworkPoolConfig", "everyone", nodeSelector={}),
        obj("IPPool", "theirs"),
    )
    before = copy.deepcopy(server.objects)
    _results, told = change(server)
    assert {(row["kind"], row["name"]) for row in told} == {
        ("SriovNetworkNodePolicy", "shared"),
        ("SriovNetworkNodePolicy", "by-hand"),
        ("SriovNetworkPoolConfig", "everyone"),
    }
    reasons = {row["name"]: row["reason"] for row in told}
    assert "argocd" in reasons["shared"]
    assert "0000:0c:00.0" in reasons["by-hand"] and "gpu-1" in reasons["by-hand"]
    assert "every node" in reasons["everyone"]
    assert {key: server.objects[key] for key in before} == before


def test_nodes_are_read_only_when_somebody_else_is_there():
    server = Server(*OLD)
    change(server)
    assert ("GET", "/api/v1/nodes") not in server.log


@pytest.mark.parametrize(
    ("selector", "meets"),
    [
        ({"vendor": "15b3"}, True),
        ({"vendor": "8086"}, False),
        ({"pfNames": ["rdma0"]}, True),
        ({"pfNames": ["rdma0#4-7"]}, False),
        ({"pfNames": ["ens7f0np0#0-0"]}, True),
        ({"pfNames": ["eth0"]}, False),
        ({"rootDevices": ["0000:16:00.0"]}, False),
        ({}, False),
    ],
    ids=["vendor", "other-vendor", "name", "other-range", "alternative-name", "other-name", "other-pf", "nothing"],
)
def test_policies_of_others_by_every_kind_of_selector(selector, meets):
    other = obj("SriovNetworkNodePolicy", "x", nodeSelector={"type": "gpu"}, numVfs=8, nicSelector=selector)
    interface = {"pciAddress": "0000:0c:00.0", "vendor": "15b3", "name": "rdma0", "altNames": ["ens7f0np0"]}
    state = {"metadata": {"name": "gpu-1"}, "status": {"interfaces": [interface]}}
    found = foreign.policies([policy("new", "0000:0c:00.0", numVfs=2)], [other], [NODE], [state])
    assert bool(found) is meets


def test_an_attachment_of_somebody_else_with_our_name():
    theirs = obj("NetworkAttachmentDefinition", "new-net", "default")
    _results, told = change(Server(theirs))
    assert [(row["kind"], row["namespace"], row["name"]) for row in told] == [
        ("NetworkAttachmentDefinition", "default", "new-net")
    ]
    ours = copy.deepcopy(theirs)
    ours["metadata"]["annotations"] = {foreign.OWNER_ANNOTATION: "SriovNetwork.sriovnetwork.openshift.io/op/new-net"}
    assert change(Server(ours))[1] == []


def test_a_network_is_waited_for_when_its_attachment_has_the_name_of_a_new_one():
    wanted = [obj("NetworkAttachmentDefinition", "rails", "default", config="{}")]
    server = Server(obj("SriovNetwork", "rails", managers=OURS, networkNamespace="default"))
    server.finalizers["rails"] = 3
    change(server, wanted)
    assert [key[0] for key in server.objects] == ["NetworkAttachmentDefinition"]
    stuck = Server(obj("SriovNetwork", "rails", managers=OURS, networkNamespace="default"))
    stuck.finalizers["rails"] = 10**6
    with pytest.raises(PartialFailure, match="still there after 0 s"):
        change(stuck, wanted, timeout=0)
    assert all(verb == "delete" for verb, _kind, _name in stuck.writes)


WEBHOOK = 'admission webhook "operator-webhook.sriovnetwork.openshift.io" denied the request: '


def webhook(server):
    """The operator's webhook on: it refuses a policy beside another one with the same root device."""

    def refusing(method, path, query, body, content_type):
        if method == "PATCH" and "sriovnetworknodepolicies" in path:
            new = json.loads(body)
            for (kind, _namespace, name), other in server.objects.items():
                for device in layout_steps.devices(new) & layout_steps.devices(other):
                    if kind == "SriovNetworkNodePolicy" and name != new["metadata"]["name"]:
                        raise ApiError(
                            403, f"{WEBHOOK}root device {device} is overlapped with existing policy {name}", "Forbidden"
                        )
        return server(method, path, query, body, content_type)

    return refusing


def test_where_the_webhook_is_on_each_new_policy_follows_at_once_on_the_old_one():
    rails = [policy(f"old-{n}", f"0000:0c:00.{n}", managers=OURS) for n in range(3)]
    new = [policy(f"new-{n}", f"0000:0c:00.{n}") for n in range(3)]
    server = Server(*rails)
    plan, _told = prune.change_layout(Api(webhook(server)), new, KINDS, "railyard", dry_run=True)
    assert server.writes == []
    done, _told = prune.change_layout(Api(webhook(server)), new, KINDS, "railyard")
    pairs = [(verb, f"{age}-{n}") for n in range(3) for verb, age in (("delete", "old"), ("apply", "new"))]
    assert [(verb, name) for verb, _kind, name in server.writes] == pairs
    assert [row["name"] for row in plan] == [row["name"] for row in done] == [name for _verb, name in pairs]
    # Nothing is asked between the two: an operator that looks then finds the PF without a policy.
    writes = [method for method, _path in server.log][-6:]
    assert writes == ["DELETE", "PATCH"] * 3


@pytest.mark.parametrize(
    "text",
    [
        "root device 0000:0c:00.0 is overlapped with existing policy theirs",
        "vendor/device 15b3/1234 is not supported",
        "numVfs(200) in CR new exceed the maximum allowed value(128)",
    ],
    ids=["foreign", "model", "vfs"],
)
def test_what_else_the_webhook_refuses_stops_before_anything_goes(text):
    server = Server(*OLD)
    server.failures[("PATCH", "new")] = (ApiError(403, WEBHOOK + text), lambda query: True)
    for dry_run in (True, False):
        with pytest.raises(PartialFailure, match=text.split(" ")[0].partition("(")[0]):
            change(server, dry_run=dry_run)
    assert server.writes == []


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        ([{"kind": "IPPool"}], "entry 1: .*must have api_version"),
        ([{"api_version": "v1", "kind": "Pod"}], "kind: got Pod, allowed are SriovNetwork"),
        ([{"api_version": "v1", "kind": "IPPool", "names": []}], "may have namespace"),
    ],
    ids=["no-version", "any-kind", "unknown-key"],
)
def test_wrong_kinds_are_refused_before_any_request(kinds, text):
    server = Server()
    with pytest.raises(InputError, match=text):
        prune.change_layout(Api(server), NEW, kinds, "railyard")
    assert server.log == []
