# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions of the operator: which Kubernetes each takes, and which may follow on which.

The tables are those of the vendor's documentation (Network Operator documentation, "Platform Support" and "Upgrade"), and of the
kubeVersion of the charts.
"""

from __future__ import annotations

import re

# Release -> oldest and newest Kubernetes that the vendor tested; None where nothing is published. In order of release.
TESTED = {
    "25.1": ("1.27", "1.31"),
    "25.4": ("1.29", "1.32"),
    "25.7": ("1.29", "1.32"),
    "25.10": ("1.30", "1.34"),
    "26.1": ("1.31", "1.35"),
    "26.4": ("1.31", "1.35"),
    "26.7": (None, None),
}
RELEASES = tuple(TESTED)
# The chart's own gate (kubeVersion) by operator version, newest first: Helm refuses older clusters. Used where the chart
# itself is not at hand.
GATES = (("26.7", "1.32.0"), ("0", "1.21.0"))
COMPARATOR = re.compile(r"\s*(>=|<=|>|<|=|)\s*v?(\d+(?:\.\d+)*)(?:-[0-9A-Za-z.-]+)?\s*,?")


def numbers(version):
    """The leading numbers of a version, padded to three: ``v26.7.0-rc.2`` is (26, 7, 0)."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", str(version or ""))
    found = [int(n) for n in match.group(1).split(".")] if match else []
    return tuple(found + [0] * (3 - len(found)))


def release_of(version):
    """``26.7`` of ``v26.7.1``."""
    return ".".join(map(str, numbers(version)[:2]))


def gate(operator):
    """The oldest Kubernetes that the operator's chart accepts, by its version alone."""
    return next(floor for since, floor in GATES if numbers(operator) >= numbers(since))


def gate_allows(constraint, version):
    """Whether a chart's kubeVersion allows a version of Kubernetes; None when the constraint has forms that only Helm knows
    (``||``, ``~``, ``^``, ``x``)."""
    text, position, allowed = constraint or "", 0, True
    while position < len(text.rstrip()):
        match = COMPARATOR.match(text, position)
        if not match:
            return None
        operator, wanted = match.group(1) or "=", numbers(match.group(2))
        have = numbers(version)
        allowed = (
            allowed
            and {
                ">=": have >= wanted,
                "<=": have <= wanted,
                ">": have > wanted,
                "<": have < wanted,
                "=": have == wanted,
            }[operator]
        )
        position = match.end()
    return allowed


def kubernetes(operator, version, constraint=None):
    """(mistakes, warnings) of a version of Kubernetes for a version of the operator.

    :param constraint: kubeVersion of the chart; the table when not given.
    """
    constraint = constraint or f">= {gate(operator)}"
    allowed = gate_allows(constraint, version)
    older = "upgrade the cluster or set an older network_operator_version"
    if allowed is False:
        return [f"Kubernetes is {version}, the chart of {operator} takes {constraint}; {older}"], []
    oldest, newest = TESTED.get(release_of(operator), (None, None))
    if oldest and numbers(version) < numbers(oldest):
        text = f"Kubernetes is {version}, the vendor supports {release_of(operator)} from {oldest} on; {older}"
        return [text], []
    if newest and numbers(version)[:2] > numbers(newest)[:2]:
        return [], [f"Kubernetes is {version}; the vendor tested {release_of(operator)} up to {newest}"]
    return [], []


def _position(release):
    """Place in the order of releases; between two known ones for a release that is not in the table."""
    if release in RELEASES:
        return float(RELEASES.index(release))
    before = [r for r in RELEASES if numbers(r) < numbers(release)]
    return len(before) - 0.5 if len(before) < len(RELEASES) else float(len(RELEASES))


def upgrade(installed, wanted):
    """Mistake of going from one version of the operator to another, or None.

    The vendor supports an upgrade inside a release and to the next one only, and no way back.
    """
    if numbers(wanted) < numbers(installed) and release_of(wanted) != release_of(installed):
        return (
            f"The operator is {installed}, wanted is {wanted}: it does not go back to an earlier release; set "
            f"network_operator_version to {installed} or newer"
        )
    here, there = _position(release_of(installed)), _position(release_of(wanted))
    if there - here > 1:
        between = [r for r in RELEASES if here < _position(r) < there]
        through = " and ".join(between)
        return (
            f"The operator is {installed}, wanted is {wanted}: an upgrade goes to the next release only. Set "
            f"network_operator_version to a version of {between[0]} first, apply the rails, then go on (through {through})"
        )
    return None
