# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``run``: a playbook twice over a fleet of its own, the verdict, and the end of the fleet, whatever happens."""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rehearsal.fleet import connection
from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.lifecycle import ROOT
from rehearsal.fleet.state import Process, State, end

#: The playbook that ends with a report; others are judged by their recap alone.
SITE = "site.yml"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RECAP = re.compile(r"^(\S+)\s+:\s+((?:[a-z]+=\d+\s*)+)$")


@dataclass(frozen=True)
class Recap:
    """One host's line of PLAY RECAP."""

    host: str
    counts: dict[str, int]

    @property
    def failed(self) -> bool:
        """Whether a task failed or the host was not reached."""
        return bool(self.counts.get("failed") or self.counts.get("unreachable"))


def read_recap(text: str) -> list[Recap]:
    """The lines of the last PLAY RECAP in ansible-playbook's output; empty when there is none."""
    plain = _COLOUR.sub("", text)
    _before, mark, after = plain.rpartition("PLAY RECAP")
    if not mark:
        return []
    found = []
    for line in after.splitlines():
        if match := _RECAP.match(line.strip()):
            counts = dict(pair.split("=") for pair in match[2].split())
            found.append(Recap(match[1], {key: int(value) for key, value in counts.items()}))
    return found


def verdict(code: int, recap: list[Recap], second: bool) -> tuple[bool, str]:
    """(good, sentence) of one run; the second must also have changed nothing on any host."""
    name = "second run" if second else "first run"
    if not recap:
        return False, f"{name}: failed (exit {code}, no recap)"
    bad = [row.host for row in recap if row.failed]
    if code != 0 or bad:
        return False, f"{name}: failed (exit {code}{', on ' + ', '.join(bad) if bad else ''})"
    changed = {row.host: row.counts.get("changed", 0) for row in recap if row.counts.get("changed", 0)}
    if not second:
        return True, f"{name}: good, changed={sum(changed.values())} on {len(recap)} hosts"
    if changed:
        return False, f"{name}: not idempotent, changed: " + ", ".join(
            f"{host}={count}" for host, count in changed.items()
        )
    return True, f"{name}: good, changed=0 on {len(recap)} hosts"


def judge_report(text: str | None) -> str | None:
    """What speaks against a run by the report that site.yml wrote; None when every node passed.

    The play itself fails on error findings only; a check that could not be made leaves `unknown`, and a rehearsal where
    something could not be looked at has shown nothing.

    :param text: the report (role report, `report_file`); None when there is none.
    """
    if text is None:
        return "no report was written"
    try:
        rows = json.loads(text)["rows"]
        bad = [f"{row['node']} {row['verdict']}" for row in rows if row["verdict"] != "pass"]
    except (ValueError, KeyError, TypeError) as error:
        return f"the report cannot be read ({type(error).__name__}: {error})"
    if not rows:
        return "the report has no node"
    return f"not passed: {', '.join(bad)}" if bad else None


def environment(state: State) -> dict[str, str]:
    """The environment of a play over the fleet."""
    kubeconfig = dict.fromkeys(connection.KUBECONFIG_VARIABLES, str(state.folder / "kubeconfig"))
    bin_dir = str(Path(sys.executable).parent)
    values = {**os.environ, **kubeconfig}
    values["PATH"] = bin_dir + os.pathsep + values.get("PATH", os.defpath)
    values.setdefault("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
    if sys.stdout.isatty():
        values.setdefault("ANSIBLE_FORCE_COLOR", "true")
    return values


def play(
    state: State, name: str, playbook: Path, inventories: list[Path], extra: list[str], say: Callable[[str], None]
) -> tuple[int, str]:
    """Run one playbook, its output shown as it comes and kept in logs/NAME.log; (exit code, output).

    Raises FleetError when a part of the fleet ends meanwhile: the play cannot come to a good end then.
    """
    beside = Path(sys.executable).parent / "ansible-playbook"
    program = str(beside) if beside.exists() else shutil.which("ansible-playbook")
    if program is None:
        raise FleetError("ansible-playbook is missing: pip install ansible-core into the environment of this Python")
    command = [program, str(playbook)]
    for inventory in inventories:
        command += ["-i", str(inventory)]
    child = state.spawn(name, "play", [*command, *extra], cwd=ROOT, env=environment(state), stdout=subprocess.PIPE)
    process = next(row for row in state.processes() if row.pid == child.pid)
    output: list[bytes] = []
    try:
        with open(state.logs / f"{name}.log", "ab") as log, selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(timeout=0.5):
                    _all_alive(state)
                    continue
                data = os.read(child.stdout.fileno(), 65536)
                if not data:
                    break
                output.append(data)
                log.write(data)
                log.flush()
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        return child.wait(), b"".join(output).decode(errors="replace")
    except BaseException:
        _end_play(child, process)
        raise


def _all_alive(state: State) -> None:
    for process in state.processes():
        if process.kind != "play" and not process.alive():
            raise FleetError(f"{process.name} ended during the play; the end of its log:\n{state.tail(process.name)}")


def _end_play(child: subprocess.Popen, process: Process) -> None:
    if process.alive():
        os.killpg(child.pid, signal.SIGINT)  # ansible-playbook and its workers, in a session of their own
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        end([process])


def run_twice(
    state: State, playbook: Path, inventories: list[Path], extra: list[str], say: Callable[[str], None]
) -> bool:
    """The playbook twice; True when both runs are good and the second changed nothing."""
    lines, good = [], True
    for number in (1, 2):
        report = state.folder / f"report-{number}.json"
        report.unlink(missing_ok=True)
        options = [*extra, "-e", json.dumps({"report_file": str(report)})]
        code, output = play(
            state, f"{playbook.stem}-{number}", playbook, [*inventories, state.folder / "inventory.yml"], options, say
        )
        fine, sentence = verdict(code, read_recap(output), second=number == 2)
        if fine and playbook.name == SITE:
            against = judge_report(report.read_text(encoding="utf-8") if report.exists() else None)
            if against:
                fine, sentence = False, f"{sentence}; but {against}"
        lines.append(sentence)
        good = good and fine
        if not fine:
            break
    say("")
    for sentence in lines:
        say(sentence)
    return good
