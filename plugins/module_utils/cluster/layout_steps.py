# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order in which an earlier layout goes and the wanted one comes: pure functions over objects.

Networks go first, since they use all the rest. A pool configuration goes before the new one that takes its nodes comes,
since a node in two of them is never drained; in none it falls under the operator's own limit of one node. Address pools
go last: until the new networks are there, the old ones may be asked for an address.

Policies change so that no PF is without one at any moment. A PF that no policy names loses its VFs, and its node is
drained for it. Two policies on one PF do no harm for a moment: the operator takes numVfs and mtu from the larger or the
last one, which is what one of them asks for anyway (k8snetworkplumbingwg/sriov-network-operator, api/v1/helper.go,
mergeConfigs). So new policies come first, then those change that take over PFs, then those that give PFs up, of
these the ones that take none over last, then the old ones go.

The operator's admission webhook, off in the chart, refuses a PF in two policies. Where it is on, each new policy follows
at once on the old ones that it replaces. The operator looks one second after the first of a row of changes, at all of
them together (controllers/sriovnetworknodepolicy_controller.go), so it sees a gap only when it looks for another reason.
"""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.foreign import identity

NETWORKS = (
    "SriovNetwork",
    "SriovIBNetwork",
    "HostDeviceNetwork",
    "MacvlanNetwork",
    "IPoIBNetwork",
    "NetworkAttachmentDefinition",
)
POLICY, POOL_CONFIG = "SriovNetworkNodePolicy", "SriovNetworkPoolConfig"
# Kinds in the order in which objects of an earlier layout go; those of AFTER when the new ones are there.
BEFORE = (*NETWORKS, POLICY, POOL_CONFIG)
AFTER = ("IPPool", "CIDRPool")
APPLY, DELETE = "apply", "delete"


def devices(policy):
    """PCI addresses that a policy of ours names."""
    return set(((policy.get("spec") or {}).get("nicSelector") or {}).get("rootDevices") or [])


def removal_order(stale, kinds):
    """The stale objects of these kinds, in the order in which they go."""
    chosen = [obj for obj in stale if obj["kind"] in kinds]
    return sorted(chosen, key=lambda obj: (kinds.index(obj["kind"]), str(identity(obj))))


def rivals(policy, live):
    """Policies among ``live`` that have another name and a PF of this one."""
    mine, me = devices(policy), identity(policy)
    return [other for other in live if other["kind"] == POLICY and identity(other) != me and devices(other) & mine]


def _apart(objects):
    """(objects before the policies, policies, objects after them)."""
    policies = [obj for obj in objects if obj["kind"] == POLICY]
    if not policies:
        return list(objects), [], []
    first = next(n for n, obj in enumerate(objects) if obj["kind"] == POLICY)
    return list(objects[:first]), policies, [obj for obj in objects[first:] if obj["kind"] != POLICY]


def _policy_steps(wanted, stale, live, refused):
    have = {identity(obj): devices(obj) for obj in live if obj["kind"] == POLICY}

    def turn(obj):
        # New ones, those that give nothing up, those that give up and gain, those that only give up: what one gives up,
        # an earlier one has. For the rest in the given order.
        old, new = have.get(identity(obj)), devices(obj)
        if old is None:
            return 0
        return 1 if old <= new else 2 if new - old else 3

    ordered = sorted(wanted, key=turn)
    left, steps = list(stale), [(APPLY, [obj for obj in ordered if identity(obj) not in refused])]
    for obj in ordered:
        if identity(obj) in refused:
            replaced = rivals(obj, left)
            left = [other for other in left if other not in replaced]
            steps += [(DELETE, replaced), (APPLY, [obj])]
    return [*steps, (DELETE, left)]


def steps_of(objects, stale, live=(), refused=()):
    """[(APPLY or DELETE, [object])] without empty ones.

    :param objects: the wanted objects in order of application.
    :param stale: objects of ours that are no longer wanted.
    :param live: objects of ours as they are.
    :param refused: identities of wanted policies that the webhook refuses beside the old ones.
    """
    first, policies, last = _apart(objects)
    steps = [
        (DELETE, removal_order(stale, NETWORKS)),
        (DELETE, removal_order(stale, (POOL_CONFIG,))),
        (APPLY, first),
        *_policy_steps(policies, removal_order(stale, (POLICY,)), live, refused),
        (APPLY, last),
        (DELETE, removal_order(stale, AFTER)),
    ]
    joined = []
    for verb, chosen in steps:
        if chosen and joined and joined[-1][0] == verb:
            joined[-1][1].extend(chosen)
        elif chosen:
            joined.append((verb, list(chosen)))
    return joined
