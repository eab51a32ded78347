# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan's view of a policy change against the simulated operator's own, over generated pairs of before and after.

The two were written apart, from the same description of the operator; where they differ one of them is wrong.
"""

from __future__ import annotations

from types import SimpleNamespace

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.plan_facts import pod_row, policy_row, state_row
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan import sriov_spec
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.node_effects import ToCome, effects
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from rehearsal.operators import sriov_daemon, sriov_drain, sriov_policy

PCI = ("0000:0c:00.0", "0000:0c:00.1", "0000:2a:00.0")
RESOURCES = ("rdma-vf", "rdma-vf-0", "rdma-vf-1")
PREFIX = "nvidia.com"
SHAPES = st.sampled_from(["B4.8", "other"])


@st.composite
def policies(draw):
    found = []
    for number in range(draw(st.integers(0, 3))):
        selector = draw(
            st.sampled_from(
                [
                    {"rootDevices": list(PCI)},
                    {"vendor": "15b3"},
                    {"vendor": "15b3", "rootDevices": [PCI[0]]},
                    {"rootDevices": [PCI[1], PCI[2]]},
                    {"deviceID": "1019", "vendor": "15b3"},
                    {"pfNames": ["rdma0"]},
                    {"pfNames": ["rdma0#0-1", "rdma1"]},
                    {"pfNames": ["rdma0#2-3"]},
                    {},
                ]
            )
        )
        spec = {
            "resourceName": draw(st.sampled_from(RESOURCES)),
            "numVfs": draw(st.integers(0, 5)),
            "priority": draw(st.sampled_from([10, 90])),
            "isRdma": True,
            "nodeSelector": {"shape": draw(SHAPES)},
            "nicSelector": selector,
            "externallyManaged": draw(st.sampled_from([False, False, False, True])),
        }
        mtu = draw(st.sampled_from([None, 1500, 4220, 9000]))
        found.append({"metadata": {"name": f"p{number}"}, "spec": {**spec, **({"mtu": mtu} if mtu else {})}})
    return found


@st.composite
def interfaces(draw):
    """status.interfaces of a node, settled or adrift."""
    rows = []
    for number, pci in enumerate(PCI):
        count, mtu = draw(st.integers(0, 4)), draw(st.sampled_from([1500, 4220, 9000]))
        row = {"pciAddress": pci, "name": f"rdma{number}", "vendor": "15b3", "deviceID": "1019", "mtu": mtu}
        row |= {"totalvfs": draw(st.sampled_from([4, 8])), "eSwitchMode": "legacy"}
        row["linkAdminState"] = draw(st.sampled_from(["up", "up", "up", "down"]))
        vfs = []
        for index in range(count):
            vf = {"vfID": index, "pciAddress": f"{pci[:-1]}{index + 2}", "driver": "mlx5_core", "mtu": mtu}
            broken = draw(st.sampled_from([None, None, None, None, "driver", "mtu"]))
            vfs.append({key: value for key, value in vf.items() if key != broken})
        rows.append({**row, **({"numVfs": count, "Vfs": vfs} if count else {})})
    return rows


@st.composite
def pods(draw):
    found = []
    for number in range(draw(st.integers(0, 4))):
        resource = draw(st.sampled_from([None, "cpu", "nvidia.com/gpu", "nvidia.com/rdma-vf", "amd.com/gpu"]))
        owners = draw(
            st.sampled_from([[], [{"kind": "DaemonSet", "name": "d", "controller": True}], [{"kind": "Job"}]])
        )
        container = {"resources": {draw(st.sampled_from(["requests", "limits"])): {resource: "1"} if resource else {}}}
        found.append(
            {
                "metadata": {"namespace": "jobs", "name": f"pod-{number}", "ownerReferences": owners},
                "spec": {"nodeName": draw(st.sampled_from(["n1", "n2"])), "containers": [container]},
                "status": {"phase": draw(st.sampled_from(["Running", "Pending", "Succeeded", "Failed"]))},
            }
        )
    return found


@st.composite
def pool_configs(draw):
    found = []
    for number in range(draw(st.integers(0, 2))):
        spec = {"nodeSelector": {"matchLabels": {"shape": draw(SHAPES)}}}
        limit = draw(st.sampled_from([None, 0, 1, 2, "10%", "50%", "100%"]))
        mode = draw(st.sampled_from([None, None, None, "exclusive", "shared"]))
        spec |= ({"maxUnavailable": limit} if limit is not None else {}) | ({"rdmaMode": mode} if mode else {})
        found.append({"metadata": {"name": f"pool-{number}"}, "spec": spec})
    return found


def node(name, shape="B4.8"):
    return {"metadata": {"name": name, "labels": {"shape": shape}}}


def operator_says(nodes, before, after, status, pools, running, disable_drain, line):
    """What the simulated operator does to node n1, from its own functions."""
    live = sriov_policy.node_interfaces(before, nodes[0], status)
    spec = sriov_policy.node_interfaces(after, nodes[0], status)
    created = {i["pciAddress"] for i in live if not i.get("externallyManaged")}
    changes = sriov_policy.plan(spec, status, created)
    mode = _mode(nodes[0], pools)
    if spec != live:
        sriov_daemon.ConfigDaemons._renewed_external(SimpleNamespace(), changes, spec, status)
    reboot = mode is not None and line != mode
    drain = any(change.drain for change in changes.values() if not change.error) and not disable_drain
    pods_gone = sriov_drain.to_evict(running, "n1", PREFIX, reboot) if reboot or drain else []
    return {
        "effect": "reboot"
        if reboot
        else "drain"
        if drain
        else "device_plugin_restart"
        if spec != live or changes
        else "nothing",
        "errors": sum(change.error is not None for change in changes.values()),
        "touched": sorted(changes),
        "evicted": sorted(pod["metadata"]["name"] for pod in pods_gone),
        "live": live,
        "spec": spec,
    }


def _mode(item, pools):
    mine = [
        p for p in pools if p["spec"]["nodeSelector"]["matchLabels"]["shape"] == item["metadata"]["labels"]["shape"]
    ]
    return mine[0]["spec"].get("rdmaMode") if len(mine) == 1 else None


def plan_says(nodes, live, after, status, pools, running, disable_drain, line):
    state = {"spec": {"interfaces": live}, "status": {"interfaces": status, "syncStatus": "Succeeded"}}
    known = {
        "nodes": [
            {"name": n["metadata"]["name"], "labels": n["metadata"]["labels"], "unschedulable": False, "names": []}
            for n in nodes
        ],
        "states": {"n1": state_row(state)},
        "policies": [],
        "pool_configs": [],
        "pods": [row for row in map(pod_row, running) if row],
        "unknown": {},
    }
    to_come = ToCome([policy_row(p) for p in after], pools, PREFIX, disable_drain)
    facts = {"n1": {"netns_mode": {"kernel_line": line}}}
    return next(row for row in effects(known, to_come, facts, hosts={"n1": "n1"}) if row["node"] == "n1")


@settings(max_examples=150)
@given(
    before=policies(), after=policies(), status=interfaces(), running=pods(), pools=pool_configs(),
    disable_drain=st.sampled_from([False, False, True]), line=st.sampled_from([None, "exclusive", "shared"]),
)  # fmt: skip
def test_effect_and_evicted_pods(before, after, status, running, pools, disable_drain, line):
    nodes = [node("n1"), node("n2"), node("n3", "other")]
    # The stand-in leaves an argument on the kernel line that no pool asks for; the real operator removes it.
    assume(line is None or _mode(nodes[0], pools) is not None)
    judged = operator_says(nodes, before, after, status, pools, running, disable_drain, line)
    row = plan_says(nodes, judged["live"], after, status, pools, running, disable_drain, line)
    event(judged["effect"])
    assert row["effect"] == judged["effect"], (row, judged)
    assert sum("the daemon refuses" in reason["text"] for reason in row["reasons"]) == judged["errors"]
    assert sorted(reason["pci"] for reason in row["reasons"] if reason["pci"]) == judged["touched"]
    assert [pod["name"] for pod in row["evicted"]] == judged["evicted"]


@settings(max_examples=80)
@given(chosen=policies(), status=interfaces())
def test_planned_interfaces(chosen, status):
    theirs = sriov_policy.node_interfaces(chosen, node("n1"), status)
    ours = sriov_spec.planned_interfaces(chosen, {"shape": "B4.8"}, status)
    assert not sriov_spec.differs(theirs, ours)
    for row in theirs:
        mine = ours[row["pciAddress"]]
        assert {key: row.get(key) for key in sriov_spec.COMPARED} == {key: mine.get(key) for key in sriov_spec.COMPARED}
        assert row["vfGroups"] == mine["vfGroups"]


@settings(max_examples=80)
@given(first=policies(), second=policies(), status=interfaces())
def test_whether_the_node_state_gets_a_new_generation(first, second, status):
    live = sriov_policy.node_interfaces(first, node("n1"), status)
    wanted = sriov_policy.node_interfaces(second, node("n1"), status)
    planned = sriov_spec.planned_interfaces(second, {"shape": "B4.8"}, status)
    assert sriov_spec.differs(live, planned) == (live != wanted)


@settings(max_examples=80)
@given(pools=pool_configs(), busy=st.sets(st.sampled_from(["n2", "n4", "n5"])))
def test_whether_one_more_node_may_be_emptied(pools, busy):
    nodes = [node("n1"), node("n2"), node("n3", "other"), node("n4"), node("n5", "other")]
    key = sriov_drain.CURRENT
    states = {
        n["metadata"]["name"]: {
            "metadata": {"annotations": {key: "Draining" if n["metadata"]["name"] in busy else "Idle"}}
        }
        for n in nodes
    }
    known = {
        "nodes": [{"name": n["metadata"]["name"], "labels": n["metadata"]["labels"], "unschedulable": False} for n in nodes],
        "states": {}, "policies": [], "pods": [],
    }  # fmt: skip
    row = effects(known, ToCome([], pools), hosts={"n1": "n1"})[0]
    same_pool = [n for n in nodes if _pool_names(n, pools) == _pool_names(nodes[0], pools)]
    emptied = sum(n["metadata"]["name"] in busy for n in same_pool)
    assert sriov_drain.may_start(nodes[0], nodes, pools, states) == (emptied < row["at_once"])


def _pool_names(item, pools):
    shape = item["metadata"]["labels"]["shape"]
    return {p["metadata"]["name"] for p in pools if p["spec"]["nodeSelector"]["matchLabels"]["shape"] == shape}
