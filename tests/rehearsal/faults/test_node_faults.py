# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The faults that need no cluster, on one fleet of small nodes: each gives its finding or its outcome, the healthy twins
give none.

Faults that do not touch each other share a node; a finding must name the rail of its fault, so none can pass for another.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rehearsal.fleet.faults import Catalogue
from rehearsal.machine import enter
from tests.rehearsal.site_support import Site, host

pytestmark = pytest.mark.fleet
HERE = Path(__file__).parent
CATALOGUE = Catalogue()
FAULTS = {name: CATALOGUE.get(name) for name in CATALOGUE.names() if CATALOGUE.get(name).shows_on_the_node}
OUTCOMES = sorted(name for name, fault in FAULTS.items() if fault.outcome)
FINDINGS = sorted(name for name, fault in FAULTS.items() if fault.finding)
# Node -> faults of it. A fault that is not named here has a node of its own.
GROUPS = {
    "entries": ["kernel-line-of-entries", "trust-pcp", "pfc-off"],
    "hidden": ["hidden-option-file", "front-end-as-rail", "firmware-locked", "stale-cdi-file"],
    "foreign": ["foreign-option-file", "class-left-on-vf", "small-mtu"],
    "line": ["kernel-line-mode", "class-on-rail", "ecn-off"],
    "later": ["argument-waits-in-grub", "rail-without-address", "port-down"],
    "image": ["stale-boot-image", "few-vfs-in-firmware", "card-not-on-the-bus"],
    "default": ["default-kernel-stale", "rdma-cm-class", "memlock-too-low"],
    "dracut": ["dracut-without-option", "ipv6-disabled", "advertisements-ignored"],
    "run-time": ["switched-at-run-time-only", "rdma-ucm-not-loaded", "address-tentative"],
    "vendor": ["no-builder", "two-global-addresses"],
    "damaged": ["damaged-boot-image", "rail-moved-away"],
    "reverse": ["strict-reverse-path", "name-kept-from-pod"],
    "subnet": ["no-source-rule", "class-for-gpu-too"],
    "arp": ["rails-answer-for-each-other"],
    "managed": ["managed-vfs-missing"],
}
HEALTHY = {
    "healthy-shared": host("shared", "twin-shared"),
    "healthy-exclusive": host("exclusive", "twin-exclusive", rehearsal_builder="dracut", rehearsal_runtime="crio"),
}


def nodes() -> dict[str, list[str]]:
    """Faults by node, those with a finding."""
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    return {**GROUPS, **{name: [name] for name in FINDINGS if name not in grouped}}


def host_of(node: str, names: list[str], **variables: object) -> dict:
    """The variables of a node with these faults; one that asks for another mode than a fault needs has no place."""
    modes = {FAULTS[name].mode for name in names} - {None}
    assert len(modes) < 2, f"{node}: {names} need different modes"
    mode = modes.pop() if modes else "shared"
    intent = {key: value for name in names for key, value in FAULTS[name].intent.items()}
    if intent.get("rails_ip_family") == "ipv6_slaac":
        pool = {"name": "placeholders", "subnet": "fd01:0:0:100::/112", "per_node_block_size": 64}
        intent["rails_pools"] = [pool]
    return host(mode, node, rehearsal_faults=names, **intent, **variables)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    hosts = {node: host_of(node, names) for node, names in nodes().items()}
    hosts |= {name: host_of(name, [name], **FAULTS[name].outcome.get("variables", {})) for name in OUTCOMES}
    found = Site(tmp_path_factory.mktemp("node-faults"), {**hosts, **HEALTHY})
    found.up("--no-cluster")
    yield found
    found.down()


@pytest.fixture(scope="module")
def findings(site):
    return site.result(HERE / "judge.yml")[0]


def images(site: Site) -> dict[str, dict[str, str]]:
    """Digest of each boot image by node, of those with an outcome that are up."""
    found = {}
    for node in OUTCOMES:
        folder = site.state.folder / "nodes" / node
        if (folder / "boot.json").exists():
            _code, out, _err = asyncio.run(enter.run(folder, ["sh", "-c", "sha256sum /boot/initrd.img-*"]))
            found[node] = {path: digest for digest, path in (line.split() for line in out.decode().splitlines())}
    return found


@pytest.fixture(scope="module")
def prepared(site, findings):
    """What preparing the nodes with an outcome gave: failure by node, output, images before and after."""
    before = images(site)
    failures, text = site.result(HERE / "prepare.yml", only=OUTCOMES)
    return failures, " ".join(text.split()), before, images(site)


def found(findings: list[dict], node: str) -> set[tuple[str, int | None]]:
    return {(row["id"], row["rail"]) for row in findings if row["node"] == node}


@pytest.mark.parametrize("name", FINDINGS)
def test_a_fault_gives_its_finding(findings, name):
    fault = FAULTS[name]
    node = next(node for node, names in nodes().items() if name in names)
    rows = [row for row in findings if row["node"] == node and row["id"] == fault.finding]
    assert rows, found(findings, node)
    assert "unknown" not in {row["severity"] for row in rows}
    if fault.rail is not None:
        assert fault.rail in {row["rail"] for row in rows}


@pytest.mark.parametrize("node", nodes())
def test_nothing_else_is_found(findings, node):
    expected = {finding for name in nodes()[node] for finding in (FAULTS[name].finding, *FAULTS[name].also)}
    assert {finding for finding, _rail in found(findings, node)} <= expected


@pytest.mark.parametrize("node", HEALTHY)
def test_a_healthy_node_has_no_finding(findings, node):
    assert found(findings, node) == set()


@pytest.mark.parametrize("name", OUTCOMES)
def test_preparing_ends_as_the_fault_says(site, prepared, name):
    outcome, (failures, text, before, after) = FAULTS[name].outcome, prepared
    says = " ".join(outcome["says"].replace("<node>", name).split())
    assert says in (failures[name] or "" if outcome["failed"] else text)
    assert (failures[name] is not None) is outcome["failed"]
    status = json.loads(Path(site.state.folder / "nodes" / name / "status.json").read_text())
    assert status["boots"] == outcome["boots"]
    if outcome["boots"] == 1:
        assert before[name]
        assert after[name] == before[name], "a node that must not reboot keeps the image that it has"
