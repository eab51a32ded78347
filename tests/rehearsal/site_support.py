# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet of given hosts and the playbooks over it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rehearsal.fleet import connection, control_plane, play
from rehearsal.fleet.state import State

ROOT = Path(__file__).resolve().parents[2]
RAILS = [
    {"pci": "0000:0c:00.0", "netdev": "rdma0", "gpu_pci": "0000:0f:00.0"},
    {"pci": "0000:2a:00.0", "netdev": "rdma1", "gpu_pci": "0000:2d:00.0"},
]
SHARED = {
    "rails": RAILS, "rails_network": "sriov", "rails_resource_scope": "rail", "rails_mtu": 4220,
    "rails_ip_family": "ipv4", "rails_traffic_class": 41, "rails_max_unavailable": "100%",
}  # fmt: skip


def host(mode: str, group: str, **variables: Any) -> dict[str, Any]:
    """Variables of a node; the nodes of a group have one layout."""
    return {
        "rails_netns_mode": mode,
        "rehearsal_initial_mode": mode,
        "rails_resource_name": f"vf-{group}",
        "rails_node_selector": {"rehearsal/rails": group},
        **variables,
    }


def descendants(pid: int) -> list[int]:
    """Ids of the processes below a process (proc(5), stat: the parent is the second field after the name)."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def kill_tree(pid: int) -> None:
    """Kill a process and all below it; workers of ansible-playbook lead sessions of their own. All are stopped first, since one
    that runs could start another that nobody has seen."""
    stopped: list[int] = []
    while new := [one for one in [pid, *descendants(pid)] if one not in stopped]:
        for one in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
        stopped += new
    for one in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


class Site:
    """A fleet of the hosts and the plays over it.

    Attribute names_cluster: whether the environment of a play names the cluster. Where it does not, localhost's interpreter
    does, and Ansible runs each module there.
    """

    names_cluster = True

    def __init__(self, folder: Path, hosts: dict[str, dict[str, Any]], shared: dict[str, Any] | None = None) -> None:
        """:param shared: variables of all hosts; two rails with VFs when it is None."""
        self.folder, self.state, self.inventory = folder, State(folder / "state"), folder / "hosts.json"
        data = {"all": {"vars": SHARED if shared is None else shared, "children": {"gpu_nodes": {"hosts": hosts}}}}
        self.inventory.write_text(json.dumps(data))

    def up(self, *words: str) -> str:
        return self._run(sys.executable, "-m", "rehearsal", "up", *self._state, "-i", str(self.inventory), *words)

    def down(self) -> None:
        self._run(sys.executable, "-m", "rehearsal", "down", *self._state)

    @property
    def _state(self) -> list[str]:
        return ["--state", str(self.state.folder)]

    def play(self, *playbooks: Path, code: int = 0, forks: int = 4, **variables: object) -> str:
        """Run playbooks; their output. Fails the test on another exit code."""
        return self._run(*self._playbook(*playbooks, forks=forks, variables=variables), code=code)

    def result(self, playbook: Path, **variables: object) -> tuple[Any, str]:
        """What a playbook writes to its ``result``, and its output."""
        path = self.folder / f"{playbook.stem}.json"
        text = self.play(playbook, forks=8, result=str(path), **variables)
        return json.loads(path.read_text()), text

    def items(self, path: str) -> list[dict]:
        """The objects of a list of the API."""
        return json.loads(control_plane.request(self.state, path, timeout=10)[1])["items"]

    def kill_when(self, reached: Callable[[], bool], playbook: Path, **variables: object) -> None:
        """Start a playbook, and kill all of it at once, so that nothing can clean up, when ``reached()``."""
        running = subprocess.Popen(
            self._playbook(playbook, forks=6, variables=variables), cwd=ROOT, env=self._environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            self.until("the moment in which the run is killed", reached, running)
        finally:
            kill_tree(running.pid)
            running.wait(30)

    def until(self, what: str, reached: Callable[[], bool], running: subprocess.Popen | None = None) -> None:
        """Wait for what the cluster does by itself, or what a play brings about while it runs."""
        limit = time.monotonic() + 240  # only ends a test that would hang
        while not reached():
            assert running is None or running.poll() is None, f"the run has ended, and never seen was: {what}"
            assert time.monotonic() < limit, f"never seen: {what}"
            time.sleep(0.1)

    def _playbook(self, *playbooks: Path, forks: int, variables: dict[str, object]) -> list[str]:
        sources = ["-i", str(self.inventory), "-i", str(self.state.folder / "inventory.yml")]
        program = str(Path(sys.executable).parent / "ansible-playbook")
        return [program, *map(str, playbooks), *sources, "-f", str(forks), "-e", json.dumps(variables)]

    @property
    def _environment(self) -> dict[str, str]:
        own = {**play.environment(self.state), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        if not self.names_cluster or not (self.state.folder / "kubeconfig").exists():
            own = {name: value for name, value in own.items() if name not in connection.KUBECONFIG_VARIABLES}
        return own

    def _run(self, *command: str, code: int = 0) -> str:
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == code, done.stdout[-6000:] + done.stderr[-3000:]
        return done.stdout
