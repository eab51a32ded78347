# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line when things end early: killed, interrupted, or with a part that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from machine_support import ENVIRONMENT, ROOT, assert_gone, command, leftovers, rehearsal, wait_for

pytestmark = [pytest.mark.fleet, pytest.mark.usefixtures("possible")]

INVENTORY = "gpu_nodes: {vars: {rails_shape: BM.HPC2.36}, hosts: {n1: {}}}\n"
SETTLED = """\
---
- hosts: gpu_nodes
  gather_facts: false
  tasks:
    - name: Write a file once
      ansible.builtin.copy: {content: "x", dest: /etc/marker, mode: "0600"}
"""
RESTLESS = SETTLED.replace('content: "x"', "content: \"{{ lookup('ansible.builtin.pipe', 'date +%N') }}\"")
WAITING = """\
---
- hosts: gpu_nodes
  gather_facts: false
  tasks:
    - name: Wait on the node
      ansible.builtin.command: sleep 600
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "state"
    yield folder
    rehearsal("down", "--state", folder)
    assert_gone(folder)


@pytest.fixture
def run_words(tmp_path, folder):
    def words(playbook):
        (tmp_path / "hosts.yml").write_text(INVENTORY)
        (tmp_path / "play.yml").write_text(playbook)
        return [
            "run",
            "--no-cluster",
            "-i",
            tmp_path / "hosts.yml",
            "--playbook",
            tmp_path / "play.yml",
            "--state",
            folder,
        ]

    return words


def start(*words):
    return subprocess.Popen(
        command(*words), cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def processes(folder, kind):
    try:
        rows = json.loads((folder / "fleet.json").read_text())["processes"]
    except FileNotFoundError:
        return []
    return [row for row in rows if row["kind"] == kind]


def test_run_is_good_when_the_second_changes_nothing(run_words, folder):
    text = rehearsal(*run_words(SETTLED))
    assert "first run: good, changed=1 on 1 hosts" in text
    assert "second run: good, changed=0 on 1 hosts" in text
    assert_gone(folder)


def test_run_fails_when_the_second_changes_something(run_words, folder):
    text = rehearsal(*run_words(RESTLESS), code=1)
    assert "second run: not idempotent, changed: n1=1" in text
    assert_gone(folder)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_run_cleans_up(run_words, folder, number, code):
    child = start(*run_words(WAITING))
    wait_for(lambda: processes(folder, "play"), "the play starts")
    child.send_signal(number)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == code, output
    assert_gone(folder)


def test_run_notices_a_part_that_dies(run_words, folder):
    child = start(*run_words(WAITING))
    wait_for(lambda: processes(folder, "play"), "the play starts")
    os.kill(processes(folder, "node")[0]["pid"], signal.SIGKILL)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 1, output
    assert_gone(folder)


def test_killed_run_is_cleaned_by_down(run_words, folder):
    child = start(*run_words(WAITING))
    wait_for(lambda: processes(folder, "play"), "the play starts")
    child.kill()
    child.wait()
    assert leftovers(folder)
    assert "fleet is down" in rehearsal("down", "--state", folder)
    assert_gone(folder)


def test_killed_up_is_cleaned_by_the_next_up(folder):
    child = start("up", "--no-cluster", "--nodes", "3", "--state", folder)
    wait_for(lambda: processes(folder, "node"), "the first node is started")
    child.kill()
    child.wait()
    text = rehearsal("up", "--no-cluster", "--nodes", "1", "--shape", "BM.HPC2.36", "--state", folder)
    assert "ending what an earlier run left behind" in text
    assert [row["name"] for row in processes(folder, "node")] == ["node-gpu-1"]


def test_down_leaves_a_running_command_its_fleet(run_words, folder):
    child = start(*run_words(WAITING))
    wait_for(lambda: processes(folder, "play"), "the play starts")
    assert "belongs to the running command" in rehearsal("down", "--state", folder, code=1)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)


def test_part_that_dies_during_start_shows_its_log(tmp_path, folder):
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (assets / name).write_text("#!/bin/sh\necho this binary is broken >&2\nexit 3\n")
        (assets / name).chmod(0o755)
    text = rehearsal("up", "--nodes", "1", "--state", folder, code=1, KUBEBUILDER_ASSETS=str(assets))
    assert "ended during the start" in text
    assert "this binary is broken" in text
    assert_gone(folder)
