# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.netns import network_namespaces
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def proc(tmp_path):
    """A /proc in which ns/net of processes in one namespace are hard links of one file, as their inodes are one."""
    (tmp_path / "namespaces").mkdir()

    def process(pid, namespace, command="sleep", threads=None):
        original = tmp_path / "namespaces" / namespace
        original.touch()
        for task, space in {str(pid): namespace, **(threads or {})}.items():
            place = tmp_path / f"proc/{pid}/task/{task}"
            (place / "ns").mkdir(parents=True)
            (place / "comm").write_text(f"{command}\n")
            os.link(tmp_path / "namespaces" / space, place / "ns/net")
        if not (tmp_path / "proc/self").exists():
            (tmp_path / "proc/self").symlink_to(str(pid))
            (tmp_path / f"proc/{pid}/ns").mkdir()
            os.link(original, tmp_path / f"proc/{pid}/ns/net")
            (tmp_path / f"proc/{pid}/mountinfo").write_text("22 27 0:21 / /proc rw - proc proc rw\n")
        return original.stat().st_ino

    process.root = tmp_path
    return process


def read(proc):
    return network_namespaces.read(Tree(str(proc.root)))


def test_fc20_alone(proc):
    proc(1, "host", "systemd")
    proc(50, "host", "kubelet")
    assert read(proc) == ([], None)
    assert network_namespaces.fact(Tree(str(proc.root))) == ({"count": 0, "names": []}, None)


def test_fc20_others_are_named_by_mount_or_process(proc):
    own = proc(1, "host", "systemd")
    (proc.root / "namespaces/pod").touch()
    (proc.root / "namespaces/quiet").touch()
    proc(9, "pod", "pause")
    proc(70, "hostnamed", "systemd-hostnam")
    proc(71, "hostnamed", "systemd-hostnam")
    proc(80, "host", "runc", threads={"81": "pod", "82": "quiet"})
    pod = (proc.root / "namespaces/pod").stat().st_ino
    (proc.root / "proc/1/mountinfo").write_text(
        f"30 20 0:4 net:[{own}] /run/netns/host rw shared:1 - nsfs nsfs rw\n"
        f"31 20 0:4 net:[{pod}] /run/netns/cni\\0401 rw shared:2 - nsfs nsfs rw\n"
        f"32 20 0:4 net:[{pod}] /var/run/docker/netns/x rw - nsfs nsfs rw\n"
        "33 20 0:4 net:[4026539999] /run/netns/empty rw - nsfs nsfs rw\n"
        "34 20 0:4 mnt:[4026539998] /run/snapd/ns/lxd.mnt rw - nsfs nsfs rw\n"
    )
    namespaces, reason = read(proc)
    assert reason is None
    assert [namespace["name"] for namespace in namespaces] == [
        "/run/netns/cni 1",
        "/run/netns/empty",
        "process 70 (systemd-hostnam)",
        "process 80 (runc)",
    ]


def test_processes_that_end_meanwhile_are_passed_over(proc):
    proc(1, "host")
    (proc.root / "proc/77/task/77/ns").mkdir(parents=True)
    (proc.root / "proc/78").mkdir()
    assert read(proc) == ([], None)


def test_what_may_not_be_seen_is_unknown(proc, monkeypatch):
    proc(1, "host")
    proc(2, "other")
    real = os.stat

    def stat(path, **more):
        if str(path).endswith("/2/task/2/ns/net"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **more)

    monkeypatch.setattr(os, "stat", stat)
    namespaces, reason = read(proc)
    assert namespaces is None and "Permission denied" in reason and "/proc/2/" in reason


def test_another_root_without_proc_is_unknown(tmp_path):
    namespaces, reason = network_namespaces.read(Tree(str(tmp_path)))
    assert namespaces is None and "No such file" in reason


OWN_MACHINE = ["unshare", "--pid", "--fork", "--mount-proc", "--net"]  # in which every process may be looked at
SCRIPT = """
import subprocess, sys
from ansible_collections.railyard.rdma.plugins.module_utils.netns import network_namespaces
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree
print(network_namespaces.read(Tree()))
child = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo up; read end"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.read(2)
print([space["name"].replace(str(child.pid), "CHILD") for space in network_namespaces.read(Tree())[0]])
child.kill()
child.wait()
print(network_namespaces.read(Tree()))
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*OWN_MACHINE, "true"], capture_output=True, check=False).returncode != 0,
    reason="may not make namespaces here",
)
def test_a_real_namespace_appears_and_goes():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*OWN_MACHINE, sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.split("\n")[:3] == ["([], None)", "['process CHILD (sh)']", "([], None)"]


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(["net:[12]", "/", "/a", "\\040", "-", "nsfs", "1", "\n"])).map(" ".join)
)
def test_no_mountinfo_makes_the_reader_fail(text):
    network_namespaces.parse_mounts(text)
