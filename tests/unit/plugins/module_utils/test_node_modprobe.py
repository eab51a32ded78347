# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.netns import modprobe, modprobe_edit, netns_mode
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
        ("options ib_core netns_mode=0\r\n", "exclusive"),
        ("options\vib_core netns_mode=0\n", None),
        ("options ib_core a=1\0 netns_mode=0\n", None),
        ("options ib_core netns_mode=1 -- netns_mode=0\noptions ib_core netns_mode=0\n", "shared"),
        ('options ib_core a="1\noptions ib_core netns_mode=0\n', None),
        (' # x\n\toptions ib_core "netns_mode=0"\n', "exclusive"),
        ("options ib_core netns_mode=0 # note\n", "exclusive"),
        ("blacklist ib_core\nsoftdep ib_core pre: ib_core\noptions ib_core netns_mode=0\n", "exclusive"),
    ],
)
def test_one_file(text, expected):
    told = netns_mode.configured({OURS: text})
    assert (told["mode"], told["reason"], told["by"]) == (expected, None, OURS if expected else None)


def test_a_value_that_the_kernel_refuses_is_no_mode():
    told = netns_mode.configured({OURS: "options ib_core netns_mode=exclusive"})
    assert told["mode"] is None and "not a boolean" in told["reason"]


def test_line_numbers_count_continued_lines():
    text = "# a\\\nb\n\noptions ib_core netns_mode=0\n"
    assert netns_mode.configured({OURS: text})["line"] == 4


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
    (
        "options ib_core a=1 \\\n  netns_mode=1\nblacklist x\n",
        "options ib_core a=1 \\\n  netns_mode=0\nblacklist x\n",
    ),
    ("a\r\noptions ib_core netns_mode=1 b\r\n", "a\r\noptions ib_core netns_mode=0 b\r\n"),
    ("# \udcff\0\noptions ib_core q\n", "# \udcff\0\noptions ib_core q\noptions ib_core netns_mode=0\n"),
    ("a\\", "a\\\n\noptions ib_core netns_mode=0\n"),
    ("options  ib_core   netns_mode=0\n", "options  ib_core   netns_mode=0\n"),
    ("# c \\\noptions ib_core netns_mode=1\n", "# c \\\noptions ib_core netns_mode=1\noptions ib_core netns_mode=0\n"),
]


@pytest.mark.parametrize(("before", "after"), SET)
def test_setting_changes_one_value_and_nothing_else(before, after):
    assert modprobe_edit.set_option(before, "ib_core", "netns_mode", "0") == after
    assert modprobe_edit.set_option(after, "ib_core", "netns_mode", "0") == after


def test_a_new_file_says_who_wrote_it():
    assert (
        modprobe_edit.set_option("", "ib_core", "netns_mode", "1", "By us.")
        == "# By us.\noptions ib_core netns_mode=1\n"
    )


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
    new = modprobe_edit.set_option(text + ("\n" if final else ""), "ib_core", "netns_mode", "0")
    told = netns_mode.configured({OURS: new})
    # An open quote swallows, and "--" ends, what comes behind; that is seen and not taken for the mode.
    assert told["mode"] == "exclusive" or '"' in text
    assert modprobe_edit.set_option(new, "ib_core", "netns_mode", "0") == new


@given(LINES, st.booleans())
@example("options ib_core netns_mode=1 \\", True)
def test_removing_leaves_no_setting_and_every_other_parameter(text, final):
    text += "\n" if final else ""
    new = modprobe_edit.remove_option(text, "ib_core", "netns_mode")
    assert modprobe_edit.remove_option(new, "ib_core", "netns_mode") == new

    def per_line(config):
        return [
            pair
            for found in modprobe.directives({OURS: config}, "options")
            if found["name"] == "ib_core"
            for pair in modprobe.split_parameters(found["rest"])
        ]

    assert per_line(new) == [pair for pair in per_line(text) if not modprobe.same_name(pair[0], "netns_mode")]
    if new == text:
        assert not any(modprobe.same_name(name, "netns_mode") for name, _value in per_line(text))


REMOVED = [
    ("options ib_core netns_mode=1\n", ""),
    ("# a\noptions ib_core netns_mode=1\n# b\n", "# a\n# b\n"),
    ("options ib_core a=1 netns_mode=1\n", "options ib_core a=1\n"),
    ("options ib_core netns_mode=1 a=1\r\n", "options ib_core a=1\r\n"),
    ("options ib_core a=1 \\\n netns_mode=1 \\\n b=2\n", "options ib_core a=1 \\\nb=2\n"),
    ("options ib-core netns-mode=1 netns_mode=0 a", "options ib-core a"),
    ("options mlx5_core netns_mode=1\n\udcfe\0", "options mlx5_core netns_mode=1\n\udcfe\0"),
]


@pytest.mark.parametrize(("before", "after"), REMOVED)
def test_removing_keeps_every_other_byte(before, after):
    assert modprobe_edit.remove_option(before, "ib_core", "netns_mode") == after


INSTALL = "install ib_core /sbin/modprobe --ignore-install ib_core"


@pytest.mark.parametrize(
    ("text", "mode_told", "in_reason"),
    [
        (f"{INSTALL} netns_mode=0", "exclusive", None),
        (f"{INSTALL} $CMDLINE_OPTS netns_mode=0", "exclusive", None),
        (f"{INSTALL} netns_mode=0 $CMDLINE_OPTS", "exclusive", None),
        (f"options ib_core netns_mode=1\n{INSTALL} netns_mode=0", "exclusive", None),
        (f"options ib_core netns_mode=1\n{INSTALL} netns_mode=0 $CMDLINE_OPTS", "shared", None),
        (f"{INSTALL} $CMDLINE_OPTS", None, None),
        (f"{INSTALL} netns_mode=0; /sbin/modprobe ib_umad", "exclusive", None),
        (f"{INSTALL} netns_mode=0 && modprobe ib_umad", "exclusive", None),
        ("install ib_* modprobe -i ib_core netns-mode=0", "exclusive", None),
        ("install ib_core /bin/true", None, "keeps ib_core from loading"),
        ("install ib_core modprobe ib_core netns_mode=0", None, "not known"),
        ("install ib_core false && modprobe -i ib_core netns_mode=0", None, "not known"),
        ("install ib_core modprobe -i ib_core netns_mode=$MODE", None, "not known"),
        ("install ib_core { modprobe -i ib_core netns_mode=0; }", None, "not known"),
        ("install ib_core /usr/local/bin/load", None, "not known"),
        (f"{INSTALL} netns_mode=x", None, "not a boolean"),
        ("install mlx5_core modprobe ib_core netns_mode=0; modprobe -i mlx5_core", None, "loading mlx5_core"),
        ("install mlx5_core modprobe ib_core; modprobe -i mlx5_core", None, None),
        ("alias rdma ib_core\noptions rdma netns_mode=0", None, "loaded as rdma"),
        ("options rdma-netlink-subsys-4 netns_mode=0", None, "loaded as rdma_netlink_subsys_4"),
        (f"install ib_core /bin/true\n{INSTALL} netns_mode=0", None, "keeps ib_core from loading"),
        ("options ib_core netns_mode=y netns_mode=bad netns_mode=0", None, "not a boolean"),
    ],
)
def test_lines_that_load_the_module_in_another_way(text, mode_told, in_reason):
    told = netns_mode.configured({"/etc/modprobe.d/x.conf": text})
    assert told["mode"] == mode_told
    assert told["reason"] is None if in_reason is None else in_reason in told["reason"]
    owners = netns_mode.owners({"/etc/modprobe.d/x.conf": text}, "")
    if mode_told or (in_reason and "keeps" not in in_reason):
        assert [owner["path"] for owner in owners if owner["hidden_by"] is None] != []
    assert sum(owner["wins"] for owner in owners) <= 1


def test_an_install_line_may_beat_the_kernel_line():
    told = netns_mode.configured({OURS: f"{INSTALL} netns_mode=0"})
    line = netns_mode.kernel_line("ib_core.netns_mode=1")
    assert told["beats_kernel_line"] is True
    assert netns_mode.next_boot(told, line, None)["mode"] == "exclusive"
    again = netns_mode.configured({OURS: f"{INSTALL} netns_mode=0 $CMDLINE_OPTS"})
    assert netns_mode.next_boot(again, line, None)["mode"] == "shared"


def test_fc22_links_to_nothing_hide_or_not_by_the_version_of_kmod(tmp_path):
    node = NodeTree(tmp_path).add(
        """
        /usr/lib/modprobe.d/a.conf = options ib_core netns_mode=0
        /etc/modprobe.d/alone.conf -> /nowhere
        """
    )
    assert modprobe.read_config(node.tree())[1] == []
    node.add("/etc/modprobe.d/a.conf -> /nowhere")
    assert "depends on kmod's version" in modprobe.read_config(node.tree())[1][0]


def test_files_that_are_too_large_or_no_files_are_problems(tmp_path):
    node = NodeTree(tmp_path).add("/etc/modprobe.d/folder.conf/\n/etc/modprobe.d/.hidden.conf = options ib_core x")
    with (tmp_path / "etc/modprobe.d/huge.conf").open("wb") as file:
        file.truncate(modprobe.MAXIMUM_FILE + 1)
    os.mkfifo(tmp_path / "etc/modprobe.d/pipe.conf")
    files, problems = modprobe.read_config(node.tree())
    assert files == {} and len(problems) == 2
    assert "huge.conf: has 1048577 bytes, allowed are 1048576" in problems[0] and "pipe.conf" in problems[1]


def test_bytes_that_are_no_utf8_are_kept(tmp_path):
    node = NodeTree(tmp_path).add("/etc/modprobe.d/")
    (tmp_path / "etc/modprobe.d/a.conf").write_bytes(b"# \xff\xfe\noptions ib_core netns_mode=0\r\n\0")
    text = modprobe.read_config(node.tree())[0]["/etc/modprobe.d/a.conf"]
    assert text.encode("utf-8", "surrogateescape") == b"# \xff\xfe\noptions ib_core netns_mode=0\r\n\0"
    assert mode({"/etc/modprobe.d/a.conf": text}) == "exclusive"


def test_the_option_of_an_install_line_is_removed_alone():
    text = f"# x\n{INSTALL} a=1 netns_mode=0 $CMDLINE_OPTS; echo ok\n"
    assert modprobe_edit.remove_from_install(text, 2, "netns_mode") == text.replace(" netns_mode=0", "")
    assert modprobe_edit.remove_from_install(text, 1, "netns_mode") == text


def test_module_blacklist_keeps_ib_core_from_loading():
    assert "module_blacklist" in netns_mode.kernel_line("quiet module_blacklist=nouveau,ib-core")["reason"]
    assert netns_mode.kernel_line("modprobe.blacklist=ib_core")["reason"] is None


def test_a_kernel_that_holds_ib_core_reads_the_line_itself():
    for line, kmod, kernel in (
        ("-- ib_core.netns_mode=0", "exclusive", None),
        ("ib_core.netns_mode=bad", None, None),
        ('x"y ib_core.netns_mode=0', None, None),
        ('"ib_core.netns_mode=0"', "exclusive", "exclusive"),
    ):
        assert netns_mode.kernel_line(line)["mode"] == kmod, line
        assert netns_mode.kernel_line(line, builtin=True)["mode"] == kernel, line


@given(st.dictionaries(st.text(), st.text()), st.text())
def test_no_text_makes_the_readers_fail(files, line):
    netns_mode.configured(files)
    files = {f"/etc/modprobe.d/{name}.conf": text for name, text in files.items()}
    files["/etc/modprobe.d/i.conf"] = f"install ib_core {line}"
    netns_mode.owners(files, line)
    netns_mode.kernel_line(line)
    netns_mode.kernel_line(line, builtin=True)
    modprobe.logical_lines(line)
    modprobe.split_parameters(line)
    for number, text in enumerate(files.values()):
        modprobe_edit.set_option(text, "ib_core", "netns_mode", "1")
        modprobe_edit.remove_option(text, "ib_core", "netns_mode")
        modprobe_edit.remove_from_install(text, number, "netns_mode")
