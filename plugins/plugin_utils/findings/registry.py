# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rule is, what it looks at, and what it gives back.

A rule is a pure function from a Context to Problems and Unknowns, registered under an id that never changes its
meaning. Its documentation is its docstring, with the parts *Symptom*, *Cause*, *Evidence*, *Remedy* and *Source*;
``docs/findings.md`` is made of it.

A finding names its rail. When one cause holds for every rail of a node, one finding with rail None stands for all of
them and ``evidence.rails`` lists them: sixteen times the same sentence would hide the others.

A fleet rule compares the nodes of one layout. Its Problems name the node that they are about, by ``Problem.node``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

SEVERITIES = ("error", "warning", "info", "unknown")
# What a rule may need to know. A caller asks only for rules whose needs it gathered: inspect has no pods.
# "cluster" is what the module rail_state read: it takes many lists, so only callers that ask for it have it. "operator" is what
# operator_ready read. "returned" are facts of the node after its test pods went.
INPUTS = ("facts", "kubernetes", "pod", "cluster", "operator", "returned", "nccl", "bandwidth")
USUAL_INPUTS = INPUTS[:3]
NODE, FLEET = "node", "fleet"
# Playbooks that cure what a rule finds, or refuse to go on with the reason.
CURES = ("prepare_nodes",)


@dataclass(frozen=True)
class Context:
    """All that is known about one node.

    :param node: inventory name.
    :param layout: the node's layout of the rail model.
    :param facts: ``ansible_facts.rdma`` of the node; None when they could not be gathered.
    :param kubernetes: ``{node: name, allocatable: {resource: text}, labels, attachments: ["namespace/name", …]|None,
        chains: {"namespace/name": [plugin type, …]|None}|None,
        pools: [SriovNetworkPoolConfig, …]|None, holders: ["namespace/name", …]|None}``, where holders are other pods of
        the node that ask for its rails; None when the cluster does not know the node or was not asked.
    :param pod: the node's entry of pod_rdma_facts with its ``name``; None when there is no test pod.
    :param before: ``ansible_facts.rdma`` of an earlier run, None when there is none.
    :param addresses: addresses by which the node is reached: ansible_host and those of the Node object.
    :param cluster: what rail_state returned as ``state`` (a part is None when it could not be read, with the reason in
        ``reasons``), with ``wanted`` (the objects that are to be applied), ``hosts`` (node name by inventory host, None
        where the cluster has none) and ``drain_limit``; one for all nodes, None when the cluster was not asked.
    :param operator: what operator_ready returned as ``operator``; one for all nodes, None when it was not asked.
    :param nccl: what the NCCL test found about this node (plugin_utils/nccl/result.py, host_part); None when it did not run.
    :param bandwidth: what a benchmark measured about this node (plugin_utils/bandwidth.py, of_host); None when none ran.
    :param returned: ``ansible_facts.rdma`` of the node, gathered after its test pods went; None when it was not.
    :param parts: where a node has several test pods, ``(layout, pod)`` of each, with the rails that it asked for; ``pod``
        is then the first one. Rules that need a pod see one after the other.
    """

    node: str
    layout: dict
    facts: dict | None = None
    kubernetes: dict | None = None
    pod: dict | None = None
    before: dict | None = None
    addresses: tuple[str, ...] = ()
    cluster: dict | None = None
    operator: dict | None = None
    returned: dict | None = None
    parts: tuple[tuple[dict, dict | None], ...] = ()
    nccl: dict | None = None
    bandwidth: dict | None = None

    def of_each_pod(self) -> list[Context]:
        """This node as each of its test pods has it."""
        return [replace(self, layout=layout, pod=pod, parts=()) for layout, pod in self.parts] or [self]


@dataclass(frozen=True)
class Problem:
    """Something is wrong. evidence is data that shows it, remedy what a person should do.

    severity is that of the rule when None; node is needed from fleet rules only.
    """

    summary: str
    remedy: str
    evidence: dict = field(default_factory=dict)
    rail: int | None = None
    severity: str | None = None
    node: str | None = None


@dataclass(frozen=True)
class Unknown:
    """The check could not be made, and why. It is never a pass."""

    reason: str
    evidence: dict = field(default_factory=dict)
    rail: int | None = None
    node: str | None = None


class Unreadable(ValueError):
    """A whole part of the facts could not be read, so no rule that needs it can judge."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"the {part} could not be read: {reason}")
        self.part = part


@dataclass(frozen=True)
class Rule:
    """A registered rule.

    :param scope: ``node`` for a check of one Context, ``fleet`` for a check of the list of Contexts of one layout.
    :param cured_by: the playbook that cures it, None when a person has to.
    :param unrehearsed: why no rehearsal node can show it; empty when one can.
    """

    id: str
    severity: str
    title: str
    needs: tuple[str, ...]
    check: Callable[..., Iterable[Problem | Unknown]]
    scope: str = NODE
    cured_by: str | None = None
    unrehearsed: str = ""

    @property
    def subject(self) -> str:
        return self.id.partition("-")[0].lower()

    @property
    def documentation(self) -> str:
        return inspect.getdoc(self.check) or ""


RULES: dict[str, Rule] = {}


def rule(
    rule_id: str,
    severity: str,
    title: str,
    needs: tuple[str, ...],
    scope: str = NODE,
    cured_by: str | None = None,
    unrehearsed: str = "",
):
    """Register a function as the rule ``rule_id``. Raises ValueError for an id that is taken and for unknown words."""
    if rule_id in RULES:
        raise ValueError(f"finding {rule_id} is registered twice")
    if severity not in SEVERITIES or not set(needs) <= set(INPUTS):
        raise ValueError(f"finding {rule_id}: severity {severity!r} or needs {needs!r} are not known")
    if scope not in (NODE, FLEET) or cured_by not in (None, *CURES):
        raise ValueError(f"finding {rule_id}: scope {scope!r} or cured_by {cured_by!r} are not known")

    def register(check):
        RULES[rule_id] = Rule(rule_id, severity, title, tuple(needs), check, scope, cured_by, unrehearsed)
        return check

    return register
