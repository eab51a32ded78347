# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role and its action plugin in a real run of Ansible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible_collections.railyard.rdma.tests.unit.plugins.plugin_utils import report_fleet

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("run")
    given = report_fleet.fleet(2)
    names = given["model"]["layouts"][0]["hosts"]
    result = {**report_fleet.judge(given), "text": [], "table": ["node  verdict"], "failing": []}
    given.update(result=result, bandwidth=report_fleet.bandwidth(names, 16, {}))
    (made / "given.json").write_text(json.dumps(given))
    (made / "hosts").write_text("[gpu_nodes]\n" + "\n".join(names) + "\n")
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        "-i",
        str(made / "hosts"),
        str(HERE / "report_play.yml"),
    ]
    command += ["-e", f"report_given={made / 'given.json'} report_folder={made}"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    run = subprocess.run(command, cwd=made, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    (made / "said").write_text(run.stdout)
    return made


def test_three_files_and_a_line_that_says_where(folder):
    said = (folder / "said").read_text()
    assert "RDMA works in pods on all 32 rails of 2 nodes at full rate. Report: JSON " in said
    assert f"JSON {folder}/r.json, JUnit {folder}/r.xml, HTML {folder}/r.html." in said
    assert (folder / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert len(ElementTree.parse(folder / "r.xml").findall("testsuite/testcase")) == 32


def test_the_facts_are_those_of_the_hosts(folder):
    document = json.loads((folder / "r.json").read_text())
    assert document["verdict"] == "pass"
    assert [entry["node"] for entry in document["topology"]] == ["gpu-1", "gpu-2"]
    assert document["version"]


def test_the_second_run_compares_with_what_it_replaces(folder):
    outcome = json.loads((folder / "outcome.json").read_text())
    assert outcome["again"]["moved"] == 0 and not outcome["again"]["changed"]
    moved = json.loads((folder / "r.json").read_text())["moved"]
    assert moved["not_compared"] == [{"what": "the rate of 32 rails", "why": "only one of the reports has it"}]


def test_check_mode_writes_nothing(folder):
    outcome = json.loads((folder / "outcome.json").read_text())
    assert "would be" in outcome["looked"]["msg"]
    assert not (folder / "looked.json").exists()


def test_refusals_say_what_and_where(folder):
    outcome = json.loads((folder / "outcome.json").read_text())
    assert outcome["refused"].startswith(f"report_file: the folder {folder}/none does not exist.")
    assert "a name of its own" in outcome["twice"]
