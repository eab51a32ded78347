# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Go from an earlier layout of ours to the wanted one in an order that leaves nothing in between broken.

Ours is what our field manager applied (``metadata.managedFields``) and nobody else did. An object that somebody else
applied too stays, and is told.

The order, and why: networks go first, since they use all the rest; a policy goes before a new one that names the same
PF comes, since a PF may be in one policy only; a pool configuration goes before the new one that takes its nodes comes,
since a node in two of them is never drained (in none it falls under the operator's own limit of one node). Address
pools go last: until the new networks are there, the old ones may be asked for an address.
"""

from __future__ import annotations

import time

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import foreign
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import (
    InputError,
    PartialFailure,
    apply_objects,
    delete_objects,
    kinds_missing,
    label,
    not_served,
    wait_until_gone,
)
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.owned import appliers
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.readiness import attachments_wanted

# Kinds in the order in which objects of an earlier layout go; all before "apply" before the new objects come.
BEFORE = (
    "SriovNetwork",
    "SriovIBNetwork",
    "HostDeviceNetwork",
    "MacvlanNetwork",
    "IPoIBNetwork",
    "NetworkAttachmentDefinition",
    "SriovNetworkNodePolicy",
    "SriovNetworkPoolConfig",
)
AFTER = ("IPPool", "CIDRPool")
NETWORKS = BEFORE[:6]
# Seconds that a finalizer of the operator may take before it is told.
GONE_TIMEOUT = 120


def check_kinds(kinds):
    """[{api_version, kind, namespace or None}] as given by a user. Raises InputError."""
    mistakes = []
    for number, entry in enumerate(kinds, 1):
        unknown = sorted(set(entry) - {"api_version", "kind", "namespace"})
        if unknown or not entry.get("api_version") or not entry.get("kind"):
            mistakes.append(f"entry {number}: got {entry}, must have api_version and kind, and may have namespace")
        elif entry["kind"] not in (*BEFORE, *AFTER):
            allowed = ", ".join((*BEFORE, *AFTER))
            mistakes.append(f"entry {number}: kind: got {entry['kind']}, allowed are {allowed}")
    if mistakes:
        raise InputError("prune: " + "; ".join(mistakes))


def list_live(api, kinds):
    """[object] of all kinds; a kind that is not served has none."""
    found = []
    for entry in kinds:
        known = {"apiVersion": entry["api_version"], "kind": entry["kind"]}
        items = api.list_kind(entry["api_version"], entry["kind"], entry.get("namespace"))
        found += [{**known, **item} for item in items]
    return found


def split(live, wanted, manager):
    """(ours that are no longer wanted, [{kind, namespace, name, reason}] of ours that somebody else applied too)."""
    keys = {foreign.identity(obj) for obj in wanted}
    stale, shared = [], []
    for obj in live:
        who = appliers(obj)
        if manager not in who or foreign.identity(obj) in keys:
            continue
        if foreign.metadata(obj).get("deletionTimestamp"):
            continue
        others = sorted(who - {manager})
        if others:
            text = f"is no longer wanted, and stays: it was also applied by {', '.join(others)}"
            shared.append(foreign.row(obj, text))
        else:
            stale.append(obj)
    return stale, shared


def removal_order(stale, kinds):
    """The stale objects of these kinds, in the order in which they go."""
    chosen = [obj for obj in stale if obj["kind"] in kinds]
    return sorted(chosen, key=lambda obj: (kinds.index(obj["kind"]), str(foreign.identity(obj))))


def collisions(api, objects, live, manager):
    """What others have that collides with the wanted objects. Nodes and node states are read only when it matters."""
    by_kind = {}
    for obj in live:
        by_kind.setdefault(obj["kind"], []).append(obj)
    wanted = {kind: [o for o in objects if o["kind"] == kind] for kind in {o["kind"] for o in objects}}
    keys = {foreign.identity(obj) for obj in objects}

    def others(kind):
        return [o for o in by_kind.get(kind, []) if manager not in appliers(o) and foreign.identity(o) not in keys]

    found, nodes = [], None
    for kind, judge in (("SriovNetworkNodePolicy", foreign.policies), ("SriovNetworkPoolConfig", foreign.pool_configs)):
        if not wanted.get(kind) or not others(kind):
            continue
        nodes = api.list_items("/api/v1/nodes") if nodes is None else nodes
        more = ()
        if kind == "SriovNetworkNodePolicy":
            version = wanted[kind][0]["apiVersion"]
            namespaces = sorted({o["metadata"].get("namespace") or "" for o in wanted[kind]})
            places = [{"api_version": version, "kind": "SriovNetworkNodeState", "namespace": n} for n in namespaces]
            more = (list_live(api, places),)
        found += judge(wanted[kind], others(kind), nodes, *more)
    attachments = {foreign.identity(o)[1:]: o for o in by_kind.get("NetworkAttachmentDefinition", [])}
    return found + foreign.attachments(attachments_wanted(objects), attachments, manager)


def _wait_for_names(api, gone, objects, timeout, clock, pause):
    """A network with a finalizer takes its attachment with it: wait for it where a new one has the same name."""
    wanted = {(namespace, name) for namespace, name, _obj in attachments_wanted(objects)}
    same = [obj for obj in gone if any(place[:2] in wanted for place in attachments_wanted([obj]))]
    return wait_until_gone(api, same, timeout, clock, pause) if same else []


def change_layout(
    api,
    objects,
    kinds,
    manager,
    force=False,
    dry_run=False,
    timeout=GONE_TIMEOUT,
    clock=time.monotonic,
    pause=time.sleep,
):
    """Apply ``objects`` and remove what an earlier layout of ours left of ``kinds``.

    :returns: (results as of apply_objects and delete_objects, [{kind, namespace, name, reason}] of foreign objects).
    :raises PartialFailure: with what was done until then. Before anything is removed, the new objects are sent as a dry
        run, so that a refused object leaves the old layout whole.
    """
    check_kinds(kinds)
    live = list_live(api, kinds)
    stale, told = split(live, objects, manager)
    told += collisions(api, objects, live, manager)
    before, after = removal_order(stale, BEFORE), removal_order(stale, AFTER)
    if dry_run or not before:
        return _change(api, objects, before, after, manager, force, dry_run), told
    errors = _refused(api, objects, before, manager, force)
    if errors:
        raise PartialFailure(errors, [], [label(obj) for obj in (*before, *objects, *after)])
    done = _removed(api, before, manager, [], [*objects, *after])
    still = _wait_for_names(api, before, objects, timeout, clock, pause)
    if still:
        errors = [f"{name} is still there after {timeout} s: its finalizer waits for its operator" for name in still]
        raise PartialFailure(errors, done, [label(obj) for obj in (*objects, *after)])
    return _then(api, objects, after, manager, force, done), told


def _refused(api, objects, before, manager, force):
    """Why the wanted objects cannot be applied, one sentence each; asked before an object of the old layout goes."""
    missing = kinds_missing(api, objects)
    if missing:
        raise InputError(not_served([error for _obj, error in missing]))
    unsure = _unsure(objects, before)
    try:
        results = apply_objects(api, objects, manager, force, dry_run=True, unsure=unsure)
    except PartialFailure as error:
        return error.errors
    kinds = {obj["kind"] for obj in unsure}
    doubtful = [
        label(obj) for obj, row in zip(objects, results) if row.get("validated") is False and row["kind"] not in kinds
    ]
    text = "cannot be validated: its namespace does not exist, or this account may not apply it"
    return [f"{name} {text}. Nothing of the earlier layout was removed" for name in doubtful]


def _unsure(objects, before):
    """New policies, where old ones go: the operator's webhook, where it is on, refuses a PF that an old one still has."""
    kind = "SriovNetworkNodePolicy"
    return [o for o in objects if o["kind"] == kind] if any(o["kind"] == kind for o in before) else []


def _change(api, objects, before, after, manager, force, dry_run):
    done = delete_objects(api, before[::-1], manager, dry_run) if before else []
    if not dry_run:
        return _then(api, objects, after, manager, force, done)
    done += apply_objects(api, objects, manager, force, dry_run, _unsure(objects, before), reader=True)
    return done + (delete_objects(api, after[::-1], manager, dry_run) if after else [])


def _removed(api, stale, manager, done, rest):
    """Delete in the given order; a failure tells also what was to come."""
    try:
        # delete_objects goes backwards, as for a layout in order of application.
        return done + delete_objects(api, stale[::-1], manager)
    except PartialFailure as error:
        left = [*error.not_done, *(label(obj) for obj in rest)]
        raise PartialFailure(error.errors, done + error.done, left) from error


def _then(api, objects, after, manager, force, done):
    try:
        done = done + apply_objects(api, objects, manager, force)
    except PartialFailure as error:
        left = [*error.not_done, *(label(obj) for obj in after)]
        raise PartialFailure(error.errors, done + error.done, left) from error
    return _removed(api, after, manager, done, []) if after else done
