# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.host.toml_reader import NotUnderstood, Unread, parse
from hypothesis import given
from hypothesis import strategies as st

CONTAINERD = """
version = 3 # newest but one
imports = ["/etc/containerd/conf.d/*.toml",
  'other.toml', # with a comma behind the last
]
[plugins]
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "nvidia"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
      base_runtime_spec = "/etc/containerd/base\\u002dspec.json"
      options = { BinaryName = "/usr/bin/x", SystemdCgroup = true }
      weight = -1_000
[timeouts]
  "io.containerd.timeout.shim.load" = "5s"
  ratio = 0.5
[[hosts]]
name = "a"
[hosts.more]
x = 1
[[hosts]]
name = "b"
[hosts.more]
x = 2
"""


def test_a_configuration_of_containerd():
    told = parse(CONTAINERD)
    assert told["version"] == 3 and told["imports"] == ["/etc/containerd/conf.d/*.toml", "other.toml"]
    cri = told["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]
    assert cri["default_runtime_name"] == "nvidia"
    assert cri["runtimes"]["nvidia"] == {
        "base_runtime_spec": "/etc/containerd/base-spec.json",
        "options": {"BinaryName": "/usr/bin/x", "SystemdCgroup": True},
        "weight": -1000,
    }
    assert told["timeouts"] == {"io.containerd.timeout.shim.load": "5s", "ratio": "0.5"}
    assert isinstance(told["timeouts"]["ratio"], Unread)
    assert told["hosts"] == [{"name": "a", "more": {"x": 1}}, {"name": "b", "more": {"x": 2}}]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a = 1\nb = [1, 2\n", "line 3: an array has no end"),
        ("a = [1,\n", "line 2: a value was expected"),
        ("a = 1\na = 2\n", "line 2: a a second time"),
        ("[a]\nx = 1\n[a]\n", "line 3: table a a second time"),
        ("a = 1\n[a.b]\n", "line 2: a is no table"),
        ('a = "x\n', "line 1: a string has no end"),
        ("a = 'x\n", "line 1: a value was expected"),
        ('a = """x"""\n', "line 1: a string over several lines"),
        ("a = 'x' 'y'\n", "line 1: more on the line"),
        ('a = "\\q"\n', "line 1: a string has no end, or an escape"),
        ('a = "\\ud800"\n', "line 1: escape"),
        ("= 1\n", "line 1: a key was expected"),
        ("[a\n", "line 1: ] was expected"),
        ("a = {x = 1\n", "line 1: an inline table has no end"),
        ("a = " + "[" * 50, "nested too deeply"),
        ("a = 1\n[[a]]\n", "a is no array of tables"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text, where):
    with pytest.raises(NotUnderstood) as caught:
        parse(text)
    assert where in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "#" * 999_999,
        "# x\n" * 300_000,
        " " * 999_999,
        'a = "' + "x" * 999_999,
        'a = "' + "\\n" * 300_000,
        "[" + "a." * 300_000,
    ],
)
def test_long_texts_end(text):
    try:
        assert parse(text) == {}
    except NotUnderstood as error:
        assert str(error).startswith("line 1: ")


PIECES = st.sampled_from(
    [*CONTAINERD.splitlines(keepends=True), "[a.b]\n", "a.b = 1\n", "x = 'y'\n", "[[a]]\n", "\r\n", "]", '"']
)


@given(
    st.text(alphabet=st.sampled_from("ab1-.=[]{}\"'\\#,\n \ttrue_u0"))
    | st.lists(PIECES, max_size=12).map("".join)
    | st.text()
)
def test_what_is_read_is_what_python_reads(text):
    """Nothing but NotUnderstood is raised; where both readers accept a text they agree."""
    try:
        ours = parse(text)
    except NotUnderstood:
        return
    tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 has nothing to compare with")
    try:
        theirs = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    assert equal(ours, theirs)


def equal(ours, theirs) -> bool:
    if isinstance(ours, Unread):
        return not isinstance(theirs, (str, int, list, dict)) or str(theirs).lower() != ours.lower()
    if isinstance(ours, dict):
        return (
            isinstance(theirs, dict)
            and ours.keys() == theirs.keys()
            and all(equal(ours[key], theirs[key]) for key in ours)
        )
    if isinstance(ours, list):
        return isinstance(theirs, list) and len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return type(ours) is type(theirs) and ours == theirs
