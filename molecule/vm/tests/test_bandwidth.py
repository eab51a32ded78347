# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ib_write_bw between the two machines, over soft-RoCE on all rails at once: the collection's own script, commands, parser
and judgement, over ssh. tcpdump tells what was on the wire."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from pathlib import Path

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth import commands, judge, session
from ansible_collections.railyard.rdma.plugins.module_utils.rdma.gid import best_gid_index

SERVER, CLIENT = "vm-initramfs", "vm-dracut"
NUMBERS = {SERVER: 1, CLIENT: 2}  # that end their addresses (inventory/host_vars)
RAILS = range(4)
TRAFFIC_CLASS = 105
FRAMES = 4  # of each rail to look at
PATIENCE = 300  # seconds; only ends a test that would hang


@pytest.fixture(scope="module")
def machines():
    folder = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
    groups = (folder / "machines/inventory.yml").read_text().partition("\n{")[2]
    hosts = json.loads("{" + groups)["all"]["children"]["gpu_nodes"]["hosts"]
    return {
        name: {"ssh": ssh(values), "facts": json.loads((folder / f"{name}.facts.json").read_text())["host"]}
        for name, values in hosts.items()
    }


def ssh(values):
    """The command that reaches a machine, by a connection of its own: what runs there must end with it."""
    words = [
        "ssh",
        "-T",
        "-o",
        "ControlPath=none",
        "-p",
        str(values["ansible_port"]),
        "-i",
        values["ansible_ssh_private_key_file"],
    ]
    return [*words, *shlex.split(values["ansible_ssh_common_args"]), f"root@{values['ansible_host']}"]


def endpoint(name, machine):
    """The machine's rails as the product would test them: the GID index is chosen from the table."""
    rails = {}
    for rail in RAILS:
        port = machine["facts"]["devices"][f"rxe_rdma{rail}"]["ports"]["1"]
        address = f"10.224.{rail}.{NUMBERS[name]}"
        index = best_gid_index(port["gids"], address)
        assert index is not None, port["gids"]
        rails[rail] = {"device": f"rxe_rdma{rail}", "gid_index": index, "address": address}
    return {"host": name, "node": name, "pod": None, "rails": rails}


class Capture:
    """tcpdump on every rail of a machine."""

    def __init__(self, machine):
        each = f"timeout {PATIENCE} tcpdump -l -nn -v -c {FRAMES} -i rdma$rail udp dst port 4791 2>&1 | sed -u s/^/$rail:/ &"
        command = f"for rail in {' '.join(map(str, RAILS))}; do {each} done; wait"
        self.stream, self.text = session.ProcessStream([*machine["ssh"], command]), ""

    def until(self, done):
        limit = time.monotonic() + PATIENCE
        while not done(self.text):
            assert time.monotonic() < limit, self.text
            data = self.stream.receive(1)
            if data is None:
                return
            self.text += data.decode()


@pytest.fixture(scope="module")
def outcome(machines):
    """(rows of the product, what tcpdump saw where the frames arrive)."""
    # A completion for each message: emulated CPUs get few of them done.
    settings = commands.check({"seconds": 10, "size": 1024, "traffic_class": TRAFFIC_CLASS, "more": ["-Q", "1"]})
    capture = Capture(machines[SERVER])
    try:
        capture.until(lambda text: text.count("listening on") == len(RAILS))
        run = session.run_leg(
            endpoint(CLIENT, machines[CLIENT]),
            endpoint(SERVER, machines[SERVER]),
            settings,
            lambda end, argv: session.ProcessStream([*machines[end["host"]]["ssh"], shlex.join(argv)]),
        )
        capture.until(lambda text: text.count("packets captured") == len(RAILS))
    finally:
        capture.stream.close()
    return judge.rows(run, settings, 1), capture.text


def test_every_rail_is_measured(outcome):
    rows, _text = outcome
    assert [row["rail"] for row in rows] == list(RAILS)
    for row in rows:
        # Two decimals of Gb/s are too few for emulated CPUs that others keep busy; the rate of messages has six.
        assert row["gbps"] is not None and row["mpps"] > 0, row
        # The rate of a soft-RoCE port means nothing, so a share of it would not either.
        assert (row["verdict"], row["ratio"]) == ("unknown", None), row


def test_counters_of_both_ends_moved(outcome):
    for row in outcome[0]:
        sent, received = (row["counters"][side] for side in ("client", "server"))
        assert sent["hw_counters/sent_pkts"] > 0 and received["hw_counters/rcvd_pkts"] > 0, row


def test_the_class_is_on_the_wire_of_every_rail(outcome):
    found = re.findall(r"^(\d):.*\(tos (0x[0-9a-f]+)", outcome[1], re.M)
    # The DSCP: the queue of a busy sender marks frames by the two ECN bits.
    seen = {rail: {int(tos, 16) >> 2 for number, tos in found if int(number) == rail} for rail in RAILS}
    assert seen == {rail: {TRAFFIC_CLASS >> 2} for rail in RAILS}, outcome[1]


@pytest.mark.parametrize("name", [SERVER, CLIENT])
def test_no_process_is_left(machines, name, outcome):
    stream = session.ProcessStream([*machines[name]["ssh"], "ps -eo args; echo end"])
    text = b""
    while not text.endswith(b"end\n"):
        data = stream.receive(PATIENCE)
        assert data, text
        text += data
    stream.close()
    left = [line for line in text.decode().splitlines() if re.search(r"ib_write_bw|tcpdump", line)]
    assert left == []
