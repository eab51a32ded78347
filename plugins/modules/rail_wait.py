#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rail_wait
short_description: Wait until the cluster has made of a rail layout what was asked for
version_added: 0.1.0
description:
  - Looks at everything that a layout needs in one place, again and again, until nothing is missing or the time is over.
  - CustomResourceDefinitions are established, a NicClusterPolicy is ready, DaemonSets have rolled out, every SR-IOV
    network has its attachment; and on each node the VFs are there, the operator is at rest, the resources are offered
    and each pool has a block.
  - A failure names each node and what it lacks. Where the SR-IOV operator drains a node and cannot end it, the pods that
    are left are named with their disruption budgets.
  - While it waits, a line each O(report_interval) seconds says what is missing. A server that does not answer for a while
    is waited for, too.
  - At the end of the time the log of the operator's daemon on the node is asked about each PF that is behind, and the
    operator's log about each network without an attachment.
  - With check mode it looks once, reports what is missing and does not fail.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - railyard.rdma.attributes.waits
options:
  state:
    description:
      - Whether to wait until everything is there, or until nothing is left of O(layouts) whose objects were deleted.
      - What is left are attachments, VFs that the operator made, resources that nodes offer, and drains.
    type: str
    choices: [present, absent]
    default: present
    version_added: 0.2.0
  crds:
    description: Names of CustomResourceDefinitions that must be established.
    type: list
    elements: str
    default: []
  objects:
    description:
      - The objects that were applied; see O(objects) of M(railyard.rdma.rail_objects).
      - NicClusterPolicy, SriovNetworkNodePolicy, SriovNetwork and its relatives, NetworkAttachmentDefinition, IPPool
        and
        CIDRPool are waited for. Other kinds need no waiting.
    type: list
    elements: dict
    default: []
  layouts:
    description: The layouts of the rail model, whose hosts must be ready. Without it nodes are not looked at.
    type: list
    elements: dict
    default: []
  host_addresses:
    description: Address of each host, to find the node of a host whose name differs.
    type: dict
    default: {}
  daemon_sets_in:
    description: Namespaces in which every DaemonSet must have rolled out.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds to wait.
    type: int
    default: 600
  interval:
    description: Seconds between two looks.
    type: float
    default: 2
  report_interval:
    description:
      - Seconds between two lines on the screen that say what is waited for, on which nodes, and how long already.
    type: int
    default: 30
    version_added: 0.2.0
  earlier:
    description:
      - Seconds that were waited before. It is set by the action plugin, which runs the module again after each line.
    type: float
    default: 0
    version_added: 0.2.0
requirements:
  - kubernetes (Python library) 24.2 or newer
seealso:
  - module: railyard.rdma.rail_objects
"""

EXAMPLES = r"""
- name: Wait until nv-ipam serves its kinds
  railyard.rdma.rail_wait:
    crds: [ippools.nv-ipam.nvidia.com, cidrpools.nv-ipam.nvidia.com]

- name: Wait until all nodes offer their rails
  railyard.rdma.rail_wait:
    objects: "{{ rail_networks_documents }}"
    layouts: "{{ rails_model.layouts }}"
    daemon_sets_in: [nvidia-network-operator]
    timeout: 1800
"""

RETURN = r"""
ready:
  description: Whether nothing is missing.
  returned: always
  type: bool
  sample: true
pending:
  description: What is missing.
  returned: always
  type: list
  elements: dict
  sample:
    - node: gpu-1
      object: "PF 0000:0c:00.0"
      reason: has 0 of 1 VFs
waited:
  description: Seconds that were waited.
  returned: always
  type: float
  sample: 41.2
finished:
  description: Whether nothing is missing, or the time is over.
  returned: always
  type: bool
  sample: true
progress:
  description: How many things were missing at which second; an entry for each change.
  returned: always
  type: list
  elements: dict
  sample:
    - second: 0.0
      missing: 66
    - second: 41.2
      missing: 0
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import drain, operator_log, readiness
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, answer_text
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import InputError, flatten
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import (
    NoConnection,
    auth_argument_spec,
    connect_later,
)

CRD = "apiextensions.k8s.io/v1"
NODE_STATE = ("sriovnetwork.openshift.io/v1", "SriovNetworkNodeState")
API = "Kubernetes API"
# A look is tried that often at once; the loop around it tries for as long as it may.
TRIES = 2
# Logs that are read for one message.
LOGS = 24
ATTACHMENT = ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition")


def snapshot(api, objects):
    """What readiness.layout_pending wants to know, with one list for each kind and namespace."""
    spaces = {n for n, _name, _obj in readiness.attachments_wanted(objects)}
    policies = {o["metadata"].get("namespace") for o in objects if o["kind"] == "SriovNetworkNodePolicy"}
    pools = {
        (o["apiVersion"], o["kind"], o["metadata"].get("namespace")) for o in objects if o["kind"] in readiness.POOLS
    }
    return {
        "nodes": api.list_kind("v1", "Node"),
        "states": {
            readiness.name_of(s): s for namespace in policies for s in api.list_kind(*NODE_STATE, namespace=namespace)
        },
        "attachments": {
            (namespace, readiness.name_of(a)): a
            for namespace in spaces
            for a in api.list_kind(*ATTACHMENT, namespace=namespace)
        },
        "pools": {
            (kind, readiness.name_of(p)): p
            for api_version, kind, namespace in pools
            for p in api.list_kind(api_version, kind, namespace)
        },
    }


def left_of(api, params):
    """What is still there of layouts that were taken away."""
    layouts = params["layouts"]
    homes = sorted({layout["namespaces"]["operator"] for layout in layouts})
    spaces = sorted({layout["namespaces"]["networks"] for layout in layouts})
    found = {
        "nodes": api.list_kind("v1", "Node"),
        "states": {readiness.name_of(s): s for home in homes for s in api.list_kind(*NODE_STATE, namespace=home)},
        "attachments": {
            (space, readiness.name_of(a)): a for space in spaces for a in api.list_kind(*ATTACHMENT, namespace=space)
        },
    }
    return readiness.leftovers(layouts, params["host_addresses"], found)


def look(api, params, objects):
    """One look at everything: what is missing, or with state absent what is still there."""
    api.forget_kinds()
    if params["state"] == "absent":
        return left_of(api, params)
    crds = {name: api.find_named(CRD, "CustomResourceDefinition", None, name) for name in params["crds"]}
    pending = readiness.crds_pending(params["crds"], crds)
    for obj in objects:
        if obj["kind"] == "NicClusterPolicy":
            live = api.find_named(obj["apiVersion"], obj["kind"], None, obj["metadata"]["name"])
            pending += readiness.cluster_policy_pending(obj, live)
    for namespace in params["daemon_sets_in"]:
        policies = any(obj["kind"] == "SriovNetworkNodePolicy" for obj in objects)
        idle = () if policies else readiness.IDLE_WITHOUT_POLICIES
        pending += readiness.daemon_sets_pending(api.list_kind("apps/v1", "DaemonSet", namespace), idle)
    if params["layouts"]:
        pending += readiness.layout_pending(
            objects, params["layouts"], params["host_addresses"], snapshot(api, objects)
        )
    return pending


def look_or_tell(api, params, objects, once):
    """look(), or what keeps the API from answering. A server that restarts must not end a wait that has time left."""
    try:
        return look(api, params, objects)
    except ApiError as error:
        if once or not error.retriable:
            raise
        return [readiness.missing(API, answer_text(error))]


def wait(api, params, objects, once=False, clock=time.monotonic, pause=time.sleep):
    """(what is missing at the end, seconds that were waited in all, progress, whether there is no time left).

    Ends after report_interval seconds, so that the caller can be told.
    """
    start, progress, before = clock(), [], params["earlier"]
    while True:
        pending = look_or_tell(api, params, objects, once)
        second = round(clock() - start + before, 1)
        if not progress or progress[-1]["missing"] != len(pending):
            progress.append({"second": second, "missing": len(pending)})
        over = once or second >= params["timeout"]
        if not pending or over or second - before >= params["report_interval"]:
            return pending, second, progress, over
        pause(max(0.0, min(params["interval"], params["timeout"] - second)))


def blocked_drains(api, pending):
    """What holds up the operator's drains of the nodes whose state is pending: its own status does not tell
    (sriov-network-operator#306)."""
    result = []
    for node in sorted({p["node"] for p in pending if p["object"] == "SriovNetworkNodeState" and p["node"]}):
        result += [readiness.missing("drain", reason, node) for reason in drain.held_up(api, node)]
    return result


def with_logs(api, pending, objects, layouts=()):
    """The same list with what the operator's logs say: once a node and PF that are behind, and for each network."""
    homes = {o["metadata"].get("namespace") for o in objects if o["kind"] == "SriovNetworkNodePolicy"}
    homes |= {o["metadata"].get("namespace") for o in objects if o["kind"] == "SriovNetwork"}
    homes |= {layout["namespaces"]["operator"] for layout in layouts if "namespaces" in layout}
    home = sorted(home for home in homes if home)
    if not home:
        return pending
    result, seen = [], {}
    for item in pending:
        node, what = item["node"], item["object"]
        key = None
        if (
            node
            and (what.startswith("PF ") or what == "SriovNetworkNodeState")
            and "does not exist" not in item["reason"]
        ):
            key = (node, what)
        elif not node and what.startswith("SriovNetwork "):
            key = (None, what)
        if key and key not in seen and len(seen) < LOGS:
            word = what.rpartition(" ")[2]
            seen[key] = (
                operator_log.about_node(api, home[0], node, word)
                if node
                else operator_log.about_network(api, home[0], word.rpartition("/")[2])
            )
        told = seen.get(key)
        result.append({**item, "reason": f"{item['reason']}; {told}"} if told else item)
    return result


def explained(api, pending, objects, layouts=()):
    """The list at the end of a failed wait, as complete as the cluster allows."""
    if any(item["object"] == API for item in pending):
        return pending
    try:
        return with_logs(api, pending + blocked_drains(api, pending), objects, layouts)
    except ApiError as error:
        return [*pending, readiness.missing(API, f"why is not known: {answer_text(error)}")]


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        crds={"type": "list", "elements": "str", "default": []},
        objects={"type": "list", "elements": "dict", "default": []},
        layouts={"type": "list", "elements": "dict", "default": []},
        host_addresses={"type": "dict", "default": {}},
        daemon_sets_in={"type": "list", "elements": "str", "default": []},
        timeout={"type": "int", "default": 600},
        interval={"type": "float", "default": 2},
        report_interval={"type": "int", "default": 30},
        earlier={"type": "float", "default": 0},
    )
    return spec


def perform(module):
    params, api = module.params, connect_later(module.params, attempts=TRIES)
    try:
        objects = flatten(params["objects"])
        pending, second, progress, over = wait(api, params, objects, once=module.check_mode)
        if pending and over:
            pending = explained(api, pending, objects, params["layouts"])
    except (InputError, NoConnection) as error:
        module.fail_json(msg=str(error))
    except ApiError as error:
        module.fail_json(msg=f"The cluster cannot be read: {answer_text(error)}")
    result = {"ready": not pending, "pending": pending, "waited": second, "progress": progress}
    result["finished"] = over or not pending
    if pending and over and not module.check_mode:
        head = "Still missing" if params["state"] == "present" else "Still there"
        lines = readiness.summary(pending)
        module.fail_json(msg="\n".join([f"{head} after {second:.0f} s:", *lines]), **result)
    module.exit_json(changed=False, **result)


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
