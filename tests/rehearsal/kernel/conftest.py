# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def catalogue():
    text = (REPO / "roles" / "rails" / "files" / "shapes.yml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["shapes"]


def spec_of(catalogue: dict, shape: str, **changes) -> dict:
    """The node spec that the fleet makes of a catalogue entry."""
    entry = catalogue[shape]
    given = entry.get("rail_map") or [{"pci": pci} for pci in entry["root_devices"]]
    rails = [{k: rail.get(k) for k in ("pci", "netdev", "rdma", "gpu_pci")} for rail in given]
    for index, rail in enumerate(rails):
        rail["netdev"] = f"rdma{index}"
    return {
        "name": "gpu-1",
        "shape": shape,
        "rails": rails,
        "front_end": entry["front_end_nics"],
        "nic": entry["nic"],
        "mtu": entry["mtu"],
        "ip_family": entry["ip_family"],
        "num_vfs_max": 127,
        "driver": "doca_ofed",
        "address": "10.140.0.7",
        "qos": entry["qos"],
        **changes,
    }


@pytest.fixture
def make_spec(catalogue):
    return lambda shape="BM.GPU.B4.8", **changes: spec_of(catalogue, shape, **changes)


class Node:
    """A running node; ``sh`` runs a shell line on it, ``netns`` inside one of its named network namespaces."""

    def __init__(self, spec: dict, mode: str = "shared", cmdline: str = "ro quiet", user: bool = False) -> None:
        self.enter = ["--user", "--preserve-credentials"] if user else []
        own_user = ["--user", "--map-root-user"] if user else []
        command = ["unshare", *own_user, "--mount", "--net", sys.executable, str(HERE / "node_process.py")]
        self.process = subprocess.Popen(
            [*command, json.dumps(spec), mode, cmdline], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline().strip()
        if not line.startswith("ready"):
            self.stop()
            raise RuntimeError(f"the kernel process said {line!r}")
        self.seconds_to_ready = float(line.split()[1])

    def run(self, line: str, netns: str | None = None) -> subprocess.CompletedProcess:
        enter = ["nsenter", *self.enter, "--target", str(self.process.pid), "--mount", "--net", "bash", "-c"]
        if netns:
            line = f"nsenter --net=/run/netns/{netns} bash -c {shlex.quote(line)}"
        return subprocess.run([*enter, line], capture_output=True, text=True, timeout=60, check=False)

    def sh(self, line: str, netns: str | None = None) -> str:
        result = self.run(line, netns)
        assert result.returncode == 0, f"{line}: {result.stderr}"
        return result.stdout.strip()

    def fails(self, line: str, netns: str | None = None) -> str:
        result = self.run(line, netns)
        assert result.returncode != 0, f"{line}: worked, said {result.stdout!r}"
        return result.stderr

    def rdma(self, arguments: str, netns: str | None = None) -> str:
        return self.sh(f"{sys.executable} {REPO}/rehearsal/kernel/tools/rdma {arguments}", netns)

    def gid(self, device: str, index: int, netns: str | None = None) -> str:
        return self.sh(f"cat /sys/class/infiniband/{device}/ports/1/gids/{index}", netns)

    def create_vfs(self, count: int = 1) -> None:
        self.sh(f"for f in /sys/class/net/rdma*/device/sriov_numvfs; do echo {count} > $f; done")

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()


def _cannot_run() -> str | None:
    try:
        probe = subprocess.run(
            [
                "unshare",
                "--mount",
                "--net",
                "sh",
                "-c",
                "test -w /dev/fuse && ip link add veth0 type veth peer name veth1",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"unshare: {error}"
    return None if probe.returncode == 0 else f"no namespaces, FUSE or veth here: {probe.stderr.strip()}"


@pytest.fixture(scope="session")
def able():
    reason = _cannot_run()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def node(able, make_spec):
    """Starts nodes; all are stopped at the end of the test."""
    running = []

    def start(
        shape: str = "BM.GPU.B4.8", mode: str = "shared", cmdline: str = "ro quiet", user: bool = False, **changes
    ):
        running.append(Node(make_spec(shape, **changes), mode, cmdline, user))
        return running[-1]

    yield start
    for started in running:
        started.stop()
