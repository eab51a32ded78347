# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Between two layouts no PF is without a policy, whenever the operator looks."""

from __future__ import annotations

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import layout_steps
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.foreign import identity
from hypothesis import example, given
from hypothesis import strategies as st

NAMES, PFS = ("a", "b", "c", "d"), ("0000:0c:00.0", "0000:0c:00.1", "0000:2a:00.0")


def obj(kind, name, **spec):
    return {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": name, "namespace": "op"}, "spec": spec}


def policy(name, *devices):
    return obj(layout_steps.POLICY, name, nicSelector={"rootDevices": list(devices)})


def layouts():
    """Layouts in which each PF is in one policy at most."""
    owners = st.fixed_dictionaries({pf: st.sampled_from([None, *NAMES]) for pf in PFS})

    def made(owner):
        names = sorted({name for name in owner.values() if name})
        return [policy(name, *[pf for pf in PFS if owner[pf] == name]) for name in names]

    return owners.map(made)


def walk(before, steps):
    """{name: PFs} after each single write."""
    have = {o["metadata"]["name"]: layout_steps.devices(o) for o in before}
    for verb, chosen in steps:
        for one in chosen:
            if verb == layout_steps.APPLY:
                have[one["metadata"]["name"]] = layout_steps.devices(one)
            else:
                have.pop(one["metadata"]["name"])
            yield dict(have)


def covered(have):
    return set().union(*have.values()) if have else set()


def changed(before, after):
    wanted = {identity(o) for o in after}
    return [o for o in before if identity(o) not in wanted]


def swaps(before, after):
    """True when two policies that stay give each other PFs: no order has both."""
    have = {identity(o): layout_steps.devices(o) for o in before}
    stay = [(have[identity(o)], layout_steps.devices(o)) for o in after if identity(o) in have]
    return sum(bool(old - new) and bool(new - old) for old, new in stay) > 1


# "b" takes over what "a" gives up, and gives up a PF itself.
@example(
    [policy("a", PFS[0], PFS[1]), policy("b", PFS[2])],
    [policy("a", PFS[0]), policy("b", PFS[1])],
)
@given(layouts(), layouts())
def test_no_pf_is_without_a_policy_in_between(before, after):
    states = list(walk(before, layout_steps.steps_of(after, changed(before, after), before)))
    assert not states or {name: set(pfs) for name, pfs in states[-1].items()} == {
        o["metadata"]["name"]: layout_steps.devices(o) for o in after
    }
    if not swaps(before, after):
        always = covered({identity(o): layout_steps.devices(o) for o in before}) & covered(
            {identity(o): layout_steps.devices(o) for o in after}
        )
        assert all(always <= covered(have) for have in states)


@given(layouts(), layouts())
def test_beside_a_webhook_no_pf_is_in_two_policies_that_are_not_there_yet(before, after):
    """All new policies that meet an old one are refused first; then each comes after what it replaces has gone."""
    stale = changed(before, after)
    refused = {identity(o) for o in after if layout_steps.rivals(o, stale)}
    for have in walk(before, layout_steps.steps_of(after, stale, before, refused)):
        for gone in (o for o in stale if o["metadata"]["name"] in have):
            fresh = [
                have[o["metadata"]["name"]] for o in after if identity(o) in refused and o["metadata"]["name"] in have
            ]
            kept = {identity(o) for o in before} & refused
            if not kept:
                assert not any(layout_steps.devices(gone) & pfs for pfs in fresh)


def test_the_whole_order():
    stale = [
        obj("IPPool", "old"),
        policy("old", PFS[0]),
        obj("SriovNetworkPoolConfig", "old"),
        obj("SriovNetwork", "old"),
    ]
    objects = [
        obj("CIDRPool", "new"),
        obj("SriovNetworkPoolConfig", "new"),
        policy("kept", PFS[1]),
        policy("new", PFS[0]),
        obj("SriovNetwork", "new"),
    ]
    live = [*stale, policy("kept", PFS[1], PFS[2])]
    steps = layout_steps.steps_of(objects, stale, live)
    assert [(verb, [f"{o['kind']} {o['metadata']['name']}" for o in chosen]) for verb, chosen in steps] == [
        ("delete", ["SriovNetwork old", "SriovNetworkPoolConfig old"]),
        (
            "apply",
            ["CIDRPool new", "SriovNetworkPoolConfig new", "SriovNetworkNodePolicy new", "SriovNetworkNodePolicy kept"],
        ),
        ("delete", ["SriovNetworkNodePolicy old"]),
        ("apply", ["SriovNetwork new"]),
        ("delete", ["IPPool old"]),
    ]


@pytest.mark.parametrize("objects", [[], [obj("NetworkAttachmentDefinition", "x")]], ids=["nothing", "attachments"])
def test_layouts_without_policies(objects):
    steps = layout_steps.steps_of(objects, [policy("old", PFS[0]), obj("IPPool", "old")], ())
    assert [verb for verb, _chosen in steps] == (["delete"] if not objects else ["apply", "delete"])
    assert layout_steps.steps_of([], []) == []
