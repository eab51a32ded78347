# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What applying policies does to each node: nothing, a restart of the device plugin, a drain, a reboot; why, and whose
pods go.

Pure functions over what the cluster is known to hold (plan_facts.cluster_of). What cannot be told is ``unknown`` with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.railyard.rdma.plugins.plugin_utils.plan import drains, pf_changes, reboots
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.estimate import Minutes
from ansible_collections.railyard.rdma.plugins.plugin_utils.plan.sriov_spec import (
    NotTold,
    differs,
    planned_interfaces,
    selects_node,
)

NOTHING, RESTART, DRAIN, REBOOT, UNKNOWN = "nothing", "device_plugin_restart", "drain", "reboot", "unknown"
# From mild to severe. What is not known may be anything, but hides no drain that is known.
SEVERITY = (NOTHING, RESTART, UNKNOWN, DRAIN, REBOOT)


@dataclass(frozen=True)
class ToCome:
    """The cluster as it will be.

    :param policies: all SriovNetworkNodePolicies of the operator's namespace, as they will be.
    :param pool_configs: all SriovNetworkPoolConfigs of it, as they will be.
    :param prefix: the operator's resourcePrefix.
    :param disable_drain: SriovOperatorConfig.spec.disableDrain.
    :param disable_plugins: SriovOperatorConfig.spec.disablePlugins.
    :param daemon_restarts: why the config daemons restart, None when they do not.
    :param installed: whether the SR-IOV operator runs already; without it there are no node states to look at.
    :param between: the policies at moments of the change at which PFs that have one and will have one may have none.
    :param rebooted: names of the nodes that are rebooted before, for another reason, with the next kernel line.
    """

    policies: list
    pool_configs: list
    prefix: str = "nvidia.com"
    disable_drain: bool = False
    disable_plugins: tuple = ("mellanox",)
    daemon_restarts: str | None = None
    installed: bool = True
    rebooted: frozenset = frozenset()
    between: list = field(default_factory=list)
    minutes: Minutes = field(default_factory=Minutes)


def effects(cluster, to_come, facts=None, layouts=None, hosts=None):
    """``[{node, host, effect, reasons, evicted, minutes, at_once, pool, members, errors, holdups}]``, a row for each node
    that a policy selects, now or then, and for each node of the hosts.

    reasons are ``[{pci, rail, text}]``, evicted ``[{namespace, name, why, empty_dir}]``, minutes None when not known,
    errors what the operator would refuse or never do, holdups what may make it take longer.

    :param cluster: what ``plan_facts.cluster_of`` returned.
    :param facts: {node name: ``ansible_facts.rdma``}.
    :param layouts: {node name: layout of the rail model}.
    :param hosts: {node name: inventory host}.
    """
    facts, layouts, hosts = facts or {}, layouts or {}, hosts or {}
    nodes = {node["name"]: node for node in cluster["nodes"] or []}
    table = drains.pools_table(list(nodes.values()), to_come.pool_configs)
    pods = {}
    for row in cluster["pods"] or []:
        pods.setdefault(row["node"], []).append(row)
    found = []
    for name, node in sorted(nodes.items()):
        state = (cluster["states"] or {}).get(name)
        concerned = _concerned(node, state, cluster["policies"] or [], to_come.policies)
        if not concerned and not _mode_is_set(table[name], to_come.pool_configs) and name not in hosts:
            continue
        look = Look(
            node,
            state,
            to_come,
            facts.get(name),
            layouts.get(name),
            table[name],
            len(nodes),
            cluster.get("unknown") or {},
        )
        found.append(look.row(hosts.get(name), None if cluster["pods"] is None else pods.get(name, [])))
    return found


def _concerned(node, state, before, after):
    if ((state or {}).get("spec") or {}).get("interfaces"):
        return True
    try:
        return any(selects_node(policy, node["labels"]) for policy in (*before, *after))
    except NotTold:
        return True


def _mode_is_set(row, pools):
    named = {(pool.get("metadata") or {}).get("name"): pool.get("spec") or {} for pool in pools}
    return bool((named.get(row["pool"]) or {}).get("rdmaMode"))


@dataclass(frozen=True)
class Look:
    """One node, and what is known of it."""

    node: dict
    state: dict | None
    to_come: ToCome
    facts: dict | None
    layout: dict | None
    pool: dict
    cluster_size: int
    unknown: dict

    def row(self, host, pods):
        effect, changes, texts = self._judged()
        errors = [f"{change.pci} {change.text}" for change in changes if change.error]
        rails = {rail["pci"]: rail["rail"] for rail in (self.layout or {}).get("rails") or []}
        reasons = [{"pci": change.pci, "rail": rails.get(change.pci), "text": change.text} for change in changes]
        reasons += [{"pci": None, "rail": None, "text": text} for text in texts]
        evicted, holdups = [], []
        if effect in (DRAIN, REBOOT):
            if self.pool["never"]:
                errors.append(f"{self.node['name']}: {self.pool['never']}")
            if effect == REBOOT and self.cluster_size == 1:
                reasons.append(
                    _about_node("the only node of a cluster is rebooted without a drain: its pods end with it")
                )
            elif pods is None:
                reason = self.unknown.get("pods") or "not read"
                reasons.append(_about_node(f"which pods would be evicted is unknown: {reason}"))
                evicted = None
            else:
                evicted = drains.evicted(pods, effect == REBOOT, self.to_come.prefix)
                holdups = drains.holdups_of(pods, evicted)
            if self.node["unschedulable"]:
                reasons.append(_about_node("it is cordoned now, and the operator makes it schedulable at the end"))
        return {
            "node": self.node["name"],
            "host": host,
            "effect": effect,
            "reasons": reasons,
            "evicted": evicted,
            "minutes": self._minutes(effect, changes),
            "pool": self.pool["pool"],
            "members": self.pool.get("members"),
            "at_once": self.pool["at_once"],
            "errors": errors,
            "holdups": holdups,
        }

    def _minutes(self, effect, changes):
        guess = self.to_come.minutes
        if effect == UNKNOWN:
            return None
        if effect == REBOOT:
            return guess.drain + guess.reboot
        if effect == DRAIN:
            return guess.drain
        return guess.vfs if any(not change.error for change in changes) else 0

    def _judged(self):
        """(effect, [Change], [text about the node])."""
        try:
            return self._told()
        except (NotTold, KeyError, TypeError, ValueError, AttributeError) as error:
            # Objects of others may hold anything; what cannot be understood must not pass as "nothing".
            return (
                UNKNOWN,
                [],
                [str(error) if isinstance(error, NotTold) else f"cannot be told ({type(error).__name__}: {error})"],
            )

    def _told(self):
        live = ((self.state or {}).get("spec") or {}).get("interfaces") or []
        wanted = any(selects_node(policy, self.node["labels"]) for policy in self.to_come.policies)
        if not wanted and not self.state:
            return NOTHING, [], []
        for part in ("states", "policies", "pool_configs"):
            if part in self.unknown:
                raise NotTold(f"the cluster did not tell its {part.replace('_', ' ')}: {self.unknown[part]}")
        actual, source = self._interfaces() if wanted or live else (self._reported() or [], None)
        planned = planned_interfaces(self.to_come.policies, self.node["labels"], actual)
        renewed = differs(live, planned)
        changes = pf_changes.changes_of(planned, live, actual)
        changes += self._gap(changes, live, actual)
        texts = [source] if source else []
        texts += (self.state or {}).get("busy") or []
        if renewed or self.to_come.daemon_restarts:
            changes += pf_changes.external_renewals(planned, actual, changes)
        kernel, doubts = reboots.reasons(self, planned, actual, live)
        if kernel:
            return REBOOT, changes, [*kernel, *texts]
        if doubts:
            return (DRAIN if self._drains(changes) else UNKNOWN), changes, [*doubts, *texts]
        if self._drains(changes):
            return DRAIN, changes, texts
        if any(change.drain for change in changes):
            texts = ["drains are off (disableDrain): VFs go while pods use them", *texts]
        if renewed or changes:
            return RESTART, changes, [_restart_text(planned), *texts] if renewed else texts
        return NOTHING, [], texts

    def _gap(self, changes, live, actual):
        """PFs whose old policy goes before the new one comes: an operator that looks in between removes their VFs."""
        known, found = {change.pci for change in changes}, []
        for policies in self.to_come.between:
            planned = planned_interfaces(policies, self.node["labels"], actual)
            for change in pf_changes.changes_of(planned, live, actual):
                if change.pci not in planned and change.pci not in known:
                    known.add(change.pci)
                    found.append(pf_changes.Change(change.pci, pf_changes.GAP, drain=True))
        return found

    def _drains(self, changes):
        return not self.to_come.disable_drain and any(change.drain for change in changes if not change.error)

    def _reported(self):
        return ((self.state or {}).get("status") or {}).get("interfaces")

    def _interfaces(self):
        """(status.interfaces or what the node's facts say instead, where they come from when not from the operator)."""
        status = self._reported()
        if status:
            return status, None
        if self.state is not None:
            raise NotTold(
                "the node state has no interfaces yet: the config daemon has not reported, or knows none of the NICs"
            )
        if self.to_come.installed:
            raise NotTold("there is no SriovNetworkNodeState: the config daemon does not run on this node")
        if self.facts is None or self.layout is None:
            raise NotTold("the operator is not installed, and there are no facts of the node")
        return interfaces_of_facts(
            self.facts, self.layout
        ), "told from the node's facts, since the operator is not installed yet"


def _about_node(text):
    return {"pci": None, "rail": None, "text": text}


def _restart_text(planned):
    if planned:
        return "its device plugin restarts: the node offers no VFs for some seconds, pods keep theirs"
    return "its device plugin goes: nothing is offered any more"


def interfaces_of_facts(facts, layout):
    """``status.interfaces`` of the rails as the operator will report them, from ``ansible_facts.rdma``.

    :raises NotTold: the facts do not tell how many VFs a PF has.
    """
    by_pci = {row.get("pci"): (name, row) for name, row in (facts.get("netdevs") or {}).items()}
    devices = facts.get("devices") or {}
    found = []
    for rail in layout["rails"]:
        name, row = by_pci.get(rail["pci"], (None, {}))
        sriov = row.get("sriov") or {}
        if sriov.get("num") is None:
            raise NotTold(f"the facts of the node do not tell the VFs of {rail['pci']}")
        vfs = []
        for vf in sriov.get("vfs") or []:
            device = devices.get(vf.get("device")) or {}
            netdev = (facts.get("netdevs") or {}).get(vf.get("netdev")) or {}
            entry = {"vfID": vf.get("index"), "pciAddress": vf.get("pci"), "mtu": netdev.get("mtu")}
            # A VF in a pod shows nothing here; that it has no driver would be a guess.
            vfs.append({**entry, "driver": device.get("driver") or "mlx5_core"})
        found.append(
            {
                "pciAddress": rail["pci"],
                "name": name,
                "vendor": layout.get("vendor"),
                "mtu": row.get("mtu"),
                "numVfs": sriov["num"],
                "totalvfs": sriov.get("total"),
                "Vfs": vfs,
                "unknown": ("deviceID",),
            }
        )
    return found


def worst(found):
    """The most severe of several effects."""
    return max(found, key=SEVERITY.index, default=NOTHING)
