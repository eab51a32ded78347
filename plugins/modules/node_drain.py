#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_drain
short_description: Take a Kubernetes node out of service before a reboot, and give it back after it
version_added: 0.2.0
description:
  - With O(state=drained) it waits until the operators leave the node alone, cordons the node, evicts its pods and waits
    until they are gone. With O(state=uncordoned) it waits until the node is back and takes its own cordon off.
  - The cordon and the annotation C(railyard.rdma/cordoned), which says who made it, when, and on which boot of the node,
    are written in one request. A node that somebody else has cordoned gets no annotation and stays cordoned.
  - A run that was ended at any moment is carried on by the next one, since everything it needs to know stands on the
    node.
  - Pods go through the Eviction API, so disruption budgets and grace periods hold. Pods of DaemonSets, static pods and
    finished pods stay.
  - An API server that is busy, restarts or does not answer is asked again until the time is over.
  - While it waits, it shows what it waits for.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
attributes:
  check_mode:
    support: full
    description: Tells what would be done and what would stand in the way; waits for nothing.
  diff_mode:
    support: full
    description: Shows the node's cordon and annotation.
options:
  node:
    description: Name of the node in the cluster.
    type: str
    required: true
  state:
    description:
      - V(drained) empties the node. When that fails, a cordon of ours is taken back, so that no node is left out of
        service for nothing.
      - V(uncordoned) waits until the node is Ready again, then takes a cordon of ours off.
    type: str
    choices: [drained, uncordoned]
    required: true
  boot_id:
    description:
      - For O(state=uncordoned), what C(/proc/sys/kernel/random/boot_id) says on the node now. The node counts as back
        when its kubelet has reported this boot; until then a Ready condition is a leftover of the boot before.
      - Without it the kubelet must give a new sign of life.
    type: str
  unmanaged_pods:
    description:
      - What to do about pods that no controller would make anew elsewhere. V(refuse) stops and names them.
      - An eviction ends such a pod for good. Somebody should know.
    type: str
    choices: [refuse, evict]
    default: refuse
  emptydir:
    description:
      - What to do about pods with an C(emptyDir) volume, whose content an eviction deletes. V(refuse) stops and names
        them.
      - C(kubectl drain) refuses by default. Here the default is to evict, since nearly every pod on a GPU node has such
        a volume (shared memory, scratch), their controllers count on losing it, and an unattended reboot that always
        stops is of no use. The drains of the SR-IOV operator delete it as well.
    type: str
    choices: [evict, refuse]
    default: evict
  operator_timeout:
    description:
      - Seconds to wait until the operators are at rest on the node. The SriovNetworkNodeState must be synchronized with
        its annotations C(desired-state) and C(current-state) at C(Idle), and no NodeMaintenance may name the node.
    type: int
    default: 1800
  drain_timeout:
    description: Seconds for cordon, evictions and the end of the pods. A failure names the pods that are left and the
      disruption budgets that protect them.
    type: int
    default: 1800
  ready_timeout:
    description: Seconds to wait until the node is back, with O(state=uncordoned).
    type: int
    default: 900
  interval:
    description: Seconds between two lines that tell what is waited for.
    type: int
    default: 30
  earlier:
    description:
      - RV(waited) and RV(cordoned) of an earlier call that was not finished. Leave it alone; the action plugin that
        shows the progress uses it.
    type: dict
    default: {}
requirements:
  - kubernetes (Python library) 24.2 or newer on the controller
notes:
  - Runs on the controller. Delegate it to C(localhost) in a play over nodes.
seealso:
  - module: railyard.rdma.cluster_facts
"""

EXAMPLES = r"""
- name: Empty the node
  railyard.rdma.node_drain:
    node: gpu-1
    state: drained
    drain_timeout: 3600
  delegate_to: localhost

- name: Give the node back after its reboot
  railyard.rdma.node_drain:
    node: gpu-1
    state: uncordoned
    boot_id: "{{ ansible_facts['rdma'].boot_id }}"
  delegate_to: localhost
"""

RETURN = r"""
node:
  description: Name of the node.
  returned: always
  type: str
  sample: gpu-1
finished:
  description: Whether the node is in the wanted state. In check mode, whether nothing would stand in the way.
  returned: always
  type: bool
  sample: true
waiting:
  description: What is still waited for, one sentence each; in check mode, what would be waited for.
  returned: always
  type: list
  elements: str
  sample:
    - "pod jobs/trainer-0: PodDisruptionBudget jobs/trainer (1 of 1 pods healthy, needs 1, allows 0 disruptions)"
waited:
  description: Seconds waited, by phase.
  returned: always
  type: dict
  sample: {operator: 0.0, drain: 12.4}
cordoned:
  description: Whether a cordon of ours is on the node, as far as the module has looked.
  returned: always
  type: bool
  sample: true
evicted:
  description: Pods that were evicted, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: [jobs/trainer-0]
staying:
  description: Pods that stay on the node, with the reason.
  returned: always
  type: list
  elements: dict
  sample:
    - pod: kube-system/cni-x7f2p
      reason: of DaemonSet cni
"""

import getpass
import socket
from datetime import datetime, timezone

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import drain, maintenance
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, answer_text
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import (
    NoConnection,
    auth_argument_spec,
    connect_later,
)

WAITS_FOR = {
    "operator": "the operators to leave the node alone",
    "drain": "the node to be empty",
    "ready": "the node to be back",
}
ADVICE = (
    "Look at the node's console, then at the kubelet and the container runtime on it (journalctl -u kubelet). "
    "When the node is back, the next run takes our cordon off."
)


def who():
    """user@controller, for the annotation."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have it
        user = "unknown"
    return f"{user}@{socket.gethostname()} (railyard.rdma.node_drain)"


def utc_now():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def progress_of(params):
    names = ("operator", "drain") if params["state"] == "drained" else ("ready",)
    limits = {name: params[f"{name}_timeout"] for name in names}
    earlier = params["earlier"]
    return drain.Progress(limits, earlier.get("waited") or {}, params["interval"], bool(earlier.get("cordoned")))


def predict(api, params, options):
    """Result of check mode."""
    name = params["node"]
    if params["state"] == "drained":
        seen = drain.look_out(api, name, options)
        after = {**drain.view(seen["node"]), "unschedulable": True}
        if seen["cordon"]:
            after[maintenance.CORDON] = f"by {options['by']}"
        return {
            "changed": seen["cordon"] or bool(seen["evict"]),
            "cordoned": maintenance.own_cordon(seen["node"]) is not None,
            "waiting": seen["waiting"],
            "evicted": seen["evict"],
            "staying": seen["skip"],
            "diff": {"before": drain.view(seen["node"]), "after": after},
        }
    node = drain.read_or_none(api, f"{drain.NODES}/{name}")
    reason = maintenance.why_not_back(node, params["boot_id"])
    before = drain.view(node)
    ours = before[maintenance.CORDON] is not None
    after = {"unschedulable": False, maintenance.CORDON: None} if ours else before
    return {
        "changed": ours,
        "cordoned": ours,
        "waiting": [reason] if reason else [],
        "evicted": [],
        "staying": [],
        "diff": {"before": before, "after": after},
    }


def told(progress):
    result = {"changed": progress.changed, "waiting": progress.waiting, "evicted": progress.evicted}
    result["cordoned"] = progress.cordoned
    result.update(staying=progress.staying, waited={k: round(v, 1) for k, v in progress.waited.items()})
    if progress.diff:
        result["diff"] = progress.diff
    return result


def failure(api, params, progress, error):
    """The message for a drain or a return that did not succeed; takes back a cordon that serves nothing now."""
    name, text = params["node"], str(error).rstrip(".")
    if isinstance(error, drain.Overdue):
        text = f"waited {progress.waited[progress.phase]:.0f} s for {WAITS_FOR[progress.phase]}: {text}"
    elif isinstance(error, ApiError):
        text = answer_text(error).rstrip(".")
    if params["state"] == "drained":
        end = drain.take_back(api, name, progress)
    else:
        end = ADVICE
    return f"Node {name}: {text}. {end}".strip()


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        node={"type": "str", "required": True},
        state={"type": "str", "choices": ["drained", "uncordoned"], "required": True},
        boot_id={"type": "str"},
        unmanaged_pods={"type": "str", "choices": ["refuse", "evict"], "default": "refuse"},
        emptydir={"type": "str", "choices": ["evict", "refuse"], "default": "evict"},
        operator_timeout={"type": "int", "default": 1800},
        drain_timeout={"type": "int", "default": 1800},
        ready_timeout={"type": "int", "default": 900},
        interval={"type": "int", "default": 30},
        earlier={"type": "dict", "default": {}},
    )
    return spec


def perform(module):
    params = module.params
    api, progress = connect_later(params), progress_of(params)
    options = {"by": who(), "now": utc_now, "unmanaged": params["unmanaged_pods"], "emptydir": params["emptydir"]}
    try:
        if module.check_mode:
            result = {**predict(api, params, options), "waited": progress.waited}
            module.exit_json(node=params["node"], finished=not result["waiting"], **result)
        if params["state"] == "drained":
            finished = drain.take_out(api, params["node"], options, progress)
        else:
            finished = drain.give_back(api, params["node"], params["boot_id"], progress)
    except NoConnection as error:
        module.fail_json(msg=f"Node {params['node']}: {error}", node=params["node"], finished=False, **told(progress))
    except (drain.GiveUp, ApiError) as error:
        if module.check_mode:
            module.fail_json(msg=f"Node {params['node']}: {error}", node=params["node"], finished=False)
        msg = failure(api, params, progress, error)
        module.fail_json(msg=msg, node=params["node"], finished=False, **told(progress))
    result = told(progress)
    if finished:
        result["waiting"] = []
    module.exit_json(node=params["node"], finished=finished, **result)


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
