# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the rules over contexts and make findings: ``{id, severity, node, pod, rail, summary, evidence, remedy,
tolerated}``."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings import (
    boot,
    cni,
    gid,
    netns,
    qos,
    resource,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import (
    INPUTS,
    RULES,
    SEVERITIES,
    Context,
    Problem,
    Rule,
    Unknown,
)

# Importing a subject registers its rules.
SUBJECTS = (boot, cni, gid, netns, qos, resource)
RETRY = "Find out why the check could not be made, and run it again."


def check(rule: Rule, context: Context) -> list[Problem | Unknown]:
    """All that one rule says about one context. What it needs and does not have makes it unknown, and so does its own
    failure."""
    for need in rule.needs:
        if getattr(context, need) is None:
            return [Unknown(f"{rule.title}: not checked, {_ABSENT[need]}")]
    try:
        return list(rule.check(context))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        # Facts may come from an older version or a cache; a shape that the rule does not know must not pass as healthy.
        return [Unknown(f"{rule.title}: the facts have an unexpected shape ({type(error).__name__}: {error})")]


_ABSENT = {
    "facts": "there are no facts of the node",
    "kubernetes": "the cluster does not know the node",
    "pod": "there is no test pod on the node",
}


def finding(rule: Rule, context: Context, result: Problem | Unknown, tolerated: frozenset[str]) -> dict:
    """One finding as data."""
    unknown = isinstance(result, Unknown)
    return {
        "id": rule.id,
        "severity": "unknown" if unknown else result.severity or rule.severity,
        "node": context.node,
        "pod": (context.pod or {}).get("name") if "pod" in rule.needs else None,
        "rail": result.rail,
        "summary": result.reason if unknown else result.summary,
        "evidence": dict(result.evidence),
        "remedy": RETRY if unknown else result.remedy,
        "tolerated": rule.id in tolerated,
    }


def evaluate(contexts: Iterable[Context], inputs: Iterable[str] = INPUTS, tolerated: Iterable[str] = ()) -> list[dict]:
    """Findings of every rule whose needs are among ``inputs``, most severe first, then by node, id and rail.

    :param tolerated: ids whose findings do not fail a play; they are still reported.
    :raises ValueError: an input or a tolerated id does not exist (a typo would silently hide something).
    """
    inputs, accepted = set(inputs), frozenset(tolerated)
    if inputs - set(INPUTS):
        raise ValueError(f"inputs: got {sorted(inputs - set(INPUTS))}, allowed are {list(INPUTS)}")
    if accepted - set(RULES):
        raise ValueError(
            f"rails_findings_tolerated: {', '.join(sorted(accepted - set(RULES)))} does not exist; "
            f"known are {', '.join(sorted(RULES))}"
        )
    rules = [r for _id, r in sorted(RULES.items()) if set(r.needs) <= inputs]
    found = [finding(r, c, result, accepted) for c in contexts for r in rules for result in check(r, c)]
    return sorted(
        found,
        key=lambda f: (SEVERITIES.index(f["severity"]), f["node"], f["id"], -1 if f["rail"] is None else f["rail"]),
    )


def failing(findings: Iterable[dict]) -> list[dict]:
    """The findings that must fail a play."""
    return [f for f in findings if f["severity"] == "error" and not f["tolerated"]]


def verdict(findings: Iterable[dict]) -> str:
    """pass, fail or unknown for one node's findings. Warnings and tolerated findings do not spoil a pass."""
    counted = [f["severity"] for f in findings if not f["tolerated"]]
    return "fail" if "error" in counted else "unknown" if "unknown" in counted else "pass"
