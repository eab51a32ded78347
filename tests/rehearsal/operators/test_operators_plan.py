# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan, apply, and look what the operators did: objects that were written, nodes that were emptied, pods that were evicted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import auth, plan_facts, state
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api as PlainApi
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.prune import change_layout
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.results import public
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.build import Seen, build
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.estimate import Minutes
from operators_fakes import PFS, FakeFleet
from operators_support import NS, SHAPE, Cluster

from rehearsal.apiserver.__main__ import kubeconfig
from rehearsal.apiserver.server import build as build_api
from rehearsal.operators import kinds, sriov_drain
from rehearsal.operators.__main__ import serve
from rehearsal.operators.client import Api

SRIOV = "sriovnetwork.openshift.io/v1"
PRUNED = [
    {"api_version": SRIOV, "kind": kind, "namespace": NS}
    for kind in ("SriovNetwork", "SriovNetworkNodePolicy", "SriovNetworkPoolConfig")
]
MODEL = {
    "layouts": [{"name": "t", "hosts": ["a", "b"], "rails": [{"rail": n, "pci": pci} for n, pci in enumerate(PFS)],
                 "max_unavailable": 1, "vendor": "15b3"}],
    "hosts": {"a": "t", "b": "t"},
    "operator": {"resource_prefix": "nvidia.com", "namespace": NS, "version": "26.7.1"},
}  # fmt: skip
CONFIG = {"sriov-network-operator": {"sriovOperatorConfig": {"disablePlugins": ["mellanox"]}}}
PREPARED = {
    "action": "none",
    "chart": {"version": "x"},
    "release": {"deployed": None},
    "chart_values": CONFIG,
    "crds": [],
}


def thing(kind, name, **spec):
    return {"apiVersion": SRIOV, "kind": kind, "metadata": {"name": name, "namespace": NS}, "spec": spec}


def layout(vfs=1, mtu=4220, scope="node", at_once=1, external=False):
    """Objects as our templates make them, for two PFs."""
    selector = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in SHAPE.items()]}
    objects = [thing("SriovNetworkPoolConfig", "rdma-vf", maxUnavailable=at_once, nodeSelector=selector)]
    groups = {"rdma-vf": list(PFS)} if scope == "node" else {f"rdma-vf-{n}": [pci] for n, pci in enumerate(PFS)}
    common = {
        "deviceType": "netdevice",
        "isRdma": True,
        "mtu": mtu,
        "nodeSelector": SHAPE,
        "numVfs": vfs,
        "priority": 90,
    }
    for name, pfs in groups.items():
        nics = {"vendor": "15b3", "rootDevices": pfs}
        objects.append(
            thing(
                "SriovNetworkNodePolicy",
                name,
                **common,
                nicSelector=nics,
                resourceName=name,
                externallyManaged=external,
            )
        )
    ipam = '{"type": "nv-ipam", "poolName": "sriov-pool"}'
    return objects + [thing("SriovNetwork", n, resourceName=n, networkNamespace="default", ipam=ipam) for n in groups]


class Watched(Cluster):
    """A cluster that notes which nodes were cordoned, how many at once, and what was evicted."""

    def __init__(self, api, fleet, folder):
        super().__init__(api, fleet, patience=40)
        self.folder, self.emptied, self.empty, self.at_once = folder, [], set(), 0
        self.pause = 0  # seconds after each write, in which the operator looks at what is there

    def note(self, name, cordon):
        if cordon:
            self.emptied += [name] if name not in self.empty else []
            self.empty.add(name)
            self.at_once = max(self.at_once, len(self.empty))
        else:
            self.empty.discard(name)

    def forget(self):
        self.emptied, self.empty, self.at_once, self.offset = [], set(), 0, len(self._log())

    def _log(self):
        return (self.folder / "api.jsonl").read_text().splitlines()

    def evictions(self):
        rows = [json.loads(line) for line in self._log()[self.offset :]]
        paths = [
            row["path"].partition("?")[0] for row in rows if row["method"] == "POST" and "/eviction" in row["path"]
        ]
        return sorted({"/".join(path.split("/")[4:7:2]) for path in paths})

    def plain(self):
        send = auth.transport_for({"kubeconfig": str(self.folder / "kubeconfig")})

        def slow(method, path, query, body, content_type):
            answer = send(method, path, query, body, content_type)
            if method != "GET" and "dryRun" not in dict(query):
                time.sleep(self.pause)
            return answer

        return PlainApi(slow)

    async def plan(self, objects):
        return await asyncio.to_thread(self._plan, objects)

    def _plan(self, objects):
        results, foreign = change_layout(self.plain(), objects, PRUNED, "railyard", dry_run=True)
        api = self.plain()
        whole = {}
        found = state.read(api, NS, ["nvidia.com"], whole=whole)
        seen = Seen(
            model=MODEL, facts={"a": {}, "b": {}}, looks={}, nodes={"a": "a", "b": "b"}, prepared=PREPARED, wanted=objects,
            state=found, drains=plan_facts.gather(api, NS, whole["pods"]),
            objects={"objects": public(results, True), "foreign": foreign},
        )  # fmt: skip
        self.requests = api.requests
        return build(seen, Minutes())

    async def apply(self, objects):
        def act():
            return change_layout(self.plain(), objects, PRUNED, "railyard")[0]

        results = await asyncio.to_thread(act)
        return [row for row in public(results) if row["action"] != "unchanged"]

    async def generations(self):
        rows = [await self.get(kinds.SRIOV_STATE, name) for name in ("a", "b")]
        return [row["metadata"]["generation"] for row in rows]

    async def settled(self, objects):
        """Wait until the operator has taken the policies over, and every node is at rest again."""
        policies = [obj for obj in objects if obj["kind"] == "SriovNetworkNodePolicy"]
        names, vfs = {obj["metadata"]["name"] for obj in policies}, policies[0]["spec"]["numVfs"]
        mtu, last = policies[0]["spec"]["mtu"], {}

        async def look():
            for name in ("a", "b"):
                row = await self.get(kinds.SRIOV_STATE, name)
                notes, status = row.get("metadata", {}).get("annotations") or {}, row.get("status") or {}
                idle = all(notes.get(key, "Idle") == "Idle" for key in (sriov_drain.CURRENT, sriov_drain.DESIRED))
                # What the daemon notes once it has nothing left to do; an old Succeeded is there before it begins.
                seen = self.fleet.get(name).load("sriov-daemon").get("generation")
                counts = [item.get("numVfs", 0) for item in status.get("interfaces") or []]
                plan = (row.get("spec") or {}).get("interfaces") or []
                last[name] = {
                    "seen": seen,
                    "generation": row["metadata"]["generation"],
                    "notes": notes,
                    "status": status,
                    "plan": plan,
                }
                if names != {g["policyName"] for item in plan for g in item["vfGroups"]} or {
                    i.get("mtu") for i in plan
                } != {mtu}:
                    return False
                if seen != row["metadata"]["generation"]:
                    return False
                if not idle or status.get("syncStatus") != "Succeeded" or counts != [vfs, vfs]:
                    return False
            return not self.empty

        try:
            await self.until(f"{vfs} VFs on each PF, nodes at rest", look)
        except BaseException:
            print(json.dumps(last, indent=1))
            raise


@pytest.fixture
async def cluster(tmp_path, monkeypatch):
    runner = web.AppRunner(build_api(None, tmp_path / "api.jsonl"), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(f"http://127.0.0.1:{runner.addresses[0][1]}")))
    fleet = FakeFleet(tmp_path, ("a", "b"))
    async with Api(tmp_path / "kubeconfig") as api:
        found = Watched(api, fleet, Path(tmp_path))
        cordon = sriov_drain.Drains._cordon

        async def noted(self, node, wanted):
            found.note(node["metadata"]["name"], wanted)
            await cordon(self, node, wanted)

        monkeypatch.setattr(sriov_drain.Drains, "_cordon", noted)
        task = asyncio.create_task(serve(api, fleet, 1))
        try:
            await found.install()

            async def reported():
                rows = [await found.get(kinds.SRIOV_STATE, name) for name in ("a", "b")]
                return all(row.get("status", {}).get("interfaces") for row in rows)

            await found.until("node states with interfaces", reported)
            yield found
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    await runner.cleanup()


def told(plan):
    return [{key: row[key] for key in ("kind", "namespace", "name", "action")} for row in plan["objects"]]


def effects(plan):
    return {row["node"]: row["effect"] for row in plan["nodes"]}


def evicted(plan):
    return sorted(f"{pod['namespace']}/{pod['name']}" for row in plan["nodes"] for pod in row["evicted"])


async def gpu_pod(cluster, name, node):
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    spec = {"containers": [container], "tolerations": [toleration], "nodeName": node}
    await cluster.create(kinds.POD, name, {**spec, "volumes": [{"name": "scratch", "emptyDir": {}}]}, "default")


async def plain_pod(cluster, name, node):
    await cluster.create(kinds.POD, name, {"containers": [{"name": "c", "image": "i"}], "nodeName": node}, "default")


async def went_as_planned(cluster, objects):
    """Plan, apply, wait; the plan, after comparing it with what came of it. The next plan is empty."""
    plan = await cluster.plan(objects)
    before = await cluster.generations()
    cluster.forget()
    written = await cluster.apply(objects)
    await cluster.settled(objects)
    assert told(plan) == [{key: row[key] for key in ("kind", "namespace", "name", "action")} for row in written]
    assert {name for name, effect in effects(plan).items() if effect == "drain"} == set(cluster.emptied)
    assert evicted(plan) == cluster.evictions()
    touched = [old != new for old, new in zip(before, await cluster.generations())]
    assert touched == [effects(plan)[name] != "nothing" for name in ("a", "b")]
    assert cluster.at_once <= max([row["at_once"] or 0 for row in plan["nodes"]])
    again = await cluster.plan(objects)
    assert (again["changes"], again["objects"], set(effects(again).values())) == (False, [], {"nothing"}), again
    return plan


async def test_first_vfs_then_more_of_them_then_a_lower_mtu(cluster):
    await gpu_pod(cluster, "train", "a")
    await plain_pod(cluster, "web", "a")
    first = await went_as_planned(cluster, layout())
    assert effects(first) == {"a": "device_plugin_restart", "b": "device_plugin_restart"} and cluster.emptied == []
    more = await went_as_planned(cluster, layout(vfs=2))
    assert effects(more) == {"a": "drain", "b": "drain"} and evicted(more) == ["default/train"]
    fields = next(row["fields"] for row in more["objects"] if row["kind"] == "SriovNetworkNodePolicy")
    assert fields == [{"path": "spec.numVfs", "before": 1, "after": 2}]
    assert cluster.at_once == 1
    # A lower MTU never lowers a PF.
    lower = await went_as_planned(cluster, layout(vfs=2, mtu=1500))
    assert effects(lower) == {"a": "device_plugin_restart", "b": "device_plugin_restart"} and cluster.emptied == []


async def test_another_network_or_limit_touches_no_node(cluster):
    await cluster.apply(layout())
    await cluster.settled(layout())
    plan = await went_as_planned(cluster, layout(at_once=2))
    assert told(plan) == [{"kind": "SriovNetworkPoolConfig", "namespace": NS, "name": "rdma-vf", "action": "changed"}]


async def test_one_resource_a_rail_takes_the_place_of_one_a_node_without_a_drain(cluster):
    """The operator looks after every single write, and finds no PF without a policy."""
    await cluster.apply(layout())
    await cluster.settled(layout())
    await gpu_pod(cluster, "train", "a")
    cluster.pause = 0.15
    plan = await went_as_planned(cluster, layout(scope="rail"))
    assert plan["summary"]["objects"]["deleted"] == 2 and set(effects(plan).values()) == {"device_plugin_restart"}
    back = await went_as_planned(cluster, layout())
    assert set(effects(back).values()) == {"device_plugin_restart"} and cluster.evictions() == []


async def test_the_other_way_round_the_operator_drains(cluster):
    """The twin: were the old policy gone before the new ones come, the same operator would empty the nodes."""
    await cluster.apply(layout())
    await cluster.settled(layout())
    await gpu_pod(cluster, "train", "a")
    cluster.forget()
    cluster.pause = 0.15
    gone = [obj for obj in layout() if obj["kind"] != "SriovNetworkNodePolicy"]
    await cluster.apply(gone)
    await cluster.apply(layout(scope="rail"))
    await cluster.settled(layout(scope="rail"))
    assert set(cluster.emptied) == {"a", "b"} and cluster.evictions() == ["default/train"]


async def test_vfs_of_somebody_else_that_are_managed_externally_drain_with_the_new_plan(cluster):
    for name in ("a", "b"):
        cluster.fleet.get(name).vfs = dict.fromkeys(PFS, 2)

    async def seen():
        rows = [await cluster.get(kinds.SRIOV_STATE, name) for name in ("a", "b")]
        return all(item.get("numVfs") == 2 for row in rows for item in row["status"]["interfaces"])

    await cluster.create(kinds.CONFIG_MAP, "look-again", {}, NS)
    with contextlib.suppress(Exception):
        await cluster.api.patch(kinds.NODE, await cluster.get(kinds.NODE, "a"), {"metadata": {"labels": {"look": "1"}}})
        await cluster.api.patch(kinds.NODE, await cluster.get(kinds.NODE, "b"), {"metadata": {"labels": {"look": "1"}}})
    await cluster.until("VFs of somebody else", seen)
    plan = await went_as_planned(cluster, layout(vfs=2, external=True))
    assert effects(plan) == {"a": "drain", "b": "drain"}
    assert "externally managed" in str(plan["nodes"][0]["reasons"])


async def test_the_number_of_requests_does_not_grow_with_pods(cluster):
    await cluster.plan(layout())
    few = cluster.requests
    for number in range(30):
        await plain_pod(cluster, f"pod-{number}", "a")
    await cluster.plan(layout())
    assert cluster.requests == few
