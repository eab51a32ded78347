# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rule is, what it looks at, and what it gives back.

A rule is a pure function from a Context to Problems and Unknowns, registered under an id that never changes its
meaning. Its
documentation is its docstring, with the parts *Symptom*, *Cause*, *Evidence*, *Remedy* and *Source*;
``docs/findings.md`` is
made of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

SEVERITIES = ("error", "warning", "info", "unknown")
# What a rule may need to know. A caller asks only for rules whose needs it gathered: inspect has no pods.
INPUTS = ("facts", "kubernetes", "pod")


@dataclass(frozen=True)
class Context:
    """All that is known about one node.

    :param node: inventory name.
    :param layout: the node's layout of the rail model.
    :param facts: ``ansible_facts.rdma`` of the node; None when they could not be gathered.
    :param kubernetes: ``{node: name, allocatable: {resource: text}, attachments: ["namespace/name", …]|None}``;
        None when the cluster does not know the node or was not asked.
    :param pod: the node's entry of pod_rdma_facts with its ``name``; None when there is no test pod.
    """

    node: str
    layout: dict
    facts: dict | None = None
    kubernetes: dict | None = None
    pod: dict | None = None


@dataclass(frozen=True)
class Problem:
    """Something is wrong. evidence is data that shows it, remedy what a person should do."""

    summary: str
    remedy: str
    evidence: dict = field(default_factory=dict)
    rail: int | None = None
    severity: str | None = None


@dataclass(frozen=True)
class Unknown:
    """The check could not be made, and why. It is never a pass."""

    reason: str
    evidence: dict = field(default_factory=dict)
    rail: int | None = None


@dataclass(frozen=True)
class Rule:
    """A registered rule."""

    id: str
    severity: str
    title: str
    needs: tuple[str, ...]
    check: Callable[[Context], Iterable[Problem | Unknown]]

    @property
    def subject(self) -> str:
        return self.id.partition("-")[0].lower()

    @property
    def documentation(self) -> str:
        return inspect.getdoc(self.check) or ""


RULES: dict[str, Rule] = {}


def rule(rule_id: str, severity: str, title: str, needs: tuple[str, ...]):
    """Register a function as the rule ``rule_id``. Raises ValueError for an id that is taken and for unknown words."""
    if rule_id in RULES:
        raise ValueError(f"finding {rule_id} is registered twice")
    if severity not in SEVERITIES or not set(needs) <= set(INPUTS):
        raise ValueError(f"finding {rule_id}: severity {severity!r} or needs {needs!r} are not known")

    def register(check):
        RULES[rule_id] = Rule(rule_id, severity, title, tuple(needs), check)
        return check

    return register
