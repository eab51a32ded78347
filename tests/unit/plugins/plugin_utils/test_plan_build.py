# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import re

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.filter.plan import plan as plan_filter
from ansible_collections.railyard.rdma.plugins.modules import operator_prepare
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan import markdown, text
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.build import Seen, build
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.estimate import Minutes
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.node_side import prepared
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.operator_change import operator_change
from hypothesis import example, given
from hypothesis import strategies as st

PCI = "0000:0c:00.0"
LABELS = {"shape": "B4.8"}
HOSTS = ("gpu-1", "gpu-2")


def policy(**spec):
    base = {"resourceName": "rdma-vf", "numVfs": 1, "mtu": 4220, "priority": 90, "nodeSelector": LABELS, "isRdma": True}
    spec = {**base, "nicSelector": {"vendor": "15b3", "rootDevices": [PCI]}, **spec}
    return {"kind": "SriovNetworkNodePolicy", "metadata": {"name": "p", "namespace": "op"}, "spec": spec}


def state(name):
    group = {
        "resourceName": "rdma-vf",
        "policyName": "p",
        "vfRange": "0-0",
        "deviceType": "netdevice",
        "isRdma": True,
        "mtu": 4220,
    }
    vf = {"vfID": 0, "pciAddress": "0000:0c:00.2", "driver": "mlx5_core", "mtu": 4220}
    actual = {"pciAddress": PCI, "vendor": "15b3", "mtu": 4220, "numVfs": 1, "totalvfs": 8, "Vfs": [vf]}
    spec = {"interfaces": [{"pciAddress": PCI, "numVfs": 1, "mtu": 4220, "vfGroups": [group]}]}
    return {"metadata": {"name": name}, "spec": spec, "status": {"interfaces": [actual], "syncStatus": "Succeeded"}}


def pool():
    return {"metadata": {"name": "rdma-vf"}, "spec": {"maxUnavailable": 1, "nodeSelector": {"matchLabels": LABELS}}}


def node(name):
    return {"metadata": {"name": name, "labels": LABELS}, "spec": {}, "status": {"addresses": []}}


def pod(name="job", host="gpu-1", **change):
    row = {"namespace": "jobs", "name": name, "node": host, "resources": ["nvidia.com/gpu"], "empty_dirs": ["scratch"]}
    return {**row, "grace": 30, "unmanaged": False, "own": False, "blocked": None, **change}


MODEL = {
    "layouts": [
        {"name": "b4", "hosts": list(HOSTS), "rails": [{"rail": 0, "pci": PCI}], "max_unavailable": 1, "vendor": "15b3"}
    ],
    "hosts": dict.fromkeys(HOSTS, "b4"),
    "operator": {"resource_prefix": "nvidia.com", "namespace": "op", "version": "26.7.1"},
}
VALUES = {"sriov-network-operator": {"sriovOperatorConfig": {"disablePlugins": ["mellanox"], "disableDrain": False}}}
PREPARED = {
    "action": "none",
    "chart": {"version": "26.7.1"},
    "release": {"deployed": {"chart_version": "26.7.1", "values": VALUES}},
    "chart_values": VALUES,
    "crds": [],
}


def look(**change):
    row = {
        "failure": None,
        "mode": "shared",
        "live": "shared",
        "pending": False,
        "file": False,
        "taken_over": [],
        "images": [],
    }
    row |= {"configured": [], "switches": False, "reboot_allowed": True, "drain": "auto", "node_reason": None}
    return {**row, "unmanaged_pods": "refuse", "emptydir": "evict", **change}


def seen(**change):
    """A cluster of two nodes that is as wanted."""
    known = {
        "model": MODEL,
        "facts": dict.fromkeys(HOSTS, {"netns_mode": {}}),
        "looks": {host: look() for host in HOSTS},
        "nodes": {host: host for host in HOSTS},
        "state": {
            "nodes": [node(host) for host in HOSTS],
            "node_states": [state(host) for host in HOSTS],
            "policies": [policy()],
            "pool_configs": [pool()],
            "operator_configs": [{"metadata": {"name": "default"}, "spec": {"disablePlugins": ["mellanox"]}}],
            "reasons": {},
        },
        "drains": {"pods": [pod()], "resource_prefix": "nvidia.com", "unknown": {}},
        "wanted": [policy()],
        "objects": {
            "objects": [{"kind": "SriovNetworkNodePolicy", "namespace": "op", "name": "p", "action": "unchanged"}]
        },
        "prepared": PREPARED,
    }
    return Seen(**{**known, **change})


def changed(**spec):
    fields = [{"path": f"spec.{key}", "before": 1, "after": value} for key, value in spec.items()]
    row = {"kind": "SriovNetworkNodePolicy", "namespace": "op", "name": "p", "action": "changed", "fields": fields}
    return {"wanted": [policy(**spec)], "objects": {"objects": [row]}}


def planned(**change):
    return build(seen(**change), Minutes())


def test_nothing_to_do():
    plan = planned()
    assert (plan["changes"], plan["stops"], plan["unknown"], plan["objects"]) == (False, [], [], [])
    assert plan["summary"]["objects"] == {"created": 0, "changed": 0, "deleted": 0, "unchanged": 1, "foreign": 0}
    assert plan["summary"]["nodes"]["nothing"] == 2 and plan["summary"]["minutes"] == 0
    assert text.text_lines(plan)[-1] == "site.yml would change nothing."


def test_more_vfs_drain_both_nodes_one_after_the_other():
    plan = planned(**changed(numVfs=2))
    assert plan["changes"] is True
    assert [(row["host"], row["effect"], row["at_once"]) for row in plan["nodes"]] == [
        ("gpu-1", "drain", 1),
        ("gpu-2", "drain", 1),
    ]
    assert (plan["summary"]["minutes"], plan["summary"]["evicted_pods"]) == (4, 1)
    assert plan["nodes"][0]["evicted"] == [
        {"namespace": "jobs", "name": "job", "why": "requests nvidia.com/gpu", "empty_dir": ["scratch"]}
    ]
    shown = "\n".join(text.text_lines(plan))
    assert "jobs/job (requests nvidia.com/gpu; its emptyDir is lost: scratch)" in shown
    assert "spec.numVfs: 1 -> 2" in shown and "gpu-1, gpu-2: rail 0: goes from 1 VF to 2" in shown


def test_a_deleted_policy_is_no_longer_there_for_the_nodes():
    row = {"kind": "SriovNetworkNodePolicy", "namespace": "op", "name": "p", "action": "deleted"}
    plan = planned(wanted=[], objects={"objects": [row]})
    assert [row["effect"] for row in plan["nodes"]] == ["drain", "drain"] and plan["summary"]["objects"]["deleted"] == 1


def test_a_node_of_nobody_in_the_inventory_is_told_too():
    known = copy.deepcopy(seen().state)
    known["nodes"].append(node("stranger"))
    known["node_states"].append(state("stranger"))
    plan = planned(state=known, **changed(numVfs=2))
    assert [(row["host"], row["node"]) for row in plan["nodes"]][2] == (None, "stranger")


REBOOT = look(pending=True, live="exclusive", file=True, images=["/boot/initrd"])


def test_a_reboot_of_ours_and_a_drain_of_the_operator_are_two_disturbances():
    plan = planned(looks={"gpu-1": REBOOT, "gpu-2": look()}, **changed(numVfs=2))
    row = plan["nodes"][0]
    assert (row["effect"], row["operator"], row["minutes"], row["prepare"]["reboot"]) == ("reboot", "drain", 22, True)
    assert len(row["evicted"]) == 1 and plan["summary"]["minutes_of"] == {
        "prepare_nodes": 20, "install_operator": 0, "apply_rails": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "pods", "stop"),
    [
        ({"reboot_allowed": False}, [], "rdma_netns_reboot_allowed is false"),
        ({}, [pod(unmanaged=True)], "no controller would make it anew"),
        ({"emptydir": "refuse"}, [pod()], "what is in its emptyDir scratch would be lost"),
        ({"unmanaged_pods": "evict"}, [pod(unmanaged=True)], None),
        ({}, [pod(unmanaged=True, own=True)], None),
        ({"failure": "Set the mode: refused"}, [], "Set the mode: refused"),
    ],
    ids=["not allowed", "unmanaged", "emptydir", "unmanaged allowed", "our own probe", "refused"],
)
def test_where_prepare_nodes_would_end(change, pods, stop):
    plan = planned(
        looks={"gpu-1": {**REBOOT, **change}, "gpu-2": look()}, drains={"pods": pods, "resource_prefix": "nvidia.com"}
    )
    stops = [(row["playbook"], row["node"]) for row in plan["stops"]]
    assert stops == ([("prepare_nodes", "gpu-1")] if stop else [])
    assert stop is None or stop in plan["stops"][0]["text"]


def test_never_drained_or_in_no_cluster():
    row = prepared("h", {**REBOOT, "drain": "never"}, True, "n", [pod()], Minutes())
    assert row["evicted"] == [] and row["minutes"] == 18 and "rdma_netns_drain is never" in row["reasons"][1]
    assert (
        "no node has"
        in prepared("h", {**REBOOT, "node_reason": "no node has it"}, True, None, [], Minutes())["reasons"][1]
    )


def test_a_switch_at_run_time_leaves_the_reboot_open():
    row = prepared("h", {**REBOOT, "switches": True}, True, "n", [], Minutes())
    assert row["reboot"] is None and row["runtime"] and row["evicted"] == []


def test_a_node_that_cannot_be_reached_stops_and_is_unknown():
    plan = planned(facts={"gpu-1": {"netns_mode": {}}, "gpu-2": None}, looks={"gpu-1": look(), "gpu-2": None})
    assert [(row["playbook"], row["node"]) for row in plan["stops"]] == [("prepare_nodes", "gpu-2")]
    assert plan["nodes"][1]["effect"] == "unknown" and plan["summary"]["minutes"] is None and plan["changes"] is None


def test_objects_that_were_not_compared_are_not_known_instead_of_none():
    plan = planned(objects=None, failures={"preflight": "no connection"})
    assert set(plan["summary"]["objects"].values()) == {None} and plan["changes"] is None
    assert {"what": "objects", "reason": "no connection"} in plan["unknown"]
    assert text.summary_line(plan).startswith("objects: not known; nodes: ")
    assert text.summary_line(planned()).startswith("objects: 0 created, 0 changed, 0 deleted, 1 unchanged; nodes: ")


def test_no_state_of_the_cluster_is_unknown_for_every_node():
    plan = planned(
        state=None, drains=None, objects=None, prepared=None, failures={"cluster": "HTTP status 0: no answer"}
    )
    assert "no answer" in str(plan["unknown"]) and plan["changes"] is None
    assert {stop["playbook"] for stop in plan["stops"]} == {"apply_rails"}


PLUGIN_ON = {"sriov-network-operator": {"sriovOperatorConfig": {"disablePlugins": []}}}
OPERATOR = {
    "not readable": (None, "The cluster cannot be prepared: HTTP status 403: secrets is forbidden", "unknown", ["403"], None),
    "refused": (None, "Kubernetes is too old", "unknown", ["Kubernetes is too old"], None),
    "unchanged": (PREPARED, None, "none", [], None),
    "kept elsewhere": ({**PREPARED, "action": "unknown"}, None, "unknown", [], None),
    "first": ({**PREPARED, "action": "install", "release": {"deployed": None}}, None, "install", [], None),
    "newer": ({**PREPARED, "action": "upgrade", "chart": {"version": "26.7.2"}}, None, "upgrade", [], "upgraded"),
    "plugin on": (
        {**PREPARED, "action": "upgrade", "chart_values": PLUGIN_ON},
        None, "upgrade", [], "disablePlugins",
    ),
    "resources": ({**PREPARED, "action": "upgrade", "chart_values": {**VALUES, "operator": {"x": {}}}}, None, "upgrade", [], None),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATOR)
def test_operator(name):
    given_, failure, action, stops, restarts = OPERATOR[name]
    refused = stops == ["403"]
    row = operator_change(given_, failure, refused)
    assert (row["action"], row["stops"]) == (action, [] if refused else stops)
    assert (restarts in row["restarts"]) if restarts else row["restarts"] is None
    assert (row["reason"] is None) == (action != "unknown")
    assert bool(row["effects"]) == (action in ("install", "upgrade"))


def test_the_module_returns_what_is_looked_at():
    """A key that is renamed there must not be missed here."""
    told = yaml.safe_load(operator_prepare.RETURN)
    assert set(PREPARED) <= set(told) and {"version", "fetched"} <= set(told["chart"]["sample"])
    assert "deployed" in told["release"]["sample"] and {"name", "action"} <= set(told["crds"]["sample"][0])


def test_turning_the_mellanox_plugin_on_reboots():
    given_ = OPERATOR["plugin on"][0]
    plan = planned(prepared=given_)
    assert plan["nodes"][0]["effect"] == "reboot" and "firmware" in str(plan["operator"]["effects"])


def test_a_release_that_may_not_be_read_leaves_the_rest_and_says_so():
    plan = planned(prepared=None, failures={"operator": "secrets is forbidden"}, refused=frozenset({"operator"}))
    assert (plan["changes"], plan["operator"]["action"], plan["stops"]) == (None, "unknown", [])
    # A text is only a text: without the status it may be anything.
    assert planned(prepared=None, failures={"operator": "HTTP status 403: no"})["stops"]
    assert plan["nodes"][0]["effect"] == "nothing"


def finding(**change):
    row = {
        "id": "POL-001",
        "severity": "error",
        "node": "gpu-1",
        "rail": None,
        "summary": "it is so",
        "remedy": "do that",
    }
    return {**row, "pod": None, "evidence": {}, "tolerated": False, "playbook": "apply_rails", **change}


def test_error_findings_stop_and_are_shown_in_the_order_of_the_plays():
    failing = [finding(), finding(id="NAMING-001", playbook="inspect")]
    plan = planned(findings=failing, failing=failing)
    assert [row["playbook"] for row in plan["stops"]] == ["inspect", "apply_rails"]
    assert "NAMING-001: it is so" in "\n".join(text.text_lines(plan))
    assert planned(findings=failing)["stops"] == []


@pytest.mark.parametrize(
    ("limit", "hosts", "batch"), [(1, 2, 1), ("50%", 2, 1), ("100%", 2, 2), ("10%", 2, 1), (5, 2, 5)], ids=str
)
def test_how_many_nodes_are_prepared_at_once(limit, hosts, batch):
    model = {**MODEL, "layouts": [{**MODEL["layouts"][0], "max_unavailable": limit}]}
    assert planned(model=model)["summary"]["prepared_at_once"] == batch


def test_the_plan_is_json_and_complete():
    plan = planned(**changed(numVfs=2))
    assert json.loads(json.dumps(plan)) == plan
    assert set(plan) == {
        "schema", "changes", "summary", "operator", "objects", "foreign", "nodes", "findings", "stops", "unknown", "assumptions",
    }  # fmt: skip


EFFECTS = [
    ("NicClusterPolicy", "changed", "spec.secondaryNetwork.multus.version", "Multus restarts"),
    ("NicClusterPolicy", "changed", "spec.nvIpam", "all address pools of the cluster are deleted"),
    ("NicClusterPolicy", "changed", "spec.nvIpam.version", "nv-ipam restarts"),
    ("NicClusterPolicy", "changed", "spec.other", None),
    ("NicClusterPolicy", "created", None, None),
    ("IPPool", "changed", "spec.perNodeBlockSize", "nodes get other blocks"),
    ("IPPool", "changed", "spec.gateway", None),
    ("CIDRPool", "deleted", None, "no longer given out"),
    ("SriovNetwork", "changed", "spec.metaPlugins", "running ones keep what they have"),
    ("NetworkAttachmentDefinition", "deleted", None, "does not start"),
    ("SriovNetworkNodePolicy", "changed", "spec.numVfs", None),
]


@pytest.mark.parametrize(("kind", "action", "path", "effect"), EFFECTS, ids=lambda value: str(value)[:30])
def test_what_a_changed_object_does(kind, action, path, effect):
    row = {"kind": kind, "namespace": None, "name": "x", "action": action}
    row |= {"fields": [{"path": path, "before": {"a": 1}, "after": None}]} if path else {}
    plan = planned(objects={"objects": [row]})
    found = plan["objects"][0]["effect"]
    assert (effect in found) if effect else found is None
    assert effect is None or effect in "\n".join(text.text_lines(plan)) and effect.split()[0] in markdown.markdown(plan)


HOSTILE = "evil|`x`</code><script>alert(1)</script> [l](http://e.example) @all #1 !2\n\n# head\x1b[31m\u202e https://e.example *b*"


def hostile_plan(value):
    row = {"kind": value, "namespace": value, "name": value, "action": "changed"}
    row["fields"] = [{"path": value, "before": value, "after": {value: value}}]
    objects = {"objects": [row], "foreign": [{"kind": "K", "namespace": value, "name": value, "reason": value}]}
    pods = [pod(value, empty_dirs=[value], blocked=value)]
    failing = [finding(summary=value, remedy=value)]
    known = {"pods": pods, "resource_prefix": "nvidia.com", "unknown": {"budgets": value}}
    return planned(
        wanted=[policy(numVfs=2)], objects=objects, drains=known, findings=failing, failing=failing,
        failures={"operator": value}, prepared=None,
    )  # fmt: skip


def harmless(page):
    """No markup but what the renderer makes itself, no mention, reference or address."""
    page = re.sub(r"</?(code|details|summary|br)>", "", page)
    assert not re.search(r"[<>@\x1b\u202e`]", page), re.search(r".{20}[<>@\x1b\u202e`].{20}", page)
    assert "://" not in page and "](" not in page and not re.search(r"#\d", page.replace("&#", ""))
    cells = {len(re.findall(r"\|", line)) for line in page.splitlines() if line.startswith("|")}
    assert cells <= {3, 4, 5, 6, 7}


def test_hostile_names_stay_text():
    plan = hostile_plan(HOSTILE)
    harmless(markdown.markdown(plan))
    lines = text.text_lines(plan)
    assert all("\x1b" not in line and "\n" not in line and "\u202e" not in line for line in lines)


@given(st.text(max_size=60))
@example("\u2028")
@example("\u2029|")
def test_any_name_stays_text(value):
    harmless(markdown.markdown(hostile_plan(value)))
    assert all(len(line.splitlines()) <= 1 for line in text.text_lines(hostile_plan(value)))


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=80))
def test_markdown_shows_what_the_text_says(value):
    import html

    shown = html.unescape(markdown.escape(value)).replace("\u200b", "")
    assert shown == text.clean(value).replace("\u200b", "")


def test_a_plan_of_many_nodes_fits_into_a_comment():
    hosts = [f"gpu-{number}" for number in range(1000)]
    model = {**MODEL, "layouts": [{**MODEL["layouts"][0], "hosts": hosts}], "hosts": dict.fromkeys(hosts, "b4")}
    known = {**seen().state, "nodes": [node(h) for h in hosts], "node_states": [state(h) for h in hosts]}
    pods = [pod(f"job-{n}", h) for n, h in enumerate(hosts)]
    plan = planned(
        model=model, facts=dict.fromkeys(hosts, {"netns_mode": {}}), looks={h: look() for h in hosts},
        nodes={h: h for h in hosts}, state=known, drains={"pods": pods, "resource_prefix": "nvidia.com"}, **changed(numVfs=2),
    )  # fmt: skip
    assert plan["summary"]["nodes"]["drain"] == 1000 and plan["summary"]["minutes"] == 2000
    assert len(markdown.markdown(plan)) < 65536 and len(text.text_lines(plan)) < 300


@pytest.mark.parametrize(
    "given_", [{"naps": 1}, {"drain": -1}, {"drain": "long"}, {"drain": True}, {"reboot": 1e9}, {"vfs": None}], ids=str
)
def test_minutes_are_checked(given_):
    with pytest.raises(AnsibleFilterError, match="plan: minutes"):
        plan_filter(MODEL, {}, minutes=given_)


def test_cached_facts_of_a_node_that_does_not_answer_are_not_believed():
    known = seen()
    hostvars = {
        host: {"ansible_facts": {"rdma": {"netns_mode": {}}}, "plan_reached": host == "gpu-1"} for host in HOSTS
    }
    given_ = {"state": known.state, "drains": known.drains, "objects": known.objects, "operator": PREPARED}
    plan = plan_filter(MODEL, hostvars, wanted=known.wanted, **given_)["plan"]
    assert [row["effect"] for row in plan["nodes"]] == ["nothing", "unknown"]
    assert [stop["node"] for stop in plan["stops"]] == ["gpu-2"]


def test_the_filter_finds_nodes_by_address():
    known = seen()
    facts = {"rdma": {"netns_mode": {}}}
    hostvars = {host: {"ansible_facts": facts, "ansible_host": f"10.0.0.{n}"} for n, host in enumerate(HOSTS)}
    nodes = [{**node(f"node-{n}"), "status": {"addresses": [{"address": f"10.0.0.{n}"}]}} for n in range(2)]
    state_ = {**known.state, "nodes": nodes, "node_states": [state("node-0"), state("node-1")]}
    result = plan_filter(
        MODEL, hostvars, state=state_, drains=known.drains, wanted=[policy(numVfs=2)], objects=changed(numVfs=2)["objects"],
        operator=PREPARED, minutes={"drain": "7"},
    )  # fmt: skip
    assert [(row["host"], row["node"]) for row in result["plan"]["nodes"]] == [("gpu-1", "node-0"), ("gpu-2", "node-1")]
    assert result["plan"]["summary"]["minutes"] == 14


def renamed(rows, **change):
    """The plan of a run in which policy q takes the place of p, done in the order of the rows."""
    wanted = [{**policy(), "metadata": {"name": "q", "namespace": "op"}}]
    moves = [{"kind": "SriovNetworkNodePolicy", "namespace": "op", **row} for row in rows]
    return planned(wanted=wanted, objects={"objects": moves, "foreign": []}, **change)


NEW, OLD = {"name": "q", "action": "created"}, {"name": "p", "action": "deleted"}


@pytest.mark.parametrize(
    ("rows", "hooks", "effect"),
    [
        ([NEW, OLD], [], "device_plugin_restart"),
        ([OLD, NEW], [], "drain"),
        ([{**NEW, "validated": False}, OLD], [], "device_plugin_restart"),
        ([{**NEW, "validated": False}, OLD], ["sriov-operator-webhook-config"], "drain"),
        ([NEW, OLD], ["sriov-operator-webhook-config"], "device_plugin_restart"),
    ],
    ids=["new-first", "old-first", "not-asked", "not-asked-with-webhook", "webhook-took-it"],
)
def test_another_name_for_a_policy_drains_only_where_the_old_one_goes_first(rows, hooks, effect):
    plan = renamed(rows, state={**seen().state, "webhooks": hooks})
    assert {row["effect"] for row in plan["nodes"]} == {effect}
