#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: operator_ready
short_description: Wait until the NVIDIA Network Operator holds what was asked for, and tell what keeps its daemons away
version_added: 0.2.0
description:
  - Looks at the operator's CustomResourceDefinitions, Deployments, SriovOperatorConfig, NicClusterPolicy and DaemonSets in one
    place, again and again, until nothing is missing or the time is over.
  - Helm waits for the two Deployments only; all DaemonSets come later, from controllers.
  - The chart takes any misspelled value, so the live SriovOperatorConfig is compared with O(sriov_config).
  - Taints and labels that keep a daemon from a node, and containers that were killed for memory, are named as warnings and in
    RV(troubles), whether the rest is ready or not.
  - With check mode it looks once, reports what is missing and does not fail.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - railyard.rdma.attributes.waits
options:
  namespace:
    description: Namespace of the operator.
    type: str
    default: nvidia-network-operator
  release:
    description: Name of the Helm release.
    type: str
    default: network-operator
  crds:
    description: Names of CustomResourceDefinitions that must be established.
    type: list
    elements: str
    default: []
  sriov_config:
    description:
      - What the live SriovOperatorConfig must hold, C(disablePlugins), C(disableDrain) and C(configurationMode). Not looked at when
        not set.
    type: dict
  policy:
    description:
      - The NicClusterPolicy as it was applied. It must be ready, its DaemonSets rolled out, and every C(containerResources) must be
        on its container. Not looked at when not set.
    type: dict
  hosts:
    description: Address of each host with rails, V(null) where it has none; to tell what keeps daemons from their nodes.
    type: dict
    default: {}
  look_only:
    description:
      - Reads all parts once for RV(operator), and neither waits nor fails. A part that the account may not read is V(null) with its
        reason.
    type: bool
    default: false
  parts:
    description:
      - What O(look_only=true) reads. Everything when it is not given. V(release) needs the right to list secrets.
    type: list
    elements: str
    choices: [crds, deployments, config, policies, daemon_sets, pods, nodes, release, nfd]
  timeout:
    description: Seconds to wait.
    type: int
    default: 600
  interval:
    description: Seconds between two looks.
    type: float
    default: 2
requirements:
  - kubernetes (Python library) 24.2 or newer
seealso:
  - module: railyard.rdma.operator_prepare
  - module: railyard.rdma.rail_wait
"""

EXAMPLES = r"""
- name: Wait until the operator is ready
  railyard.rdma.operator_ready:
    crds: [nicclusterpolicies.mellanox.com]
    sriov_config: {disablePlugins: [mellanox], disableDrain: false, configurationMode: daemon}

- name: Look at the operator for the findings
  railyard.rdma.operator_ready:
    look_only: true
  register: looked
"""

RETURN = r"""
ready:
  description: Whether nothing is missing; V(null) with O(look_only=true), which asks for nothing.
  returned: always
  type: bool
  sample: true
pending:
  description: What is missing.
  returned: always
  type: list
  elements: dict
  sample:
    - node: null
      object: NicClusterPolicy nic-cluster-policy
      reason: "state is notReady: state-multus-cni notReady"
troubles:
  description: What keeps daemons from nodes, and containers that were killed for memory.
  returned: always
  type: list
  elements: dict
  sample:
    - node: gpu-1
      object: daemons
      reason: "kube-multus-ds do not tolerate the taint amd.com/gpu=present:NoSchedule"
waited:
  description: Seconds that were waited.
  returned: always
  type: float
  sample: 3.2
operator:
  description:
    - Everything that was read, for the filter P(railyard.rdma.findings#filter); C(reasons) says why a part is V(null).
  returned: when O(look_only=true)
  type: dict
  sample: {release: {latest: null, deployed: null}, policies: [], reasons: {}}
requests:
  description: Number of requests to the API server.
  returned: always
  type: int
  sample: 13
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import readiness
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, answer_text
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import auth_argument_spec, connect
from ansible_collections.railyard.rdma.plugins.module_utils.operator import operands, releases, snapshot

CONFIG_KEYS = {"disablePlugins": list, "disableDrain": bool, "configurationMode": str}


def config_mistakes(config):
    """What is wrong with the option sriov_config."""
    if config is None:
        return []
    rows = [f"sriov_config: {key} is missing" for key in CONFIG_KEYS if key not in config]
    rows += [
        f"sriov_config: {key} is not known, allowed are {', '.join(CONFIG_KEYS)}"
        for key in config
        if key not in CONFIG_KEYS
    ]
    rows += [
        f"sriov_config: {key} is {config[key]!r}, expected {kind.__name__}"
        for key, kind in CONFIG_KEYS.items()
        if key in config and not isinstance(config[key], kind)
    ]
    return rows


def parts_of(params):
    """What a look reads; the rest costs no request."""
    parts = ["crds", "deployments"]
    parts += ["config"] if params["sriov_config"] is not None else []
    parts += ["policies"] if params["policy"] is not None else []
    parts += ["daemon_sets"] if params["policy"] is not None or params["hosts"] else []
    return parts


def hopeless(seen, pending):
    """Whether all that is missing is a configuration that is there and different: nobody is about to change it."""
    return bool(seen["config"]) and all(row["object"] == operands.CONFIG for row in pending)


def wait(api, params, once=False, clock=time.monotonic, pause=time.sleep):
    """(snapshot of the last look, what is missing, seconds)."""
    start = clock()
    wanted = {"crds": params["crds"], "config": params["sriov_config"], "policy": params["policy"]}
    while True:
        try:
            seen = snapshot.read(api, params["namespace"], params["crds"], parts_of(params))
        except ApiError as error:
            # A server that restarts is no reason to give up what is being waited for.
            if once or not error.retriable or clock() - start >= params["timeout"]:
                raise
            pause(params["interval"])
            continue
        pending = operands.pending(seen, wanted)
        second = round(clock() - start, 1)
        if not pending or once or second >= params["timeout"] or hopeless(seen, pending):
            return seen, pending, second
        pause(max(0.0, min(params["interval"], params["timeout"] - second)))


def troubles_of(api, params, seen):
    """What keeps daemons from nodes; read once, at the end, and only where nodes are of interest."""
    if not params["hosts"]:
        return []
    more = snapshot.read(api, params["namespace"], (), ["nodes", "pods"], tolerant=True)
    return operands.troubles({**seen, "nodes": more["nodes"], "pods": more["pods"]}, params["hosts"])


def run(module, api):
    params = module.params
    if params["look_only"]:
        parts = snapshot.PARTS if params["parts"] is None else params["parts"]
        seen = snapshot.read(api, params["namespace"], params["crds"], parts, params["release"], tolerant=True)
        troubles = operands.troubles({**seen, "daemon_sets": seen["daemon_sets"] or []}, params["hosts"])
        found = operands.facts(seen, params["namespace"], params["release"], params["hosts"], parts)
        module.exit_json(
            changed=False, ready=None, pending=[], troubles=troubles, waited=0.0, operator=found, requests=api.requests
        )
    seen, pending, second = wait(api, params, once=module.check_mode)
    troubles = troubles_of(api, params, seen)
    result = {
        "ready": not pending,
        "pending": pending,
        "troubles": troubles,
        "waited": second,
        "requests": api.requests,
    }
    if pending and not module.check_mode:
        lines = [f"The operator is not as asked for after {second:.0f} s:", *readiness.summary(pending)]
        if troubles:
            lines += ["What may be the reason:", *readiness.summary(troubles)]
        module.fail_json(msg="\n".join(lines), **result)
    for line in grouped(troubles):
        module.warn(line)
    module.exit_json(changed=False, **result)


def grouped(troubles, limit=10):
    """Warnings: one for each reason, with the nodes that it is about."""
    by_reason = {}
    for row in troubles:
        by_reason.setdefault(row["reason"], []).append(row["node"] or "-")
    lines = [f"{', '.join(sorted(set(nodes)))}: {reason}" for reason, nodes in by_reason.items()]
    return (
        lines if len(lines) <= limit else [*lines[:limit], f"{len(lines) - limit} more are in the result as troubles"]
    )


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        namespace={"type": "str", "default": "nvidia-network-operator"},
        release={"type": "str", "default": "network-operator"},
        crds={"type": "list", "elements": "str", "default": []},
        sriov_config={"type": "dict"},
        policy={"type": "dict"},
        hosts={"type": "dict", "default": {}},
        look_only={"type": "bool", "default": False},
        parts={"type": "list", "elements": "str", "choices": list(snapshot.PARTS)},
        timeout={"type": "int", "default": 600},
        interval={"type": "float", "default": 2},
    )
    return spec


def perform(module):
    mistakes = config_mistakes(module.params["sriov_config"])
    if mistakes:
        module.fail_json(msg="; ".join(mistakes))
    api = connect(module)
    try:
        run(module, api)
    except ApiError as error:
        module.fail_json(msg=f"The cluster cannot be read: {answer_text(error)}")
    except releases.Unreadable as error:
        module.fail_json(msg=str(error))


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
