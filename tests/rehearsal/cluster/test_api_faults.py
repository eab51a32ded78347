# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults at the API while one layout becomes another: what passes is recovered from, what lasts is told with what was
done and what not, and the next run finishes it. Over real HTTP against the API stand-in."""

from __future__ import annotations

import functools
import re
import threading
from pathlib import Path

import pytest
import yaml
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import auth
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api
from ansible_collections.railyard.rdma.plugins.modules import rail_objects, rail_state, rail_wait

from tests.rehearsal.cluster import layouts
from tests.rehearsal.cluster.door import Door

OLD, NEW = layouts.layout("old"), layouts.layout("new")
# Every step of the change that writes: what is sent, for which kind.
STEPS = [
    *(("DELETE", kind) for kind in ("SriovNetwork", "NetworkAttachmentDefinition", "SriovNetworkNodePolicy")),
    ("DELETE", "SriovNetworkPoolConfig"),
    *(("PATCH", kind) for kind in layouts.PLURALS),
    ("DELETE", "IPPool"),
    ("DELETE", "CIDRPool"),
]
READS = [("GET", kind) for kind in layouts.PLURALS]
PASSING = {
    "no-answer": {"status": 0, "count": 2},
    "busy": {"status": 429, "retryAfter": 1, "count": 2},
    "lost-lock": {"status": 409, "count": 2},
    "broken": {"status": 500, "count": 2},
    "starting": {"status": 503, "count": 3},
    "slow": {"status": 504, "count": 1},
}
LASTING = {
    "no-answer": ({"status": 0, "count": 99}, "no answer: "),
    "busy": ({"status": 429, "retryAfter": 1, "count": 99}, "429"),
    "lost-lock": ({"status": 409, "count": 99}, "409"),
    "broken": ({"status": 500, "count": 99}, "500"),
    "forbidden": ({"status": 403, "count": 99}, "permission"),
}


@pytest.fixture(scope="module")
def kinds(cluster):
    layouts.install_kinds(cluster.api())
    return cluster


@pytest.fixture
def old(kinds, capsys, monkeypatch):
    """A server with the old layout and no fault, and clients that do not sleep between their tries."""
    monkeypatch.setattr(auth, "Api", functools.partial(Api, pause=lambda seconds: None))
    api = kinds.api()
    order(api, None)
    change(kinds, capsys, [])
    done = change(kinds, capsys, OLD)
    assert done["counts"]["created"] == len(OLD)
    yield kinds
    order(api, None)


def order(api, fault):
    if fault is None:
        api.request("DELETE", "/rehearsal/faults")
    else:
        api.request("POST", "/rehearsal/faults", body=fault)


def change(cluster, capsys, objects, **options):
    return cluster.run(capsys, rail_objects, objects=objects, prune=layouts.PRUNE, **options)


def at(verb, kind, fault):
    """A fault for requests that really write (or read) objects of a kind, not for dry runs."""
    path = rf"/{layouts.PLURALS[kind]}(/[^?]*)?\?(?!.*dryRun)" if verb != "GET" else rf"/{layouts.PLURALS[kind]}\?"
    return {**fault, "method": verb, "path": path}


def in_turn(steps, faults, shift=0):
    """Every step with one fault; the faults take turns, so that each meets several kinds and verbs."""
    names = list(faults)
    return [(*step, names[(number + shift) % len(names)]) for number, step in enumerate(steps)]


@pytest.mark.parametrize(("verb", "kind", "name"), in_turn([*READS, *STEPS], PASSING), ids=lambda value: value)
def test_what_passes_is_recovered_from(old, capsys, verb, kind, name):
    order(old.api(), at(verb, kind, PASSING[name]))
    done = change(old, capsys, NEW)
    assert not done.get("failed"), done
    assert layouts.names(old.api()) == layouts.names_of(NEW)
    assert done["counts"]["deleted"] == len(OLD)


@pytest.mark.parametrize(("verb", "kind", "name"), in_turn(STEPS, LASTING), ids=lambda value: value)
def test_what_lasts_is_told_with_what_was_done_and_the_next_run_finishes(old, capsys, verb, kind, name):
    fault, said = LASTING[name]
    order(old.api(), at(verb, kind, fault))
    failed = change(old, capsys, NEW)
    there = layouts.names(old.api())
    order(old.api(), None)
    assert failed["failed"] and said in failed["msg"], failed
    every = {label(o) for o in (*OLD, *NEW)}
    done = {f"{r['kind']} {r['namespace']}/{r['name']}" for r in failed["objects"]}
    assert done | set(failed["not_done"]) == every and not done & set(failed["not_done"])
    # What the message says was done is so in the cluster, and nothing else is.
    deleted = {(r["kind"], r["name"]) for r in failed["objects"] if r["action"] == "deleted"}
    created = {(r["kind"], r["name"]) for r in failed["objects"] if r["action"] == "created"}
    assert there == layouts.names_of(OLD) - deleted | created
    again = change(old, capsys, NEW)
    assert not again.get("failed") and layouts.names(old.api()) == layouts.names_of(NEW)


def label(obj):
    return f"{obj['kind']} {obj['metadata']['namespace']}/{obj['metadata']['name']}"


@pytest.mark.parametrize(("verb", "kind", "name"), in_turn(READS, LASTING), ids=lambda value: value)
def test_a_cluster_that_cannot_be_read_is_left_alone(old, capsys, verb, kind, name):
    fault, _said = LASTING[name]
    order(old.api(), at(verb, kind, fault))
    failed = change(old, capsys, NEW)
    order(old.api(), None)
    assert failed["failed"] and not failed.get("changed") and "reading the cluster failed" in failed["msg"]
    assert layouts.names(old.api()) == layouts.names_of(OLD)


def test_the_state_says_what_it_may_not_read_and_fails_at_what_breaks(old, capsys):
    order(old.api(), at("GET", "IPPool", {"status": 403, "count": 9}))
    seen = old.run(capsys, rail_state, namespace=layouts.NS)
    assert seen["state"]["ip_pools"] is None and seen["state"]["reasons"]["ip_pools"]
    assert {p["metadata"]["name"] for p in seen["state"]["policies"]} == {"old-0", "old-1"}
    order(old.api(), None)
    order(old.api(), at("GET", "IPPool", {"status": 500, "count": 99}))
    assert "HTTP status 500" in old.run(capsys, rail_state, namespace=layouts.NS)["msg"]


@pytest.fixture
def door(old, tmp_path):
    """The same server behind a door, and the kubeconfig that leads there."""
    config = yaml.safe_load(Path(old.kubeconfig).read_text())
    server = config["clusters"][0]["cluster"]
    direct = int(re.search(r":(\d+)", server["server"])[1])
    found = Door(direct)
    server["server"] = re.sub(r":\d+", f":{found.port}", server["server"], count=1)
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    straight, old.kubeconfig = old.kubeconfig, str(path)
    yield found
    old.kubeconfig = straight
    found.close()


@pytest.mark.parametrize("writes", [0, 9, 14], ids=lambda value: f"after-{value}-writes")
def test_a_server_that_goes_away_in_the_middle(old, door, capsys, writes):
    """Dry runs count as writes here: the first eight requests are the rehearsal of the new objects."""
    door.close_after(writes)
    failed = change(old, capsys, NEW)
    door.open()
    assert failed["failed"] and "answer" in failed["msg"]
    assert failed["not_done"]
    again = change(old, capsys, NEW)
    assert not again.get("failed"), again
    assert layouts.names(old.api()) == layouts.names_of(NEW)


def test_a_server_that_comes_back_in_time_is_not_noticed(old, door, capsys, monkeypatch):
    """The pauses between tries are where it comes back."""

    def pause(seconds):
        if door._listener is None:
            door.open()

    monkeypatch.setattr(auth, "Api", functools.partial(Api, pause=pause))
    door.close_after(10)
    done = change(old, capsys, NEW)
    assert not done.get("failed"), done
    assert layouts.names(old.api()) == layouts.names_of(NEW)


def test_a_wait_goes_on_when_the_server_comes_back(old, door, capsys, monkeypatch):
    door.close()
    opener = threading.Timer(1.0, door.open)
    opener.start()
    try:
        done = old.run(capsys, rail_wait, crds=["ippools.nv-ipam.nvidia.com"], timeout=60, interval=0.2)
    finally:
        opener.join()
    assert done["ready"], done
    assert done["progress"][-1]["missing"] == 0


def test_a_wait_whose_server_stays_away_says_so(old, door, capsys):
    door.close()
    late = old.run(capsys, rail_wait, crds=["ippools.nv-ipam.nvidia.com"], timeout=1, interval=0.2)
    door.open()
    assert late["failed"] and "answer" in late["msg"], late
