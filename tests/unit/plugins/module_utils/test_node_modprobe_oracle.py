# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What kmod itself makes of generated configurations, against our reading of them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.netns import modprobe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(shutil.which("modprobe") is None, reason="kmod is not installed")

# kmod skips the rest of the file's own line endings and nothing else: every other odd character is in the alphabet.
PIECES = st.sampled_from(
    [
        "options", "ib_core", "ib-core", "ib_core[x", "netns_mode=0", "netns-mode=1", "netns_mode", "a=1", 'q="x y"',
        'q="', '"netns_mode=1"', "--", "#", "alias", "install", "blacklist", "softdep", "mlx5_core", "/bin/true",
        "options ib_core netns_mode=1", "options ib-core netns_mode=0", "include", "\t", "\v", "\f", "\r", "\0", "\xa0",
        "\\\n", "\\x", "\\\\", "  ", "\n\n", "\udcff", "$CMDLINE_OPTS", "pre:", "ib_*",
    ]
)  # fmt: skip
FILE = st.lists(st.tuples(PIECES, st.sampled_from([" ", "\n", "\t", ""])), max_size=14).map(
    lambda parts: "".join(piece + end for piece, end in parts).rstrip("\\")
)
NAMES = st.sampled_from(
    ["a.conf", "ib_core.conf", "ib-core.conf", "zz.conf", "Z.conf", ".hidden.conf", "x.txt", "é.conf"]
)
TREES = st.dictionaries(st.tuples(st.sampled_from(modprobe.DIRECTORIES[:3]), NAMES), FILE, max_size=5)


def kmod(arguments: list) -> list[str]:
    done = subprocess.run(arguments, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "surrogateescape").split("\n")


def chosen(lines: list[str]) -> list[str]:
    return [line[len("options ib_core ") :] for line in lines if line.startswith("options ib_core ")]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TREES)
def test_kmod_reads_the_same_options(tree):
    files = {f"{directory}/{name}": text for (directory, name), text in tree.items()}
    with tempfile.TemporaryDirectory() as root:
        command = ["modprobe", "-c"]
        for directory in modprobe.DIRECTORIES[:3]:
            place = Path(root, directory.strip("/"))
            place.mkdir(parents=True)
            command += ["-C", str(place)]
        for path, text in files.items():
            Path(root, path.strip("/")).write_bytes(text.encode("utf-8", "surrogateescape"))
        shown = kmod(command)
    # What is to be seen by read_config, which the tree of this test does not pass through.
    counted = {path: text for path, text in files.items() if path.endswith(".conf") and "/." not in path}
    ours = [found for found in modprobe.directives(counted, "options") if found["hidden_by"] is None]
    assert [found["rest"] for found in ours if found["name"] == "ib_core"] == chosen(shown)

    last = None
    for name, value in modprobe.split_parameters(" ".join(chosen(shown)) + " "):
        if name == "--" and value is None:
            break
        if modprobe.same_name(name, "netns_mode"):
            last = (value,)
    winner = modprobe.winner(modprobe.option_settings(counted, "ib_core", "netns_mode"))
    assert (None if winner is None else (winner["value"],)) == last

    installs = [line[len("install ") :].split(" ", 1) for line in shown if line.startswith("install ")]
    mine = [found for found in modprobe.directives(counted, "install") if found["hidden_by"] is None]
    assert [[found["name"], found["rest"]] for found in mine] == installs


WORDS = st.sampled_from(
    ["ib_core.netns_mode=0", "ib-core.netns-mode=1", '"ib_core.netns_mode=0"', 'ib_core.netns_mode="1"', "quiet", "--",
     'ib_core.x="a b"', '"ib_core.x=a b"', "ib_core.", ".x", "ib_core.a.b=1", "ib_core=1", "root=UUID=a.b", '"', "ib_core.n",
     "modprobe.blacklist=ib_core,x", "ib_core.a=b.c=d", "a[b.c=1"]
)  # fmt: skip
LINES = st.lists(st.tuples(WORDS, st.sampled_from([" ", "  ", "\t", ""])), max_size=6).map(
    lambda parts: "".join(word + end for word, end in parts)
)


def can_replace_the_kernel_line() -> bool:
    probe = ["unshare", "--mount", "mount", "--bind", "/dev/null", "/proc/cmdline"]
    return (
        shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not can_replace_the_kernel_line(), reason="needs root: another file is mounted over /proc/cmdline")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LINES)
def test_kmod_takes_the_same_options_from_the_kernel_line(text):
    with tempfile.TemporaryDirectory() as root:
        line, empty = Path(root, "line"), Path(root, "empty")
        line.write_text(text + "\n")
        empty.mkdir()
        script = 'mount --bind "$0" /proc/cmdline && exec modprobe -c -C "$1"'
        shown = kmod(["unshare", "--mount", "sh", "-c", script, str(line), str(empty)])
    ours = [option for module, option in modprobe.kmod_line_options(text + "\n") if module == "ib_core"]
    assert ours == chosen(shown)
