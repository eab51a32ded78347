# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module ib_core_netns beyond our own file: taking over from other owners, the kernel line, the running kernel."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.netns import (
    modprobe,
    netns_mode,
    network_namespaces,
    replaced_files,
)
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree
from ansible_collections.railyard.rdma.plugins.modules import ib_core_netns
from ansible_collections.railyard.rdma.tests.unit.plugins.module_utils.node_tree import NodeTree
from ansible_collections.railyard.rdma.tests.unit.plugins.modules.run_module import run
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

OURS = "/etc/modprobe.d/ib_core.conf"
OPERATORS = "/etc/modprobe.d/sriov_network_operator_modules_config.conf"
LIVE = "/sys/module/ib_core/parameters/netns_mode"
BOOTED_BY_GRUB = "/proc/cmdline = BOOT_IMAGE=/boot/vmlinuz-6.1.0 ro"
GRUB = """menuentry 'Debian' --id deb {{
\tlinux /boot/vmlinuz-6.1.0 root=/dev/sda1 ro quiet{more}
}}
menuentry 'Debian, old' --id old {{
\tlinux /boot/vmlinuz-6.0.0 root=/dev/sda1 ro quiet{more}
}}
"""


@pytest.fixture
def node(tmp_path):
    return NodeTree(tmp_path).add("/proc/cmdline = quiet\n/etc/modprobe.d/")


def set_mode(node, capsys, mode="exclusive", **more):
    return run(ib_core_netns, capsys, mode=mode, root=str(node.root), **more)


def write(node, path, data):
    place = node.root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data if isinstance(data, bytes) else data.encode())
    return place


def read(node, path):
    return (node.root / path.lstrip("/")).read_bytes()


def setting(node):
    return netns_mode.configured(modprobe.read_config(Tree(str(node.root)))[0])


def configured(node):
    return setting(node)["mode"]


def snapshot(node):
    found = {}
    for directory, _names, files in os.walk(node.root):
        for name in files:
            path = os.path.join(directory, name)
            found[path] = os.readlink(path) if os.path.islink(path) else Path(path).read_bytes()
    return found


def test_fc22_taking_over_moves_only_the_option_and_keeps_a_copy(node, capsys):
    text = b"# by \xff hand\r\noptions ib_core send_queue_size=7 netns_mode=1 recv_queue_size=9\r\nblacklist x\r\n"
    place = write(node, "/etc/modprobe.d/zz.conf", text)
    place.chmod(0o640)
    before = snapshot(node)
    planned = set_mode(node, capsys, take_over=True, _ansible_check_mode=True, _ansible_diff=True)
    assert planned["changed"] is True and snapshot(node) == before
    assert [part["after_header"] for part in planned["diff"]] == [OURS, "/etc/modprobe.d/zz.conf"]
    told = set_mode(node, capsys, take_over=True)
    assert told["changed"] is True and configured(node) == "exclusive"
    backup = "/etc/modprobe.d/zz.conf.railyard-backup"
    assert told["taken_over"] == [{"path": "/etc/modprobe.d/zz.conf", "line": 2, "backup": backup, "hidden_by": None}]
    assert read(node, "/etc/modprobe.d/zz.conf") == text.replace(b" netns_mode=1", b"")
    assert place.stat().st_mode & 0o777 == 0o640
    assert read(node, backup) == text and (node.root / backup[1:]).stat().st_mode & 0o777 == 0o640
    again = set_mode(node, capsys, take_over=True)
    assert again["changed"] is False and again["taken_over"] == []


def test_backups_never_overwrite_each_other(node, capsys):
    for text in ("options ib_core netns_mode=1\n", "# second\noptions ib_core netns_mode=1\n"):
        write(node, "/etc/modprobe.d/zz.conf", text)
        set_mode(node, capsys, take_over=True)
    assert read(node, "/etc/modprobe.d/zz.conf.railyard-backup") == b"options ib_core netns_mode=1\n"
    assert read(node, "/etc/modprobe.d/zz.conf.railyard-backup-2").startswith(b"# second")
    write(node, "/etc/modprobe.d/zz.conf", "options ib_core netns_mode=1\n")
    told = set_mode(node, capsys, take_over=True)
    assert told["taken_over"][0]["backup"] == "/etc/modprobe.d/zz.conf.railyard-backup", "the same content serves again"


@pytest.mark.parametrize("directory", ["/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d"])
def test_files_of_others_are_hidden_and_not_edited(node, capsys, directory):
    text = b"options ib_core netns_mode=1 a=1\noptions mlx5_core b=2\n"
    write(node, f"{directory}/vendor.conf", text)
    told = set_mode(node, capsys, take_over=True)
    hiding = "/etc/modprobe.d/vendor.conf"
    assert told["taken_over"] == [{"path": f"{directory}/vendor.conf", "line": 1, "backup": None, "hidden_by": hiding}]
    assert read(node, f"{directory}/vendor.conf") == text
    assert read(node, hiding).endswith(b"\noptions ib_core a=1\noptions mlx5_core b=2\n")
    assert f"Hides {directory}/vendor.conf".encode() in read(node, hiding)
    assert configured(node) == "exclusive" and set_mode(node, capsys)["changed"] is False


def test_a_link_is_replaced_and_its_target_stays(node, capsys):
    target = write(node, "/srv/dotfiles/zz.conf", "options ib_core netns_mode=1 a=1\n")
    node.add("/etc/modprobe.d/zz.conf -> ../../srv/dotfiles/zz.conf")
    told = set_mode(node, capsys, take_over=True)
    assert target.read_text() == "options ib_core netns_mode=1 a=1\n"
    assert not (node.root / "etc/modprobe.d/zz.conf").is_symlink()
    assert read(node, "/etc/modprobe.d/zz.conf") == b"options ib_core a=1\n"
    backup = node.root / told["taken_over"][0]["backup"][1:]
    assert os.readlink(backup) == "../../srv/dotfiles/zz.conf"
    ours = write(node, "/srv/dotfiles/ours.conf", "options ib_core netns_mode=0 b=1\n")
    (node.root / OURS[1:]).unlink()
    node.add(f"{OURS} -> ../../srv/dotfiles/ours.conf")
    assert set_mode(node, capsys, mode="shared")["changed"] is True
    assert ours.read_text().startswith("options ib_core netns_mode=0") and b"netns_mode=1 b=1" in read(node, OURS)


def test_an_install_line_loses_the_option_only(node, capsys):
    text = "install ib_core /sbin/modprobe --ignore-install ib_core netns_mode=1 $CMDLINE_OPTS\n"
    write(node, "/etc/modprobe.d/zz.conf", text)
    told = set_mode(node, capsys)
    assert told["failed"] is True and "zz.conf line 1 sets shared" in told["msg"]
    assert told["owners"][0]["statement"] == "install"
    assert set_mode(node, capsys, take_over=True)["changed"] is True
    assert read(node, "/etc/modprobe.d/zz.conf").decode() == text.replace(" netns_mode=1", "")
    assert configured(node) == "exclusive"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("install ib_core /usr/local/bin/load netns_mode=1", "not known what its command does"),
        ("install ib_core /bin/true", "keeps ib_core from loading"),
        ('options ib_core a="1', "quote that is not closed"),
        ("options ib_core a=1 -- b=2", 'has "--"'),
    ],
)
def test_what_is_not_understood_is_not_taken_over(node, capsys, text, why):
    write(node, "/etc/modprobe.d/a.conf", text)
    before = snapshot(node)
    told = set_mode(node, capsys, take_over=True)
    assert told["failed"] is True and why in told["msg"] and "Nothing was changed" in told["msg"]
    assert snapshot(node) == before


def test_owners_known_from_elsewhere_stop_the_module_also_when_it_may_take_over(node, capsys):
    write(node, OPERATORS, "options ib_core netns_mode=1\n")
    pool = {
        "owner": "sriov_network_operator",
        "path": "SriovNetworkPoolConfig gpu",
        "mode": "shared",
        "remedy": "unset it",
    }
    before = snapshot(node)
    told = set_mode(node, capsys, take_over=True, other_owners=[pool])
    assert told["failed"] is True and "SriovNetworkPoolConfig gpu sets shared (unset it)" in told["msg"]
    assert OPERATORS in told["msg"] and snapshot(node) == before
    assert set_mode(node, capsys, take_over=True)["changed"] is True
    assert configured(node) == "exclusive"


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program runs after it."""


OTHERS = st.dictionaries(
    st.tuples(
        st.sampled_from(["/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d"]),
        st.sampled_from(["a.conf", "ib_core.conf", "zz.conf", "sriov_network_operator_modules_config.conf"]),
    ),
    st.sampled_from(
        [
            "options ib_core netns_mode=1\n",
            "options ib_core netns_mode=1 x=1\n# end",
            "options ib-core netns-mode=1\noptions ib_core y=2\n",
            "# nothing\n",
            "install ib_core /sbin/modprobe -i ib_core netns_mode=1\n",
        ]
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OTHERS)
@example(
    dict.fromkeys(
        [("/etc/modprobe.d", "a.conf"), ("/etc/modprobe.d", "ib_core.conf")],
        "install ib_core /sbin/modprobe -i ib_core netns_mode=1\n",
    )
)
def test_killed_between_any_two_steps_the_next_boot_has_the_old_or_the_new_mode(tmp_path_factory, capsys, others):
    """Every system call that changes a file is a step; before each of them the program is killed once."""

    def fresh():
        made = NodeTree(tmp_path_factory.mktemp("node")).add("/proc/cmdline = quiet\n/etc/modprobe.d/")
        for (directory, name), text in others.items():
            write(made, f"{directory}/{name}", text)
        return made

    before = setting(fresh())
    # Of several install lines it is not known which one modprobe runs; with one of them gone it is. The other setting
    # that these lines can give is shared.
    old = {"shared", None} if before["reason"] else {before["mode"]}
    with pytest.MonkeyPatch.context() as patch:
        step = 0
        while True:
            node = fresh()
            steps = iter(range(step))

            def counted(real, steps=steps):
                def call(*arguments, **more):
                    if next(steps, None) is None:
                        raise Killed
                    return real(*arguments, **more)

                return call

            with patch.context() as dying:
                for name in ("replace", "fsync", "chmod", "chown", "symlink"):
                    dying.setattr(replaced_files.os, name, counted(getattr(os, name)))
                dying.setattr(replaced_files, "_remove", lambda place: None)
                try:
                    set_mode(node, capsys, take_over=True)
                    died = False
                except Killed:
                    died = True
            allowed = {"exclusive", *old} if died else {"exclusive"}
            assert configured(node) in allowed, (step, snapshot(node))
            told = set_mode(node, capsys, take_over=True)
            assert not told.get("failed"), told
            assert configured(node) == "exclusive"
            assert set_mode(node, capsys)["changed"] is False
            if not died:
                break
            step += 1
        assert step >= 2


@pytest.mark.parametrize("step", range(3))
def test_a_disk_that_is_full_leaves_everything_as_it_was(node, capsys, monkeypatch, step):
    write(node, "/etc/modprobe.d/a.conf", "options ib_core netns_mode=1\n")
    write(node, "/usr/lib/modprobe.d/b.conf", "options ib_core netns_mode=1\n")
    before = snapshot(node)
    real, calls = os.replace, []

    def replace(source, target):
        calls.append(target)
        if len(calls) == step + 1:
            raise OSError(28, "No space left on device", target)
        return real(source, target)

    monkeypatch.setattr(replaced_files.os, "replace", replace)
    told = set_mode(node, capsys, take_over=True)
    assert (
        told["failed"] is True and "No space left on device" in told["msg"] and "Everything is as it was" in told["msg"]
    )
    assert snapshot(node) == before and told["taken_over"] == []


def test_a_directory_that_may_not_be_written(node, capsys, monkeypatch):
    def mkstemp(**more):
        raise OSError(30, "Read-only file system", more["dir"])

    monkeypatch.setattr(replaced_files.tempfile, "mkstemp", mkstemp)
    told = set_mode(node, capsys)
    assert told["failed"] is True and "Read-only file system" in told["msg"] and "/etc/modprobe.d" in told["msg"]


@pytest.fixture
def programs(monkeypatch):
    """Programs of the system by name: functions of the arguments that return code and error text."""
    there = {}
    monkeypatch.setattr(ib_core_netns, "runs_here", lambda tree: True)
    monkeypatch.setattr(
        ib_core_netns.AnsibleModule, "get_bin_path", lambda self, name: f"/sbin/{name}" if name in there else None
    )

    def run_command(self, command):
        code, err = there[os.path.basename(command[0])](command[1:])
        return code, "", err

    monkeypatch.setattr(ib_core_netns.AnsibleModule, "run_command", run_command)
    return there


@pytest.fixture
def grub(node, programs):
    """A Debian with the argument in /etc/default/grub; update-grub makes grub.cfg of it."""
    (node.root / "proc/cmdline").unlink()
    node.add(BOOTED_BY_GRUB + " ib_core.netns_mode=1\n/lib/modules/6.1.0/\n/lib/modules/6.0.0/")
    write(node, "/etc/default/grub", 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX="ib_core.netns_mode=1 iommu=pt"\n')
    write(node, "/boot/grub/grub.cfg", GRUB.format(more=" ib_core.netns_mode=1 iommu=pt"))
    node.runs = []

    def update_grub(arguments):
        node.runs.append(arguments)
        words = []
        for path in ("/etc/default/grub", "/etc/default/grub.d/50-cloud.cfg"):
            if (node.root / path[1:]).exists():
                for line in read(node, path).decode().splitlines():
                    if line.startswith("GRUB_CMDLINE_LINUX="):
                        words = shlex.split(line.partition("=")[2])
        write(node, "/boot/grub/grub.cfg", GRUB.format(more=f" {words[0]}" if words else ""))
        return 0, ""

    programs["update-grub"] = update_grub
    return node


def test_a_kernel_argument_is_named_with_the_file_that_feeds_it(grub, capsys):
    told = set_mode(grub, capsys)
    assert told["failed"] is True and "/etc/default/grub line 2 sets shared" in told["msg"]
    assert [(owner["owner"], owner["path"], owner["wins"]) for owner in told["owners"]] == [
        ("kernel_line", "/proc/cmdline", False),
        ("boot_loader", "/etc/default/grub", True),
    ]
    assert grub.runs == []


def test_a_kernel_argument_is_taken_out_of_the_file_that_feeds_it(grub, capsys):
    before = snapshot(grub)
    planned = set_mode(grub, capsys, take_over=True, _ansible_check_mode=True)
    assert planned["changed"] is True and snapshot(grub) == before and grub.runs == []
    assert [part["after_header"] for part in planned["diff"]] == [OURS, "/etc/default/grub", "kernel lines (mkconfig)"]
    told = set_mode(grub, capsys, take_over=True)
    assert told["changed"] is True and grub.runs == [[]]
    assert read(grub, "/etc/default/grub") == b'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX="iommu=pt"\n'
    assert b"netns_mode" not in read(grub, "/boot/grub/grub.cfg")
    assert told["taken_over"][0]["backup"] == "/etc/default/grub.railyard-backup"
    again = set_mode(grub, capsys)
    assert again["changed"] is False, "the running line does not count when the next one is known to be clean"


@pytest.mark.parametrize("step", ["before the generator", "after the generator"])
def test_killed_around_the_generator_the_next_run_finishes(grub, programs, capsys, step):
    update_grub = programs["update-grub"]

    def dying(arguments):
        if step == "after the generator":
            update_grub(arguments)
        raise Killed

    programs["update-grub"] = dying
    with pytest.raises(Killed):
        set_mode(grub, capsys, take_over=True)
    assert b"netns_mode" not in read(grub, "/etc/default/grub") and configured(grub) == "exclusive"
    programs["update-grub"] = update_grub
    again = set_mode(grub, capsys, take_over=True)
    assert again["changed"] is (step == "before the generator")
    assert b"netns_mode" not in read(grub, "/boot/grub/grub.cfg")
    assert set_mode(grub, capsys)["changed"] is False


def test_an_argument_that_stays_puts_everything_back(grub, capsys):
    """A cloud image's grub.d file overrides /etc/default/grub, so what was edited never arrives."""
    grub_cfg = GRUB.format(more=" ib_core.netns_mode=1")

    def stubborn(arguments):
        write(grub, "/boot/grub/grub.cfg", grub_cfg + "# new\n")
        return 0, ""

    before = snapshot(grub)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ib_core_netns.AnsibleModule, "run_command", lambda self, command: (*stubborn(command)[:1], "", "")
        )
        told = set_mode(grub, capsys, take_over=True)
    assert told["failed"] is True and "still in /boot/grub/grub.cfg" in told["msg"]
    assert "Everything is as it was" in told["msg"] and snapshot(grub) == before


@pytest.mark.parametrize(
    ("answer", "text", "why"),
    [
        (1, None, "ended with code 1"),
        (0, "menuentry 'x' { linux /boot/vmlinuz-6.1.0 root=/dev/sda1; }\n", "out of 1 entries"),
        (0, GRUB.format(more="").replace("6.1.0", "5.9.9"), "would start kernel"),
        (0, "menuentry 'x {", "would start kernel None"),
    ],
)
def test_a_boot_loader_that_comes_out_worse_puts_everything_back(grub, programs, capsys, answer, text, why):
    def update_grub(arguments):
        if text is not None:
            write(grub, "/boot/grub/grub.cfg", text)
        return answer, "boom"

    programs["update-grub"] = update_grub
    before = snapshot(grub)
    told = set_mode(grub, capsys, take_over=True)
    assert told["failed"] is True and why in told["msg"] and snapshot(grub) == before


def test_the_other_names_of_the_generator(grub, programs, capsys):
    programs["grub2-mkconfig"] = programs.pop("update-grub")
    assert set_mode(grub, capsys, take_over=True)["changed"] is True
    assert grub.runs == [["-o", "/boot/grub/grub.cfg"]]
    write(grub, "/etc/default/grub", 'GRUB_CMDLINE_LINUX="ib_core.netns_mode=1"\n')
    programs.clear()
    before = snapshot(grub)
    told = set_mode(grub, capsys, take_over=True)
    assert "Neither update-grub" in told["msg"] and snapshot(grub) == before


def test_rpm_ostree_gets_the_command(grub, capsys):
    grub.add("/run/ostree-booted =")
    told = set_mode(grub, capsys, take_over=True)
    assert told["failed"] is True
    assert "rpm-ostree kargs --delete-if-present=ib_core.netns_mode=1" in told["msg"]


def bls(node, options="root=/dev/sda1 ib_core.netns_mode=1 quiet"):
    (node.root / "proc/cmdline").unlink()
    node.add(BOOTED_BY_GRUB + "\n/lib/modules/6.1.0/")
    write(node, "/boot/grub2/grub.cfg", 'load_env\nset default="${saved_entry}"\nblscfg\n')
    write(
        node,
        "/boot/loader/entries/m-6.1.0.conf",
        f"title RHEL\nversion 6.1.0\nlinux /vmlinuz-6.1.0\noptions {options}\n",
    )
    write(node, "/etc/kernel/cmdline", f"{options}\n")


def test_grubby_is_used_where_it_is(node, programs, capsys):
    bls(node)
    asked = []

    def grubby(arguments):
        asked.append(arguments)
        place = "/boot/loader/entries/m-6.1.0.conf"
        write(node, place, read(node, place).replace(b" ib_core.netns_mode=1", b""))
        return 0, ""

    programs["grubby"] = grubby
    assert set_mode(node, capsys, take_over=True)["changed"] is True
    assert asked == [["--update-kernel=ALL", "--remove-args=ib_core.netns_mode=1"]]
    assert read(node, "/etc/kernel/cmdline") == b"root=/dev/sda1 quiet\n"
    assert set_mode(node, capsys)["changed"] is False


def test_entries_are_edited_where_there_is_no_grubby(node, programs, capsys):
    bls(node)
    assert set_mode(node, capsys, take_over=True)["changed"] is True
    assert b"options root=/dev/sda1 quiet\n" in read(node, "/boot/loader/entries/m-6.1.0.conf")
    names = os.listdir(node.root / "boot/loader/entries")
    assert [name for name in names if name.endswith(".conf")] == ["m-6.1.0.conf"]
    assert set_mode(node, capsys)["changed"] is False


def test_a_kernel_line_of_unknown_origin_is_not_taken_over(node, capsys):
    (node.root / "proc/cmdline").write_text("ib_core.netns_mode=1\n")
    told = set_mode(node, capsys, take_over=True)
    assert told["failed"] is True and "what makes it is not known" in told["msg"]


def test_another_root_gets_no_new_kernel_line(grub, capsys, monkeypatch):
    monkeypatch.setattr(ib_core_netns, "runs_here", lambda tree: False)
    assert "running system only" in set_mode(grub, capsys, take_over=True)["msg"]


@pytest.fixture
def running(node, programs, monkeypatch):
    """A running kernel in mode shared, where ``spaces`` are the network namespaces of each look."""
    node.add(f"{LIVE} = Y")
    node.calls, node.spaces, node.obeys, node.answer = [], [[]], True, (0, "")

    def rdma(arguments):
        node.calls.append(arguments)
        if node.obeys and node.answer[0] == 0:
            write(node, LIVE, "N\n" if arguments[-1] == "exclusive" else "Y\n")
        return node.answer

    def look(tree):
        now = node.spaces.pop(0) if len(node.spaces) > 1 else node.spaces[0]
        return (None, "not root") if now is None else ([{"inode": 1, "name": name} for name in now], None)

    programs["rdma"] = rdma
    monkeypatch.setattr(network_namespaces, "read", look)
    monkeypatch.setattr(ib_core_netns, "POLL_INTERVAL", 0)
    return node


def test_the_running_kernel_is_switched_when_nothing_is_in_the_way(running, capsys):
    assert set_mode(running, capsys)["runtime"]["tried"] is False and running.calls == []
    told = set_mode(running, capsys, runtime=True)
    assert told["runtime"] == {"tried": True, "switched": True, "reason": None, "namespaces": []}
    assert told["live"] == "exclusive" and told["changed"] is True
    assert running.calls == [["system", "set", "netns", "exclusive"]]
    again = set_mode(running, capsys, runtime=True)
    assert again["changed"] is False and "already" in again["runtime"]["reason"] and len(running.calls) == 1


def test_short_lived_namespaces_are_waited_for(running, capsys):
    running.spaces = [["process 7 (systemd-hostnam)"], ["process 7 (systemd-hostnam)"], []]
    assert set_mode(running, capsys, runtime=True)["runtime"]["switched"] is True


def test_fc20_namespaces_in_the_way_are_named_and_that_is_no_failure(running, capsys):
    running.spaces = [["/run/netns/cni-1", "process 9 (pause)"]]
    told = set_mode(running, capsys, runtime=True, runtime_timeout=0)
    assert told["changed"] is True and told["live"] == "shared" and running.calls == []
    assert told["runtime"]["tried"] is False and told["runtime"]["switched"] is False
    assert told["runtime"]["namespaces"] == ["/run/netns/cni-1", "process 9 (pause)"]
    assert "/run/netns/cni-1" in told["runtime"]["reason"]


def test_fc20_busy_without_a_visible_namespace_ends_with_the_time(running, capsys):
    running.answer = (1, "error: Device or resource busy")
    told = set_mode(running, capsys, runtime=True, runtime_timeout=0)
    assert told["runtime"]["tried"] is True and told["runtime"]["switched"] is False
    assert "leaves no trace" in told["runtime"]["reason"] and not told.get("failed")


def test_another_refusal_is_not_tried_again(running, capsys):
    running.answer = (1, "error: Operation not permitted")
    told = set_mode(running, capsys, runtime=True, runtime_timeout=600)
    assert told["runtime"]["reason"] == "error: Operation not permitted" and len(running.calls) == 1


def test_a_switch_without_effect_is_an_error(running, capsys):
    running.obeys = False
    told = set_mode(running, capsys, runtime=True)
    assert told["failed"] is True and "succeeded, but the kernel is in mode shared" in told["msg"]


def test_namespaces_that_may_not_be_seen_forbid_the_switch(running, capsys):
    running.spaces = [None]
    told = set_mode(running, capsys, runtime=True)
    assert running.calls == [] and "not known which" in told["runtime"]["reason"]


def test_check_mode_tells_whether_it_would_be_tried(running, capsys):
    running.spaces = [["/run/netns/a"], []]
    told = set_mode(running, capsys, runtime=True, _ansible_check_mode=True)
    assert told["runtime"]["tried"] is False and "/run/netns/a" in told["runtime"]["reason"]
    told = set_mode(running, capsys, runtime=True, _ansible_check_mode=True)
    assert told["runtime"] == {"tried": True, "switched": False, "reason": "check mode", "namespaces": []}
    assert running.calls == [] and told["live"] == "shared"


def test_fc28_nothing_is_switched_while_ib_core_is_not_loaded(node, programs, capsys):
    node.add("/sys/module/loop/refcnt = 0")
    told = set_mode(node, capsys, runtime=True)
    assert told["changed"] is True and told["live"] is None and "not loaded" in told["runtime"]["reason"]


def test_without_the_program_the_reboot_remains(running, programs, capsys):
    del programs["rdma"]
    assert "iproute2" in set_mode(running, capsys, runtime=True)["runtime"]["reason"]


@pytest.mark.parametrize("timeout", [-1, 3601])
def test_a_timeout_out_of_range_is_refused(node, capsys, timeout):
    told = set_mode(node, capsys, runtime=True, runtime_timeout=timeout)
    assert told["failed"] is True and "0 to 3600" in told["msg"] and str(timeout) in told["msg"]
