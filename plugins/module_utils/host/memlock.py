# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much memory containers may lock, which RDMA memory registration needs: with 8 MiB ibv_reg_mr fails ("Couldn't
allocate MR", k8snetworkplumbingwg/sriov-network-device-plugin#271), unless the container has CAP_IPC_LOCK.

Containers start with the limits of their runtime's process, unless the runtime is configured to give them others.
"""

from __future__ import annotations

import os
import re

from ansible_collections.railyard.rdma.plugins.module_utils.host import container_config, systemd_units
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

# By runtime: the name of its process, and the services that run it, the usual one first.
_RUNTIMES = {
    "containerd": ("containerd", ("containerd", "k3s", "k3s-agent", "rke2-server", "rke2-agent")),
    "crio": ("crio", ("crio", "cri-o")),
    "dockerd": ("dockerd", ("docker",)),
}
_READERS = {
    "containerd": container_config.read_containerd,
    "crio": container_config.read_crio,
    "dockerd": container_config.read_docker,
}
_CGROUPS = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")
_IN_A_CONTAINER = re.compile(r"kubepods|/docker[-/]|/crio-|/cri-containerd|/libpod")
_ENDPOINT = re.compile(r"^[ \t]*containerRuntimeEndpoint[ \t]*:[ \t]*[\"']?([^\s\"'#]+)", re.MULTILINE)
_MOST_PROCESSES = 1000
_SECONDS_OF_DOUBT = 2


def parse_limit(limits: str) -> tuple[str | None, str | None]:
    """Return the soft and hard "Max locked memory" of a /proc/PID/limits text: decimal bytes or ``unlimited``, None
    when missing."""
    for line in limits.split("\n"):
        if line.startswith("Max locked memory"):
            words = line[len("Max locked memory") :].split()
            return (words[0], words[1]) if len(words) >= 2 else (None, None)
    return None, None


def read_memlock(tree: Tree) -> dict:
    """Return ``{runtimes: {containerd|crio|dockerd: {…}}, containers: {soft, runtime, reason}, reason}``.

    Each runtime that runs or has a service: ``{pid, unit, soft, hard, configured, configured_by, container_default,
    source, restart_needed, reason}``, limits in bytes or ``unlimited``. soft and hard are those of the process,
    configured (by the file configured_by) is the soft limit that systemd's files give it at its next start,
    container_default what its own configuration (the file source) gives to containers, None when it gives them nothing.
    restart_needed: one of these files is younger than the process. ``containers.soft`` is what a container really gets.
    """
    found = find_processes(tree, tuple(comm for comm, _services in _RUNTIMES.values()) + ("kubelet",))
    runtimes = {}
    for name, (comm, services) in _RUNTIMES.items():
        runtime = _read_runtime(tree, name, found.get(comm), services)
        if runtime:
            runtimes[name] = runtime
    containers = _containers(tree, runtimes, found.get("kubelet"))
    reason = None if runtimes else "no containerd, CRI-O or Docker is running or has a service"
    return {"runtimes": runtimes, "containers": containers, "reason": reason}


def find_processes(tree: Tree, names: tuple[str, ...]) -> dict[str, int]:
    """Return the process ids of running services by process name.

    Looked for first in the cgroups of their services, which is cheap; the list of all processes is searched only when
    that gives no runtime at all. Processes of containers (Docker in a pod) do not count.
    """
    found: dict[str, int] = {}
    wanted = {service for _comm, services in _RUNTIMES.values() for service in services} | {"kubelet"}
    for path in (f"{place}/{service}.service/cgroup.procs" for service in sorted(wanted) for place in _CGROUPS):
        for pid in (tree.read(path).value or "").split()[:_MOST_PROCESSES]:
            comm = tree.text(f"/proc/{pid}/comm") if pid.isascii() and pid.isdigit() else None
            if comm in names:
                found.setdefault(comm, int(pid))
    if not any(comm in found for comm, _services in _RUNTIMES.values()):
        for pid in sorted((name for name in tree.names("/proc") if name.isascii() and name.isdigit()), key=int):
            comm = tree.text(f"/proc/{pid}/comm")
            if comm not in names or comm in found:
                continue
            if not _IN_A_CONTAINER.search(tree.read(f"/proc/{pid}/cgroup").value or ""):
                found[comm] = int(pid)
    return found


def _read_runtime(tree: Tree, name: str, pid: int | None, services: tuple[str, ...]) -> dict | None:
    unit = _unit_of(tree, pid) if pid else None
    if unit is None:
        units = [f"{service}.service" for service in services]
        unit = next((name for name in units if systemd_units.has_unit(tree, name)), None)
    if pid is None and unit is None:
        return None
    arguments = (tree.read(f"/proc/{pid}/cmdline").value or "").split("\0")[1:] if pid else []
    soft, hard = parse_limit(tree.read(f"/proc/{pid}/limits").value or "") if pid else (None, None)
    configured = systemd_units.read_memory_limit(tree, unit) if unit else {"soft": None, "path": None, "files": []}
    given = _READERS[name](tree, arguments)
    result = {
        "pid": pid,
        "unit": unit,
        "soft": _number(soft),
        "hard": _number(hard),
        "configured": configured["soft"],
        "configured_by": configured["path"],
        "container_default": given["soft"],
        "source": given["source"],
        "restart_needed": _restart_needed(tree, pid, configured["files"] + given["files"]),
        "reason": given["reason"],
    }
    if given.get("handlers"):
        result["handlers"] = given["handlers"]
    return result


def _unit_of(tree: Tree, pid: int) -> str | None:
    """Return the systemd service that a process belongs to."""
    for line in (tree.read(f"/proc/{pid}/cgroup").value or "").split("\n"):
        parts = [part for part in line.split("/") if part.endswith(".service")]
        if parts:
            return parts[-1]
    return None


def _restart_needed(tree: Tree, pid: int | None, files: list[str]) -> bool | None:
    """True when a file was changed after the process started: its content is not in effect yet. None when unknown."""
    started = start_time(tree, pid) if pid else None
    if started is None:
        return None
    newest = 0.0
    for path in files:
        try:
            newest = max(newest, os.stat(tree.path(path)).st_mtime)
        except OSError:
            continue
    return newest > started + _SECONDS_OF_DOUBT


def start_time(tree: Tree, pid: int) -> float | None:
    """Return when a process started, in seconds since 1970: field 22 of its stat (proc(5)) counts from the boot."""
    fields = (tree.read(f"/proc/{pid}/stat").value or "").rpartition(")")[2].split()
    match = re.search(r"^btime ([0-9]{1,18})$", tree.read("/proc/stat").value or "", re.MULTILINE)
    if len(fields) < 20 or not fields[19].isdecimal() or not match:
        return None
    return int(match.group(1)) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _containers(tree: Tree, runtimes: dict[str, dict], kubelet: int | None) -> dict:
    """Decide what a container really gets; with several runtimes that differ, by the one that the kubelet uses."""
    candidates = {name: entry for name, entry in runtimes.items() if entry["pid"] or not tree.live}
    # Docker runs its containers by containerd; it is a runtime of Kubernetes only behind cri-dockerd.
    if len(candidates) > 1:
        candidates.pop("dockerd", None)
    answers = {name: _effective(name, entry, tree.live) for name, entry in candidates.items()}
    if len({(soft, bool(reason)) for soft, reason in answers.values()}) > 1:
        used = _kubelet_runtime(tree, kubelet)
        if used not in answers:
            told = ", ".join(f"{name}: {reason or soft}" for name, (soft, reason) in answers.items())
            return {"soft": None, "runtime": None, "reason": f"which runtime the kubelet uses is not known ({told})"}
        answers = {used: answers[used]}
    for name, (soft, reason) in answers.items():
        return {"soft": soft, "runtime": name if len(answers) == 1 else None, "reason": reason}
    return {"soft": None, "runtime": None, "reason": "no container runtime is running"}


def _effective(name: str, runtime: dict, live: bool) -> tuple[int | str | None, str | None]:
    if runtime["reason"]:
        return None, runtime["reason"]
    if live and runtime["restart_needed"]:
        return None, f"the configuration of {name} was changed after it started: it counts from its restart on"
    if runtime["container_default"] is not None:
        return runtime["container_default"], None
    own = runtime["soft"] if live else runtime["configured"]
    if own is None:
        return None, f"the limit of {name} itself is not known, and its configuration sets none for containers"
    return own, None


def _kubelet_runtime(tree: Tree, pid: int | None) -> str | None:
    arguments = (tree.read(f"/proc/{pid}/cmdline").value or "").split("\0")[1:] if pid else []
    endpoint = container_config.option(arguments, "--container-runtime-endpoint")
    if endpoint is None:
        path = container_config.option(arguments, "--config") or "/var/lib/kubelet/config.yaml"
        match = _ENDPOINT.search(tree.read(path).value or "")
        endpoint = match.group(1) if match else ""
    for word, name in (("cri-dockerd", "dockerd"), ("crio", "crio"), ("cri-o", "crio"), ("containerd", "containerd")):
        if word in endpoint:
            return name
    return None


def _number(text: str | None):
    return int(text) if text and text.isascii() and text.isdigit() else text
