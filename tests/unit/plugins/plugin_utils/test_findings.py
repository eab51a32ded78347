# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import report_table
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings import documentation
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import evaluate, failing, verdict
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.pod_rails import interfaces
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import RULES, USUAL_INPUTS, Context, rule
from ansible_collections.railyard.rdma.tests.unit.field_cases import field_pod

PF = ["0000:0c:00.0", "0000:0c:00.1"]
ADDRESS = ["192.168.0.5", "192.168.0.6"]


def layout(**changes):
    return {
        "name": "b4",
        "shape": "BM.GPU.B4.8",
        "network": "sriov",
        "netns_mode": "shared",
        "vfs_per_pf": 1,
        "traffic_class": 41,
        "namespaces": {"operator": "op", "networks": "default"},
        "rails": [{"rail": i, "pci": PF[i], "network": "rdma-vf"} for i in range(2)],
        "resources": [{"name": "rdma-vf", "full_name": "nvidia.com/rdma-vf", "count": 2, "rails": [0, 1]}],
        "pod": {"host_network": False},
        **changes,
    }


def facts():
    """A healthy node with both rails."""
    mode = {"live": "shared", "configured": "shared", "next_boot": "shared", "boot_image": "shared", "reasons": {}}
    mode |= {"kernel_line": None, "next_kernel_line": None, "owners": []}
    image = {"kernel": "6", "path": "/boot/initrd.img-6", "stale": False, "default": True, "builder": "dracut"}
    devices, netdevs, rails = {}, {}, []
    for number in range(2):
        name = f"rdma{number}"
        rows = [{**gid(0, "fe80::1", netdev=name), "scope": "link_local"}, gid(3, f"10.0.{number}.1", netdev=name)]
        port = {"link_layer": "Ethernet", "state": "ACTIVE", "phys_state": "LinkUp", "active_mtu": 4096, "gids": rows}
        port |= {"gid_table": {"length": 256, "zero": 254, "unreadable": 0, "reason": None}, "rdma_cm_tos": 0}
        port |= {"traffic_class": {"state": "unset", "value": None, "rules": []}}
        devices[f"mlx5_{number}"] = {
            "pci": PF[number],
            "netdev": name,
            "function": "pf",
            "parent_pci": None,
            "driver": "mlx5_core",
            "ports": {"1": port},
        }
        address = {"address": f"10.0.{number}.1", "prefix": 24, "family": "ipv4", "scope": "global", "tentative": False}
        sysctls = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0, "disable_ipv6": 0, "accept_ra": 1}
        netdevs[name] = {
            "pci": PF[number],
            "mtu": 4220,
            "state": "up",
            "master": None,
            "default_routes": [],
            "addresses": [address],
            "sysctls": {**sysctls, "forwarding": 0},
            "sriov": {"total": 8, "num": 1, "vfs": []},
            "qos": {"trust": "dscp", "dscp_to_priority": {"10": 0}, "pfc": {"enabled": [0, 5]}, "ecn": None},
        }
        rails.append({"rail": number, "reason": None, "gpus": []})
    return {
        "boot_id": "1",
        "gathered_at": "2026-11-29T18:00:00Z",
        "netns_mode": mode,
        "boot_images": [{**image, "mode": "shared", "whole": True, "reason": None}],
        "driver": {
            "flavour": "doca_ofed",
            "version": "26.07",
            "lockdown": "none",
            "character_devices": ["rdma_cm", "uverbs0", "uverbs1"],
            "modules": {"ib_uverbs": "loaded", "rdma_ucm": "loaded"},
            "stale_cdi": [],
        },
        "devices": devices,
        "netdevs": netdevs,
        "rails": rails,
        "routing": {"rules": [], "reason": None},
        "memlock": {"runtimes": {}, "containers": {"soft": "unlimited", "reason": None}},
    }


def gid(index, address, kind="RoCE v2", netdev="net1", usable=True):
    return {
        "index": index,
        "address": address,
        "type": kind,
        "netdev": netdev,
        "scope": "ipv4",
        "usable": usable,
        "reason": None,
    }


def pod(**changes):
    """A healthy pod. The interfaces are not in rail order: net1 is a VF of rail 1."""
    devices, netdevs = {}, {"eth0": {"pci": None, "parent_pci": None, "addresses": []}}
    for rail, interface in ((1, "net1"), (0, "net2")):
        vf = PF[rail][:-1] + str(rail + 2)
        entry = {"address": ADDRESS[rail], "prefix": 16, "scope": "global", "tentative": False, "family": "ipv4"}
        netdevs[interface] = {
            "pci": vf,
            "parent_pci": PF[rail],
            "mtu": 4220,
            "addresses": [entry],
            "sysctls": field_pod.SYSCTLS,
        }
        port = {
            "gids": [gid(0, "fe80::1", netdev=interface), gid(3, ADDRESS[rail], netdev=interface)],
            "gid_table": {"length": 128, "zero": 126},
            "traffic_class": {"state": "set", "value": 41, "rules": []},
        }
        devices[f"mlx5_{20 + rail}"] = {"pci": vf, "netdev": interface, "ports": {"1": port}}
    return {
        "name": "railyard-verify-gpu-1",
        "running": True,
        "reachable": True,
        "reason": None,
        "netns_mode": "shared",
        "networks": [{"name": "default/rdma-vf", "interface": i} for i in ("net1", "net2")],
        "devices": devices,
        "netdevs": netdevs,
        "addresses_unknown": [],
        **field_pod.process(*devices, rules=field_pod.source_rules(*ADDRESS)),
        **changes,
    }


def context(**changes):
    known = {
        "node": "gpu-1",
        "layout": layout(),
        "facts": facts(),
        "kubernetes": kubernetes(),
        "pod": pod(),
    }
    return Context(**{**known, **changes})


def kubernetes(**changes):
    return {
        "allocatable": {"nvidia.com/rdma-vf": "2"},
        "labels": {},
        "attachments": ["default/rdma-vf"],
        "chains": {"default/rdma-vf": ["sriov", "tuning", "sbr"]},
        "pools": [],
        **changes,
    }


def found(given, rule_id=None):
    return [(f["id"], f["severity"], f["rail"]) for f in evaluate([given]) if rule_id in (None, f["id"])]


def test_a_healthy_node_has_no_findings():
    assert evaluate([context()]) == []


def test_interfaces_are_found_by_pci_and_not_by_order():
    assert interfaces(layout(), pod()) == {0: "net2", 1: "net1"}


def test_interfaces_of_children_are_found_by_network():
    given = layout(network="ipvlan")
    given["rails"] = [{"rail": i, "pci": PF[i], "network": f"ipvlan-{i}"} for i in range(2)]
    netdevs = {name: {"pci": None, "addresses": []} for name in ("eth0", "net1", "net2")}
    networks = [{"name": "default/ipvlan-1", "interface": "net1"}, {"name": "default/ipvlan-0", "interface": "net2"}]
    assert interfaces(given, {"netdevs": netdevs, "networks": networks}) == {0: "net2", 1: "net1"}
    assert interfaces(given, {"netdevs": netdevs, "networks": None}) == {0: "net1", 1: "net2"}


# NETNS-001, BOOT-001 -------------------------------------------------------------------------------------------------


def test_other_live_mode_is_an_error_with_evidence():
    given = facts()
    given["netns_mode"].update(live="exclusive", next_boot="exclusive", configured_by="/etc/modprobe.d/x.conf")
    (finding,) = evaluate([context(facts=given)], ["facts"])
    assert (finding["id"], finding["severity"]) == ("NETNS-001", "error")
    assert finding["evidence"]["configured_by"] == "/etc/modprobe.d/x.conf"
    assert "prepare_nodes" in finding["remedy"]


def test_other_live_mode_that_a_reboot_cures_says_so():
    given = facts()
    given["netns_mode"].update(live="exclusive")
    assert "Reboot the node" in evaluate([context(facts=given)], ["facts"])[0]["remedy"]


def test_unreadable_live_mode_is_unknown():
    given = facts()
    given["netns_mode"].update(live=None)
    assert found(context(facts=given), "NETNS-001") == [("NETNS-001", "unknown", None)]


@pytest.mark.parametrize("mode", ["keep", None])
def test_without_a_wanted_mode_nothing_is_compared(mode):
    given = facts()
    given["netns_mode"].update(live="exclusive")
    given["boot_images"][0].update(stale=True)
    known = kubernetes(chains={"default/rdma-vf": ["sriov", "rdma"]})
    assert found(context(facts=given, layout=layout(netns_mode=mode), kubernetes=known)) == []


@pytest.mark.parametrize(("stale", "severity"), [(True, "error"), (None, "unknown")])
def test_stale_boot_image(stale, severity):
    given = facts()
    given["boot_images"][0].update(stale=stale)
    assert found(context(facts=given)) == [("BOOT-001", severity, None)]


def test_stale_image_that_is_not_booted_by_default_is_no_error():
    given = facts()
    given["boot_images"].append({"path": "/boot/initrd.img-5", "stale": True, "default": False})
    assert found(context(facts=given)) == []


def test_unreadable_boot_images_are_unknown():
    assert found(context(facts={**facts(), "boot_images": None})) == [("BOOT-001", "unknown", None)]


# RESOURCE ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allocatable", "severity"),
    [
        ({"nvidia.com/rdma-vf": "1"}, "error"),
        ({}, "error"),
        ({"nvidia.com/rdma-vf": "2k"}, "unknown"),
        (None, "unknown"),
    ],
)
def test_fewer_devices_than_wanted(allocatable, severity):
    given = context(kubernetes=kubernetes(allocatable=allocatable))
    assert found(given) == [("RESOURCE-001", severity, None)]


def test_more_devices_than_wanted_are_fine():
    given = context(kubernetes=kubernetes(allocatable={"nvidia.com/rdma-vf": "9"}, attachments=None))
    assert found(given) == []


def test_attachment_that_does_not_exist():
    given = context(kubernetes=kubernetes(attachments=[]))
    assert found(given) == [("RESOURCE-002", "error", 0), ("RESOURCE-002", "error", 1)]


def test_one_rail_without_an_interface():
    given = pod()
    del given["netdevs"]["net2"]
    assert found(context(pod=given)) == [("RESOURCE-002", "error", 0)]


def test_pod_that_does_not_run_is_an_error_and_no_other_rule_guesses():
    given = {"name": "p", "running": False, "reachable": False, "reason": "Pending: Insufficient nvidia.com/rdma-vf"}
    assert found(context(pod=given)) == [("RESOURCE-003", "error", None)]


def test_pod_that_runs_and_cannot_be_read_is_unknown():
    given = {"name": "p", "running": True, "reachable": False, "reason": "exec refused"}
    assert found(context(pod=given)) == [("RESOURCE-003", "unknown", None)]


def test_rdma_cni_in_shared_mode_names_the_remedy():
    """FC-45"""
    reason = "RDMA subsystem namespace awareness mode is set to shared"
    given = {"name": "p", "running": False, "reachable": False, "reason": reason}
    assert "exclusive" in evaluate([context(pod=given)])[0]["remedy"]


# GID, CNI, QOS -------------------------------------------------------------------------------------------------------


def test_no_rail_interface_and_zero_gids():
    """FC-01: devices without any rail interface is one finding, not one a rail."""
    given = pod(networks=None)
    for name in ("net1", "net2"):
        del given["netdevs"][name]
    for device in given["devices"].values():
        device["ports"]["1"].update(gids=[], gid_table={"length": 128, "zero": 128})
    assert found(context(pod=given)) == [("GID-001", "error", None)]
    evidence = evaluate([context(pod=given)])[0]["evidence"]
    assert (evidence["gid_rows"], evidence["zero_rows"], evidence["interfaces"]) == (256, 256, ["eth0"])


@pytest.mark.parametrize(
    "row",
    [
        gid(3, ADDRESS[0], usable=False),
        gid(3, ADDRESS[0], kind="RoCE v1"),
        gid(3, "192.168.0.99"),
        gid(1, "fe80::1"),
    ],
)
def test_rail_without_a_usable_gid_of_its_address(row):
    given = pod()
    given["devices"]["mlx5_20"]["ports"]["1"]["gids"] = [row]
    assert found(context(pod=given)) == [("GID-002", "error", 0)]


def test_interface_without_an_address():
    given = pod()
    given["netdevs"]["net2"]["addresses"] = []
    (finding,) = evaluate([context(pod=given)])
    assert (finding["id"], finding["rail"]) == ("GID-002", 0)
    assert "no address" in finding["summary"]


def test_tentative_address_does_not_count():
    """FC-17"""
    given = pod()
    given["netdevs"]["net2"]["addresses"][0]["tentative"] = True
    assert found(context(pod=given)) == [("GID-002", "error", 0), ("ADDRESS-007", "warning", 0)]


def test_address_of_unknown_interface_is_unknown():
    given = pod(addresses_unknown=[ADDRESS[0]])
    given["netdevs"]["net2"]["addresses"] = []
    assert found(context(pod=given)) == [("GID-002", "unknown", 0)]


def test_interface_without_its_device_in_exclusive_mode():
    """FC-04: netdev moved, RDMA device not."""
    given = pod(netns_mode="exclusive", devices={})
    assert found(context(pod=given)) == [("CNI-001", "error", 0), ("CNI-001", "error", 1)]
    assert "rdmaQoS" in evaluate([context(pod=given)])[0]["remedy"]


@pytest.mark.parametrize(
    ("forced", "expected"),
    [
        ({"state": "set", "value": 0}, [("QOS-001", "error", 0)]),
        ({"state": "set", "value": 105}, [("QOS-001", "error", 0)]),
        ({"state": "set", "value": 40}, []),  # The same DSCP, other ECN bits.
        ({"state": "unset", "value": None}, []),
        ({"state": None, "value": None, "reason": "cannot be read"}, [("QOS-001", "unknown", 0)]),
    ],
)
def test_forced_traffic_class(forced, expected):
    """FC-54, FC-60"""
    given = pod()
    given["devices"]["mlx5_20"]["ports"]["1"]["traffic_class"] = forced
    assert found(context(pod=given)) == expected


def shared_mode(on_node):
    """A pod that does not see rail 0's class, and facts of its node that do; None: facts without the VF."""
    given, live = pod(), facts()
    device = given["devices"]["mlx5_20"]
    device["ports"]["1"]["traffic_class"] = {"state": "absent", "value": None, "rules": []}
    if on_node:
        place = {"pci": device["pci"], "function": "vf", "parent_pci": PF[0], "netdev": None}
        live["devices"]["mlx5_20"] = {**place, "ports": {"1": {"traffic_class": on_node}}}
    return context(pod=given, facts=live)


@pytest.mark.parametrize(
    ("on_node", "expected", "cell"),
    [
        ({"state": "set", "value": 0}, [("QOS-001", "error", 0)], "0, 41"),
        ({"state": "set", "value": 41}, [], "41"),
        ({"state": "unset", "value": None}, [], "41, app"),
        ({"state": "absent", "value": None}, [], "41, app"),  # the kernel's own driver
        (None, [("QOS-001", "unknown", 0)], "41, ?"),
    ],
)
def test_class_that_pods_do_not_see_in_shared_mode_is_read_on_the_node(on_node, expected, cell):
    given = shared_mode(on_node)
    assert found(given) == expected
    assert table(given)[5] == cell


def test_absent_class_in_exclusive_mode_is_the_kernels_own_driver():
    given = pod(netns_mode="exclusive")
    for device in given["devices"].values():
        device["ports"]["1"]["traffic_class"] = {"state": "absent", "value": None, "rules": []}
    assert found(context(pod=given)) == []


# The frame -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["facts", "kubernetes", "pod"])
def test_what_was_not_gathered_is_unknown_for_every_rule_that_needs_it(lost):
    result = evaluate([context(**{lost: None})])
    asked = [r for r in RULES.values() if set(r.needs) <= set(USUAL_INPUTS)]
    assert {f["id"] for f in result} == {r.id for r in asked if lost in r.needs}
    assert {f["severity"] for f in result} == {"unknown"}


# Between them every rule has something to judge.
LAYOUTS = [
    layout(),
    layout(network="host_network", ip_family="ipv6_slaac"),
    layout(network="ipvlan", ip_family="ipv6_slaac", pools=[{"subnet": "fd01:0:0:100::/112"}]),
    layout(externally_managed=True),
]


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_facts_of_an_unexpected_shape_are_unknown_and_never_healthy(rule_id):
    # A rule about the release is silent where nobody asked for it; here it was asked for, and is odd, too.
    needs = dict.fromkeys(RULES[rule_id].needs, {"odd": 1, "release": 1})
    severities = set()
    for given in LAYOUTS:
        broken = [context(node=node, layout=given, before=facts(), **needs) for node in ("gpu-1", "gpu-2")]
        severities |= {f["severity"] for f in evaluate(broken, RULES[rule_id].needs) if f["id"] == rule_id}
    assert severities == {"unknown"}


def test_rules_are_asked_only_for_what_was_gathered():
    assert evaluate([context(pod=None, kubernetes=None)], ["facts"]) == []


def test_tolerated_findings_are_shown_and_do_not_fail():
    given = facts()
    given["netns_mode"].update(live="exclusive")
    result = evaluate([context(facts=given)], ["facts"], ["NETNS-001"])
    assert [f["tolerated"] for f in result] == [True]
    assert failing(result) == []
    assert verdict(result) == "pass"


def test_unknown_tolerated_id_is_refused():
    with pytest.raises(ValueError, match="NETNS-01 does not exist"):
        evaluate([context()], ["facts"], ["NETNS-01"])


def test_ids_are_unique_and_every_rule_is_documented():
    with pytest.raises(ValueError, match="registered twice"):
        rule("GID-001", "error", "x", ("pod",))(lambda context: [])
    for one in RULES.values():
        parts = documentation.sections(one.documentation)
        assert list(parts) == ["Symptom", "Cause", "Evidence", "Remedy", "Source"], one.id
        assert all(parts.values()), one.id


def test_documentation_holds_every_rule():
    text = documentation.markdown()
    assert all(f"## {rule_id}" in text for rule_id in RULES)


# The table -----------------------------------------------------------------------------------------------------------


def table(given):
    return report_table.cells(report_table.row(given, evaluate([given])))


def test_row_of_a_healthy_node():
    assert table(context()) == ["gpu-1", "BM.GPU.B4.8", "shared", "2 of 2", "2 of 2", "41", "pass"]


def test_row_of_a_node_with_faults():
    given = pod()
    given["devices"]["mlx5_20"]["ports"]["1"].update(gids=[], traffic_class={"state": "set", "value": 0})
    live = facts()
    live["netns_mode"]["live"] = "exclusive"
    row = table(context(pod=given, facts=live))
    assert row[2:] == ["exclusive (wanted shared)", "2 of 2", "1 of 2", "0, 41", "fail (3 errors)"]


def test_row_of_a_node_that_nobody_could_read_is_unknown():
    row = table(context(facts=None, pod=None))
    assert row[2:6] == ["? (wanted shared)", "? of 2", "? of 2", "?"]
    assert row[6].startswith("unknown")


def test_missing_facts_are_never_a_pass_even_without_findings():
    data = report_table.row(context(facts=None), [])
    assert data["verdict"] == "unknown"


def test_lines_are_aligned_also_with_wide_characters():
    row = report_table.row(context(), [])
    wide = copy.deepcopy(row) | {"node": "レール-1"}
    lines = report_table.lines([row, wide])
    at = lines[0].index("shape")
    assert lines[2][at:].startswith("BM.GPU")
    assert report_table.width(lines[3].partition("BM.GPU")[0]) == at
    assert not any(line.endswith(" ") for line in lines)


def test_equal_findings_are_told_once_with_their_places():
    given = pod(netns_mode="exclusive", devices={})
    lines = report_table.finding_lines(evaluate([context(pod=given)]))
    assert lines[0].startswith("CNI-001 (error) gpu-1 rail 0:")
    assert lines[1] == "    also: gpu-1 rail 1"
    assert lines[2].startswith("    remedy: ")


def test_what_nobody_could_read_is_told_once_for_all_rules():
    broken = {**facts(), "netdevs": None, "reasons": {"netdevs": "sysfs is not mounted"}}
    result = evaluate([context(facts=broken), context(node="gpu-2", facts=broken)], ["facts"])
    assert {f["severity"] for f in result} == {"unknown"} and len({f["id"] for f in result}) > 20
    lines = [line for line in report_table.finding_lines(result) if "not checked" in line]
    assert len(lines) == 1 and "LINK-001, " in lines[0] and "sysfs is not mounted" in lines[0]


def test_a_node_without_facts_takes_two_lines():
    lines = report_table.finding_lines(evaluate([context(facts=None)], ["facts"]))
    assert len(lines) == 2 and "there are no facts of the node" in lines[0]
