# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each row of the table "when a policy change drains or reboots", and what the row before it does not do."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.plan_facts import pod_row
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan import estimate
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.node_effects import ToCome, effects, worst

PCI = ("0000:0c:00.0", "0000:0c:00.1")
LABELS = {"shape": "B4.8"}


def policy(name="p", **spec):
    base = {"resourceName": "rdma-vf", "numVfs": 1, "priority": 90, "mtu": 4220, "isRdma": True, "nodeSelector": LABELS}
    return {
        "metadata": {"name": name},
        "spec": {**base, "nicSelector": {"vendor": "15b3", "rootDevices": list(PCI)}, **spec},
    }


def vf(index=0, **change):
    return {"vfID": index, "pciAddress": f"0000:0c:00.{index + 2}", "driver": "mlx5_core", "mtu": 4220, **change}


def pf(number=0, vfs=0, **change):
    row = {"pciAddress": PCI[number], "name": f"rdma{number}", "vendor": "15b3", "deviceID": "1019", "mtu": 4220}
    row |= {"totalvfs": 8, "eSwitchMode": "legacy", "linkAdminState": "up", "numVfs": vfs}
    return {**row, "Vfs": [vf(i) for i in range(vfs)], **change}


def planned(number=0, vfs=1, **change):
    group = {"resourceName": "rdma-vf", "policyName": "p", "vfRange": f"0-{vfs - 1}", "deviceType": "netdevice"}
    row = {"pciAddress": PCI[number], "numVfs": vfs, "mtu": 4220, "vfGroups": [{**group, "mtu": 4220, "isRdma": True}]}
    return {**row, **change}


def node(name="n1", **change):
    return {"name": name, "labels": LABELS, "unschedulable": False, "ready": True, "names": [name], **change}


def cluster(interfaces=None, live=(), nodes=None, **change):
    state = {
        "spec": {"interfaces": list(live)},
        "status": {"interfaces": interfaces, "syncStatus": "Succeeded"},
        "busy": [],
    }
    known = {"nodes": nodes or [node(), node("other")], "states": {} if interfaces is None else {"n1": state}}
    return {**known, "policies": [], "pool_configs": [], "pods": [], "unknown": {}, **change}


def judge(known, policies, facts=None, layout=None, **change):
    to_come = ToCome(**{"policies": policies, "pool_configs": [], **change})
    rows = effects(
        known, to_come, {"n1": facts} if facts else None, {"n1": layout} if layout else None, {"n1": "host-1"}
    )
    return next(row for row in rows if row["node"] == "n1")


def texts(row):
    return " | ".join(reason["text"] for reason in row["reasons"])


TWO = [pf(0, 1), pf(1, 1)]
LIVE = [planned(0), planned(1)]
GONE = [policy(nodeSelector={"shape": "other"})]
EXTERNAL = {"externallyManaged": True}
TABLE = {
    "nothing to do": (TWO, LIVE, [policy()], "nothing", ""),
    "no policy and no plan": (TWO, [], GONE, "nothing", ""),
    "first VFs": ([pf(0), pf(1)], [], [policy()], "device_plugin_restart", "gets 1 VF; it has none now"),
    "more VFs": (TWO, LIVE, [policy(numVfs=2)], "drain", "goes from 1 VF to 2"),
    "fewer VFs": ([pf(0, 2), pf(1, 2)], [planned(0, 2), planned(1, 2)], [policy()], "drain", "goes from 2 VFs to 1"),
    "VFs of others counted otherwise": ([pf(0, 4)], [], [policy()], "drain", "goes from 4 VFs to 1"),
    "larger mtu": (TWO, LIVE, [policy(mtu=9000)], "drain", "MTU goes from 4220 to 9000"),
    "lower mtu": ([pf(0, 1, Vfs=[vf(mtu=1500)])], [planned()], [policy(mtu=1500)], "device_plugin_restart", "restarts"),
    "VF mtu": ([pf(0, 1, Vfs=[vf(mtu=1500)])], [planned()], [policy()], "drain", "has MTU 1500, the policy asks for 4220"),
    "VF in a pod": ([pf(0, 1, Vfs=[vf(mtu=None)])], [planned()], [policy()], "nothing", ""),
    "larger mtu without VFs": ([pf(0)], [planned()], [policy(mtu=9000)], "device_plugin_restart", "gets 1 VF"),
    "eswitch mode": (TWO, LIVE, [policy(eSwitchMode="switchdev")], "drain", "eswitch mode goes from legacy to switchdev"),
    "PF down": ([pf(0, 1, linkAdminState="down")], [planned()], [policy()], "drain", "administratively down"),
    "VF without driver": ([pf(0, 1, Vfs=[vf(driver=None)])], [planned()], [policy()], "drain", "has no driver"),
    "VF with vfio": ([pf(0, 1, Vfs=[vf(driver="vfio-pci")])], [planned()], [policy()], "drain", "driver vfio-pci"),
    "VF with GUID zero": ([pf(0, 1, Vfs=[vf(guid="0000:0000:0000:0000")])], [planned()], [policy()], "drain", "GUID zero"),
    "vDPA": ([pf(0, 1)], [planned()], [policy(vdpaType="vhost")], "drain", "vDPA type none, wanted is vhost"),
    "PF leaves": (TWO, LIVE, [policy(nicSelector={"rootDevices": [PCI[0]]})], "drain", "is in no policy any more"),
    "PF of others leaves": ([pf(0, 1), pf(1, 1)], [planned(0)], [policy(nicSelector={"rootDevices": [PCI[0]]})], "nothing", ""),
    "external PF leaves": (TWO, [planned(0), planned(1, **EXTERNAL)], [policy(nicSelector={"rootDevices": [PCI[0]]})],
                           "device_plugin_restart", "restarts"),
    "all policies go": (TWO, LIVE, GONE, "drain", "is in no policy any more"),
    "policies go without VFs": ([pf(0)], [planned(0)], GONE, "device_plugin_restart", "nothing is offered any more"),
    "another resource name": (TWO, LIVE, [policy(resourceName="other")], "device_plugin_restart", "restarts"),
    "another policy name": (TWO, LIVE, [policy("q")], "device_plugin_restart", "restarts"),
    "another priority": (TWO, LIVE, [policy(priority=10)], "nothing", ""),
    "link type": (TWO, LIVE, [policy(linkType="eth")], "device_plugin_restart", "restarts"),
    "external, new plan": ([pf(0, 2)], [planned(0, 2, **EXTERNAL)], [policy(**EXTERNAL)], "drain", "takes its new plan"),
    "external, same plan": ([pf(0, 1)], [planned(0, 1, **EXTERNAL)], [policy(**EXTERNAL)], "nothing", ""),
    "external without VFs": ([pf(0)], [], [policy(**EXTERNAL)], "device_plugin_restart", "the daemon refuses"),
    "more than the firmware has": ([pf(0)], [], [policy(numVfs=9)], "device_plugin_restart", "firmware allows 8"),
    "vfio wanted": (TWO, LIVE, [policy(deviceType="vfio-pci")], "drain", "unless the kernel line has the IOMMU"),
    "vfio wanted without VFs": ([pf(0)], [], [policy(deviceType="vfio-pci")], "unknown", "unless the kernel line has the IOMMU"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_table(name):
    interfaces, live, policies, effect, text = TABLE[name]
    row = judge(cluster(interfaces, live), policies)
    assert (row["effect"], text in texts(row)) == (effect, True), row
    assert (row["reasons"] == []) == (effect == "nothing")


def test_reasons_name_pf_and_rail():
    layout = {"rails": [{"rail": 7, "pci": PCI[1]}], "vendor": "15b3"}
    row = judge(cluster(TWO, LIVE), [policy(numVfs=2)], layout=layout)
    assert {(r["pci"], r["rail"]) for r in row["reasons"]} == {(PCI[0], None), (PCI[1], 7)}
    assert (row["node"], row["host"], row["minutes"]) == ("n1", "host-1", 2)


@pytest.mark.parametrize(
    ("policies", "error"),
    [([policy(numVfs=9)], "firmware allows 8"), ([policy(numVfs=2, **EXTERNAL)], "has 1 VF, the policy asks for 2"),
     ([policy(mtu=9000, **EXTERNAL)], "with MTU 4220, the policy asks for 9000"), ([policy()], None)],
    ids=["firmware", "external VFs", "external MTU", "healthy"],
)  # fmt: skip
def test_what_the_daemon_refuses_is_an_error(policies, error):
    errors = judge(cluster([pf(0, 1)], [planned()]), policies)["errors"]
    assert (error in errors[0]) if error else errors == []


def test_disable_drain_lets_vfs_go_under_pods():
    row = judge(cluster(TWO, LIVE), [policy(numVfs=2)], disable_drain=True)
    assert row["effect"] == "device_plugin_restart" and "drains are off" in texts(row) and row["evicted"] == []


def test_a_restart_of_the_daemon_drains_externally_managed_nodes_only():
    why = "the operator is upgraded"
    external = cluster([pf(0, 1)], [planned(0, 1, **EXTERNAL)])
    assert judge(external, [policy(**EXTERNAL)], daemon_restarts=why)["effect"] == "drain"
    assert judge(cluster(TWO, LIVE), [policy()], daemon_restarts=why)["effect"] == "nothing"


def test_a_renamed_policy_may_drain_since_the_old_one_goes_first():
    row = judge(cluster(TWO, LIVE), [policy("q")], between=[[]])
    assert row["effect"] == "drain" and "goes before its new one comes" in texts(row)
    assert judge(cluster(TWO, LIVE), [policy("q")], between=[[policy()]])["effect"] == "device_plugin_restart"
    assert judge(cluster([pf(0), pf(1)], LIVE), [policy("q")], between=[[]])["effect"] == "device_plugin_restart"


def pool(name="pool", **spec):
    return {"metadata": {"name": name}, "spec": {"nodeSelector": {"matchLabels": LABELS}, **spec}}


def mode_facts(line, following=None):
    return {"netns_mode": {"kernel_line": line, "next_kernel_line": following}}


@pytest.mark.parametrize(
    ("mode", "line", "effect", "text"),
    [
        ("exclusive", None, "reboot", "lacks ib_core.netns_mode=0"),
        ("exclusive", "exclusive", "nothing", ""),
        ("shared", "exclusive", "reboot", "lacks ib_core.netns_mode=1"),
        (None, "exclusive", "reboot", "the operator removes it"),
        (None, None, "nothing", ""),
    ],
)
def test_kernel_arguments_reboot(mode, line, effect, text):
    pools = [pool(rdmaMode=mode, maxUnavailable=1)] if mode else []
    row = judge(cluster(TWO, LIVE), [policy()], mode_facts(line), pool_configs=pools)
    assert (row["effect"], text in texts(row)) == (effect, True)


def test_a_mode_of_the_pool_without_facts_is_unknown_and_one_that_was_there_is_nothing_new():
    pools = [pool(rdmaMode="exclusive", maxUnavailable=1)]
    row = judge(cluster(TWO, LIVE), [policy()], pool_configs=pools)
    assert row["effect"] == "unknown" and row["minutes"] is None and "unless the kernel line" in texts(row)
    known = cluster(TWO, LIVE)
    known["states"]["n1"]["spec"]["system"] = {"rdmaMode": "exclusive"}
    assert judge(known, [policy()], pool_configs=pools)["effect"] == "nothing"


def test_our_own_reboot_before_counts_with_the_next_kernel_line():
    facts = mode_facts("exclusive", None)
    assert judge(cluster(TWO, LIVE), [policy()], facts, rebooted=frozenset(["n1"]))["effect"] == "nothing"


def test_the_mellanox_plugin_reboots_for_the_firmware():
    row = judge(cluster(TWO, LIVE), [policy()], disable_plugins=())
    assert row["effect"] == "reboot" and "firmware has 8, wanted is 1" in texts(row)


def test_the_only_node_is_rebooted_without_a_drain():
    known = cluster(TWO, LIVE, nodes=[node()])
    row = judge(known, [policy()], disable_plugins=())
    assert row["evicted"] == [] and "without a drain" in texts(row)


UNKNOWN = {
    "no state": (cluster(None), {}, "does not run on this node"),
    "state without interfaces": (cluster([]), {}, "the config daemon has not reported"),
    "no operator, no facts": (cluster(None), {"installed": False}, "there are no facts of the node"),
    "states not readable": (cluster(None, unknown={"states": "HTTP status 403: no"}), {}, "HTTP status 403"),
    "policies not readable": (cluster(TWO, LIVE, unknown={"policies": "no answer: x"}), {}, "no answer"),
    "range that is none": (
        cluster(TWO, LIVE),
        {"policies": [policy(nicSelector={"pfNames": ["rdma0#x"]})]},
        "'rdma0#x'",
    ),
    "numVfs as text": (cluster(TWO, LIVE), {"policies": [policy(numVfs="2")]}, "must be a whole number"),
    "selector of another type": (
        cluster(TWO, LIVE),
        {"policies": [policy(nodeSelector=["x"])]},
        "must be a map of labels",
    ),
    "interface without address": (cluster([{"name": "x"}]), {}, "KeyError"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_stays_unknown_with_a_reason(name):
    known, change, text = UNKNOWN[name]
    row = judge(known, **{"policies": [policy()], **change})
    assert (row["effect"], row["minutes"], text in texts(row)) == ("unknown", None, True), row


def facts_with(num, mtu=4220, vf_mtu=4220):
    vfs = [{"index": 0, "pci": "0000:0c:00.2", "netdev": "v0", "device": "mlx5_9"}] if num else []
    netdevs = {
        "rdma0": {"pci": PCI[0], "mtu": mtu, "sriov": {"total": 8, "num": num, "vfs": vfs}},
        "v0": {"mtu": vf_mtu},
    }
    return {"netdevs": netdevs, "devices": {"mlx5_9": {"driver": "mlx5_core"}}, "netns_mode": {}}


@pytest.mark.parametrize(
    ("facts", "effect"),
    [(facts_with(0), "device_plugin_restart"), (facts_with(1), "device_plugin_restart"), (facts_with(2), "drain"),
     (facts_with(1, vf_mtu=1500), "drain"), (facts_with(None), "unknown")],
    ids=["no VFs", "the same VFs", "other VFs", "VFs of another MTU", "not readable"],
)  # fmt: skip
def test_before_the_operator_is_there_the_facts_tell(facts, effect):
    layout = {"rails": [{"rail": 0, "pci": PCI[0]}], "vendor": "15b3"}
    row = judge(cluster(None), [policy()], facts, layout, installed=False)
    assert row["effect"] == effect, row


def pod(name, resource=None, **change):
    container = {"resources": {"requests": {resource: "1"}}} if resource else {}
    spec = {"nodeName": "n1", "containers": [container], "terminationGracePeriodSeconds": 30, **change.pop("spec", {})}
    meta = {"namespace": "jobs", "name": name, **change.pop("metadata", {})}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running"}, **change}


def owned_by(kind):
    return {"ownerReferences": [{"kind": kind, "name": "x", "controller": True}]}


PODS = [
    pod("vf", "nvidia.com/rdma-vf"),
    pod("gpu", "nvidia.com/gpu", spec={"volumes": [{"name": "scratch", "emptyDir": {}}]}),
    pod("web"),
    pod("cpu", "cpu"),
    pod("daemon", "nvidia.com/gpu", metadata=owned_by("DaemonSet")),
    pod("static", "nvidia.com/gpu", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
    pod("done", "nvidia.com/gpu", status={"phase": "Succeeded"}),
    pod("going", "nvidia.com/gpu", metadata={"deletionTimestamp": "now"}),
    pod("elsewhere", "nvidia.com/gpu", spec={"nodeName": "n2"}),
]


def evicted(**change):
    known = cluster(TWO, LIVE, pods=[row for row in map(pod_row, PODS) if row])
    return judge(known, [policy(numVfs=2)], **change)["evicted"]


def test_a_drain_takes_every_gpu_pod_with_its_emptydir():
    rows = evicted()
    assert [(row["name"], row["empty_dir"]) for row in rows] == [("gpu", ["scratch"]), ("vf", [])]
    assert rows[0]["why"] == "requests nvidia.com/gpu"


def test_another_prefix_takes_only_its_own():
    assert evicted(prefix="rdma.example.com") == []


def test_a_reboot_takes_everything_but_daemons_and_static_pods():
    assert [row["name"] for row in evicted(disable_plugins=())] == ["cpu", "gpu", "vf", "web"]


def test_pods_that_cannot_be_listed_are_unknown_not_none():
    row = judge(cluster(TWO, LIVE, pods=None, unknown={"pods": "HTTP status 403: no"}), [policy(numVfs=2)])
    assert row["evicted"] is None and "HTTP status 403" in texts(row)


def test_what_may_hold_a_drain_up():
    slow = pod_row(pod("slow", "nvidia.com/gpu", spec={"terminationGracePeriodSeconds": 3600}))
    budget = {
        "metadata": {"namespace": "jobs", "name": "pdb"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 0},
    }
    guarded = pod_row(pod("guarded", "nvidia.com/gpu"), [budget])
    row = judge(cluster(TWO, LIVE, pods=[slow, guarded]), [policy(numVfs=2)])
    assert "slow has 3600 s" in row["holdups"][0] and "PodDisruptionBudget jobs/pdb" in row["holdups"][1]
    assert judge(cluster(TWO, LIVE, pods=[slow, guarded]), [policy()])["holdups"] == []


def test_a_cordon_of_others_is_lost():
    known = cluster(TWO, LIVE, nodes=[node(unschedulable=True), node("other")])
    assert "makes it schedulable at the end" in texts(judge(known, [policy(numVfs=2)]))


@pytest.mark.parametrize(
    ("pools", "at_once", "error"),
    [
        ([], 1, None),
        ([pool(maxUnavailable=2)], 2, None),
        ([pool(maxUnavailable="50%")], 1, None),
        ([pool(maxUnavailable="10%")], 0, "allows none of its 3 nodes"),
        ([pool()], 3, None),
        ([pool(maxUnavailable="half")], None, "neither a number nor a percentage"),
        ([pool(maxUnavailable=2), pool("second")], 0, "it is in 2 pool configurations (pool, second)"),
        ([pool(maxUnavailable=2, ovsHardwareOffloadConfig={"name": "x"})], 1, None),
    ],
    ids=["built-in", "number", "percent", "percent of a small pool", "no limit", "no number", "two pools", "ovs"],
)
def test_how_many_at_once(pools, at_once, error):
    known = cluster(TWO, LIVE, nodes=[node(), node("n2"), node("n3")])
    row = judge(known, [policy(numVfs=2)], pool_configs=pools)
    assert row["at_once"] == at_once
    assert (error in row["errors"][0]) if error else row["errors"] == []


def test_nodes_that_no_policy_selects_are_left_out_unless_they_are_hosts():
    rows = effects(cluster(TWO, LIVE), ToCome([policy(nodeSelector={"shape": "x"})], []), hosts={"other": "host-2"})
    assert [(row["node"], row["effect"]) for row in rows] == [("n1", "drain"), ("other", "nothing")]


def row(effect, minutes, pool=None, at_once=1):
    return {"effect": effect, "minutes": minutes, "pool": pool, "at_once": at_once}


@pytest.mark.parametrize(
    ("rows", "minutes"),
    [
        ([], 0),
        ([row("device_plugin_restart", 1)] * 9, 1),
        ([row("drain", 2)] * 5, 10),
        ([row("drain", 2, "p", 2)] * 5, 6),
        ([row("drain", 2, "p", 2)] * 4 + [row("drain", 2, "q", 1)] * 3, 6),
        ([row("drain", 2, "p", 0)], None),
        ([row("unknown", None)], None),
    ],
    ids=["none", "side by side", "one by one", "two at once", "two pools", "never", "unknown"],
)
def test_minutes(rows, minutes):
    assert estimate.of_pools(rows) == minutes


def test_batches_of_ansible():
    assert (estimate.of_batches([], 1), estimate.of_batches([18] * 5, 2), estimate.of_batches([1], 0)) == (0, 54, None)


def test_worst():
    assert (
        worst([]) == "nothing" and worst(["unknown", "drain"]) == "drain" and worst(["unknown", "nothing"]) == "unknown"
    )
