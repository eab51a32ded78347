# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every fault of the catalogue on a node of its own, beside healthy nodes: the product's playbooks must find each by
its finding, and nothing on the healthy ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rehearsal.fleet import checks, control_plane
from rehearsal.fleet.faults import Catalogue
from rehearsal.fleet.state import State

pytestmark = pytest.mark.fleet

ROOT = Path(__file__).resolve().parents[3]
RAILS = [
    {"pci": "0000:0c:00.0", "netdev": "rdma0", "gpu_pci": "0000:0f:00.0"},
    {"pci": "0000:2a:00.0", "netdev": "rdma1", "gpu_pci": "0000:2d:00.0"},
]
# The healthy twins, one for each mode.
HEALTHY = {"healthy-shared": "shared", "healthy-exclusive": "exclusive"}
# Seconds until a pod that does not run is given up. The pods of the healthy nodes need a few.
POD_SECONDS = 15


def inventory() -> dict:
    """Hosts by fault. A fault of a network reaches every node that uses the network, so each such node has its own."""
    hosts = {name: host(mode, mode) for name, mode in HEALTHY.items()}
    for name in Catalogue().names():
        fault = Catalogue().get(name)
        mode = fault.mode or "shared"
        own = name if "objects" in fault.inject else mode
        hosts[name] = {**host(mode, own), "rehearsal_faults": [name]}
    shared = {
        "rails": RAILS, "rails_network": "sriov", "rails_resource_scope": "rail", "rails_mtu": 4220,
        "rails_ip_family": "ipv4", "rails_traffic_class": 41, "rails_max_unavailable": "100%",
    }  # fmt: skip
    return {"all": {"vars": shared, "children": {"gpu_nodes": {"hosts": hosts}}}}


def host(mode: str, group: str) -> dict:
    """Variables of a node; the nodes of a group have one layout."""
    return {
        "rails_netns_mode": mode,
        "rehearsal_initial_mode": mode,
        "rails_resource_name": f"vf-{group}",
        "rails_node_selector": {"rehearsal/rails": group},
    }


class Site:
    """A fleet and the plays over it."""

    def __init__(self, folder: Path) -> None:
        self.state, self.inventory = State(folder / "state"), folder / "hosts.json"
        self.inventory.write_text(json.dumps(inventory()))

    def up(self) -> str:
        return self._run(sys.executable, "-m", "rehearsal", "up", *self._state, "-i", str(self.inventory))

    def down(self) -> None:
        self._run(sys.executable, "-m", "rehearsal", "down", *self._state)

    @property
    def _state(self) -> list[str]:
        return ["--state", str(self.state.folder)]

    def play(self, *playbooks: str, code: int, **variables: object) -> str:
        """Run playbooks of the product; their output. Fails the test on another exit code."""
        sources = ["-i", str(self.inventory), "-i", str(self.state.folder / "inventory.yml")]
        program = str(Path(sys.executable).parent / "ansible-playbook")
        paths = [str(ROOT / "playbooks" / name) for name in playbooks]
        return self._run(program, *paths, *sources, "-f", "4", "-e", json.dumps(variables), code=code)

    def _run(self, *command: str, code: int = 0) -> str:
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == code, done.stdout[-6000:] + done.stderr[-3000:]
        return done.stdout

    def wait_for_devices(self) -> None:
        """Until the healthy nodes offer a VF of each rail; the limit only ends a test that would hang."""
        limit = time.monotonic() + 120
        while True:
            nodes = json.loads(control_plane.request(self.state, "/api/v1/nodes", timeout=10)[1])["items"]
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
    site = Site(tmp_path_factory.mktemp("faults"))
    site.up()
    try:
        # Not every node can become ready, and the wait says so; how long it waits is of no matter here.
        text = site.play("install_operator.yml", "apply_rails.yml", code=2, rail_networks_wait_timeout=1)
        assert "PF 0000:2a:00.0" in text
        site.wait_for_devices()
        path = site.state.folder.parent / "report.json"
        site.play("verify.yml", code=2, report_file=str(path), rdma_verify_timeout=POD_SECONDS)
        return json.loads(path.read_text())
    finally:
        site.down()


def found(report: dict, node: str) -> set[tuple[str, str, int | None]]:
    """(id, severity, rail) of a node's findings."""
    return {(row["id"], row["severity"], row["rail"]) for row in report["findings"] if row["node"] == node}


@pytest.mark.parametrize("name", Catalogue().names())
def test_a_fault_gives_its_finding(report, name):
    fault, rows = Catalogue().get(name), found(report, name)
    mine = {rail for finding, severity, rail in rows if (finding, severity) == (fault.finding, "error")}
    assert mine, rows
    if fault.rail is not None and mine != {None}:
        assert mine == {fault.rail}
    assert {finding for finding, _severity, _rail in rows} <= {fault.finding, *fault.also}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_node_has_no_finding(report, name):
    assert found(report, name) == set()
    assert [row["verdict"] for row in report["rows"] if row["node"] == name] == ["pass"]
