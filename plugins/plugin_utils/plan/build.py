# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole plan as data, from what the plays have seen: the content of plan.json."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.plan_facts import cluster_of
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan import estimate, node_effects
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.estimate import Minutes
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.node_effects import SEVERITY, ToCome, effects, worst
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.node_side import prepared
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.object_effects import effect_of
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.operator_change import operator_change

SCHEMA = 1
ACTIONS = ("created", "changed", "deleted", "unchanged")
PLAYBOOKS = ("preflight", "inspect", "prepare_nodes", "install_operator", "apply_rails")
PREPARED = ("file", "images", "configured", "taken_over", "runtime", "reboot")
NOT_TOUCHED = {"reasons": [], "evicted": [], "minutes": 0, "holdups": []}
SEVERITIES = ("error", "warning", "info", "unknown")


@dataclass(frozen=True)
class Seen:
    """What the plays have found out. A failure is the text with which site.yml would fail at that place.

    :param model: the rail model.
    :param facts: {host: ``ansible_facts.rdma`` or None}.
    :param looks: {host: the fact ``rdma_netns_plan``}.
    :param nodes: {host: name of its node in the cluster}.
    :param state: what rail_state returned; None when the cluster could not be read.
    :param drains: what rail_state returned as drains.
    :param wanted: the objects that are applied.
    :param objects: result of rail_objects in check mode.
    :param prepared: result of operator_prepare in check mode.
    :param failures: {place: text} of ``objects``, ``operator``, ``cluster``, ``preflight``.
    :param refused: the places whose failure was a missing right.
    :param findings: all findings.
    :param failing: those that stop site.yml, with the ``playbook`` that they stop.
    """

    model: dict
    facts: dict
    looks: dict
    nodes: dict
    state: dict | None = None
    drains: dict | None = None
    wanted: list = field(default_factory=list)
    objects: dict | None = None
    prepared: dict | None = None
    failures: dict = field(default_factory=dict)
    refused: frozenset = frozenset()
    findings: list = field(default_factory=list)
    failing: list = field(default_factory=list)


def build(seen: Seen, minutes: Minutes) -> dict:
    """The plan: ``{schema, changes, summary, operator, objects, foreign, nodes, findings, stops, unknown, assumptions}``.

    changes is None when nothing is known to change and something is not known.
    """
    operator = operator_change(seen.prepared, seen.failures.get("operator"), "operator" in seen.refused)
    cluster = cluster_of(seen.state or {}, seen.drains or {})
    if seen.state is None:
        cluster["unknown"].setdefault("states", seen.failures.get("cluster") or "the cluster was not read")
    objects = (seen.objects or {}).get("objects") or []
    ours = _prepare_rows(seen, cluster, minutes)
    theirs = effects(cluster, _to_come(seen, cluster, operator, objects, ours, minutes), *_by_node(seen))
    nodes = _nodes(seen, ours, theirs)
    plan = {
        "schema": SCHEMA,
        "operator": {key: operator[key] for key in ("action", "reason", "version", "values", "crds", "effects")},
        "objects": [{**row, "effect": effect_of(row)} for row in objects if row["action"] != "unchanged"],
        "foreign": (seen.objects or {}).get("foreign") or [],
        "nodes": nodes,
        "findings": seen.findings,
        "stops": _stops(seen, operator, nodes),
        "unknown": _unknown(seen, cluster, operator, nodes, objects),
        "assumptions": estimate.assumptions(minutes),
    }
    plan["summary"] = _summary(seen, plan, objects, minutes)
    plan["changes"] = _changes(plan)
    return plan


def _prepare_rows(seen, cluster, minutes):
    pods = {}
    for row in cluster["pods"] or []:
        pods.setdefault(row["node"], []).append(row)
    known = cluster["pods"] is not None
    return {
        host: prepared(
            host,
            seen.looks.get(host),
            seen.facts.get(host) is not None,
            seen.nodes.get(host),
            pods.get(seen.nodes.get(host), []) if known else None,
            minutes,
        )
        for host in seen.model["hosts"]
    }


def _by_node(seen):
    """(facts, layouts, hosts) by name of the node."""
    layout_of = {layout["name"]: layout for layout in seen.model["layouts"]}
    known = {node: host for host, node in seen.nodes.items() if node}
    facts = {node: seen.facts[host] for node, host in known.items() if seen.facts.get(host) is not None}
    layouts = {
        node: layout_of[seen.model["hosts"][host]] for node, host in known.items() if host in seen.model["hosts"]
    }
    return facts, layouts, known


def _as_they_will_be(live, wanted, rows, kind):
    """Objects of a kind after the apply: what is there, without what goes, with what comes."""
    gone = {row["name"] for row in rows if row["kind"] == kind and row["action"] == "deleted"}
    new = {obj["metadata"]["name"]: obj for obj in wanted if obj.get("kind") == kind}
    kept = [obj for obj in live or [] if obj["metadata"].get("name") not in gone | set(new)]
    return [*kept, *new.values()]


def _to_come(seen, cluster, operator, objects, ours, minutes):
    config = cluster["config"]
    live = config or {}
    hooks = [name for name in (seen.state or {}).get("webhooks") or [] if "sriov" in name.lower()]
    drains_off = operator["disable_drain"]
    return ToCome(
        policies=_as_they_will_be(cluster["policies"], seen.wanted, objects, "SriovNetworkNodePolicy"),
        pool_configs=_as_they_will_be(cluster["pool_configs"], seen.wanted, objects, "SriovNetworkPoolConfig"),
        prefix=operator["prefix"] or cluster["resource_prefix"] or seen.model["operator"]["resource_prefix"],
        disable_drain=bool(live.get("disableDrain")) if drains_off is None else drains_off,
        disable_plugins=_plugins_off(operator, config),
        daemon_restarts=operator["restarts"],
        installed=config is not None,
        minutes=minutes,
        between=_between(cluster["policies"], seen.wanted, objects, hooks),
        rebooted=frozenset(seen.nodes[host] for host, row in ours.items() if row["reboot"] and seen.nodes.get(host)),
    )


def _between(live, wanted, rows, hooks=()):
    """The policies after each step at which a PF that has one, and will have one, has none: ``[[policy]]``. The steps are
    those of rail_objects, whose rows come in the order in which it is done. hooks: names of the operator's webhooks."""
    kind = "SriovNetworkNodePolicy"
    new = {obj["metadata"]["name"]: obj for obj in wanted if obj.get("kind") == kind}
    have = {obj["metadata"].get("name"): obj for obj in live or []}
    states = [dict(have)]
    moves = [row for row in rows if row["kind"] == kind and row["action"] != "unchanged"]
    if hooks and any(row.get("validated") is False for row in moves):
        # An account that may not write could not ask the operator's webhook, which takes new policies after the old ones.
        moves.sort(key=lambda row: row["action"] != "deleted")
    for row in moves:
        have.pop(row["name"], None)
        have.update({row["name"]: new[row["name"]]} if row["action"] != "deleted" and row["name"] in new else {})
        states.append(dict(have))
    covered = [set().union(*map(_places, state.values())) for state in states]
    lasting = covered[0] & covered[-1]
    return [list(state.values()) for state, places in zip(states, covered) if not lasting <= places]


def _places(policy):
    """{PF} of a policy that names its PFs, as ours do."""
    return set(((policy.get("spec") or {}).get("nicSelector") or {}).get("rootDevices") or [])


def _plugins_off(operator, config):
    """SriovOperatorConfig.spec.disablePlugins as it will be: by the chart's values, else as it is, else as we install it."""
    if operator["disable_plugins"] is not None:
        return tuple(operator["disable_plugins"])
    return ("mellanox",) if config is None else tuple(config.get("disablePlugins") or ())


def _nodes(seen, ours, theirs):
    """One row for each host and for each further node that the operator touches, hosts first."""
    by_node = {row["node"]: row for row in theirs}
    rows = []
    for host, own in ours.items():
        rows.append(_joined(host, own, by_node.pop(seen.nodes.get(host), None), seen.nodes.get(host)))
    others = [row for row in by_node.values() if row["effect"] != node_effects.NOTHING]
    return rows + [_joined(None, None, row, row["node"]) for row in others]


def _joined(host, own, row, node):
    row = row or {**NOT_TOUCHED, "effect": node_effects.NOTHING, "errors": []}
    mine = own or {**NOT_TOUCHED, "reboot": False, "stops": []}
    first = {True: node_effects.REBOOT, None: node_effects.UNKNOWN, False: node_effects.NOTHING}[mine["reboot"]]
    minutes = [mine["minutes"], row["minutes"]]
    return {
        "host": host,
        "node": node,
        "effect": worst([first, row["effect"]]),
        "prepare": None if own is None else {key: own[key] for key in PREPARED},
        "operator": row["effect"],
        "reasons": [{"pci": None, "rail": None, "text": text} for text in mine["reasons"]] + row["reasons"],
        "evicted": _once(mine["evicted"], row["evicted"]),
        "minutes": None if None in minutes else sum(minutes),
        "prepare_minutes": mine["minutes"],
        "operator_minutes": row["minutes"],
        "pool": row.get("pool"),
        "at_once": row.get("at_once"),
        "prepare_errors": list(mine["stops"]),
        "errors": list(row["errors"]),
        "holdups": [*mine["holdups"], *row["holdups"]],
    }


def _once(ours, theirs):
    """Pods of both drains; one that goes for our reboot and again for the operator's drain is told once."""
    if ours is None or theirs is None:
        return None
    seen = {}
    for pod in (*ours, *theirs):
        seen.setdefault((pod["namespace"], pod["name"]), pod)
    return list(seen.values())


def _stops(seen, operator, nodes):
    """Why site.yml would not get through: ``[{playbook, node, text}]`` in the order of its plays."""
    found = [("preflight", None, seen.failures[key]) for key in ("preflight",) if key in seen.failures]
    found += [(row["playbook"], row["node"], f"{row['id']}: {row['summary']}") for row in seen.failing]
    for row in nodes:
        for playbook, errors in (("prepare_nodes", row["prepare_errors"]), ("apply_rails", row["errors"])):
            found += [(playbook, row["host"] or row["node"], text) for text in errors]
    found += [("install_operator", None, text) for text in operator["stops"]]
    found += [("apply_rails", None, seen.failures[key]) for key in ("cluster", "objects") if key in seen.failures]
    return [
        {"playbook": playbook, "node": node, "text": text}
        for playbook, node, text in sorted(found, key=lambda item: PLAYBOOKS.index(item[0]))
    ]


def _unknown(seen, cluster, operator, nodes, objects):
    """What could not be told: ``[{what, reason}]``."""
    found = [{"what": part.replace("_", " "), "reason": text} for part, text in sorted(cluster["unknown"].items())]
    if operator["action"] == "unknown":
        found.append({"what": "operator", "reason": operator["reason"]})
    for row in nodes:
        if row["effect"] == node_effects.UNKNOWN:
            texts = [*row["prepare_errors"], *row["errors"], *(reason["text"] for reason in row["reasons"])]
            reason = "; ".join(dict.fromkeys(texts)) or "not told"
            found.append({"what": f"node {row['node'] or row['host']}", "reason": reason})
    unseen = sorted({row["kind"] for row in objects if row.get("validated") is False})
    if seen.objects is None:
        reason = next((seen.failures[key] for key in ("objects", "cluster", "preflight") if key in seen.failures), None)
        found.append({"what": "objects", "reason": reason or "they were not compared with the cluster"})
    if unseen:
        reason = "the server was not asked: their kind or namespace does not exist yet, or the account may not write"
        found.append({"what": f"validity of {', '.join(unseen)}", "reason": reason})
    return found


def _summary(seen, plan, objects, minutes):
    counts, nodes = Counter(row["action"] for row in objects), Counter(row["effect"] for row in plan["nodes"])
    unlisted = any(row["evicted"] is None for row in plan["nodes"])
    own = [row["prepare_minutes"] for row in plan["nodes"] if row["prepare_minutes"] != 0]
    batch = _batch(seen, len(seen.model["hosts"]))
    pools = [
        {"effect": row["operator"], "minutes": row["operator_minutes"], "pool": row["pool"], "at_once": row["at_once"]}
        for row in plan["nodes"]
    ]
    helm = {"install": minutes.operator, "upgrade": minutes.operator, "none": 0}
    parts = {
        "prepare_nodes": None if None in own else estimate.of_batches(own, batch),
        "install_operator": helm.get(plan["operator"]["action"]),
        "apply_rails": estimate.of_pools(pools),
    }
    return {
        "objects": _object_counts(seen, counts, plan),
        "nodes": {effect: nodes[effect] for effect in SEVERITY},
        "prepared": sum(bool(r["prepare"] and (r["prepare"]["file"] or r["prepare"]["images"])) for r in plan["nodes"]),
        "prepared_at_once": batch,
        "evicted_pods": None if unlisted else sum(len(row["evicted"]) for row in plan["nodes"]),
        "findings": {severity: sum(f["severity"] == severity for f in plan["findings"]) for severity in SEVERITIES},
        "stops": len(plan["stops"]),
        "unknown": len(plan["unknown"]),
        "minutes": None if None in parts.values() else sum(parts.values()),
        "minutes_of": parts,
    }


def _object_counts(seen, counts, plan):
    """By action, and foreign; None each where the objects were not compared, since none is not the same as not known."""
    if seen.objects is None:
        return dict.fromkeys((*ACTIONS, "foreign"))
    return {**{action: counts[action] for action in ACTIONS}, "foreign": len(plan["foreign"])}


def _batch(seen, count):
    """How many nodes prepare_nodes takes at a time: its serial, one where groups of nodes allow different numbers."""
    limits = {str(layout["max_unavailable"]) for layout in seen.model["layouts"]}
    if len(limits) != 1:
        return 1
    text = limits.pop()
    # Ansible takes at least one node of a percentage.
    return max(1, count * int(text[:-1]) // 100) if text.endswith("%") else int(text)


def _changes(plan):
    counts, prepared_nodes = plan["summary"]["objects"], [row["prepare"] or {} for row in plan["nodes"]]
    sure = (
        any(counts[action] for action in ("created", "changed", "deleted"))
        or plan["operator"]["action"] in ("install", "upgrade")
        or bool(plan["operator"]["crds"])
        or any(row.get(key) for row in prepared_nodes for key in ("file", "images", "configured", "reboot"))
    )
    if sure:
        return True
    doubtful = (
        plan["operator"]["action"] == "unknown"
        or None in counts.values()
        or any(row.get("file", False) is None for row in prepared_nodes)
    )
    return None if doubtful or any(stop["playbook"] == "apply_rails" for stop in plan["stops"]) else False
