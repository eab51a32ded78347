# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the rules over contexts and make findings: ``{id, severity, node, pod, rail, summary, evidence, remedy,
tolerated}``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings import (
    address,
    address_pod,
    arp,
    arp_pod,
    attachments,
    bandwidth,
    boot,
    cni,
    gid,
    gid_node,
    helm,
    link,
    memlock,
    naming,
    nccl,
    netns,
    placement,
    pod_devices,
    policy,
    pool_config,
    qos,
    qos_node,
    resource,
    resource_node,
    returned,
    topology,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import (
    FLEET,
    INPUTS,
    RULES,
    SEVERITIES,
    USUAL_INPUTS,
    Context,
    Problem,
    Rule,
    Unknown,
    Unreadable,
)

# Importing a subject registers its rules.
SUBJECTS = (
    address, address_pod, arp, arp_pod, attachments, bandwidth, boot, cni, gid, gid_node, helm, link, memlock, naming, nccl, netns,
    placement, pod_devices, policy, pool_config, qos, qos_node, resource, resource_node, returned, topology,
)  # fmt: skip
RETRY = "Find out why the check could not be made, and run it again."
_ABSENT = {
    "facts": "there are no facts of the node",
    "kubernetes": "the cluster does not know the node",
    "pod": "there is no test pod on the node",
    "cluster": "the cluster's objects were not read",
    "operator": "the operator was not looked at",
    "nccl": "the NCCL test did not run",
    "bandwidth": "no benchmark ran",
    "returned": "the node was not read again after its test pods went",
}


def absent(rule: Rule, context: Context) -> str | None:
    """The first input that the rule needs and nobody gathered about this node."""
    return next((need for need in rule.needs if getattr(context, need) is None), None)


def results(rule: Rule, contexts: list[Context]) -> Iterator[tuple[Context, Problem | Unknown]]:
    """All that one rule says. What it needs and does not have makes it unknown, and so does its own failure."""
    groups: dict[str, list[Context]] = {}
    if "pod" in rule.needs:
        contexts = [part for context in contexts for part in context.of_each_pod()]
    for context in contexts:
        need = absent(rule, context)
        if need:
            evidence = {"not_gathered": need, "reason": _ABSENT[need]}
            yield context, Unknown(f"{rule.title}: not checked, {_ABSENT[need]}", evidence)
        elif rule.scope == FLEET:
            groups.setdefault(context.layout["name"], []).append(context)
        else:
            yield from ((context, result) for result in _run(rule, context))
    for group in groups.values():
        by_node = {context.node: context for context in group}
        yield from ((by_node.get(result.node, group[0]), result) for result in _run(rule, group))


def _run(rule: Rule, subject: Context | list[Context]) -> list[Problem | Unknown]:
    try:
        return list(rule.check(subject))
    except Unreadable as error:
        return [Unknown(f"{rule.title}: not checked, {error}", {"not_gathered": error.part, "reason": str(error)})]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        # Facts may come from an older version or a cache; a shape that the rule does not know must not pass as healthy.
        return [Unknown(f"{rule.title}: cannot be judged by these facts ({type(error).__name__}: {error})")]


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


def evaluate(
    contexts: Iterable[Context],
    inputs: Iterable[str] = USUAL_INPUTS,
    tolerated: Iterable[str] = (),
    only: Iterable[str] | None = None,
) -> list[dict]:
    """Findings of every rule whose needs are among ``inputs``, most severe first, then by node, id and rail.

    :param tolerated: ids whose findings do not fail a play; they are still reported.
    :param only: ids of the rules that are to be asked; all when not given.
    :raises ValueError: an input, a tolerated or an asked id does not exist (a typo would silently hide something).
    """
    inputs, accepted = set(inputs), frozenset(tolerated)
    if only is not None and set(only) - set(RULES):
        raise ValueError(f"only: {', '.join(sorted(set(only) - set(RULES)))} does not exist")
    if inputs - set(INPUTS):
        raise ValueError(f"inputs: got {sorted(inputs - set(INPUTS))}, allowed are {list(INPUTS)}")
    if accepted - set(RULES):
        raise ValueError(
            f"rails_findings_tolerated: {', '.join(sorted(accepted - set(RULES)))} does not exist; "
            f"known are {', '.join(sorted(RULES))}"
        )
    rules = [r for _id, r in sorted(RULES.items()) if set(r.needs) <= inputs and (only is None or r.id in only)]
    known = list(contexts)
    found = [finding(r, context, result, accepted) for r in rules for context, result in results(r, known)]
    return sorted(
        found,
        key=lambda f: (SEVERITIES.index(f["severity"]), f["node"], f["id"], -1 if f["rail"] is None else f["rail"]),
    )


def failing(findings: Iterable[dict], cures: Iterable[str] = ()) -> list[dict]:
    """The findings that must fail a play.

    :param cures: playbooks that run afterwards; errors that one of them cures (or refuses itself, with the reason) do
        not count.
    """
    cured = {rule_id for rule_id, one in RULES.items() if one.cured_by in set(cures)}
    return [f for f in findings if f["severity"] == "error" and not f["tolerated"] and f["id"] not in cured]


def verdict(findings: Iterable[dict]) -> str:
    """pass, fail or unknown for one node's findings. Warnings and tolerated findings do not spoil a pass."""
    counted = [f["severity"] for f in findings if not f["tolerated"]]
    return "fail" if "error" in counted else "unknown" if "unknown" in counted else "pass"
