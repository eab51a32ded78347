# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What reading a node's RDMA state costs, beside merely reading the same files and beside a shell loop with ``cat``.

    python tests/benchmarks/gid_tables.py [--devices 34] [--rows 256] [--rounds 9] [--shell-rounds 1] [--json FILE]

Four ways over one tree of files, taking turns:

facts     ``gather()`` of the module rdma_facts, without boot images
files     a Python loop of os.open, os.read, os.close over the files that gather() reads, by absolute path, in its order
show_gids a shell loop: ``cat`` of each GID, then of type and netdev of the rows that hold one
cat       a shell loop: ``cat`` of GID, type and netdev of every row

Files that gather() looks for in vain are tried by the loop as well; directories that it lists are not listed there.
Times are user plus system CPU seconds of the process and its children, since other work on the machine changes the
elapsed time (given beside it); figures are medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(Path(__file__).resolve().parent)]

from ansible_collections.railyard.rdma.plugins.module_utils.node_facts import gather
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree, read_file
from node_with_tables import Node

SHOW_GIDS = r"""
zero=0000:0000:0000:0000:0000:0000:0000:0000
for device in "$1"/sys/class/infiniband/*; do
  for port in "$device"/ports/*; do
    for row in "$port"/gids/*; do
      gid=$(cat "$row" 2>/dev/null)
      [ "$gid" = "$zero" ] && continue
      index=${row##*/}
      kind=$(cat "$port/gid_attrs/types/$index" 2>/dev/null)
      netdev=$(cat "$port/gid_attrs/ndevs/$index" 2>/dev/null)
      printf '%s %s %s %s %s %s\n' "${device##*/}" "${port##*/}" "$index" "$gid" "${kind##* }" "$netdev"
    done
  done
done
"""
CAT = SHOW_GIDS.replace('      [ "$gid" = "$zero" ] && continue\n', "").replace(
    "      printf", '      [ "$gid" = "$zero" ] || printf'
)


def files_read(root: str) -> list[str]:
    """The places of all files that gather() opens, in its order."""
    places: list[str] = []

    def read(place: str) -> bytes:
        places.append(place)
        return read_file(place)

    gather(Tree(root, read), read_images=False)
    return places


def merely_read(places: list[str]) -> None:
    for place in places:
        try:
            descriptor = os.open(place, os.O_RDONLY)
        except OSError:
            continue
        with contextlib.suppress(OSError):
            os.read(descriptor, 65536)
        os.close(descriptor)


def rows_of_facts(facts: dict) -> list[str]:
    """The filled rows as the shell loops print them, sorted."""
    return sorted(
        f"{name} {number} {row['index']} {row['gid']} {row['type'].split()[-1]} {row['netdev']}"
        for name, device in facts["devices"].items()
        for number, port in device["ports"].items()
        for row in port["gids"]
    )


def rows_of_shell(script: str, root: str) -> list[str]:
    done = subprocess.run(["sh", "-c", script, "sh", root], stdout=subprocess.PIPE, check=True)
    return sorted(done.stdout.decode().splitlines())


def measure(work) -> tuple[float, float]:
    """(CPU seconds of this process and its children, elapsed seconds)."""

    def cpu() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(part.ru_utime + part.ru_stime for part in used)

    begin, start = cpu(), time.perf_counter()
    work()
    return cpu() - begin, time.perf_counter() - start


def run(root: str, rounds: int, shell_rounds: int) -> dict:
    """Measure all ways in turns. Returns the figures; raises RuntimeError when the ways see different rows."""
    places = files_read(root)
    facts = gather(Tree(root), read_images=False)
    if facts["reasons"].keys() - {"devices"}:
        raise RuntimeError(f"gather() left out a part: {facts['reasons']}")
    for name, script in (("show_gids", SHOW_GIDS), ("cat", CAT)) if shell_rounds else ():
        if rows_of_shell(script, root) != rows_of_facts(facts):
            raise RuntimeError(f"the loop {name} sees other rows than gather()")
    ways = {
        "facts": (lambda: gather(Tree(root), read_images=False), rounds),
        "files": (lambda: merely_read(places), rounds),
        "show_gids": (lambda: rows_of_shell(SHOW_GIDS, root), shell_rounds),
        "cat": (lambda: rows_of_shell(CAT, root), shell_rounds),
    }
    times: dict[str, list] = {name: [] for name in ways}
    for turn in range(max(rounds, shell_rounds)):
        for name, (work, wanted) in ways.items():
            if turn < wanted:
                times[name].append(measure(work))
    result: dict = {
        "devices": len(facts["devices"]),
        "rows": sum(p["gid_table"]["length"] for d in facts["devices"].values() for p in d["ports"].values()),
        "filled_rows": len(rows_of_facts(facts)),
        "files": len(places),
        "python": sys.version.split()[0],
        "kernel": os.uname().release,
        "rounds": {name: len(values) for name, values in times.items()},
        "cpu_seconds": {name: statistics.median(v[0] for v in values) for name, values in times.items() if values},
        "elapsed_seconds": {name: statistics.median(v[1] for v in values) for name, values in times.items() if values},
    }
    cpu = result["cpu_seconds"]
    result["facts_to_files"] = cpu["facts"] / cpu["files"]
    result["shell_to_facts"] = {name: cpu[name] / cpu["facts"] for name in ("show_gids", "cat") if name in cpu}
    return result


def table(result: dict) -> str:
    """The figures as a Markdown table."""
    lines = ["| way | CPU, ms | elapsed, ms | CPU, facts = 1 |", "|---|---:|---:|---:|"]
    facts = result["cpu_seconds"]["facts"]
    for name, cpu in result["cpu_seconds"].items():
        elapsed = result["elapsed_seconds"][name]
        lines.append(f"| {name} | {cpu * 1000:.1f} | {elapsed * 1000:.1f} | {cpu / facts:.2f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--devices", type=int, default=34)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--shell-rounds", type=int, default=1)
    parser.add_argument("--folder", help="where to put the tree; a file system in memory where there is one")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="railyard-benchmark-", dir=options.folder or memory)
    try:
        Node(Path(folder), options.devices, options.rows)
        result = run(folder, options.rounds, options.shell_rounds)
    finally:
        shutil.rmtree(folder)
    print(
        f"{result['devices']} devices, {result['rows']} rows ({result['filled_rows']} filled), {result['files']} files,"
    )
    print(f"Python {result['python']}, Linux {result['kernel']}, rounds {result['rounds']}\n")
    print(table(result))
    print(f"\nfacts / files: {result['facts_to_files']:.2f}")
    for name, ratio in result["shell_to_facts"].items():
        print(f"{name} / facts: {ratio:.0f}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
