# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes are tested with which, round after round. Pure.

A pair is ``(client, server)``. In a round each node is in at most one pair, so no port carries two tests. Which nodes may
be paired is the caller's: nodes of different layouts have different rails.

A ring of n nodes has n pairs: two rounds when n is even, three when it is odd, whatever n is. Every node is once a client
and once a server, so a slow node shows in two pairs and a slow way between two nodes in one. A matrix of all ordered
pairs has n * (n - 1) pairs in 2 * (n - 1) rounds (2 * n when n is odd).
"""

from __future__ import annotations

RING, MATRIX = "ring", "matrix"


def ring(nodes: list[str]) -> list[list[tuple[str, str]]]:
    """Rounds of a ring: every node with the next one. Two nodes make two rounds, one in each direction."""
    count = len(nodes)
    if count < 2:
        return []
    pairs = [(nodes[at], nodes[(at + 1) % count]) for at in range(count)]
    if count % 2:
        # The last pair of an odd ring meets both the first and the one before it.
        return [pairs[0 : count - 1 : 2], pairs[1 : count - 1 : 2], pairs[count - 1 :]]
    return [pairs[0::2], pairs[1::2]]


def matrix(nodes: list[str]) -> list[list[tuple[str, str]]]:
    """Rounds of all ordered pairs, by the circle method: one place stands still, the others turn by one."""
    if len(nodes) < 2:
        return []
    places: list[str | None] = [*nodes, None] if len(nodes) % 2 else list(nodes)
    half, rounds = len(places) // 2, []
    for _turn in range(len(places) - 1):
        there = [
            (first, second)
            for first, second in zip(places[:half], reversed(places[half:]))
            if first is not None and second is not None
        ]
        rounds += [there, [(second, first) for first, second in there]]
        places = [places[0], places[-1], *places[1:-1]]
    return rounds


def plan(groups: list[list[str]], pattern: str = RING) -> list[list[tuple[str, str]]]:
    """Rounds for several groups of nodes at once: the first rounds of all groups run together, then the second ones.

    :param groups: names of nodes that may be paired with each other; a node is in one group.
    :param pattern: ``ring`` or ``matrix``.
    :raises ValueError: another pattern, or a node that is there twice.
    """
    if pattern not in (RING, MATRIX):
        raise ValueError(f"pattern: got {pattern!r}, allowed are {RING} and {MATRIX}")
    names = [name for group in groups for name in group]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"nodes that are there twice: {', '.join(twice)}")
    made = [(ring if pattern == RING else matrix)(group) for group in groups]
    longest = max((len(rounds) for rounds in made), default=0)
    return [[pair for rounds in made for pair in (rounds[at] if at < len(rounds) else [])] for at in range(longest)]
