# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start, stop and power-cycle the two machines. Their disks, sockets and logs are in STATE/MACHINE; the processes are
recorded as those of a rehearsal fleet are (rehearsal.fleet.state): before QEMU runs, by id and start time."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import qemu
import roots

from rehearsal.fleet.connection import LONGEST_CONTROL_DIR
from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.state import State, end, this_process

BOOT_SECONDS = 600.0
Say = Callable[[str], None]


def up(state: State, say: Say) -> None:
    """Start both machines from fresh disks and wait until they answer over ssh; what is up already stays.

    :raises FleetError: when one of them does not come up, with the end of its console. Both are ended then.
    """
    with state.locked():
        processes = state.processes()
        if len(processes) == len(roots.MACHINES) and all(process.alive() for process in processes):
            say("the machines are up already")
            return
        _clean(state)
        base = roots.build(say)
        state.create(list(roots.MACHINES), False, this_process("cli", "cli"))
        try:
            for name in roots.MACHINES:
                _lay_disks(state, base, name)
                _start(state, name, 0)
            wait_all(state, say)
            state.update(phase="up", owner=None)
        except BaseException:
            end(state.processes())
            raise


def wait_all(state: State, say: Say) -> None:
    """Wait until both answer over ssh, and write the inventory."""
    begun = time.monotonic()
    ports = {name: _wait_port(state, name) for name in roots.MACHINES}
    _write_inventory(state, ports)
    for name in roots.MACHINES:
        _wait_ssh(state, name, ports[name])
        say(f"{time.monotonic() - begun:5.1f} s  {name} answers")


def power_cycle(state: State, name: str, say: Say) -> None:
    """Pull the plug of one machine and start it again: nothing is written that the guest had not sent to its disk."""
    with state.locked():
        process = next((entry for entry in state.processes() if entry.name == name), None)
        if process is None:
            raise FleetError(f"{name} is not one of the machines that are up: {', '.join(roots.MACHINES)}")
        port = qemu.ssh_port(state.folder / name) if process.alive() else 0
        end([process])
        state.update(processes=[asdict(entry) for entry in state.processes() if entry.name != name])
        _start(state, name, port)
        wait_all(state, say)


def down(state: State) -> None:
    """End the recorded machines and remove their folders; the logs stay."""
    with state.locked():
        _clean(state)


def rows(state: State) -> list[tuple[str, str]]:
    """Return ``(machine, what it does)`` of the recorded machines."""
    told = []
    for process in state.processes():
        words = "ended"
        if process.alive():
            words = f"pid {process.pid}, ssh on 127.0.0.1:{qemu.ssh_port(state.folder / process.name)}"
        told.append((process.name, words))
    return told


def _clean(state: State) -> None:
    if state.read() is None:
        return
    end(state.processes())
    for name in roots.MACHINES:
        if (state.folder / name / "console.log").exists():
            shutil.copy(state.folder / name / "console.log", state.logs / f"{name}.console.log")
        shutil.rmtree(state.folder / name, ignore_errors=True)
    for name in ("inventory.yml", state.path.name):
        (state.folder / name).unlink(missing_ok=True)


def _lay_disks(state: State, base: Path, name: str) -> None:
    (state.folder / name).mkdir()
    # All that a running machine needs, so that a later build may replace the base.
    for file in ("id_ed25519", "known_hosts", "grub.img"):
        shutil.copy(base / file, state.folder / name / file)
    for disk in ("root", "boot"):
        # A copy in milliseconds where the file system can share blocks, else of what is not a hole.
        command = ["cp", "--reflink=auto", "--sparse=always", base / f"{name}.{disk}.img"]
        subprocess.run([*command, state.folder / name / f"{disk}.img"], check=True)


def _start(state: State, name: str, port: int) -> None:
    number = roots.MACHINES.index(name)
    peer = roots.MACHINES[1 - number]
    argv = qemu.arguments(name, number, peer, port)
    state.spawn(name, "machine", argv, cwd=state.folder)


def _check(state: State, name: str) -> None:
    process = next(entry for entry in state.processes() if entry.name == name)
    if not process.alive():
        raise FleetError(f"{name} has ended:\n{state.tail(name)}")


def _wait_port(state: State, name: str) -> int:
    limit = time.monotonic() + BOOT_SECONDS
    while True:
        _check(state, name)
        try:
            return qemu.ssh_port(state.folder / name)
        except OSError as error:
            if time.monotonic() > limit:
                raise FleetError(f"QEMU of {name} does not answer: {error}") from error
            time.sleep(0.1)


def _wait_ssh(state: State, name: str, port: int) -> None:
    limit = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < limit:
        _check(state, name)
        try:
            # The network of QEMU accepts before the guest does; only sshd sends its name.
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                if connection.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        time.sleep(0.5)
    console = (state.folder / name / "console.log").read_text(encoding="utf-8", errors="replace").splitlines()
    raise FleetError(f"{name} does not answer within {BOOT_SECONDS:.0f} s; its console:\n" + "\n".join(console[-15:]))


def _write_inventory(state: State, ports: dict[str, int]) -> None:
    hosts = {}
    control = Path.home() / ".ansible" / "cp"  # Ansible's own, which is short
    control.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, port in ports.items():
        folder = state.folder / name
        options = [
            f'UserKnownHostsFile="{folder / "known_hosts"}"',
            f"HostKeyAlias={name}",
            "StrictHostKeyChecking=yes",
        ]
        options += ["IdentitiesOnly=yes", "ServerAliveInterval=15", "ServerAliveCountMax=8", "ConnectTimeout=60"]
        # testinfra would make a connection for each command; Ansible ends this one by its path when it reboots.
        short = len(str(control)) <= LONGEST_CONTROL_DIR
        options += [f"ControlPath={control / str(port) if short else 'none'}"]
        hosts[name] = {
            "ansible_host": "127.0.0.1",
            "ansible_port": port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(folder / "id_ed25519"),
            "ansible_ssh_common_args": " ".join(f"-o '{option}'" for option in options),
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_remote_tmp": "/run/ansible",
        }
    local = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    data = {"all": {"hosts": {"localhost": local}, "children": {"gpu_nodes": {"hosts": hosts}}}}
    path = state.folder / "inventory.yml"
    path.write_text("---\n# Written when the machines came up.\n" + json.dumps(data, indent=2) + "\n", encoding="utf-8")
    os.chmod(path, 0o600)
