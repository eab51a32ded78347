# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The generator of access/: what it refuses, and that what is committed is what it writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
RIGHT = {"why": "a reason", "in": "cluster", "resources": ["nodes"], "verbs": ["list"]}


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_access", ROOT / "scripts" / "generate_access.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source(tmp_path: Path, **changes: object) -> Path:
    right = {**RIGHT, **changes}
    data = {
        "places": {
            "cluster": {"suffix": "", "about": "x"},
            "operator": {"suffix": "-operator", "namespace": "o", "about": "y"},
        },
        "playbooks": {
            "one": {"about": "One.", "rights": [{key: value for key, value in right.items() if value is not None}]},
            "all": {"about": "All.", "includes": ["one"]},
        },
    }
    path = tmp_path / "rights.yml"
    path.write_text(yaml.safe_dump(data))
    return path


def test_what_is_committed_is_what_is_generated(generator):
    files = generator.wanted(generator.read())
    assert [path.name for path, text in files.items() if path.read_text(encoding="utf-8") != text] == []
    assert {path for folder in ("roles", "bindings") for path in (ROOT / "access" / folder).iterdir()} <= set(files)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"why": None}, "one, right 1: why is missing"),
        ({"verbs": []}, "one, right 1: verbs is missing"),
        ({"in": "moon"}, "in is moon; allowed are cluster, operator"),
        ({"verbs": ["*"]}, "verb *; allowed are get, list"),
        ({"verbs": ["read"]}, "verb read"),
        ({"resources": ["*"]}, "* is more than anybody needs"),
        ({"group": "*.example.com"}, "*.example.com is more"),
        ({"resource": "nodes"}, "unknown key resource; allowed are"),
        ({"unseen": {"watch": "x"}}, "unseen names none of its verbs"),
    ],
    ids=["no reason", "no verbs", "place", "star verb", "wrong verb", "star", "star group", "unknown key", "unseen"],
)
def test_a_mistake_in_the_source_is_named(generator, tmp_path, changes, told):
    with pytest.raises(ValueError, match="access/rights.yml") as caught:
        generator.read(source(tmp_path, **changes))
    assert told in str(caught.value)


def test_a_good_source_makes_roles_by_place_and_a_playbook_that_includes_others_has_theirs(generator, tmp_path):
    data = generator.read(source(tmp_path, **{"in": "operator", "names": ["n"]}))
    for name in ("one", "all"):
        (role,) = yaml.safe_load_all(generator.role_file(data, name))
        assert role["metadata"]["name"] == f"railyard-{name}-operator"
        assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "resourceNames": ["n"], "verbs": ["list"]}]
        account, binding = yaml.safe_load_all(generator.binding_file(data, name))
        assert (binding["kind"], binding["metadata"]["namespace"]) == ("RoleBinding", "o")
        assert binding["subjects"][0]["name"] == account["metadata"]["name"] == f"railyard-{name}"


def test_a_document_without_marks_is_refused(generator):
    with pytest.raises(ValueError, match="marks"):
        generator.document(generator.read(), "# Access\n")
