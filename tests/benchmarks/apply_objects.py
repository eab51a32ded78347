# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What applying a layout of 48 objects costs: one call, a loop over single-object tasks, and kubectl.

    python tests/benchmarks/apply_objects.py [--rails 16] [--rounds 3] [--loop-rounds 1] [--json FILE]

Three ways over one API server (the rehearsal's, as a process of its own), each first on an empty cluster and then again
with nothing to change:

rail_objects  a play with one task: all objects in one call of the module
loop          a play with one task that loops over kubernetes.core.k8s, server-side apply, an object a time
kubectl       ``kubectl apply --server-side`` of one file with all objects

Times are user plus system CPU seconds of the process and its children and the elapsed seconds, medians; requests are
counted in the server's log. The objects that are there afterwards are compared before a figure counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import auth
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, dynamic_transport

from tests.rehearsal.cluster import layouts

READS = ("GET", "HEAD", "OPTIONS")
SSA = {"apply": True, "server_side_apply": {"field_manager": "loop"}}
ONE_CALL = {"name": "Apply all", "railyard.rdma.rail_objects": {"objects": "{{ layout }}"}}
LOOP = {
    "name": "Apply each",
    "kubernetes.core.k8s": {"definition": "{{ item }}", **SSA},
    "loop": "{{ layout }}",
    "loop_control": {"label": "{{ item.metadata.name }}"},
}


def wanted(rails):
    """Policies, networks and pools, one of each a rail."""
    found = []
    for rail in range(rails):
        pool = {"subnet": f"10.{rail}.0.0/16", "perNodeBlockSize": 32, "gateway": f"10.{rail}.0.1"}
        found.append(layouts.obj(layouts.IPAM, "IPPool", f"rail-{rail}", **pool))
    return found + [o for o in layouts.layout("rail", rails) if o["kind"] in ("SriovNetworkNodePolicy", "SriovNetwork")]


class Server:
    """The API stand-in as a process; its requests can be counted."""

    def __init__(self, folder):
        self.folder, self.kubeconfig = folder, folder / "kubeconfig"
        self._log = folder / "logs" / "apiserver.jsonl"
        command = [sys.executable, "-m", "rehearsal.apiserver", "--state", str(folder)]
        self._process = subprocess.Popen(command, cwd=ROOT)
        deadline = time.monotonic() + 60
        while not self.kubeconfig.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the API server did not start")
            time.sleep(0.05)
        client = auth.client_for({"kubeconfig": str(self.kubeconfig)}).client
        self.api = Api(dynamic_transport(client))
        layouts.install_kinds(self.api)

    def clear(self, objects):
        for obj in objects:
            meta = obj["metadata"]
            with contextlib.suppress(Exception):
                self.api.request(
                    "DELETE", self.api.path(obj["apiVersion"], obj["kind"], meta["namespace"], meta["name"])
                )

    def seen(self):
        """Number of lines in the request log."""
        time.sleep(0.1)  # A line follows its answer.
        return self._log.read_text().splitlines()

    def close(self):
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)


def play(folder, name, task, objects):
    """A play with one task over the objects; its path."""
    path = folder / f"{name}.yml"
    body = [{"name": name, "hosts": "localhost", "gather_facts": False, "vars": {"layout": objects}, "tasks": [task]}]
    path.write_text(yaml.safe_dump(body))
    return path


def commands(folder, objects, kubectl):
    """{way: command}"""
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    found = {
        "rail_objects": [program, "-i", "localhost,", "-c", "local", str(play(folder, "one", ONE_CALL, objects))],
        "loop": [program, "-i", "localhost,", "-c", "local", str(play(folder, "loop", LOOP, objects))],
    }
    if kubectl:
        path = folder / "objects.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        found["kubectl"] = [kubectl, "apply", "--server-side", "--field-manager=kubectl-bench", "-f", str(path)]
    return found


def measured(server, command):
    """{cpu, elapsed, requests, writes} of one run. RuntimeError when it fails."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "KUBECONFIG": str(server.kubeconfig)}
    environment |= {"K8S_AUTH_KUBECONFIG": str(server.kubeconfig), "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    before, lines = resource.getrusage(resource.RUSAGE_CHILDREN), len(server.seen())
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    elapsed, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    rows = [json.loads(line) for line in server.seen()[lines:]]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    writes = sum(row["method"] not in READS for row in rows)
    return {"cpu": cpu, "elapsed": elapsed, "requests": len(rows), "writes": writes}


def specs(server, objects):
    """What is there of the objects, for the comparison of the ways."""
    found = {}
    for obj in objects:
        meta = obj["metadata"]
        path = server.api.path(obj["apiVersion"], obj["kind"], meta["namespace"], meta["name"])
        found[f"{obj['kind']}/{meta['name']}"] = server.api.get(path)["spec"]
    return found


def run(folder, rails, rounds, loop_rounds, kubectl):
    """All figures: ``{objects, ways: {way: {first: {...}, again: {...}}}, kubectl: reason or None}``."""
    objects = wanted(rails)
    server = Server(folder)
    try:
        ways, figures, reference = commands(folder, objects, kubectl), {}, None
        for number in range(max(rounds, loop_rounds)):
            for way, command in ways.items():
                if number >= (loop_rounds if way == "loop" else rounds):
                    continue
                server.clear(objects)
                rows = figures.setdefault(way, {"first": [], "again": []})
                rows["first"].append(measured(server, command))
                there = specs(server, objects)
                reference = reference or there
                if there != reference:
                    raise RuntimeError(f"{way} made other objects than {next(iter(ways))}")
                rows["again"].append(measured(server, command))
    finally:
        server.close()
    medians = {
        way: {
            phase: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            for phase, rows in phases.items()
        }
        for way, phases in figures.items()
    }
    missing = None if kubectl else "there is no kubectl on the PATH nor in .cache/bin"
    return {"objects": len(objects), "ways": medians, "kubectl_left_out": missing}


def table(told):
    """The figures as a Markdown table, with ratios to one call."""
    lines = [
        "| way | run | requests | writes | CPU, s | CPU, one call = 1 | elapsed, s | elapsed, one call = 1 |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for phase, name in (("first", "all new"), ("again", "unchanged")):
        base = told["ways"]["rail_objects"][phase]
        for way, phases in told["ways"].items():
            row = phases[phase]
            cells = [way, name, f"{row['requests']:.0f}", f"{row['writes']:.0f}"]
            for key in ("cpu", "elapsed"):
                cells += [f"{row[key]:.2f}", f"{row[key] / base[key]:.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rails", type=int, default=16, help="rails; three objects each (default: 16)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loop-rounds", type=int, default=1, help="of the loop, which takes minutes (default: 1)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    beside = ROOT / ".cache" / "bin" / "kubectl"
    kubectl = shutil.which("kubectl") or (str(beside) if beside.exists() else None)
    with tempfile.TemporaryDirectory(prefix="apply-objects-") as folder:
        told = run(Path(folder), options.rails, options.rounds, options.loop_rounds, kubectl)
    print(table(told))
    if told["kubectl_left_out"]:
        print(f"kubectl was left out: {told['kubectl_left_out']}")
    if options.json:
        options.json.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
