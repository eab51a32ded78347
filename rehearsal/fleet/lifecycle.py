# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""up, down and status of a fleet."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rehearsal.fleet import checks, cluster_faults, connection, control_plane
from rehearsal.fleet import state as fleet_state
from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.state import KEPT, Process, State
from rehearsal.machine.status import read_json, write_json

ROOT = Path(__file__).resolve().parents[2]
API_SECONDS = NODE_SECONDS = OPERATORS_SECONDS = 90.0
POLL = 0.03
Say = Callable[[str], None]


@dataclass
class Fleet:
    """What to start. crds: folder of CRD files or None."""

    specs: list[dict[str, Any]]
    cluster: bool = True
    crds: Path | None = None
    python: str = field(default_factory=lambda: checks.node_python() or sys.executable)


def find_crds() -> Path | None:
    """The folder with CRD schemas: RAILYARD_SHARED/crds, else one beside the checkout; None when there is none."""
    named = os.environ.get("RAILYARD_SHARED")
    for folder in ([Path(named)] if named else []) + [ROOT.parent / "shared"]:
        if (folder / "crds").is_dir():
            return (folder / "crds").resolve()
    return None


def up(state: State, fleet: Fleet, say: Say, owned: bool = False) -> None:
    """Start the fleet. ``owned``: this command takes it down itself, so without this command it counts as left over.

    On any failure everything that was started is ended again. Raises FleetError.
    """
    checks.require()
    if not fleet.cluster:
        cluster_faults.refuse(fleet.specs)
    with state.locked():
        if _stands(state, fleet, say):
            return
        try:
            state.create([spec["name"] for spec in fleet.specs], fleet.cluster, fleet_state.this_process("cli", "cli"))
            _start(state, fleet, say)
            state.update(phase="up", **({} if owned else {"owner": None}))
        except BaseException:
            _clean(state, say)
            raise


def _stands(state: State, fleet: Fleet, say: Say) -> bool:
    record = state.read()
    if record is None:
        return False
    owner, processes = state.owner(), state.processes()
    if owner is not None and owner.alive() and owner.pid != os.getpid():
        raise FleetError(f"the fleet in {state.folder} belongs to the running command {owner.pid}: end that first")
    if record["phase"] == "up" and owner is None and all(process.alive() for process in processes):
        if _described(state, fleet.specs) and record["cluster"] == fleet.cluster:
            say("fleet is up already")
            return True
        raise FleetError(
            f"another fleet is up in {state.folder} ({', '.join(record['nodes'])}): python -m rehearsal "
            f"down --state {state.folder}"
        )
    say("ending what an earlier run left behind")
    _clean(state, say)
    return False


def _described(state: State, specs: list[dict[str, Any]]) -> bool:
    """Whether the fleet that is up has the nodes of the specs, with the same faults."""
    if (state.read() or {}).get("nodes") != [spec["name"] for spec in specs]:
        return False
    have = [read_json(state.folder / "nodes" / spec["name"] / "spec.json") or {} for spec in specs]
    return [spec.get("faults") for spec in have] == [spec.get("faults") for spec in specs]


def _start(state: State, fleet: Fleet, say: Say) -> None:
    import rehearsal.kernel
    import rehearsal.machine.supervisor  # noqa: F401  both once, here, and not in each node

    begun = time.monotonic()

    def step(text: str) -> None:
        say(f"{time.monotonic() - begun:5.1f} s  {text}")

    _keys(state)
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if fleet.cluster and assets:
        control_plane.start(state, Path(assets))
    elif fleet.cluster:
        _python_part(state, "api", "api", "rehearsal.apiserver", *(["--crds", str(fleet.crds)] if fleet.crds else []))
    for spec in fleet.specs:
        folder = state.folder / "nodes" / spec["name"]
        folder.mkdir(parents=True)
        write_json(folder / "spec.json", spec)
        state.fork(f"node-{spec['name']}", "node", functools.partial(_be_node, state, spec["name"]))
    if fleet.cluster:
        _wait_api(state)
        if assets and fleet.crds:
            control_plane.apply_crds(state, fleet.crds)
        step("API server is ready" + (f" (kube-apiserver of {assets})" if assets else ""))
    for spec in fleet.specs:
        boot = _wait_node(state, spec["name"])
        faulty = f", faults: {', '.join(spec['faults'])}" if spec.get("faults") else ""
        step(
            f"node {spec['name']} is up: {spec['shape']}, {len(spec['rails'])} rails, netns mode "
            f"{boot['netns_mode']}{faulty}"
        )
    if fleet.cluster:
        _python_part(state, "operators", "operators", "rehearsal.operators")
        _wait_operators(state, [spec["name"] for spec in fleet.specs])
        step("operators are at work, nodes are ready")
        for sentence in cluster_faults.inject(state, fleet.specs):
            step(sentence)
    connection.write(state.folder, fleet.specs, fleet.python, fleet.cluster)


def _keys(state: State) -> None:
    key = state.folder / "id_ed25519"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rehearsal", "-f", str(key)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _be_node(state: State, name: str) -> int:
    """Supervise a node, in a process that has imported all of it. Exit code 1 with one sentence when something that this
    machine must offer is missing."""
    from rehearsal.kernel import serve
    from rehearsal.machine import userns
    from rehearsal.machine.supervisor import supervise

    os.chdir(ROOT)
    os.environ.update(_environment())
    try:
        userns.become_root()
        supervise(state.folder.resolve(), name, serve)
    except OSError as error:
        print(f"node {name}: {error}", file=sys.stderr)
        return 1
    return 0


def _python_part(state: State, name: str, kind: str, module: str, *words: str) -> None:
    command = [sys.executable, "-m", module, "--state", str(state.folder), *words]
    state.spawn(name, kind, command, cwd=ROOT, env={**os.environ, **_environment()})


def _environment() -> dict[str, str]:
    """What the parts of a fleet have besides the environment of this command."""
    return {"PATH": checks.search_path(), "PYTHONPATH": os.pathsep.join(_python_path()), "PYTHONUNBUFFERED": "1"}


def _python_path() -> list[str]:
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return [str(ROOT), str(ROOT / "collections"), *(os.path.abspath(entry) for entry in given)]


def _watch(state: State, *names: str) -> None:
    for process in state.processes():
        if process.name in names and not fleet_state._still(process):
            raise FleetError(f"{process.name} ended during the start; the end of its log:\n{state.tail(process.name)}")


def _wait_api(state: State) -> None:
    limit = time.monotonic() + API_SECONDS
    names = [process.name for process in state.processes() if process.kind == "api"]
    while not ((state.folder / "kubeconfig").exists() and control_plane.ready(state)):
        _watch(state, *names)
        if time.monotonic() > limit:
            raise FleetError(
                f"the API server is not ready after {API_SECONDS:.0f} s; the end of its log:\n{state.tail(names[-1])}"
            )
        time.sleep(POLL)


def _wait_node(state: State, name: str) -> dict[str, Any]:
    folder = state.folder / "nodes" / name
    limit = time.monotonic() + NODE_SECONDS
    while (boot := read_json(folder / "boot.json")) is None:
        _watch(state, f"node-{name}")
        status = read_json(folder / "status.json") or {}
        if status.get("state") == "panic":
            raise FleetError(
                f"node {name} does not boot: {status['reason']}; the end of its log:\n{state.tail(f'node-{name}')}"
            )
        if time.monotonic() > limit:
            raise FleetError(
                f"node {name} is not up after {NODE_SECONDS:.0f} s; the end of its log:\n{state.tail(f'node-{name}')}"
            )
        time.sleep(POLL)
    return boot


def _wait_operators(state: State, names: list[str]) -> None:
    """The operators work when their kubelets have registered every node and report it ready."""
    limit = time.monotonic() + OPERATORS_SECONDS
    while True:
        _watch(state, "operators")
        code, body = control_plane.request(state, "/api/v1/nodes", timeout=10.0)
        ready = ready_nodes(json.loads(body)) if code == 200 else set()
        if ready >= set(names):
            return
        if time.monotonic() > limit:
            lacking = ", ".join(sorted(set(names) - ready))
            raise FleetError(
                f"nodes are not ready in the cluster after {OPERATORS_SECONDS:.0f} s: {lacking}; "
                f"the end of the operators' log:\n{state.tail('operators')}"
            )
        time.sleep(POLL)


def ready_nodes(answer: dict[str, Any]) -> set[str]:
    """Names of the nodes of a NodeList whose condition Ready is True."""
    found = set()
    for node in answer.get("items") or []:
        for condition in node.get("status", {}).get("conditions") or []:
            if condition.get("type") == "Ready" and condition.get("status") == "True":
                found.add(node["metadata"]["name"])
    return found


def down(state: State, say: Say) -> None:
    """End the fleet's recorded processes and remove its files but the logs. No fleet is no error."""
    if state.read() is None:
        say(f"no fleet in {state.folder}")
        return
    with state.locked():
        owner = state.owner()
        if owner is not None and owner.pid != os.getpid() and owner.alive():
            raise FleetError(
                f"the fleet in {state.folder} belongs to the running command {owner.pid}, which takes it "
                "down itself: end that"
            )
        _clean(state, say)


def _clean(state: State, say: Say) -> None:
    if not state.path.exists():
        return
    processes = state.processes()
    # Operators first: they would take the end of the others for faults and write about them.
    killed = []
    for kinds in (("play", "operators"), ("node", "api")):
        killed += fleet_state.end([process for process in processes if process.kind in kinds])
    for entry in state.folder.iterdir():
        if entry.name in {*KEPT, fleet_state.FILE, "lock"}:
            continue
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    state.path.unlink()
    with contextlib.suppress(FileNotFoundError):
        (state.folder / "lock").unlink()
    say("fleet is down" + (f" (had to kill {', '.join(killed)})" if killed else ""))


def status(state: State) -> tuple[list[str], bool]:
    """(lines to print, whether all is well)."""
    record = state.read()
    if record is None:
        return [f"no fleet in {state.folder}"], False
    lines = [f"fleet in {state.folder}: {record['phase']}"]
    well = record["phase"] == "up"
    for process in state.processes():
        alive = process.alive()
        text, fine = (
            _node_line(state, process) if process.kind == "node" and alive else ("running" if alive else "ended", alive)
        )
        if process.kind == "play":
            fine = True
        lines.append(f"  {process.name:<20} process {process.pid:<8} {text}")
        well = well and fine
    return lines, well


def _node_line(state: State, process: Process) -> tuple[str, bool]:
    folder = state.folder / "nodes" / process.name.removeprefix("node-")
    seen = read_json(folder / "status.json") or {"state": "booting", "boots": 0, "reason": None}
    text = f"{seen['state']}, boot {seen['boots']}"
    if boot := read_json(folder / "boot.json"):
        text += f", netns mode {boot.get('netns_mode', 'unknown')}"
    if seen["reason"]:
        text += f": {seen['reason']}"
    return text, seen["state"] == "up"
