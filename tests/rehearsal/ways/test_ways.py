# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every way of inventories/examples over simulated nodes, all in one cluster: site.yml twice, then a look into the pods.

The ways do not know of each other, so one fleet shows both that each works and that mixed shapes keep apart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from ways_site import EXAMPLES, WAYS, Cluster

from rehearsal.fleet import checks
from rehearsal.fleet.play import read_recap
from tests.rehearsal.site_support import ROOT

pytestmark = pytest.mark.fleet


@dataclass
class Outcome:
    """What two runs of site.yml left."""

    recaps: list[dict[str, dict[str, int]]]
    reports: list[dict]
    pods: dict[str, dict]
    nodes: dict[str, dict]
    lists: dict[str, list[dict]]


API = {
    "states": "/apis/sriovnetwork.openshift.io/v1/sriovnetworknodestates",
    "pools": "/apis/nv-ipam.nvidia.com/v1alpha1/ippools",
    "attachments": "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions",
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory) -> Outcome:
    lacking = checks.missing()
    if lacking:
        pytest.skip("; ".join(lacking))
    cluster = Cluster(tmp_path_factory.mktemp("ways"))
    recaps, reports = [], []
    try:
        cluster.up()
        for number in (1, 2):
            path = cluster.folder / f"report-{number}.json"
            # Each run ends with the finding of b300-host-device.
            text = cluster.play(ROOT / "site.yml", code=2, forks=len(WAYS), report_file=str(path))
            recaps.append({row.host: row.counts for row in read_recap(text)})
            reports.append(json.loads(path.read_text()))
        pods, _text = cluster.result(ROOT / "tests/rehearsal/ways/look.yml")
        nodes = {item["metadata"]["name"]: item for item in cluster.items("/api/v1/nodes")}
        lists = {name: cluster.items(path) for name, path in API.items()}
        return Outcome(recaps, reports, pods, nodes, lists)
    finally:
        cluster.down()


def test_every_example_has_its_expectations():
    assert sorted(WAYS) == sorted(path.name for path in EXAMPLES.iterdir())


@pytest.mark.parametrize("name", WAYS)
def test_verdict_and_a_second_run_that_changes_nothing(outcome, name):
    way = WAYS[name]
    for report, others in zip(outcome.reports, (way.others, way.others | way.later), strict=True):
        (row,) = [row for row in report["rows"] if row["node"] == name]
        found = [item for item in report["findings"] if item["node"] == name]
        assert {item["id"] for item in found if item["severity"] == "error"} == way.failing, found
        assert {item["id"] for item in found if item["severity"] != "error"} == others, found
        assert (row["verdict"], row["mode"]) == (way.verdict, way.mode)
        assert row["gid_indexes"] == ([] if way.index is None else [way.index])
    first, second = outcome.recaps
    assert first[name]["failed"] == second[name]["failed"] == 0
    assert second[name]["changed"] == 0, second


def test_the_second_run_writes_nothing_to_the_cluster(outcome):
    assert outcome.recaps[0]["localhost"]["changed"] > 0
    assert outcome.recaps[1]["localhost"]["changed"] == 0


def test_the_way_that_fails_fails_the_run_and_nothing_else_does(outcome):
    for report in outcome.reports:
        errors = [item for item in report["findings"] if item["severity"] == "error"]
        assert {item["node"] for item in errors} == {name for name, way in WAYS.items() if way.failing}
        assert {item["summary"] for item in errors} == {
            "None of the rails 0, 1 has an interface in the pod; 0 GIDs are usable"
        }


@pytest.mark.parametrize("name", WAYS)
def test_what_the_pod_sees(outcome, name):
    """The articles' outputs: which interfaces, which rows of the GID table, which devices."""
    way, pod = WAYS[name], outcome.pods[name]
    assert pod["reachable"], pod
    assert set(way.interfaces) <= set(pod["netdevs"])
    own = {device: entry["ports"]["1"] for device, entry in pod["devices"].items()}
    for interface in way.interfaces:
        tables = [
            {row["index"]: row["scope"] for row in port["gids"] if row["usable"] and row["type"] == "RoCE v2"}
            for port in own.values()
            if any(row["netdev"] == interface for row in port["gids"])
        ]
        assert tables == [way.table], pod["devices"]
    if not way.interfaces:
        assert own
        assert all(row["usable"] is False for port in own.values() for row in port["gids"])


def test_devices_in_the_pods(outcome):
    """Shared mode shows all devices of the node in sysfs, exclusive mode the pod's own."""
    count = {name: len(pod["devices"]) for name, pod in outcome.pods.items()}
    # Two PFs; with them the VFs of both, 1 or 2 on each.
    assert count == {
        "a100-sriov-node": 4,
        "a100-sriov-rails": 6,
        "a100-sriov-exclusive": 2,
        "a100-ipvlan": 2,
        "b300-ipvlan-ipv6": 2,
        "a100-host-network": 2,
        "b300-host-device": 2,
    }
    assert {name: pod["netns_mode"] for name, pod in outcome.pods.items()} == {n: way.mode for n, way in WAYS.items()}


def test_children_have_the_mac_of_their_rail_and_arp_settings_of_their_own(outcome):
    ipv4, ipv6 = (outcome.pods[name]["netdevs"] for name in ("a100-ipvlan", "b300-ipvlan-ipv6"))
    for name in ("net1", "net2"):
        assert ipv4[name]["pci"] is None
        assert (ipv4[name]["sysctls"]["arp_ignore"], ipv4[name]["sysctls"]["arp_announce"]) == (1, 2)
        assert (ipv4[name]["sysctls"]["disable_ipv6"], ipv6[name]["sysctls"]["disable_ipv6"]) == (1, 0)
        assert ipv6[name]["sysctls"]["accepts_ra"] is True
        assert ipv4[name]["mtu"] == ipv6[name]["mtu"] == 4220
    assert len({row["mac"] for row in (ipv4["net1"], ipv4["net2"], ipv6["net1"], ipv6["net2"])}) == 4


def test_mixed_shapes_get_their_own_and_nothing_else(outcome):
    """B4.8 with SR-IOV and B300 with IPvlan on routed IPv6 in one cluster: two layouts at once."""
    sriov, routed = "a100-sriov-node", "b300-ipvlan-ipv6"
    allocatable = {name: node["status"]["allocatable"] for name, node in outcome.nodes.items()}
    offered = {
        name: {key for key, value in rows.items() if key.startswith("nvidia.com/vf-") and value != "0"}
        for name, rows in allocatable.items()
    }
    assert offered[sriov] == {f"nvidia.com/vf-{sriov}"}
    assert offered[routed] == set()
    assert (allocatable[routed]["nvidia.com/hostdev"], allocatable[sriov].get("nvidia.com/hostdev", "0")) == ("2", "0")
    numbers = {
        item["metadata"]["name"]: {row.get("numVfs", 0) for row in item["status"]["interfaces"]}
        for item in outcome.lists["states"]
    }
    assert 1 in numbers[sriov]
    assert numbers.get(routed, {0}) == {0}
    blocks = {
        item["metadata"]["name"]: {row["nodeName"] for row in item["status"]["allocations"]}
        for item in outcome.lists["pools"]
    }
    assert blocks[f"pool-{sriov}"] == {sriov}
    assert blocks[f"pool-{routed}"] == {routed}
