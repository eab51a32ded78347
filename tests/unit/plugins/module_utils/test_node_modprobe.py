# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shutil
import subprocess

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils import modprobe, netns_mode
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree
from hypothesis import example, given
from hypothesis import strategies as st

OURS = "/etc/modprobe.d/ib_core.conf"
OPERATORS = "/etc/modprobe.d/sriov_network_operator_modules_config.conf"


def mode(files):
    return netns_mode.configured(files)["mode"]


def test_fc22_a_file_that_sorts_later_wins_and_is_named():
    files = {OURS: "options ib_core netns_mode=0\n", OPERATORS: "options ib_core netns_mode=1\n"}
    told = netns_mode.configured(files)
    assert (told["mode"], told["by"], told["line"]) == ("shared", OPERATORS, 1)
    owners = netns_mode.owners(files, "quiet")
    assert [(owner["owner"], owner["mode"], owner["wins"]) for owner in owners] == [
        ("railyard", "exclusive", False),
        ("sriov_network_operator", "shared", True),
    ]
    assert [owner["path"] for owner in netns_mode.foreign(owners)] == [OPERATORS]
    del files[OPERATORS]
    assert mode(files) == "exclusive" and netns_mode.foreign(netns_mode.owners(files, "quiet")) == []


def test_fc22_the_same_name_in_an_earlier_directory_hides_the_file():
    files = {
        "/usr/lib/modprobe.d/zz.conf": "options ib_core netns_mode=1",
        "/run/modprobe.d/zz.conf": "# nothing",
        OURS: "options ib_core netns_mode=0",
    }
    assert mode(files) == "exclusive"
    hidden = netns_mode.owners(files, "")[-1]
    assert hidden["hidden_by"] == "/run/modprobe.d/zz.conf" and not hidden["wins"]
    assert netns_mode.foreign(netns_mode.owners(files, "")) == []
    del files["/run/modprobe.d/zz.conf"]
    assert mode(files) == "shared"


def test_the_order_is_that_of_file_names_over_all_directories():
    files = {
        "/lib/modprobe.d/b.conf": "options ib_core netns_mode=1",
        "/etc/modprobe.d/a.conf": "options ib_core netns_mode=0",
    }
    assert mode(files) == "shared"
    assert [path for path, _hidden in modprobe.in_order([*files, "/opt/x.conf"])] == sorted(
        files, key=lambda path: path[-6:]
    )


def test_the_kernel_line_beats_every_file():
    files = {OURS: "options ib_core netns_mode=0"}
    line = "root=/dev/sda1 ib-core.netns_mode=1 quiet"
    assert netns_mode.kernel_line(line) == {"mode": "shared", "reason": None}
    assert netns_mode.owners(files, line)[-1]["owner"] == "kernel_line"
    assert netns_mode.owners(files, line)[-1]["wins"] is True
    assert netns_mode.kernel_line("my_ib_core.netns_mode=1 ib_core.other=2")["mode"] is None
    assert netns_mode.kernel_line(None)["reason"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("options ib_core netns_mode=0", "exclusive"),
        ("options ib-core netns-mode=N\n", "exclusive"),
        ("options ib_core recv_queue_size=512 \\\n  netns_mode=0\n", "exclusive"),
        ("options ib_core netns_mode=0\noptions ib_core netns_mode=1\n", "shared"),
        ("options ib_core netns_mode=0 netns_mode=1\n", "shared"),
        ("options ib_core netns_mode\n", "shared"),
        ('options ib_core netns_mode="off"\n', "exclusive"),
        ("options ib_core netns_mode=on", "shared"),
        ("# options ib_core netns_mode=0\n", None),
        ("# comment \\\noptions ib_core netns_mode=0\n", None),
        ("options mlx5_core netns_mode=0\n", None),
        ("softdep ib_core pre: x\nalias x ib_core\n", None),
        ("options ib_core", None),
        ("", None),
    ],
)
def test_one_file(text, expected):
    assert netns_mode.configured({OURS: text}) == {
        "mode": expected,
        "reason": None,
        "by": OURS if expected else None,
        "line": netns_mode.configured({OURS: text})["line"],
    }


def test_a_value_that_the_kernel_refuses_is_no_mode():
    told = netns_mode.configured({OURS: "options ib_core netns_mode=exclusive"})
    assert told["mode"] is None and "not a boolean" in told["reason"]


def test_line_numbers_count_continued_lines():
    text = "# a\\\nb\n\noptions ib_core netns_mode=0\n"
    assert netns_mode.configured({OURS: text})["line"] == 4


@pytest.mark.skipif(shutil.which("modprobe") is None, reason="kmod is not installed")
@pytest.mark.parametrize(
    "text",
    [
        "options ib_core netns_mode=0 foo=b\\\nar\n",
        "options ib-core \\x=1 netns_mode=0\n",
        'options\tib_core\tq="a b" netns_mode=1\n',
        "# c \\\noptions ib_core netns_mode=1\noptions ib_core netns_mode=0",
        "options ib_core a=1\n\n\n  options ib_core netns_mode=1\\\n",
    ],
)
def test_kmod_itself_reads_the_same_options(tmp_path, text):
    (tmp_path / "a.conf").write_text(text)
    shown = subprocess.run(["modprobe", "-c", "-C", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    theirs = [
        parameter
        for line in shown.splitlines()
        if line.startswith("options ib_core ")
        for parameter in modprobe.split_parameters(line.split(None, 2)[2])
    ]
    ours = [pair for _number, line in modprobe.logical_lines(text) for pair in modprobe._options_of(line, "ib_core")]
    assert ours == theirs and ours


def test_reading_follows_the_directories_and_notes_what_is_unreadable(tmp_path):
    node = NodeTree(tmp_path).add(
        """
        /usr/lib/modprobe.d/a.conf = options ib_core netns_mode=0
        /lib -> usr/lib
        /etc/modprobe.d/readme = options ib_core netns_mode=1
        /etc/modprobe.d/masked.conf -> /dev/null
        /etc/modprobe.d/b.conf ! EACCES
        """
    )
    files, problems = modprobe.read_config(node.tree())
    assert sorted(files) == ["/etc/modprobe.d/masked.conf", "/usr/lib/modprobe.d/a.conf"]
    assert len(problems) == 1 and problems[0].startswith("/etc/modprobe.d/b.conf")


SET = [
    ("", "options ib_core netns_mode=0\n"),
    ("options ib_core netns_mode=1\n", "options ib_core netns_mode=0\n"),
    ('options ib_core a=1 netns_mode=1 b="x y"\n', 'options ib_core a=1 netns_mode=0 b="x y"\n'),
    (
        "# keep\noptions mlx5_core p=1\noptions ib_core a=1",
        "# keep\noptions mlx5_core p=1\noptions ib_core a=1\noptions ib_core netns_mode=0\n",
    ),
    (
        "options ib_core netns_mode=1\nblacklist x\noptions ib-core netns-mode=1\n",
        "options ib_core netns_mode=0\nblacklist x\n",
    ),
    ("options ib_core a=1 \\\n  netns_mode=1\nblacklist x\n", "options ib_core a=1 netns_mode=0\nblacklist x\n"),
    ("options  ib_core   netns_mode=0\n", "options  ib_core   netns_mode=0\n"),
    ("# c \\\noptions ib_core netns_mode=1\n", "# c \\\noptions ib_core netns_mode=1\noptions ib_core netns_mode=0\n"),
]


@pytest.mark.parametrize(("before", "after"), SET)
def test_setting_changes_one_value_and_nothing_else(before, after):
    assert modprobe.set_option(before, "ib_core", "netns_mode", "0") == after
    assert modprobe.set_option(after, "ib_core", "netns_mode", "0") == after


def test_a_new_file_says_who_wrote_it():
    assert modprobe.set_option("", "ib_core", "netns_mode", "1", "By us.") == "# By us.\noptions ib_core netns_mode=1\n"


LINES = st.lists(
    st.sampled_from(
        [
            "options ib_core netns_mode=1",
            "options ib-core a=1 netns-mode=0",
            "# x \\",
            "blacklist y \\",
            "",
            "options ib_core",
            "\\",
            'options ib_core q="',
            "options ib_core netns_mode=1 \\",
            "\r",
        ]
    )
    | st.text(max_size=20),
    max_size=8,
).map("\n".join)


@given(LINES, st.booleans())
@example("options ib_core a=1 \\", True)
@example("\\\n\\\n", True)
def test_after_setting_the_file_gives_the_mode_whatever_it_held(text, final):
    new = modprobe.set_option(text + ("\n" if final else ""), "ib_core", "netns_mode", "0")
    assert netns_mode.configured({OURS: new})["mode"] == "exclusive"
    assert modprobe.set_option(new, "ib_core", "netns_mode", "0") == new


@given(st.dictionaries(st.text(), st.text()), st.text())
def test_no_text_makes_the_readers_fail(files, line):
    netns_mode.configured(files)
    netns_mode.owners({f"/etc/modprobe.d/{name}.conf": text for name, text in files.items()}, line)
    netns_mode.kernel_line(line)
    modprobe.logical_lines(line)
    modprobe.split_parameters(line)
