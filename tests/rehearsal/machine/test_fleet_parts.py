# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pure parts of the fleet: specifications, recorded processes, connections, recaps, sockets at deep paths."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading

import pytest

from rehearsal import __main__ as cli
from rehearsal import connect
from rehearsal.fleet import checks, connection, play, specs
from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.lifecycle import ready_nodes
from rehearsal.fleet.state import Process, State, end, this_process
from rehearsal.machine import sockets, userns

# Specifications


def test_nodes_of_a_shape():
    nodes = specs.from_shape(2, "BM.GPU.B4.8")
    assert [node["name"] for node in nodes] == ["gpu-1", "gpu-2"]
    assert len({node["address"] for node in nodes}) == 2
    rails = nodes[0]["rails"]
    assert len(rails) == 16
    assert rails[4] == {"pci": "0000:47:00.0", "netdev": "rdma4", "rdma": "mlx5_1", "gpu_pci": "0000:50:00.0"}
    assert nodes[0]["front_end"] == ["0000:6b:00.0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, "BM.GPU.B4.8"), "1 or more"),
        ((1, "BM.GPU.B4"), "did you mean"),
        ((1, "AWS-p4d"), "cannot be rehearsed|no rails"),
        ((1, "BM.GPU.B4.8", "ofed"), "doca_ofed, inbox"),
        ((1, "BM.GPU.B4.8", "inbox", "both"), "shared, exclusive"),
    ],
)
def test_wrong_specification(arguments, message):
    with pytest.raises(FleetError, match=message):
        specs.from_shape(*arguments)


def test_addresses_differ_for_many_nodes():
    assert len({node["address"] for node in specs.from_shape(600, "BM.HPC2.36")}) == 600


def test_hosts_of_children_come_once_and_in_order():
    data = {
        "gpu_nodes": {"children": ["a", "b"]},
        "a": {"hosts": ["x", "y"]},
        "b": {"hosts": ["y", "z"], "children": ["a"]},
    }
    assert specs.hosts_of(data, "gpu_nodes") == ["x", "y", "z"]
    assert specs.hosts_of(data, "nothing") == []


def test_inventory_with_own_rails(tmp_path):
    path = tmp_path / "hosts.yml"
    path.write_text(
        "gpu_nodes: {vars: {rails_shape: BM.GPU.B4.8}, hosts: {n1: {}, "
        "n2: "
        "{rails: [{pci: '0000:0c:00.1', netdev: ens9}], rehearsal_driver: inbox, rehearsal_initial_mode: shared}}}\n"
    )
    first, second = specs.from_inventory([path])
    assert len(first["rails"]) == 16
    assert (first["driver"], first["initial_mode"]) == ("doca_ofed", "exclusive")
    assert second["rails"] == [{"pci": "0000:0c:00.1", "netdev": "ens9", "rdma": "mlx5_6", "gpu_pci": "0000:0f:00.0"}]
    assert (second["driver"], second["initial_mode"]) == ("inbox", "shared")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("all: {hosts: {n1: {}}}\n", "no host in group gpu_nodes"),
        ("gpu_nodes: {hosts: {n1: {}}}\n", "no rails_shape"),
        ("gpu_nodes: {hosts: {N_1: {rails_shape: BM.GPU.B4.8}}}\n", "lower-case"),
        ("gpu_nodes: {hosts: {n1: {rails_shape: BM.GPU.B4.8, rails: [a]}}}\n", "'rails' must be a list"),
    ],
)
def test_wrong_inventory(tmp_path, text, message):
    path = tmp_path / "hosts.yml"
    path.write_text(text)
    with pytest.raises(FleetError, match=message):
        specs.from_inventory([path])
    with pytest.raises(FleetError, match="no inventory at"):
        specs.from_inventory([tmp_path / "absent"])


# Recorded processes


@pytest.fixture
def state(tmp_path):
    state = State(tmp_path / "state")
    state.create(["n1"], False, this_process("cli", "cli"))
    return state


def test_spawned_process_is_recorded_before_it_runs(state):
    # The child itself reads the record: it finds its own id there.
    code = (
        "import json, os, sys; rows = json.load(open(sys.argv[1]))['processes']; print(rows[0]['pid'] == os.getpid())"
    )
    child = state.spawn("part", "node", [sys.executable, "-c", code, str(state.path)])
    assert child.wait() == 0
    assert state.tail("part").strip() == "True"


def test_end_spares_a_process_that_took_over_the_id(state):
    child = state.spawn("part", "node", ["sleep", "60"])
    (recorded,) = state.processes()
    assert recorded.alive()
    stranger = Process("part", "node", recorded.pid, recorded.start - 1)
    assert not stranger.alive()
    end([stranger])
    assert child.poll() is None
    assert end([recorded]) == []
    assert not recorded.alive()


def test_end_kills_what_ignores_sigterm(state, monkeypatch):
    monkeypatch.setattr("rehearsal.fleet.state.STOP_SECONDS", 0.3)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    child = state.spawn("deaf", "node", [sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"deaf\n"
    assert end(state.processes()) == ["deaf"]


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(FleetError, match="letter.txt"):
        State(tmp_path).create([], False, this_process("cli", "cli"))
    assert (tmp_path / "letter.txt").exists()


def test_one_command_at_a_time(state):
    with state.locked(), pytest.raises(FleetError, match="another rehearsal command"), State(state.folder).locked():
        pass
    with state.locked():
        pass


# Connections


@pytest.mark.parametrize("folder", ["plain", "with space", 'it\'s 100% "odd" $HOME'])
def test_ssh_reads_the_arguments_as_meant(tmp_path, folder):
    state = tmp_path / folder
    words = shlex.split(connection.ssh_arguments("/usr/bin/python3", state, "gpu-1"))
    if '"' in folder:
        assert "UserKnownHostsFile" in " ".join(words)
        return
    read = subprocess.run(["ssh", "-G", *words, "gpu-1"], capture_output=True, text=True, check=True).stdout
    options = dict(line.split(" ", 1) for line in read.splitlines() if " " in line)
    proxy = shlex.split(options["proxycommand"].replace("%%", "%"))
    assert proxy == [
        "/usr/bin/python3",
        "-I",
        "-S",
        str(connection.CONNECT),
        "--fdpass",
        str(state / "nodes/gpu-1/ssh.sock"),
    ]
    assert options["userknownhostsfile"].replace("%%", "%").strip('"') == str(state / "known_hosts")


def test_fleets_share_no_connection(tmp_path):
    hosts = [
        connection.inventory(tmp_path / name, specs.from_shape(1, "BM.GPU.B4.8"), "/usr/bin/python3", True)["all"][
            "children"
        ]["gpu_nodes"]["hosts"]["gpu-1"]["ansible_host"]
        for name in ("a", "b")
    ]
    assert hosts[0] != hosts[1]


@pytest.mark.parametrize(("own", "expected"), [({}, True), ({"rdma_netns_reboot_allowed": False}, False)])
def test_nodes_may_reboot_unless_the_inventory_says_otherwise(tmp_path, own, expected):
    site, fleet = tmp_path / "site.json", tmp_path / "fleet.json"
    site.write_text(json.dumps({"gpu_nodes": {"hosts": {"gpu-1": {}}, "vars": own}}))
    fleet.write_text(json.dumps(connection.inventory(tmp_path, specs.from_shape(1, "BM.GPU.B4.8"), "python", False)))
    for paths in ([site, fleet], [fleet, site]):
        assert specs.read_inventory(paths)["_meta"]["hostvars"]["gpu-1"]["rdma_netns_reboot_allowed"] is expected


def test_deep_home_goes_without_shared_connection(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/h")
    assert "ControlPath" not in connection.ssh_arguments("/usr/bin/python3", tmp_path, "gpu-1")
    monkeypatch.setenv("HOME", "/" + "h" * 90)
    assert "ControlPath=none" in connection.ssh_arguments("/usr/bin/python3", tmp_path, "gpu-1")


@pytest.mark.parametrize("depth", [1, 30])
@pytest.mark.parametrize("words", [[], ["--fdpass"]])
def test_sockets_at_any_depth(tmp_path, depth, words):
    folder = tmp_path.joinpath(*["deep-folder"] * depth)
    folder.mkdir(parents=True)
    path = folder / "ssh.sock"
    assert depth == 1 or len(str(path)) > 107
    with sockets.listen(path) as server:

        def answer():
            peer, _ = server.accept()
            with peer:
                peer.sendall(peer.recv(100).upper())

        thread = threading.Thread(target=answer)
        thread.start()
        ours, theirs = socket.socketpair()
        child = subprocess.Popen([sys.executable, "-I", connect.__file__, *words, path], stdin=theirs, stdout=theirs)
        theirs.close()
        if words:
            _data, (descriptor,), _flags, _address = socket.recv_fds(ours, 1, 1)
            ours.close()
            ours = socket.socket(fileno=descriptor)
        ours.sendall(b"hello")
        assert ours.recv(100) == b"HELLO"
        ours.close()
        assert child.wait(timeout=20) == 0
        thread.join()


def test_a_node_that_is_down_is_said_so(tmp_path, capsys):
    assert connect.main([str(tmp_path / "ssh.sock")]) == 1
    assert "down or booting" in capsys.readouterr().err
    assert connect.main([]) == 2


# Verdict

RECAP = """\
PLAY RECAP *********
\x1b[0;33mgpu-1\x1b[0m : ok=5 changed={changed} unreachable=0 failed={failed} skipped=1 rescued=0 ignored=0
localhost                  : ok=9    changed=0    unreachable=0    failed=0    skipped=2    rescued=0    ignored=0
"""


def test_recap_is_read():
    rows = play.read_recap("PLAY RECAP ***\nold : ok=1 changed=7\n" + RECAP.format(changed=2, failed=0))
    assert [(row.host, row.counts["changed"], row.failed) for row in rows] == [
        ("gpu-1", 2, False),
        ("localhost", 0, False),
    ]
    assert play.read_recap("nothing of the kind") == []


@pytest.mark.parametrize(
    ("report", "against"),
    [
        ('{"rows": [{"node": "a", "verdict": "pass"}]}', None),
        ('{"rows": [{"node": "a", "verdict": "pass"}, {"node": "b", "verdict": "unknown"}]}', "not passed: b unknown"),
        ('{"rows": [{"node": "a", "verdict": "fail"}]}', "not passed: a fail"),
        ('{"rows": []}', "no node"),
        (None, "no report"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"rows": [{"node": "a"}]}', "cannot be read"),
    ],
)
def test_a_rehearsal_passes_only_when_every_node_passed(report, against):
    found = play.judge_report(report)
    assert found is None if against is None else against in found


@pytest.mark.parametrize(
    ("code", "changed", "failed", "second", "good", "text"),
    [
        (0, 3, 0, False, True, "changed=3"),
        (0, 0, 0, True, True, "changed=0"),
        (0, 1, 0, True, False, "not idempotent, changed: gpu-1=1"),
        (2, 0, 1, False, False, "on gpu-1"),
        (0, 0, 1, True, False, "on gpu-1"),
        (4, 0, 0, True, False, "exit 4"),
    ],
)
def test_verdict(code, changed, failed, second, good, text):
    found, sentence = play.verdict(code, play.read_recap(RECAP.format(changed=changed, failed=failed)), second)
    assert found is good
    assert text in sentence


def test_no_recap_is_no_success():
    assert play.verdict(0, [], second=True)[0] is False


def test_ready_nodes():
    def node(name, status):
        return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": status}]}}

    answer = {"items": [node("a", "True"), node("b", "False"), {"metadata": {"name": "c"}, "status": {}}]}
    assert ready_nodes(answer) == {"a"}


# What a machine lacks


def test_missing_programs_are_named_with_their_packages(monkeypatch):
    monkeypatch.setattr(checks, "search_path", lambda: "/nonexistent")
    (sentence,) = [fault for fault in checks.missing() if "sshd" in fault]
    assert "apt install" in sentence
    assert "openssh-server" in sentence
    assert "kmod" in sentence


def test_missing_python_is_said(monkeypatch):
    monkeypatch.setattr(checks, "NODE_PYTHONS", ("/nonexistent/python3",))
    with pytest.raises(FleetError, match="no Python 3.9"):
        checks.require()


def test_subordinate_ids(tmp_path, monkeypatch):
    path = tmp_path / "subuid"
    path.write_text(f"else:1:65536\n{os.getuid()}:200000:65536\n")
    assert userns.subordinate_range(str(path)) == (200000, 65536)
    path.write_text(f"{os.getuid()}:200000:10\n")
    with pytest.raises(OSError, match="no range of 65536 ids"):
        userns.subordinate_range(str(path))


def test_wrong_arguments_end_with_a_sentence(tmp_path, capsys):
    assert cli.main(["up", "--nodes", "1", "--shape", "BM.GPU.X", "--state", str(tmp_path)]) == 1
    assert "no shape 'BM.GPU.X'" in capsys.readouterr().err
    assert cli.main(["status", "--state", str(tmp_path)]) == 1
    assert cli.main(["down", "--state", str(tmp_path)]) == 0
