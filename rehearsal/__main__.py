# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``python -m rehearsal up|down|status|run|faults``: a simulated fleet on this machine."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
# The collection is found without installing it, as Ansible finds it through ansible.cfg.
sys.path.insert(0, str(ROOT / "collections"))

from rehearsal.fleet import lifecycle, play, specs
from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.state import State


class Ended(BaseException):
    """A signal asks this command to end; like KeyboardInterrupt it must pass every ``except Exception``."""


def say(text: str) -> None:
    """One line to the user, at once."""
    print(text, flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m rehearsal", description=__doc__.replace("`", ""))
    commands = top.add_subparsers(dest="command", required=True)
    state = argparse.ArgumentParser(add_help=False)
    state.add_argument(
        "--state",
        type=Path,
        default=ROOT / ".rehearsal",
        help="folder of the fleet (default: .rehearsal in the checkout)",
    )
    nodes = argparse.ArgumentParser(add_help=False)
    nodes.add_argument(
        "--driver", choices=specs.DRIVERS, default="doca_ofed", help="which driver flavour the nodes show"
    )
    nodes.add_argument(
        "--initial-mode",
        choices=specs.MODES,
        default="exclusive",
        help="netns mode that file and boot image hold at first",
    )
    nodes.add_argument(
        "--crds", type=Path, help="folder of CRD files for strict validation (default: where one is known)"
    )
    nodes.add_argument(
        "--fault",
        metavar="NODE=NAME",
        action="append",
        default=[],
        help="a fault for a node; may be repeated (python -m rehearsal faults lists them)",
    )
    nodes.add_argument("--no-cluster", action="store_true", help="only the nodes, no Kubernetes API and no operators")

    start = commands.add_parser("up", parents=[state, nodes], help="start a fleet and leave it running")
    source = start.add_mutually_exclusive_group()
    source.add_argument(
        "-i",
        "--inventory",
        type=Path,
        action="append",
        help="nodes are the hosts of group gpu_nodes; may be repeated "
        "as for ansible-playbook (default: inventories/rehearsal)",
    )
    source.add_argument("--nodes", type=int, help="this many nodes of one shape")
    start.add_argument("--shape", default="BM.GPU.B4.8", help="shape for --nodes")
    commands.add_parser(
        "down", parents=[state], help="end the fleet, also after a crash, and remove its files but the logs"
    )
    commands.add_parser("status", parents=[state], help="show the parts; exit code 1 when one is not well")
    commands.add_parser("faults", help="list the faults with what each must give")
    run = commands.add_parser("run", parents=[state, nodes], help="fleet up, the playbook twice, verdict, fleet down")
    run.add_argument(
        "-i", "--inventory", type=Path, action="append", help="may be repeated (default: inventories/rehearsal)"
    )
    run.add_argument("--playbook", type=Path, default=ROOT / "site.yml", help="what to run twice (default: site.yml)")
    run.add_argument("--keep", action="store_true", help="leave the fleet running after the verdict")
    run.add_argument("ansible", nargs="*", help="after --: more arguments for ansible-playbook")
    return top


def inventories_of(options: argparse.Namespace) -> list[Path]:
    """The inventories given, as absolute paths; the rehearsal's own without one."""
    return [path.absolute() for path in options.inventory or [ROOT / "inventories/rehearsal"]]


def faults_of(words: list[str]) -> dict[str, list[str]]:
    """NODE=NAME words as names by node; FleetError for another form."""
    found: dict[str, list[str]] = {}
    for word in words:
        node, mark, name = word.partition("=")
        if not (node and mark and name):
            raise FleetError(f"--fault: got {word!r}, must be NODE=NAME, for example gpu-1=stale-boot-image")
        found.setdefault(node, []).append(name)
    return found


def list_faults() -> str:
    """One paragraph for each fault: name, finding or outcome, what it needs of the intent, what happens, source."""
    from rehearsal.fleet import faults  # see specs.py

    catalogue, lines = faults.Catalogue(), []
    for name in catalogue.names():
        fault = catalogue.get(name)
        ends = (
            fault.finding or f'prepare_nodes {"fails" if fault.outcome["failed"] else "says"} "{fault.outcome["says"]}"'
        )
        where = "" if fault.rail is None or fault.finding is None else f" on rail {fault.rail}"
        needed = ([f"in {fault.mode} mode"] if fault.mode else []) + [f"{k}: {v}" for k, v in fault.intent.items()]
        needs = f" ({', '.join(needed)})" if needed else ""
        follows = f", with it {', '.join(fault.also)}" if fault.also else ""
        lines += [f"{name}: {ends}{where}{needs}{follows}", f"    {fault.about}"]
        lines += [f"    Source: {'; '.join(fault.source)}", ""]
    return "\n".join(lines[:-1])


def fleet_of(options: argparse.Namespace) -> lifecycle.Fleet:
    """The fleet that the arguments describe."""
    chosen = {"driver": options.driver, "initial_mode": options.initial_mode, "faults": faults_of(options.fault)}
    if getattr(options, "nodes", None) is not None:
        nodes = specs.from_shape(options.nodes, options.shape, **chosen)
    else:
        nodes = specs.from_inventory(inventories_of(options), **chosen)
    if options.crds is not None and not options.crds.is_dir():
        raise FleetError(f"--crds {options.crds} is not a folder")
    crds = options.crds.resolve() if options.crds else lifecycle.find_crds()
    return lifecycle.Fleet(nodes, cluster=not options.no_cluster, crds=crds)


def run(state: State, options: argparse.Namespace) -> int:
    """up, site.yml twice, down in any case."""
    good = False
    try:
        lifecycle.up(state, fleet_of(options), say, owned=True)
        good = play.run_twice(state, options.playbook.absolute(), inventories_of(options), options.ansible, say)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second ctrl-C must not stop the cleaning
        if options.keep and good:
            state.update(owner=None)
            say(f"fleet is kept: python -m rehearsal down --state {state.folder}")
        else:
            lifecycle.down(state, say)
    return 0 if good else 1


def main(argv: list[str] | None = None) -> int:
    """Exit code: 0 good; 1 the fleet or the play is not; 2 wrong arguments; 130 and 143 after ctrl-C and SIGTERM."""
    options = parser().parse_args(argv)
    if options.command == "faults":
        print(list_faults())
        return 0
    state = State(options.state)
    caught: list[int] = []

    def stop(number: int, _frame: object) -> NoReturn:
        caught.append(number)
        raise Ended

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        if options.command == "up":
            lifecycle.up(state, fleet_of(options), say)
            return 0
        if options.command == "down":
            lifecycle.down(state, say)
            return 0
        if options.command == "status":
            lines, well = lifecycle.status(state)
            say("\n".join(lines))
            return 0 if well else 1
        return run(state, options)
    except FleetError as error:
        print(f"rehearsal: {error}", file=sys.stderr)
        return 1
    except Ended:
        print("rehearsal: ended by a signal", file=sys.stderr)
        return 128 + caught[0]


if __name__ == "__main__":
    sys.exit(main())
