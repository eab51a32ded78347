# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils import node_facts
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree
from ansible_collections.railyard.rdma.plugins.plugin_utils import facts_script
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree, four_rows, image

PF = "0000:0c:00.0"
RAILS = [{"rail": 0, "pci": PF}]


def pythons() -> list[str]:
    """This Python, and the oldest that managed nodes may have where the machine has it."""
    places = [*Path("/usr/bin").glob("python3.9"), *Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9")]
    root = os.environ.get("PYENV_ROOT")
    places += Path(root).glob("versions/3.9.*/bin/python3.9") if root else []
    return [sys.executable, *(str(place) for place in places[:1])]


@pytest.fixture
def root(tmp_path):
    node = NodeTree(tmp_path / "root").add("/sys/module/ib_core/parameters/netns_mode = Y\n/lib/modules/6.8.0-1/x = 1")
    node.rdma(node.function(PF, "rdma0"), "mlx5_6", four_rows("rdma0"))
    node.add("/boot/vmlinuz-6.8.0-1 = x")
    (node.root / "boot/initrd.img-6.8.0-1").write_bytes(image("options ib_core netns_mode=1\n", microcode=False))
    return node.root


def run(text, folder, *arguments, python=sys.executable):
    script = folder / "rdma.fact"
    script.write_text(text, encoding="utf-8")
    done = subprocess.run([python, str(script), *arguments], capture_output=True, timeout=120, check=False, cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


@pytest.mark.parametrize("python", pythons(), ids=lambda place: Path(place).name)
@pytest.mark.parametrize("images", [False, True])
def test_it_prints_what_the_module_returns(root, tmp_path, python, images):
    told = run(facts_script.build(RAILS, images), tmp_path, str(root), python=python)
    expected = json.loads(json.dumps(node_facts.gather(Tree(str(root)), RAILS, read_images=images)))
    told.pop("gathered_at")
    expected.pop("gathered_at")
    assert told == expected
    assert told["rails"][0]["gid_index"] == 3
    assert (told["boot_images"] is not None) is images


def test_it_is_executable_text_that_is_the_same_each_time():
    text = facts_script.build(RAILS)
    assert text.startswith("#!/usr/bin/python3\n") and text.isascii() and "\r" not in text
    assert text == facts_script.build(list(RAILS))
    assert text != facts_script.build(RAILS, timeout=31)


def test_it_holds_every_module_that_it_needs_and_none_of_the_controller():
    text = facts_script.build()
    for name in ("node_facts", "sysfs", "rdma.gid", "rdma.devices", "network.netlink", "boot.initramfs"):
        assert f"SOURCES[PACKAGE + '.{name}']" in text
    assert ".cluster" not in text.split("SOURCES = {}")[1].split("def ")[0]
    assert "import ansible\n" not in text and "from ansible." not in text


def sources(folder, entry, sysfs="class Tree:\n    def __init__(self, root):\n        self.root = root\n"):
    """Sources of a node_facts that does something else."""
    (folder / "node_facts.py").write_text(
        f"from {facts_script.PACKAGE}.sysfs import Tree\n\n\ndef gather(tree, rails, read_images):\n    {entry}\n"
    )
    (folder / "sysfs.py").write_text(sysfs)
    return folder


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("raise ValueError('strange')", "ValueError: strange"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("return {1: object()}", "TypeError"),
        ("import os; os._exit(9)", "ended early"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended early"),
        ("import no_such_module", "no_such_module"),
        ("import time; time.sleep(600)", "more than 0.5 seconds"),
        ("import subprocess; subprocess.run(['sleep', '5'])", "more than 0.5 seconds"),
    ],
)
def test_a_failure_is_json_with_a_reason_and_never_blocks(tmp_path, entry, words):
    text = facts_script.build(timeout=0.5 if "0.5" in words else 60, folder=sources(tmp_path, entry))
    told = run(text, tmp_path)
    assert told["schema"] is None and words in told["reason"]


def test_what_readers_print_does_not_spoil_the_json(tmp_path):
    text = facts_script.build(folder=sources(tmp_path, "print('noise'); return {'schema': 1}"))
    assert run(text, tmp_path) == {"schema": 1}


def test_a_mistake_in_a_source_is_json_as_well(tmp_path):
    folder = sources(tmp_path, "return {}", sysfs="class Tree:\n    pass\n")
    told = run(facts_script.build(folder=folder), tmp_path)
    assert told["schema"] is None and "TypeError" in told["reason"]


@pytest.mark.parametrize("timeout", [0, -1, 3601, "30", None, True, float("nan")])
def test_a_timeout_that_makes_no_sense_is_refused(timeout):
    with pytest.raises(ValueError, match="timeout: got"):
        facts_script.build(timeout=timeout)


@pytest.mark.parametrize("rails", [[1], ["0000:0c:00.0"], [{"rail": object()}], 5])
def test_rails_that_are_no_rails_are_refused(rails):
    with pytest.raises(ValueError, match="rails: got"):
        facts_script.build(rails)


def test_a_missing_source_is_an_error(tmp_path):
    with pytest.raises(OSError):
        facts_script.build(folder=tmp_path)
