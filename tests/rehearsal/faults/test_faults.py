# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every fault of the catalogue on a node of its own, beside healthy nodes: the product's playbooks must find each by
its finding, and nothing on the healthy ones.
"""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import RULES

from rehearsal.fleet import checks
from rehearsal.fleet.faults import Catalogue
from tests.rehearsal import site_support
from tests.rehearsal.site_support import RAILS, ROOT, host

pytestmark = pytest.mark.fleet

CATALOGUE = Catalogue()
# Those that only a benchmark finds are in tests/rehearsal/benchmark.
NAMES = [
    name
    for name in CATALOGUE.names()
    # Those with variables of their own have a fleet of their own (test_verify_fleet).
    if not (fault := CATALOGUE.get(name)).shows_on_the_node and not fault.shows_in_a_benchmark and not fault.verify
]
PLAYBOOKS = ROOT / "playbooks"
# The healthy twins, one for each mode.
HEALTHY = {"healthy-shared": "shared", "healthy-exclusive": "exclusive"}
# Seconds until a pod that does not run, or gets no address, is given up. The pods of the healthy nodes need a few.
PATIENCE = {"rdma_verify_timeout": 15, "rdma_verify_address_timeout": 2}


def hosts() -> dict:
    """Hosts by fault. A fault of a network reaches every node that uses the network, so each such node has its own."""
    found = {name: host(mode, mode) for name, mode in HEALTHY.items()}
    for number, name in enumerate(NAMES):
        fault = CATALOGUE.get(name)
        mode = fault.mode or "shared"
        own = name if "objects" in fault.inject or fault.intent else mode
        found[name] = {**host(mode, own), **fault.intent, "rehearsal_faults": [name]}
        if fault.intent.get("rails_network") == "ipvlan":
            routed = fault.intent.get("rails_ip_family") == "ipv6_slaac"
            subnet = f"fd01:0:0:{0x100 + number:x}::/112" if routed else f"198.18.{number}.0/24"
            pool = {"name": f"pool-{name}", "subnet": subnet, "per_node_block_size": 8}
            found[name] |= {"rails_pools": [pool], "rails_network_name": name}
    return found


class Site(site_support.Site):
    """With a cluster, whose healthy nodes offer devices in the end."""

    def wait_for_devices(self) -> None:
        """Until the healthy nodes offer a VF of each rail; the limit only ends a test that would hang."""
        limit = time.monotonic() + 120
        while True:
            nodes = self.items("/api/v1/nodes")
            offered = {node["metadata"]["name"]: node["status"]["allocatable"] for node in nodes}
            lacking = [
                name
                for name, mode in HEALTHY.items()
                if any(offered[name].get(f"nvidia.com/vf-{mode}-{rail}") != "1" for rail in range(len(RAILS)))
            ]
            if not lacking:
                return
            assert time.monotonic() < limit, f"no devices on {lacking}: {offered}"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> dict:
    """The report of verify over a fleet with every fault. Nobody cures anything: prepare_nodes does not run."""
    lacking = checks.missing()
    if lacking:
        pytest.skip("; ".join(lacking))
    site = Site(tmp_path_factory.mktemp("faults"), hosts())
    site.up()
    try:
        # Not every node can become ready, and the wait says so; how long it waits is of no matter here.
        # The apply would stop at their findings before it; here verify is to find them after it.
        text = site.play(
            PLAYBOOKS / "install_operator.yml",
            PLAYBOOKS / "apply_rails.yml",
            code=2,
            rail_networks_wait_timeout=1,
            rails_findings_tolerated=sorted(RULES),
        )
        assert "PF 0000:2a:00.0" in text
        site.wait_for_devices()
        path = site.state.folder.parent / "report.json"
        site.play(PLAYBOOKS / "verify.yml", code=2, report_file=str(path), **PATIENCE)
        return json.loads(path.read_text())
    finally:
        site.down()


def found(report: dict, node: str) -> set[tuple[str, str, int | None]]:
    """(id, severity, rail) of a node's findings."""
    return {(row["id"], row["severity"], row["rail"]) for row in report["findings"] if row["node"] == node}


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_gives_its_finding(report, name):
    fault, rows = CATALOGUE.get(name), found(report, name)
    mine = {rail for finding, severity, rail in rows if finding == fault.finding and severity in ("error", "warning")}
    assert mine, rows
    if fault.rail is not None and mine != {None}:
        assert mine == {fault.rail}
    assert {finding for finding, _severity, _rail in rows} <= {fault.finding, *fault.also}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_node_has_no_finding(report, name):
    assert found(report, name) == set()
    assert [row["verdict"] for row in report["rows"] if row["node"] == name] == ["pass"]
