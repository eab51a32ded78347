# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Go from an earlier layout of ours to the wanted one in an order that leaves nothing in between broken.

Ours is what our field manager applied (``metadata.managedFields``) and nobody else did. An object that somebody else
applied too stays, and is told. The order is that of layout_steps.
"""

from __future__ import annotations

import time

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import foreign
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import (
    WEBHOOK,
    InputError,
    PartialFailure,
    apply_objects,
    delete_objects,
    kinds_missing,
    label,
    not_served,
    wait_until_gone,
)
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.layout_steps import (
    AFTER,
    APPLY,
    BEFORE,
    DELETE,
    NETWORKS,
    POLICY,
    rivals,
    steps_of,
)
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.owned import appliers
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.readiness import attachments_wanted

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


def known_of(live, objects, kinds):
    """{identity: object or None} for what the lists of ``kinds`` have told about live and wanted objects.

    Attachments are left out: those of a network go with it, after the list."""
    found = {foreign.identity(obj): obj for obj in live}
    listed = {(entry["api_version"], entry["kind"], entry.get("namespace")) for entry in kinds}
    for obj in objects:
        place = obj["apiVersion"], obj["kind"]
        if (*place, None) in listed or (*place, obj["metadata"].get("namespace")) in listed:
            found.setdefault(foreign.identity(obj), None)
    return {key: obj for key, obj in found.items() if key[0] != "NetworkAttachmentDefinition"}


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

    :returns: (results as of apply_objects and delete_objects, in the order in which it is done, [{kind, namespace, name,
        reason}] of foreign objects).
    :raises PartialFailure: with what was done until then. Before anything is removed, the new objects are sent as a dry
        run, so that a refused object leaves the old layout whole.
    """
    check_kinds(kinds)
    live = list_live(api, kinds)
    stale, told = split(live, objects, manager)
    told += collisions(api, objects, live, manager)
    known, ours = known_of(live, objects, kinds), [obj for obj in live if manager in appliers(obj)]
    if dry_run:
        return _foretold(api, objects, stale, ours, manager, force, known), told
    refused = set()
    if stale or any(rivals(obj, ours) for obj in objects if obj["kind"] == POLICY):
        errors, refused = _refused(api, objects, ours, manager, force, known)
        if errors:
            raise PartialFailure(errors, [], [label(obj) for obj in (*stale, *objects)])
    steps = steps_of(objects, stale, ours, refused)
    return _taken(api, steps, objects, manager, force, known, (timeout, clock, pause)), told


def _excuse(ours, refused):
    """Function for apply_objects that excuses a new policy that the operator's webhook refuses for a PF of an old one:
    that is gone when the time comes. Any other refusal counts. The webhook names the other policy (pkg/webhook)."""

    def excused(obj, error):
        against = rivals(obj, ours) if obj["kind"] == POLICY and WEBHOOK in error.message else []
        if any(f"policy {other['metadata']['name']}" in error.message for other in against):
            refused.add(foreign.identity(obj))
            return True
        return False

    return excused


def _refused(api, objects, ours, manager, force, known):
    """(why the wanted objects cannot be applied, one sentence each; identities of policies that have to wait for old
    ones). Asked before an object of the old layout goes."""
    missing = kinds_missing(api, objects)
    if missing:
        raise InputError(not_served([error for _obj, error in missing]))
    refused = set()
    try:
        excused = _excuse(ours, refused)
        results = apply_objects(api, objects, manager, force, dry_run=True, excused=excused, known=known)
    except PartialFailure as error:
        return error.errors, refused
    doubtful = [
        label(obj)
        for obj, row in zip(objects, results)
        if row.get("validated") is False and foreign.identity(obj) not in refused
    ]
    text = "cannot be validated: its namespace does not exist, or this account may not apply it"
    return [f"{name} {text}. Nothing of the earlier layout was removed" for name in doubtful], refused


def _foretold(api, objects, stale, ours, manager, force, known):
    """What a run would do, in its order, from dry runs."""
    refused = set()
    excused = _excuse(ours, refused)
    rows = delete_objects(api, stale, manager, dry_run=True, known=known) if stale else []
    rows += apply_objects(api, objects, manager, force, dry_run=True, excused=excused, reader=True, known=known)
    by_identity = {(row["kind"], row["namespace"], row["name"]): row for row in rows}
    steps = steps_of(objects, stale, ours, refused)
    return [by_identity[foreign.identity(obj)] for _verb, chosen in steps for obj in chosen]


def _taken(api, steps, objects, manager, force, known, waiting):
    """Take the steps; a failure tells also what was to come."""
    missing = kinds_missing(api, objects)
    if missing:
        raise InputError(not_served([error for _obj, error in missing]))
    done = []
    for number, (verb, chosen) in enumerate(steps):
        rest = [label(obj) for _verb, others in steps[number + 1 :] for obj in others]
        try:
            if verb == APPLY:
                done += apply_objects(api, chosen, manager, force, known=known)
            else:
                # delete_objects goes backwards, as for a layout in order of application.
                done += delete_objects(api, chosen[::-1], manager, known=known)
        except PartialFailure as error:
            raise PartialFailure(error.errors, done + error.done, [*error.not_done, *rest]) from error
        networks = [obj for obj in chosen if verb == DELETE and obj["kind"] in NETWORKS]
        if networks:
            timeout, clock, pause = waiting
            still = _wait_for_names(api, networks, objects, timeout, clock, pause)
            if still:
                errors = [
                    f"{name} is still there after {timeout} s: its finalizer waits for its operator" for name in still
                ]
                raise PartialFailure(errors, done, rest)
    return done


def _wait_for_names(api, gone, objects, timeout, clock, pause):
    """A network with a finalizer takes its attachment with it: wait for it where a new one has the same name."""
    wanted = {(namespace, name) for namespace, name, _obj in attachments_wanted(objects)}
    same = [obj for obj in gone if any(place[:2] in wanted for place in attachments_wanted([obj]))]
    return wait_until_gone(api, same, timeout, clock, pause) if same else []
