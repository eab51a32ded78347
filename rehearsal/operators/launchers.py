# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launchers of MPI jobs as processes: their own scripts run on a node, with ssh and mpirun that reach the workers' pods.

A rehearsed pod has a network namespace and no processes. Of a launcher the command is run for real, in a mount
namespace with its volumes; what it prints is the container's log, and its end that of the pod. Ranks run in the workers'
namespaces on their nodes. What ranks of the stand-in all_reduce_perf print together comes from nccl_world.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from rehearsal.operators import nccl_world
from rehearsal.operators.client import now
from rehearsal.operators.containers import devices_of, inside
from rehearsal.operators.kinds import CONFIG_MAP, POD, SECRET, SERVICE, Kind, labels_of, name_of, namespace_of
from rehearsal.operators.machines import Fleet, Machine, MachineError
from rehearsal.operators.mpi_operator import JOB_NAME, ROLE
from rehearsal.operators.mpirun import MpiError, parse, placed
from rehearsal.operators.runtime import Controller, Manager
from rehearsal.operators.scheduler import FINISHED

TOOLS = "/usr/lib/rehearsal/launcher"
# Two jobs that run at the same time on the same nodes share ports. Here a job takes moments, so one waits so many seconds for the
# launcher of the other to come as far.
TOGETHER = 180.0
# A folder of its own in the place of the container's file system, and what its volumes hold.
ENTER = r"""
mkdir -p "$REHEARSAL_HOME/tmp"
mount -t tmpfs tmpfs /root
mount --bind "$REHEARSAL_HOME/tmp" /tmp
printf '%s' "$REHEARSAL_FILES" | while IFS=' ' read -r path content; do
  mkdir -p "${path%/*}"
  grep -qs " ${path%/*} " /proc/self/mountinfo || mount -t tmpfs tmpfs "${path%/*}"
  printf '%s' "$content" | base64 -d > "$path"
done
hostname "$REHEARSAL_NAME"
unset REHEARSAL_FILES REHEARSAL_HOME REHEARSAL_NAME
exec "$@"
"""


def container_env(pod: dict) -> dict[str, str]:
    return {row["name"]: row.get("value") or "" for row in pod["spec"]["containers"][0].get("env") or []}


def log_path(state: Path, uid: str) -> Path:
    """Where the log of a pod's container is; it lives as long as the fleet."""
    return state / "pod-logs" / f"{uid}.log"


def ended_status(pod: dict, code: int, started: str) -> dict:
    """Status of a pod whose only container ended."""
    good = code == 0
    reason = "Completed" if good else "Error"
    state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now()}}
    rows = [
        {**row, "ready": False, "started": False, "state": state}
        for row in pod["status"].get("containerStatuses") or []
    ]
    return {"phase": "Succeeded" if good else "Failed", "containerStatuses": rows}


class Launchers(Controller):
    """Keys are uids of launchers' pods."""

    watches = (POD, CONFIG_MAP, SECRET, SERVICE)
    resync = 5.0

    def __init__(self, manager: Manager, fleet: Fleet, sandbox: Callable[[str, str], dict]):
        """:param sandbox: (node, pod uid) -> the kubelet's note of it, empty when there is none."""
        super().__init__(manager)
        self.fleet = fleet
        self.sandbox = sandbox
        self._tasks: dict[str, asyncio.Task] = {}
        self._worlds: dict[str, list[nccl_world.Pod]] = {}

    def keys(self, kind: Kind, obj: dict) -> list[str]:
        launcher = kind == POD and labels_of(obj).get(ROLE) == "launcher"
        return [obj["metadata"]["uid"]] if launcher else []

    def known_keys(self) -> set[str]:
        return super().known_keys() | set(self._tasks)

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await super().stop()

    async def reconcile(self, key: str) -> float | None:
        pod = next((item for item in self.cache(POD) if item["metadata"]["uid"] == key), None)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            task = self._tasks.pop(key, None)
            if task:
                task.cancel()
        elif (pod.get("status") or {}).get("phase") == "Running" and key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._contain(pod))
        return None

    @staticmethod
    def _place(pod: dict) -> dict[str, str]:
        """What ENTER wants to know of a pod."""
        uid, name = pod["metadata"]["uid"], pod["spec"].get("hostname") or name_of(pod)
        return {"REHEARSAL_HOME": f"/run/rehearsal/pods/{uid}", "REHEARSAL_NAME": name}

    def _home(self, pod: dict) -> tuple[Machine | None, str | None]:
        """(machine, network namespace) for a launcher: its own node, or any where that one is not rehearsed."""
        own = self.fleet.get(pod["spec"]["nodeName"])
        if own is not None:
            return own, self.sandbox(own.name, pod["metadata"]["uid"]).get("netns")
        up = [machine for _name, machine in sorted(self.fleet.machines().items()) if machine.boot()]
        return (up[0] if up else None), None

    def _files(self, pod: dict) -> list[tuple[str, str]]:
        """(path, content in base64) of the Secrets and ConfigMaps that the container mounts."""
        mounts = {row["name"]: row["mountPath"] for row in pod["spec"]["containers"][0].get("volumeMounts") or []}
        found = []
        for volume in pod["spec"].get("volumes") or []:
            source = volume.get("secret") or volume.get("configMap")
            if source is None or volume["name"] not in mounts:
                continue
            kind = SECRET if "secret" in volume else CONFIG_MAP
            held = self.cache(kind).get(source.get("secretName") or source.get("name"), namespace_of(pod))
            data = (held or {}).get("data") or {}
            for item in source.get("items") or [{"key": key, "path": key} for key in data]:
                text = data.get(item["key"], "")
                content = text if kind == SECRET else base64.b64encode(text.encode()).decode()
                found.append((f"{mounts[volume['name']]}/{item['path']}", content))
        return found

    async def _contain(self, pod: dict) -> None:
        uid, started = pod["metadata"]["uid"], now()
        path = log_path(self.fleet.state, uid)
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8") as log:
            try:
                code = await self._run(pod, log)
            except (OSError, MachineError) as error:
                log.write(f"rehearsal: {error}\n")
                code = 128
        fresh = self.cache(POD).get(name_of(pod), namespace_of(pod)) or pod
        await self.api.patch(POD, fresh, {"status": ended_status(fresh, code, started)}, "status")

    async def _run(self, pod: dict, log) -> int:
        machine, netns = self._home(pod)
        if machine is None:
            raise MachineError("no node is up that could run the launcher")
        own = self._place(pod)
        own["REHEARSAL_FILES"] = "".join(f"{path} {content}\n" for path, content in self._files(pod))
        env = {**container_env(pod), **own, "PATH": f"{TOOLS}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        container = pod["spec"]["containers"][0]
        command = [*(container.get("command") or []), *(container.get("args") or [])]
        argv = ["env", "-i", *(f"{key}={value}" for key, value in env.items())]
        argv += ["unshare", "--mount", "--uts", "sh", "-ec", f"exec 2>&1\n{ENTER}", "sh", *command]
        process = await machine.start(argv, netns, True)
        try:
            while line := await process.stdout.readline():
                if line.startswith(b"\0"):
                    answer = await self._serve(pod, json.loads(line[1:]), log)
                    process.stdin.write(json.dumps(answer).encode() + b"\n")
                    await process.stdin.drain()
                else:
                    log.write(line.decode(errors="replace"))
                log.flush()
            return await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def _serve(self, pod: dict, request: dict, log) -> dict:
        """ssh and mpirun of a launcher: ``{code, err}``."""
        try:
            if request["tool"] == "ssh":
                words = request["argv"]
                host = words[next(place for place in range(0, len(words), 2) if not words[place].startswith("-"))]
                self._worker(pod, host, request["keys"])
                return {"code": 0, "err": ""}
            call = parse(request["argv"], request.get("hostfile") or "")
            workers = [(self._worker(pod, host, request["keys"]), count) for host, count in placed(call)]
            code = await self._ranks(pod, workers, call, request["env"], log)
            return {"code": code, "err": ""}
        except MpiError as error:
            return {"code": error.code, "err": str(error)}

    def _worker(self, launcher: dict, host: str, keys: list[str]) -> dict:
        """The pod behind a host name, if the launcher's key opens it. Raises MpiError with what ssh says."""
        name, _dot, rest = host.partition(".")
        subdomain = rest.partition(".")[0]
        space = namespace_of(launcher)
        pods = [pod for pod in self.cache(POD) if namespace_of(pod) == space and pod["spec"].get("hostname") == name]
        pod = next((one for one in pods if one["spec"].get("subdomain") == subdomain), None)
        if pod is None or self.cache(SERVICE).get(subdomain, space) is None:
            raise MpiError(255, f"ssh: Could not resolve hostname {host}: Name or service not known")
        if (pod.get("status") or {}).get("phase") != "Running":
            raise MpiError(255, f"ssh: connect to host {host} port 22: Connection refused")
        allowed = [container_env(pod).get("RAILYARD_KEY", "")]
        allowed += [
            base64.b64decode(content).decode()
            for path, content in self._files(pod)
            if path.endswith("/authorized_keys")
        ]
        if not {key.strip() for key in keys} & {key.strip() for key in allowed if key}:
            raise MpiError(255, f"root@{host}: Permission denied (publickey).")
        return pod

    async def _ranks(self, launcher: dict, workers: list, call, env: dict, log) -> int:
        """Run the ranks of an mpirun, and write what they print. The exit code is that of the first that fails."""
        started, first = [], 0
        total = sum(count for _pod, count in workers)
        for pod, count in workers:
            for local in range(count):
                own = {
                    "OMPI_COMM_WORLD_RANK": first + local,
                    "OMPI_COMM_WORLD_LOCAL_RANK": local,
                    "OMPI_COMM_WORLD_SIZE": total,
                }
                started.append(
                    (pod, self._rank(pod, call.command, {**env, **{key: str(value) for key, value in own.items()}}))
                )
            first += count
        done = await asyncio.gather(*(job for _pod, job in started))
        said: dict[str, list[dict]] = {}
        code = 0
        for (pod, _job), (ended, out, err) in zip(started, done):
            for line in (out + err).splitlines():
                if line.startswith("\0"):
                    said.setdefault(name_of(pod), []).append(json.loads(line[1:]))
                else:
                    log.write(line + "\n")
            code = code or ended
        if code or not said:
            return code
        pods, number = [], 0
        for pod, count in workers:
            pods.append(nccl_world.Pod(name_of(pod), pod["spec"]["nodeName"], said[name_of(pod)], number))
            number += count
        code, lines = nccl_world.run(pods, await self._sharing(launcher, pods))
        log.write("".join(f"{line}\n" for line in lines))
        return code

    async def _sharing(self, launcher: dict, pods: list[nccl_world.Pod]) -> dict[tuple[str, str], int]:
        """Number of jobs by (node, PF), once the others on the same nodes are as far as this one."""
        # Those of ended jobs go here and not at their end: one that counts this job and ends at once has shared with it, too.
        running = {
            pod["metadata"]["uid"] for pod in self.cache(POD) if (pod.get("status") or {}).get("phase") not in FINISHED
        }
        self._worlds = {uid: world for uid, world in self._worlds.items() if uid in running}
        self._worlds[launcher["metadata"]["uid"]] = pods
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(TOGETHER):
                while self._others(launcher, {pod.node for pod in pods}) - set(self._worlds):
                    await asyncio.sleep(0.05)
        counts: dict[tuple[str, str], int] = {}
        for world in self._worlds.values():
            for place in {(pod.node, device["pf"]) for pod in world for device in pod.devices}:
                counts[place] = counts.get(place, 0) + 1
        return counts

    def _others(self, launcher: dict, nodes: set[str]) -> set[str]:
        """uids of launchers whose workers are on the same nodes, and that have not ended."""
        pods = [pod for pod in self.cache(POD) if (pod.get("status") or {}).get("phase") not in FINISHED]
        jobs = {
            labels_of(pod).get(JOB_NAME)
            for pod in pods
            if labels_of(pod).get(ROLE) == "worker" and pod["spec"].get("nodeName") in nodes
        }
        return {
            pod["metadata"]["uid"]
            for pod in pods
            if labels_of(pod).get(ROLE) == "launcher" and labels_of(pod).get(JOB_NAME) in jobs
        }

    async def _rank(self, pod: dict, command: list[str], env: dict[str, str]) -> tuple[int, str, str]:
        machine = self.fleet.get(pod["spec"]["nodeName"])
        if machine is None:
            return 255, "", f"ssh: node {pod['spec']['nodeName']} is not rehearsed\n"
        uid = pod["metadata"]["uid"]
        note = self.sandbox(machine.name, uid)
        own = self._place(pod)
        own |= {"REHEARSAL_FILES": "", "REHEARSAL_GPUS": ",".join(sorted(devices_of(note)[1]))}
        own |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        argv = ["env", "-i", *(f"{key}={value}" for key, value in {**env, **own}.items())]
        argv += ["unshare", "--mount", "--uts", "sh", "-ec", ENTER, "sh", *command]
        argv = inside(argv, pod, pod["spec"]["containers"][0]["name"], note, machine.spec)
        try:
            return await machine.run(argv, netns=note.get("netns"))
        except MachineError as error:
            return 255, "", f"{error}\n"
