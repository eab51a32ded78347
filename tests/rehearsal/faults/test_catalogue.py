# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of the catalogue, what its loader refuses, and how a fault gets into a node's spec."""

from __future__ import annotations

import copy
import os

import pytest
import yaml
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import RULES

from rehearsal.__main__ import faults_of, list_faults
from rehearsal.fleet import cluster_faults, specs
from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.faults import FOLDER, Catalogue, apply, parse
from rehearsal.machine import faults as on_machine
from rehearsal.operators.kubelet import multus_is_called

GOOD = {
    "name": "x",
    "about": "Something\nbreaks.",
    "source": ["owner/repo#1"],
    "finding": "BOOT-001",
    "inject": {"files": [{"path": "/etc/x", "content": "<node>\n", "when": "after_image"}]},
}
RAILS = [{"pci": "0000:0c:00.0", "netdev": "rdma0"}, {"pci": "0000:2a:00.0", "netdev": "rdma1"}]
INTENT = {
    "rails": RAILS, "rails_netns_mode": "exclusive", "rails_mtu": 4220, "rails_ip_family": "ipv4",
    "rails_traffic_class": 41, "rails_node_selector": {"rack": "a"}, "rails_resource_scope": "rail",
    "rails_networks_namespace": "team",
}  # fmt: skip


def changed(path: str, value: object) -> dict:
    """GOOD with the value at a dotted path; None takes the key away."""
    data = copy.deepcopy(GOOD)
    *places, last = path.split(".")
    place = data
    for key in places:
        place = place[int(key) if key.isdigit() else key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


@pytest.mark.parametrize("name", Catalogue().names())
def test_every_file_loads_and_names_known_findings(name):
    fault = Catalogue().get(name)
    assert {fault.finding, *fault.also} - {None} <= set(RULES)
    assert all(source.strip() for source in fault.source)
    assert yaml.safe_load((FOLDER / f"{name}.yml").read_text())["name"] == name


def test_every_finding_has_a_fault_or_a_reason():
    """Why no node or cluster of a rehearsal can be brought to show a finding stands in its rule (unrehearsed)."""
    rehearsed = {Catalogue().get(name).finding for name in Catalogue().names()} - {None}
    reasons = {name for name, rule in RULES.items() if rule.unrehearsed}
    assert rehearsed | reasons == set(RULES)
    assert not rehearsed & reasons


def test_list_names_each_fault_with_what_it_gives():
    text = list_faults()
    for name in Catalogue().names():
        fault = Catalogue().get(name)
        assert f"{name}: {fault.finding or 'prepare_nodes '}" in text


def test_good_file():
    fault = parse(copy.deepcopy(GOOD), "x.yml", "x")
    assert (fault.about, fault.placeholders, fault.rail, fault.mode) == ("Something breaks.", {"node"}, None, None)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("colour", "red", "x.yml: key 'colour' is not known; allowed are name, about"),
        ("about", None, "key 'about' is missing"),
        ("about", 5, "about: got 5, must be a text"),
        ("name", "y", "name: got 'y', must be the file's, 'x'"),
        ("source", "owner/repo#1", "source: got 'owner/repo#1', must be a list of texts"),
        ("source", [], "must name at least one public source"),
        ("finding", "BOOT-999", "finding 'BOOT-999' does not exist; known are .*BOOT-001"),
        ("also", ["QOS-9"], "finding 'QOS-9' does not exist"),
        ("rail", "0", "rail: got '0', must be a number from 0"),
        ("rail", True, "rail: got True"),
        ("mode", "keep", "mode: got 'keep', allowed are shared, exclusive"),
        ("inject", {}, "inject: got nothing, allowed are files, kernel_line"),
        ("inject", ["files"], "inject: got .*, must be a mapping"),
        ("inject.facts", {"live": "shared"}, "inject: key 'facts' is not known"),
        ("inject.files", {"path": "/x"}, "inject.files: got .*, must be a list"),
        ("inject.files.0.owner", "root", r"inject.files\[0\]: key 'owner' is not known"),
        ("inject.files.0.path", "etc/x", r"files\[0\].path: got 'etc/x', must be a path that starts with /"),
        ("inject.files.0.path", "/etc/../x", "without '..'"),
        ("inject.files.0.when", "later", r"when: got 'later', allowed are before_image, after_image"),
        ("inject.files.0.content", 1, r"content: got 1, must be a text"),
        ("inject.files.0.content", "<colour>", "<colour> is not known; allowed are <node>"),
        ("inject.files.0.content", "<pci>", "rail is missing"),
        ("inject.kernel_line", "a=b", "kernel_line: got 'a=b', must be a list of texts"),
        ("inject.sysfs", [{"path": "/etc/x", "value": "1"}], "must be a path that starts with /sys/"),
        ("inject.sysfs", [{"path": "/sys/x", "value": 1}], "value: got 1, must be a text in quotes"),
        ("inject.spec", {"driver": "inbox"}, "key 'driver' is not known; allowed are num_vfs_max, absent_rail"),
        ("inject.spec", {"builder": "cpio"}, "builder: got 'cpio', allowed are initramfs-tools, dracut"),
        ("inject.spec", {"kernels": ["../x"]}, "kernels: got '../x', must be a kernel's version"),
        ("inject.spec", {"lockdown": "full"}, "lockdown: got 'full', allowed are none, integrity"),
        ("inject.files.0.mode", "rwx", r"mode: got 'rwx', must be a text such as '0755'"),
        ("inject.commands", [{"argv": ["ls"], "when": "boot"}], r"argv\[0\]: got 'ls', must be a path"),
        ("inject.commands", [{"argv": ["/bin/ls"], "when": "now"}], "when: got 'now', allowed are before_image"),
        ("inject.fill", [{"path": "/etc/x", "leave_kib": 1}], "must be a path that starts with /boot/"),
        ("inject.read_only", ["/etc"], r"read_only: got \['/etc'\], allowed is \['/boot'\]"),
        ("finding", None, "got neither, must have finding or outcome"),
        ("outcome", {"failed": True}, "got both, must have finding or outcome"),
        ("intent", ["x"], "intent: got .*, must be a mapping"),
        ("inject.spec", {"num_vfs_max": -1}, "num_vfs_max: got -1"),
        ("inject.objects", [{"kind": "Pod"}], r"objects\[0\].apiVersion: got None"),
        ("inject.objects", [{"apiVersion": "v1", "kind": "Pod"}], r"metadata.name: got None"),
        ("inject.patches", [{"kind": "Node"}], "key 'apiVersion' is missing"),
    ],
)
def test_mistakes_are_refused_with_what_is_allowed(path, value, message):
    with pytest.raises(FleetError, match=message):
        parse(changed(path, value), "x.yml", "x")


def test_unknown_fault_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(FleetError, match="there is no fault 'nonsense'; known are absent-rail, "):
        Catalogue().get("nonsense")
    (tmp_path / "x.yml").write_text("name: [")
    with pytest.raises(FleetError, match="x.yml: not YAML"):
        Catalogue(tmp_path).get("x")


def node(*names: str, **intent: object) -> dict:
    """The spec of a node with faults of the catalogue."""
    plain = specs.spec("n1", 1, None, rails=RAILS, own=INTENT)
    return apply(plain, [Catalogue().get(name) for name in names], {**INTENT, **intent})


def test_words_come_from_the_intent():
    spec = node("network-without-class")
    (obj,) = spec["inject"]["objects"]
    assert obj["metadata"]["name"] == "rdma-vf-1"
    assert obj["metadata"]["namespace"] == "team"
    assert obj["metadata"]["annotations"] == {"k8s.v1.cni.cncf.io/resourceName": "nvidia.com/rdma-vf-1"}
    assert '"poolName": "sriov-pool", "poolType": "ippool"' in obj["spec"]["config"]
    assert spec["faults"] == ["network-without-class"]


@pytest.mark.parametrize(("mode", "values"), [("exclusive", ["1", "0"]), ("shared", ["0", "1"])])
def test_other_and_wanted_value_follow_the_intent(mode, values):
    rows = node("stale-boot-image", rails_netns_mode=mode)["inject"]["files"]
    assert [row["content"] for row in rows] == [f"options ib_core netns_mode={value}\n" for value in values]
    assert [row["when"] for row in rows] == ["before_image", "after_image"]


def test_spec_changes():
    spec = node("no-vfs-in-firmware", "absent-rail")
    assert spec["num_vfs_max"] == 0
    assert [rail["pci"] for rail in spec["rails"]] == ["0000:0c:00.0"]
    assert spec["faults"] == ["no-vfs-in-firmware", "absent-rail"]
    assert "inject" in spec and spec["inject"] == {}


def test_mode_and_rail_of_the_node_must_fit():
    with pytest.raises(FleetError, match="host n1: fault forced-traffic-class needs rails_netns_mode shared"):
        node("forced-traffic-class")
    with pytest.raises(
        FleetError, match="stale-boot-image needs rails_netns_mode shared or exclusive, the intent has k"
    ):
        node("stale-boot-image", rails_netns_mode="keep", rails_rdma_cni=False)
    with pytest.raises(FleetError, match="cannot be derived: .*rails_netns_mode"):
        node("stale-boot-image", rails_netns_mode="both")
    one = specs.spec("n1", 1, None, rails=RAILS[:1], own=INTENT)
    with pytest.raises(FleetError, match="absent-rail is about rail 1, the node has rails 0 to 0"):
        apply(one, [Catalogue().get("absent-rail")], INTENT)


def test_faults_are_chosen_in_the_inventory_and_on_the_command_line(tmp_path):
    path = tmp_path / "hosts.yml"
    hosts = {"n1": {"rehearsal_faults": ["no-vfs-in-firmware"]}, "n2": {}, "n3": {}}
    path.write_text(yaml.safe_dump({"gpu_nodes": {"vars": INTENT, "hosts": hosts}}))
    chosen = faults_of(["n2=absent-rail", "n1=no-vfs-in-firmware", "n1=no-nic-label"])
    first, second, third = specs.from_inventory([path], faults=chosen)
    assert first["faults"] == ["no-vfs-in-firmware", "no-nic-label"]
    assert first["inject"]["patches"][0]["name"] == "n1"
    assert second["faults"] == ["absent-rail"]
    assert "faults" not in third
    assert third["labels"] == {"rack": "a"}
    with pytest.raises(FleetError, match="there is no such node; the fleet has n1, n2, n3"):
        specs.from_inventory([path], faults={"n9": ["absent-rail"]})
    with pytest.raises(FleetError, match="--fault: got 'n1', must be NODE=NAME"):
        faults_of(["n1"])
    hosts["n1"] = {"rehearsal_faults": "absent-rail"}
    path.write_text(yaml.safe_dump({"gpu_nodes": {"vars": INTENT, "hosts": hosts}}))
    with pytest.raises(FleetError, match="host n1: rehearsal_faults: got 'absent-rail', must be a list"):
        specs.from_inventory([path])


def test_a_shape_of_the_catalogue_takes_faults_too():
    (spec,) = specs.from_shape(1, "BM.GPU.B4.8", faults={"gpu-1": ["forced-traffic-class"]})
    assert [row["path"] for row in spec["inject"]["sysfs"]][0] == "/sys/bus/pci/devices/0000:0c:00.0/sriov_numvfs"


# On the machine


def test_files_commands_and_kernel_line_reach_the_disk(tmp_path, monkeypatch):
    grub = tmp_path / "etc/default/grub"
    grub.parent.mkdir(parents=True)
    grub.write_text('GRUB_CMDLINE_LINUX="quiet"\n')
    stages = ("before_image", "after_image")
    rows = [{"path": f"/etc/{when}", "content": when, "when": when, "mode": "0755"} for when in stages]
    commands = [{"argv": ["/bin/x", when], "when": when} for when in (*stages, "boot")]
    spec = {"inject": {"files": rows, "kernel_line": ["a=1", "b"], "commands": commands}}
    ran, written = [], {}
    monkeypatch.setattr(on_machine.system, "run", lambda root, argv: ran.append(argv))

    def write(path, text, mode=0o644):
        written[path.name] = (text, mode)

    on_machine.put_on_disk(tmp_path, spec, "before_image", write)
    assert written["before_image"] == ("before_image", 0o755)
    assert written["grub"][0].endswith('GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX a=1 b"\n')
    assert ran == [["/bin/x", "before_image"]]
    assert not {"after_image", "rc.local"} & set(written)
    on_machine.put_on_disk(tmp_path, spec, "after_image", write)
    assert written["rc.local"] == ("#!/bin/sh -e\n/bin/x boot\n", 0o755)
    assert ran[1:] == [["/bin/x", "after_image"]]


def test_a_full_file_system_keeps_what_it_must(tmp_path):
    with pytest.raises(OSError, match="KiB free already"):
        on_machine.fill(tmp_path / "x", 1 << 40)


def test_the_intent_of_the_node_must_fit():
    with pytest.raises(FleetError, match="ipv6-disabled needs rails_ip_family: 'ipv6_slaac', got 'ipv4'"):
        node("ipv6-disabled")


def test_what_is_installed_reaches_the_spec():
    spec = node("default-kernel-stale", "memlock-too-low")
    assert spec["kernels"] == [f"{os.uname().release}.1"]
    assert spec["runtime"] == "crio"
    assert {row["path"] for row in spec["inject"]["files"]} >= {"/boot/grub/grubenv", "/etc/modprobe.d/ib_core.conf"}


@pytest.mark.parametrize(
    ("name", "alone"), [("boot-full", True), ("trust-pcp", True), ("network-without-class", False)]
)
def test_which_faults_need_a_cluster(name, alone):
    assert Catalogue().get(name).shows_on_the_node is alone


def test_sysfs_writes_follow_patterns_and_fail_loudly(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "sys" / name).mkdir(parents=True)
        (tmp_path / "sys" / name / "value").write_text("old")
    on_machine.write_sysfs(tmp_path, {"inject": {"sysfs": [{"path": "/sys/*/value", "value": "7"}]}})
    assert [(tmp_path / "sys" / name / "value").read_text() for name in ("a", "b")] == ["7\n", "7\n"]
    with pytest.raises(OSError, match="no file /sys/c/value to write '7' to"):
        on_machine.write_sysfs(tmp_path, {"inject": {"sysfs": [{"path": "/sys/c/value", "value": "7"}]}})
    on_machine.write_sysfs(tmp_path, {})


@pytest.mark.parametrize(
    ("names", "called"),
    [
        ([], True),
        (["10-calico.conflist"], True),
        (["00-calico.conflist", "10-flannel.conf"], False),
        (["00-calico.conflist.bak", "00-a"], True),
    ],
)
def test_runtime_calls_the_first_configuration(names, called):
    assert multus_is_called(names) is called


def test_a_kind_that_the_chart_does_not_bring_is_refused():
    with pytest.raises(FleetError, match="does not serve Widget of example.com"):
        cluster_faults._make_kind(None, "example.com", "Widget")


def test_faults_of_the_cluster_need_one():
    cluster_faults.refuse([node("stale-boot-image"), specs.spec("n2", 2, None, rails=RAILS, own=INTENT)])
    with pytest.raises(FleetError, match="node n1: its faults .no-nic-label. are in the cluster"):
        cluster_faults.refuse([node("no-nic-label")])
