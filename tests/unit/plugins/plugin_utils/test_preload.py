# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the filters of site.yml import is there before Ansible forks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.plugin_utils import preload

FILTERS = Path(preload.__file__).parents[1] / "filter"
# Those of the measuring playbooks: they are loaded with the filters themselves, see below.
OWN_PLAYBOOKS = ("bandwidth_", "nccl_")
LOOK = """
import importlib, json, sys
from ansible_collections.railyard.rdma.plugins.action import rail_model
before = set(sys.modules)
late = {}
for name in sys.argv[1:]:
    importlib.import_module("ansible_collections.railyard.rdma.plugins.filter." + name)
    new = [module for module in sys.modules if module not in before and ".rdma.plugins" in module and ".filter" not in module]
    before.update(new)
    late[name] = sorted(new)
print(json.dumps(late))
"""


def test_no_filter_imports_more_than_is_loaded():
    names = [path.stem for path in sorted(FILTERS.glob("*.py")) if not path.stem.startswith(OWN_PLAYBOOKS)]
    assert {"findings", "plan", "rails_layout"} <= set(names)
    places = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *names],
        env={"PYTHONPATH": ":".join(places)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: [] for name in names}


PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - railyard.rdma.rail_model: {hosts: []}
      failed_when: false
    - ansible.builtin.debug: {msg: "{{ '' | railyard.rdma.missing_right }}"}
    - ansible.builtin.debug: {msg: "{{ '' | railyard.rdma.missing_right }}"}
"""


@pytest.fixture
def run(tmp_path):
    """Function that runs a play over localhost and returns the lines of its output."""

    def call(play, **environment):
        (tmp_path / "play.yml").write_text(play)
        environment = {
            **os.environ,
            "PYTHONPATH": ":".join(path for path in sys.path if path),
            "ANSIBLE_COLLECTIONS_PATH": str(Path(preload.__file__).parents[5]),
            **environment,
        }
        command = [sys.executable, "-m", "ansible.cli.playbook", "-i", "localhost,", "-c", "local"]
        done = subprocess.run(
            [*command, str(tmp_path / "play.yml")],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
        return done.stdout.splitlines()

    return call


def test_filters_are_loaded_before_ansible_forks(run):
    """The files of filters are read once in a run, by one process, and not again by the process of each task."""
    lines = [
        line for line in run(PLAY, ANSIBLE_DEBUG="1") if "Loading FilterModule" in line and ".missing_right'" in line
    ]
    assert len([line for line in lines if "found_in_cache=True" not in line]) == 1, lines


FROZEN = """
import gc

class FilterModule:
    def filters(self):
        return {"frozen": lambda _value: gc.get_freeze_count()}
"""
ASK = """
    - ansible.builtin.debug: {msg: "frozen {{ '' | frozen > 10000 }}"}
"""


@pytest.mark.parametrize("loaded", [True, False], ids=["with-rail-model", "without"])
def test_the_garbage_collector_leaves_alone_what_was_loaded_before_the_fork(run, tmp_path, loaded):
    (tmp_path / "filter_plugins").mkdir()
    (tmp_path / "filter_plugins/frozen.py").write_text(FROZEN)
    play = PLAY if loaded else PLAY.partition("    - railyard")[0]
    assert any(f"frozen {loaded}" in line for line in run(play + ASK.removeprefix("\n")))
