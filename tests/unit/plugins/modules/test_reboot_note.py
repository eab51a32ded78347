# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.host import reboot_note as note
from ansible_collections.railyard.rdma.plugins.modules import reboot_note
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree
from ansible_collections.railyard.rdma.tests.unit.plugins.modules.run_module import run
from hypothesis import given
from hypothesis import strategies as st

BOOT = "28d3acf0-6be4-495e-904c-e4e4110be598"


@pytest.fixture
def node(tmp_path):
    return NodeTree(tmp_path).add(f"{note.BOOT_ID} = {BOOT}")


def call(node, capsys, **more):
    return run(reboot_note, capsys, root=str(node.root), **more)


def test_written_read_and_removed(node, capsys):
    place = node.root / note.PATH.strip("/")
    assert note.read(node.tree()) is None
    told = call(node, capsys, mode="shared", boot_id=BOOT, _ansible_check_mode=True)
    assert told["changed"] is True and not place.exists()
    told = call(node, capsys, mode="shared", boot_id=BOOT)
    assert (told["changed"], told["same_boot"], told["boot_id"]) == (True, True, BOOT)
    found = note.read(node.tree())
    assert (found["mode"], found["boot_id"], found["reason"]) == ("shared", BOOT, None) and found["at"].endswith("Z")
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    assert call(node, capsys, state="absent", _ansible_check_mode=True)["changed"] is True and place.exists()
    assert call(node, capsys, state="absent")["changed"] is True and not place.exists()
    assert call(node, capsys, state="absent")["changed"] is False


def test_nothing_is_noted_when_another_boot_runs(node, capsys):
    told = call(node, capsys, mode="shared", boot_id="the one before")
    assert (told["changed"], told["same_boot"], told["boot_id"]) == (False, False, BOOT)
    assert note.read(node.tree()) is None


def test_an_older_note_is_replaced(node, capsys):
    node.add(f"{note.PATH} = {note.text('exclusive', 'old', '2026-11-29T18:00:00Z').strip()}")
    call(node, capsys, mode="shared", boot_id=BOOT)
    assert note.read(node.tree())["mode"] == "shared"


def test_it_stops_without_a_boot_id_and_without_room(node, capsys, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        told = call(node, capsys, mode="shared", boot_id=BOOT)
    assert "could not be written: No space left on device. The node is not rebooted" in told["msg"]
    assert note.read(node.tree()) is None
    (node.root / note.BOOT_ID.strip("/")).unlink()
    assert "cannot be told" in call(node, capsys, mode="shared", boot_id=BOOT)["msg"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"mode": "shared"}', '{"mode": 1, "boot_id": "a", "at": "b"}', ""])
def test_a_damaged_note_is_unknown_with_the_reason(node, text):
    node.add(f"{note.PATH} = {text}")
    found = note.read(node.tree())
    assert found["mode"] is None and "is not a note of a reboot" in found["reason"]


def test_a_note_that_may_not_be_read_is_unknown(node):
    node.add(f"{note.PATH} ! EACCES")
    found = note.read(node.tree())
    assert found["boot_id"] is None and "EACCES" in found["reason"]


@given(st.one_of(st.text(), st.recursive(st.none() | st.text(), st.lists).map(json.dumps)))
def test_no_text_makes_it_raise(text):
    class Answer:
        absent, value, reason = False, text, None

        def read(self, path):
            return self

    assert set(note.read(Answer())) == {"mode", "boot_id", "at", "reason"}
