# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``python molecule/vm/machines COMMAND [--state FOLDER]``: two Debian machines under QEMU, for the scenario and for
developers (README.md beside this folder)."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]  # this folder's files; the rehearsal's records of processes

import lifecycle
import qemu
import roots

from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.state import State


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """Run one command. Exit code 1 with a sentence when it failed, 3 when machines cannot run here."""
    parser = argparse.ArgumentParser(prog="python molecule/vm/machines", description=__doc__)
    parser.add_argument("command", choices=["check", "build", "up", "down", "status", "power-cycle", "ssh"])
    parser.add_argument("machine", nargs="?", choices=roots.MACHINES, help="for power-cycle and ssh")
    parser.add_argument("words", nargs="*", help="ssh: the command to run")
    parser.add_argument("--state", type=Path, default=roots.CACHE / "run", help="default: %(default)s")
    options = parser.parse_args()
    state = State(options.state)
    if options.command in ("power-cycle", "ssh") and options.machine is None:
        parser.error(f"{options.command} needs a machine: {', '.join(roots.MACHINES)}")
    try:
        return run(options, state)
    except (FleetError, roots.BuildError) as error:
        print(f"machines: {error}", file=sys.stderr)
    except (FileNotFoundError, ConnectionRefusedError):
        print(f"machines: {options.machine or 'the pair'} is not up in {state.folder}", file=sys.stderr)
    return 1


def run(options: argparse.Namespace, state: State) -> int:
    if options.command in ("check", "build", "up"):
        reason = qemu.problem()
        if reason:
            say(f"machines cannot run here: {reason}")
            return 3
    if options.command == "build":
        say(str(roots.build(say)))
    elif options.command == "up":
        lifecycle.up(state, say)
        say(f"inventory: {state.folder / 'inventory.yml'}")
    elif options.command == "down":
        lifecycle.down(state)
    elif options.command == "status":
        for name, words in lifecycle.rows(state) or [("no machines", str(state.folder))]:
            say(f"{name}: {words}")
    elif options.command == "power-cycle":
        lifecycle.power_cycle(state, options.machine, say)
    elif options.command == "ssh":
        folder = state.folder / options.machine
        command = ["ssh", "-i", str(folder / "id_ed25519"), "-p", str(qemu.ssh_port(folder))]
        command += ["-o", f"HostKeyAlias={options.machine}", "-o", f'UserKnownHostsFile="{folder / "known_hosts"}"']
        command += ["root@127.0.0.1", *options.words]
        return subprocess.run(command, check=False, env={**os.environ, "TERM": "dumb"}).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
