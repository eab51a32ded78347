# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All controllers against the stand-in API server over HTTP, with nodes in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import auth, lifetime
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api as ProductApi
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import apply_objects
from operators_fakes import PFS, FakeFleet
from operators_support import SHAPE, Cluster

from rehearsal.apiserver.__main__ import kubeconfig
from rehearsal.apiserver.server import build
from rehearsal.operators import kinds
from rehearsal.operators.__main__ import serve
from rehearsal.operators.client import Api
from rehearsal.operators.kinds import annotations_of

ANY = [{"operator": "Exists"}]


async def start_api(folder: Path) -> web.AppRunner:
    """An API server with nothing in it on a free port; its kubeconfig replaces the one before."""
    runner = web.AppRunner(build(None, folder / "api.jsonl"), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(f"http://127.0.0.1:{runner.addresses[0][1]}")))
    return runner


@pytest.fixture
async def cluster(tmp_path):
    runner = await start_api(tmp_path)
    fleet = FakeFleet(tmp_path, ("a", "b"))
    async with Api(tmp_path / "kubeconfig") as api:
        task = asyncio.create_task(serve(api, fleet, 1))
        found = Cluster(api, fleet)
        found.runner = runner
        try:
            yield found
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    await found.runner.cleanup()


async def test_from_policy_to_a_pod_with_an_address(cluster):
    await cluster.install()
    await cluster.ready_policy()
    await cluster.create(
        kinds.IP_POOL, "sriov-pool", {"subnet": "192.168.0.0/16", "perNodeBlockSize": 100, "gateway": "192.168.0.1"}
    )
    await cluster.network('{"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_ignore": "1"}}, {"type": "sbr"}')
    await cluster.rails()
    await cluster.offered("2")
    await cluster.pod("one", "a", 2)
    pod = await cluster.phase("one", "Running")
    rows = json.loads(annotations_of(pod)["k8s.v1.cni.cncf.io/network-status"])
    assert [row["interface"] for row in rows] == ["eth0", "net1", "net2"]
    assert rows[1]["ips"] == ["192.168.0.2"] and rows[1]["device-info"]["pci"]["pci-address"].startswith("0000:0c:00.")
    state = await cluster.get(kinds.SRIOV_STATE, "a")
    assert state["status"]["syncStatus"] == "Succeeded" and len(state["status"]["interfaces"]) == 2
    pool = await cluster.get(kinds.IP_POOL, "sriov-pool")
    assert [row["nodeName"] for row in pool["status"]["allocations"]] == ["a", "b", "system-1"]

    await cluster.pod("two", "a", 1)
    await cluster.phase("two", "Pending")

    async def refused() -> bool:
        return any("Insufficient nvidia.com/rdma-vf" in text for text in await cluster.events("FailedScheduling"))

    await cluster.until("FailedScheduling", refused)
    await cluster.api.delete(kinds.POD, pod)
    await cluster.phase("two", "Running")


async def test_pods_of_a_killed_run_go_with_their_job(cluster, tmp_path):
    """Nobody removes them: a Job without pods does, two seconds after it started, and takes one that runs and one that waits."""
    await cluster.api.create(kinds.NAMESPACE, {"metadata": {"name": "default"}})
    there = ProductApi(auth.transport_for({"kubeconfig": str(tmp_path / "kubeconfig")}))
    container = {"name": "c", "image": "busybox"}
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": node, "namespace": "default"},
            "spec": {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": ANY},
        }
        for node in ("a", "nowhere")
    ]
    owned, owners, told = await asyncio.to_thread(lifetime.limit, there, objects, 2)
    assert told == [] and len(owners) == 1
    await asyncio.to_thread(apply_objects, there, owned, "railyard")
    names = [owner["name"] for _namespace, owner in owners]

    async def left() -> list[str]:
        found = [*(await cluster.api.list(kinds.POD))[0], *(await cluster.api.list(kinds.JOB))[0]]
        return [item["metadata"]["name"] for item in found if item["metadata"]["namespace"] == "default"]

    assert sorted(await left()) == sorted(["a", "nowhere", *names])

    async def gone() -> bool:
        return not await left()

    await cluster.until("the end of the pods and their Job", gone)


async def test_nothing_happens_before_the_chart(cluster):
    async def registered() -> bool:
        return bool((await cluster.get(kinds.NODE, "b")).get("status", {}).get("conditions"))

    await cluster.until("nodes", registered)
    assert "network.nvidia.com/operator.mofed.wait" not in (await cluster.get(kinds.NODE, "a"))["metadata"]["labels"]
    await cluster.install()

    async def labelled() -> bool:
        labels = (await cluster.get(kinds.NODE, "a"))["metadata"]["labels"]
        return labels.get("network.nvidia.com/operator.mofed.wait") == "false"

    await cluster.until("label of the network operator", labelled)


async def test_the_rdma_plugin_on_shared_nodes_keeps_the_pod_waiting(cluster):
    await cluster.install()
    await cluster.ready_policy()
    await cluster.create(
        kinds.IP_POOL, "sriov-pool", {"subnet": "192.168.0.0/16", "perNodeBlockSize": 100, "gateway": "192.168.0.1"}
    )
    await cluster.network('{"type": "rdma", "rdmaQoS": {"tc": 41}}')
    await cluster.rails()
    await cluster.offered("2")
    await cluster.pod("one", "a")

    async def refused() -> bool:
        return any("mode is set to shared" in text for text in await cluster.events("FailedCreatePodSandBox"))

    await cluster.until("FailedCreatePodSandBox", refused)
    waiting = (await cluster.get(kinds.POD, "one", "default"))["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "ContainerCreating"


async def test_more_vfs_drain_one_node_after_the_other_and_uncordon(cluster):
    await cluster.install()
    await cluster.rails()
    await cluster.offered("2")
    policy = await cluster.get(kinds.SRIOV_POLICY, "p")
    await cluster.pod("victim", "a")
    await cluster.phase("victim", "Running")
    seen: set[tuple[str, ...]] = set()

    async def grown() -> bool:
        states = [await cluster.get(kinds.SRIOV_STATE, name) for name in ("a", "b")]
        seen.add(
            tuple(annotations_of(state).get("sriovnetwork.openshift.io/current-state", "Idle") for state in states)
        )
        nodes = [await cluster.get(kinds.NODE, name) for name in ("a", "b")]
        done = all(node["status"]["allocatable"]["nvidia.com/rdma-vf"] == "4" for node in nodes)
        idle = not any(node["spec"].get("unschedulable") for node in nodes)
        return done and idle and all(state["status"]["syncStatus"] == "Succeeded" for state in states)

    await cluster.api.patch(kinds.SRIOV_POLICY, policy, {"spec": {"numVfs": 2}})
    await cluster.until("4 VFs on both nodes, uncordoned", grown, 40)
    assert not any("Idle" not in pair for pair in seen), seen  # the built-in pool lets one node go at a time
    assert await cluster.get(kinds.POD, "victim", "default") == {}


async def test_a_reboot_brings_the_vfs_back_without_a_drain(cluster):
    await cluster.install()
    await cluster.rails()
    await cluster.offered("2")
    machine = cluster.fleet.get("a")
    machine.up = False

    async def ready(status: str) -> bool:
        return (await cluster.get(kinds.NODE, "a"))["status"]["conditions"][0]["status"] == status

    await cluster.until("node a is not ready", lambda: ready("Unknown"))
    machine.vfs = dict.fromkeys(PFS, 0)
    machine.boot_number, machine.up = 2, True
    await cluster.until("node a is ready", lambda: ready("True"))

    async def back() -> bool:
        return set(machine.vfs.values()) == {1}

    await cluster.until("VFs of node a", back)
    assert (await cluster.get(kinds.NODE, "a"))["status"]["nodeInfo"]["bootID"] == "a-boot-2"
    assert (
        annotations_of(await cluster.get(kinds.SRIOV_STATE, "a")).get("sriovnetwork.openshift.io/desired-state")
        == "Idle"
    )


async def test_too_many_vfs_stay_in_progress_without_a_word(cluster):
    await cluster.install()
    await cluster.rails(vfs=9)

    async def waiting() -> bool:
        status = (await cluster.get(kinds.SRIOV_STATE, "a")).get("status", {})
        return status.get("syncStatus") == "InProgress" and not status.get("lastSyncError")

    await cluster.until("InProgress", waiting)
    assert set(cluster.fleet.get("a").vfs.values()) == {0}


@pytest.mark.parametrize("cause", ["plugin", "rdma mode"])
async def test_what_asks_for_reboots(cluster, cause):  # FC-21, FC-31
    await cluster.install(() if cause == "plugin" else ("mellanox",))
    if cause == "rdma mode":
        await cluster.create(
            kinds.SRIOV_POOL_CONFIG,
            "pool",
            {"rdmaMode": "exclusive", "maxUnavailable": 1, "nodeSelector": {"matchLabels": SHAPE}},
        )
    await cluster.rails()

    async def asked() -> bool:
        states = [await cluster.get(kinds.SRIOV_STATE, name) for name in ("a", "b")]
        return any(
            annotations_of(state).get("sriovnetwork.openshift.io/desired-state") == "Reboot_Required"
            for state in states
            if state
        )

    await cluster.until("Reboot_Required", asked)


async def test_without_nv_ipam_the_pool_kinds_and_all_pools_go(cluster):
    await cluster.install()
    await cluster.ready_policy()
    await cluster.create(kinds.IP_POOL, "sriov-pool", {"subnet": "192.168.0.0/16", "perNodeBlockSize": 100})
    policy = await cluster.get(kinds.NIC_CLUSTER_POLICY, "nic-cluster-policy")
    await cluster.api.patch(kinds.NIC_CLUSTER_POLICY, policy, {"spec": {"nvIpam": None}})

    async def gone() -> bool:
        return (
            await cluster.get(kinds.CRD, "ippools.nv-ipam.nvidia.com")
            == {}
            == await cluster.get(kinds.IP_POOL, "sriov-pool")
        )

    await cluster.until("pools deleted", gone)


async def test_only_one_policy_name_is_served(cluster):
    await cluster.install()
    await cluster.create(kinds.NIC_CLUSTER_POLICY, "mine", {"nvIpam": {}})

    async def ignored() -> bool:
        return (await cluster.get(kinds.NIC_CLUSTER_POLICY, "mine")).get("status", {}).get("state") == "ignore"

    await cluster.until("state ignore", ignored)
    assert await cluster.get(kinds.CRD, "ippools.nv-ipam.nvidia.com") == {}


async def test_bad_meta_plugins_make_no_attachment_and_deletion_ends(cluster):
    await cluster.install()
    await cluster.create(
        kinds.SRIOV_NETWORK, "bad", {"resourceName": "r", "ipam": "{}", "metaPlugins": "{'type': 'rdma'}"}
    )
    await cluster.create(kinds.SRIOV_NETWORK, "good", {"resourceName": "r", "ipam": "{}"})
    await cluster.until("attachment of the good network", lambda: cluster.get(kinds.NAD, "good"))
    assert await cluster.get(kinds.NAD, "bad") == {}
    await cluster.api.delete(kinds.SRIOV_NETWORK, await cluster.get(kinds.SRIOV_NETWORK, "good"))

    async def gone() -> bool:
        return await cluster.get(kinds.NAD, "good") == {} == await cluster.get(kinds.SRIOV_NETWORK, "good")

    await cluster.until("network and attachment gone", gone)


async def test_refusals_and_lost_watches_delay_but_do_not_stop(cluster):
    await cluster.install()
    for status, method, count in (
        (429, "PATCH", 4),
        (500, "POST", 4),
        (409, "PATCH", 3),
        (503, "GET", 4),
        (500, "PATCH", 6),
    ):
        await cluster.api.call("POST", "/rehearsal/faults", {"status": status, "method": method, "count": count})
    closed = await cluster.api.call("POST", "/rehearsal/faults", {"close_watches": "."})
    assert closed["closed"] > 5
    await cluster.create(kinds.SRIOV_NETWORK, "late", {"resourceName": "r", "ipam": "{}"})
    await cluster.rails()
    await cluster.offered("2")
    await cluster.until("attachment", lambda: cluster.get(kinds.NAD, "late"))
    assert await cluster.api.call("GET", "/rehearsal/faults") == []


async def test_a_new_api_server_on_another_port_is_found(cluster, tmp_path):
    async def registered() -> bool:
        return bool((await cluster.get(kinds.NODE, "b")).get("status", {}).get("nodeInfo"))

    await cluster.until("node b", registered)
    await cluster.runner.cleanup()
    cluster.runner = await start_api(tmp_path)
    await cluster.until("node b again", registered)
    await cluster.install()
    await cluster.rails()
    await cluster.offered("2")
