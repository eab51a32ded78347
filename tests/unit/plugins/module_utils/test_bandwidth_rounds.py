# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rounds of pairs, command lines, and the time that a benchmark takes."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth import commands, rounds, runner
from hypothesis import given
from hypothesis import strategies as st


def nodes(count: int) -> list[str]:
    return [f"gpu-{number}" for number in range(count)]


@given(st.integers(0, 60))
def test_a_ring_is_linear_and_never_loads_a_port_twice(count):
    made = rounds.plan([nodes(count)])
    pairs = [pair for group in made for pair in group]
    assert len(pairs) == (count if count > 1 else 0)
    assert len(made) == (0 if count < 2 else 3 if count % 2 else 2)
    for group in made:
        used = [name for pair in group for name in pair]
        assert len(used) == len(set(used))
    if count > 1:
        assert (
            sorted(client for client, _server in pairs)
            == sorted(server for _client, server in pairs)
            == sorted(nodes(count))
        )


@given(st.integers(0, 14))
def test_a_matrix_has_every_ordered_pair_once(count):
    made = rounds.plan([nodes(count)], "matrix")
    pairs = [pair for group in made for pair in group]
    assert sorted(pairs) == sorted((a, b) for a in nodes(count) for b in nodes(count) if a != b)
    for group in made:
        used = [name for pair in group for name in pair]
        assert len(used) == len(set(used))


def test_two_nodes_are_tested_in_both_directions():
    assert rounds.ring(["a", "b"]) == [[("a", "b")], [("b", "a")]]


def test_groups_run_side_by_side():
    assert rounds.plan([["a", "b"], ["c", "d"], ["alone"]]) == [[("a", "b"), ("c", "d")], [("b", "a"), ("d", "c")]]


def test_bad_plans_are_refused():
    with pytest.raises(ValueError, match="pattern: got 'star', allowed are ring and matrix"):
        rounds.plan([["a", "b"]], "star")
    with pytest.raises(ValueError, match="twice: a"):
        rounds.plan([["a", "b"], ["a", "c"]])


RAIL = {"device": "mlx5_26", "gid_index": 3, "address": "192.168.0.34"}


def test_the_command_of_the_articles():
    settings = commands.check({"traffic_class": 41})
    line = commands.write_bw(settings, RAIL, 18515, "192.168.0.102")
    assert " ".join(line) == (
        "ib_write_bw -d mlx5_26 -x 3 -F --report_gbits -D 5 -s 65536 -q 1 -p 18515 --tclass=41 192.168.0.102"
    )
    assert commands.write_bw(settings, RAIL, 18515) == line[:-1]


def test_ipv6_both_directions_and_more_words():
    settings = commands.check({"bidirectional": True, "more": ["--use_cuda=0"]})
    rail = {**RAIL, "address": "2001:db8::1"}
    line = commands.write_bw(settings, rail, 18515, "2001:db8::2")
    assert line[-4:] == ["-b", "--ipv6-addr", "--use_cuda=0", "2001:db8::2"]
    assert "--ipv6-addr" in commands.write_bw(settings, rail, 18515)
    assert not any(word.startswith("--tclass") for word in line)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seconds", 1),
        ("seconds", "5"),
        ("seconds", True),
        ("size", 0),
        ("queue_pairs", 0),
        ("traffic_class", 256),
        ("port", 80),
    ],
    ids=["short", "text", "bool", "size", "qps", "class", "port"],
)
def test_a_wrong_setting_is_named(name, value):
    with pytest.raises(ValueError, match=rf"{name}: got .*, want a whole number from"):
        commands.check({name: value})


def test_an_unknown_setting_is_refused():
    with pytest.raises(ValueError, match="settings: secs is not known"):
        commands.check({"secs": 5})


def endpoint(host: str, rails: dict, **more) -> dict:
    return {"host": host, "pod": f"pod-{host}", "namespace": "default", "rails": rails, **more}


def test_a_leg_takes_the_rails_of_both_sides_and_tells_of_the_others():
    client = endpoint("a", {0: RAIL, 1: RAIL}, missing={2: "no interface"}, traffic_class=41)
    server = endpoint("b", {"0": RAIL, "2": RAIL}, missing={"1": "no GID"})
    servers, clients, left_out = commands.leg(commands.check({}), client, server, stream=1)
    assert [test["rail"] for test in servers] == [test["rail"] for test in clients] == [0]
    assert clients[0]["port"] == 18515 + 256
    assert "--tclass=41" in clients[0]["argv"] and "--tclass=41" in servers[0]["argv"]
    assert left_out == {1: "b: no GID", 2: "a: no interface"}


@pytest.mark.parametrize(
    ("endpoints", "streams", "text"),
    [
        ([{"host": "a"}], 1, "endpoints: a: pod, namespace, rails is missing"),
        ([endpoint("a", {}), endpoint("a", {})], 1, "host a has two endpoints for stream 0"),
        ([endpoint("a", {})], 1, "there are not 1 for b"),
        ([endpoint("a", {}), endpoint("b", {})], 2, "there are not 2 for a, b"),
    ],
    ids=["incomplete", "twice", "absent", "streams"],
)
def test_bad_endpoints_are_refused(endpoints, streams, text):
    with pytest.raises(ValueError, match=text):
        runner.Endpoints(endpoints, [["a", "b"]], streams)


@given(st.integers(2, 300), st.integers(1, 64))
def test_time_follows_the_formula_of_the_docs(count, threads):
    made = rounds.plan([nodes(count)])
    settings = commands.check({"seconds": 5})
    took = runner.seconds(made, settings, 16, threads)
    half = count // 2
    batches = 2 * -(-half // threads) + (1 if count % 2 else 0)
    assert took == 8 * batches
    assert runner.seconds(made, {**settings, "together": False}, 16, threads) == (7 * 16 + 1) * batches


def test_an_error_in_a_pair_ends_the_others():
    rails = {0: RAIL}
    made = runner.Endpoints([endpoint(name, rails) for name in "abcd"], [list("abcd")], 1)

    def run(legs, settings, opened):
        raise KeyError(legs[0]["client"]["host"])

    with pytest.raises(KeyError):
        runner.run_round([("a", "b"), ("c", "d")], 0, made, commands.check({}), None, 1, 0.9, run=run)
