# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module that runs in the process of its task gives what it gives when Ansible runs it: over a playbook that calls each of
them both ways."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]
CHART = str(REPO / "rehearsal/charts/network-operator")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
CALLS = {
    "state": ("rail_state", {"namespace": "op", "parts": ["nodes", "policies"]}),
    "facts": ("cluster_facts", {"helm_binary": "no-such-helm", "hosts": {"gpu-1": ["gpu-1"]}}),
    "dry": ("rail_objects", {"objects": [{"apiVersion": "none.railyard.io/v1", "kind": "None", "metadata": {"name": "x"}}]}),
    "refused": ("rail_objects", {"objects": [{"kind": "Pod"}]}),
    "unknown-option": ("rail_objects", {"objects": [], "colour": "red"}),
    "prepare": ("operator_prepare", {"chart": CHART, "version": "26.7.1", "values": {"sriovNetworkOperator": {"enabled": True}}}),
    "no-chart": ("operator_prepare", {"chart": "none", "version": "26.7.1", "helm_binary": "no-such-helm"}),
    "look": ("operator_ready", {"look_only": True, "parts": ["crds"], "crds": ["rails.railyard.io"]}),
    "no-pods": ("rail_test_pods", {"pods": [], "state": "absent"}),
    "wait": ("rail_wait", {"crds": ["rails.railyard.io"], "timeout": 5}),
    "wait-in-vain": ("rail_wait", {"crds": ["nothing.railyard.io"], "timeout": 0}),
    "no-node": ("node_drain", {"node": "gpu-9", "state": "drained", "operator_timeout": 0, "drain_timeout": 0}),
    "no-jobs": ("nccl_wait", {"jobs": [], "timeout": 0}),
    "nothing-left": ("nccl_remove", {"namespaces": ["default"], "mpi_operator": True}),
    "dry-bundle": ("rail_bundle", {"path": "/nowhere/bundle", "files": {"a.yml": "x: ü\n"}, "mark": "# ours"}),
    "bad-bundle": ("rail_bundle", {"path": "/nowhere/bundle", "files": {"a/b": "x"}, "mark": "# ours"}),
    "no-pair": ("rail_bandwidth", {"endpoints": [], "groups": []}),
    "no-pod": ("pod_rdma_facts", {"namespace": "default", "names": ["none"], "wait_timeout": 0}),
}  # fmt: skip
# What differs from call to call, and in how Ansible tells of a module that it has run.
APART = {"invocation", "waited", "exception", "progress", "deprecations"}


def alike(value):
    """A result without what differs from one call to the next."""
    if isinstance(value, dict):
        return {key: alike(entry) for key, entry in value.items() if key not in APART}
    if isinstance(value, str):
        return re.sub(r"after \d+ s", "after some seconds", value)
    return [alike(entry) for entry in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def results(cluster, tmp_path_factory):
    """{call: (result here, result as Ansible runs any module)}"""
    folder = tmp_path_factory.mktemp("both_ways")
    tasks = []
    for name, (module, arguments) in CALLS.items():
        for way, environment in (("here", {}), ("elsewhere", {"RAILYARD_TEST": "1"})):
            tasks += [
                {
                    "name": f"{name} {way}",
                    f"railyard.rdma.{module}": arguments,
                    "environment": environment,
                    "check_mode": name.startswith("dry"),
                    "failed_when": False,
                    "register": "seen",
                },
                {
                    "name": "Keep it",
                    "ansible.builtin.set_fact": {"found": "{{ found | default({}) | combine({key: seen}) }}"},
                    "vars": {"key": f"{name} {way}"},
                },
            ]
    keep = {"content": "{{ found | to_json }}", "dest": str(folder / "found.json"), "mode": "0600"}
    tasks.append({"name": "Write them", "ansible.builtin.copy": keep})
    # An inventory of its own: that of ansible.cfg names the cluster of a rehearsal, if one is up in this checkout.
    play = [{"name": "Call", "hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
    play[0]["vars"] = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    (folder / "play.yml").write_text(json.dumps(play))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", str(folder / "play.yml")],
        env={**os.environ, "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "K8S_AUTH_KUBECONFIG": cluster.kubeconfig},
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    found = json.loads((folder / "found.json").read_text())
    return {name: (found[f"{name} here"], found[f"{name} elsewhere"]) for name in CALLS}


@pytest.mark.parametrize("name", CALLS)
def test_both_ways_give_the_same(results, name):
    here, elsewhere = results[name]
    if name == "unknown-option":  # AnsibleModule says it in other words than the validator that it uses
        assert "colour" in here["msg"] and "colour" in elsewhere["msg"]
        here, elsewhere = {**here, "msg": ""}, {**elsewhere, "msg": ""}
    assert alike(here) == alike(elsewhere)


def test_the_calls_differ_as_they_should(results):
    """Else the comparison above could be one of two empty answers."""
    failed = {name for name, (here, _elsewhere) in results.items() if here.get("msg")}
    assert failed >= {"refused", "unknown-option", "wait-in-vain", "no-node", "no-chart"}
    assert results["prepare"][0]["action"] == "install"
    assert results["dry"][0]["warnings"] and results["wait"][0]["ready"]
