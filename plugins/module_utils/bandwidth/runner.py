# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A round of a benchmark over many pods: which endpoints meet, and what comes of it. Standard library only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.railyard.rdma.plugins.module_utils.bandwidth import commands, judge, rounds, session


class Endpoints:
    """Endpoints by host and stream. ValueError for input that is none."""

    def __init__(self, endpoints: list[dict], groups: list[list[str]], streams: int) -> None:
        self.by_key: dict[tuple[str, int], dict] = {}
        for one in endpoints:
            lacks = [
                key
                for key in ("host", "pod", "namespace", "rails")
                if not isinstance(one.get(key), dict if key == "rails" else str)
            ]
            if lacks:
                raise ValueError(
                    f"endpoints: {str(one.get('host') or one)[:80]}: {', '.join(lacks)} is missing or of the wrong type"
                )
            key = (one["host"], int(one.get("stream") or 0))
            if key in self.by_key:
                raise ValueError(f"endpoints: host {key[0]} has two endpoints for stream {key[1]}")
            self.by_key[key] = one
        self.streams = range(streams)
        self.groups = groups
        absent = sorted(
            {host for group in groups for host in group for stream in self.streams if (host, stream) not in self.by_key}
        )
        if absent:
            raise ValueError(f"endpoints: there are not {streams} for {', '.join(absent)}, which the groups name")

    def legs(self, client: str, server: str) -> list[dict]:
        """The legs of a pair, one for each stream."""
        return [
            {"client": self.by_key[client, stream], "server": self.by_key[server, stream], "stream": stream}
            for stream in self.streams
        ]


class Stoppable:
    """A stream that breaks when the run is to end."""

    def __init__(self, stream, stop: threading.Event) -> None:
        self._stream, self._stop = stream, stop
        self.send, self.close = stream.send, stream.close

    def receive(self, seconds: float) -> bytes | None:
        """See :mod:`session`."""
        if self._stop.is_set():
            raise session.StreamError("the run was ended")
        return self._stream.receive(seconds)


def run_round(
    pairs: list[tuple[str, str]],
    number: int,
    endpoints: Endpoints,
    settings: dict,
    open_stream: Callable,
    threads: int,
    low: float,
    run=session.run_legs,
) -> list[dict]:
    """Results of one round, in the order of the pairs; at most ``threads`` pairs at a time.

    An error of one pair must not hide what the others measured: its rails are unknown then.
    """
    stop = threading.Event()

    def opened(endpoint: dict, argv: list[str]) -> Stoppable:
        return Stoppable(open_stream(endpoint, argv), stop)

    def one(pair: tuple[str, str]) -> list[dict]:
        if stop.is_set():
            return []
        legs = endpoints.legs(*pair)
        try:
            made = [
                row
                for outcome in run(legs, settings, open_stream)
                for row in judge.rows(outcome, settings, number, low)
            ]
        except BaseException:
            stop.set()  # a signal, or a mistake of ours: start nothing more
            raise
        judge.share_ports(made, low)
        return made

    with ThreadPoolExecutor(max_workers=max(1, min(threads, len(pairs) or 1))) as pool:
        try:
            return [row for made in pool.map(one, pairs) for row in made]
        except BaseException:
            stop.set()  # a signal reaches this thread only; without this the others would run to their end
            raise


def plan(endpoints: Endpoints, pattern: str) -> list[list[tuple[str, str]]]:
    """The rounds; see :func:`rounds.plan`."""
    return rounds.plan(endpoints.groups, pattern)


def seconds(made: list[list[tuple[str, str]]], settings: dict, rails: int, threads: int) -> int:
    """About how long the rounds take when nothing goes wrong: each test, two seconds to connect and to leave, and a second
    for the streams; more often where a round has more pairs than threads."""
    one = (settings["seconds"] + 2) * (1 if settings["together"] else max(1, rails)) + 1
    return sum(one * -(-len(pairs) // threads) for pairs in made if pairs)


def told_settings(settings: dict, streams: int, endpoints: list[dict]) -> dict:
    """The settings as the result shows them; the traffic class is None where nodes have several."""
    shown = {key: settings[key] for key in ("seconds", "size", "queue_pairs", "traffic_class", "bidirectional")}
    classes = {one.get("traffic_class") for one in endpoints}
    if shown["traffic_class"] is None and len(classes) == 1:
        shown["traffic_class"] = classes.pop()
    return {**shown, "rails": "together" if settings["together"] else "one_by_one", "share": streams > 1}


def check(settings: dict) -> dict:
    """See :func:`commands.check`."""
    return commands.check(settings)
