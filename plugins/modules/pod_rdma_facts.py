#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: pod_rdma_facts
short_description: Read the RDMA devices, GIDs and interfaces that pods see
version_added: 0.1.0
description:
  - Runs one POSIX shell script in each of the pods and parses what it prints. The image needs a shell, no Python and
    no RDMA tools.
  - Waits until the pods run, and shows meanwhile which of them do not and why. A pod that does not start in time, or in
    which the script cannot be run, is unreachable with the reason; it is never left out.
  - Each pod is asked once. Only a pod whose addresses are not final is asked again.
  - The whole GID table is read. Rows whose GID is zero are counted and not listed.
  - The module does not change anything in the pods.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
attributes:
  check_mode:
    support: full
    description: The module only reads.
  diff_mode:
    support: none
    description: Nothing changes.
options:
  namespace:
    description: Namespace of the pods.
    type: str
    required: true
  names:
    description: Names of the pods.
    type: list
    elements: str
    required: true
  container:
    description: Container in which the script runs. The first one of the pod when not given.
    type: str
  wait_timeout:
    description: Seconds to wait for all the pods to run.
    type: int
    default: 120
  exec_timeout:
    description: Seconds that the script may take in a pod.
    type: int
    default: 60
  threads:
    description: Number of pods that are read at the same time.
    type: int
    default: 16
  placeholders:
    description:
      - Subnets whose addresses only let a CNI plugin start. The routed address beside them comes from router
        advertisements.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  report_interval:
    description: Seconds after which what is waited for is shown.
    type: int
    default: 15
    version_added: 0.2.0
  earlier:
    description: Seconds that were waited by earlier runs of the module in the same task. The action plugin sets it.
    type: float
    default: 0
    version_added: 0.2.0
  address_timeout:
    description:
      - Seconds to wait, after the pods run, until no global address is tentative and each interface with an address of
        O(placeholders) has another one. Pods that are not that far then are returned as they are.
    type: int
    default: 30
    version_added: 0.2.0
requirements:
  - kubernetes (Python library) 24.2 or newer
seealso:
  - module: railyard.rdma.rdma_facts
"""

EXAMPLES = r"""
- name: Read what two pods see
  railyard.rdma.pod_rdma_facts:
    namespace: default
    names: [trainer-0, trainer-1]
  register: pods

- name: Show the GID index of each device
  ansible.builtin.debug:
    msg: "{{ item.key }}: {{ item.value.devices | dict2items | map(attribute='value.ports.1.gid_index') | list }}"
  loop: "{{ pods.pods | dict2items }}"
"""

RETURN = r"""
pods:
  description:
    - What each pod sees, by its name.
    - The keys C(devices) and C(netdevs) are shaped as those of M(railyard.rdma.rdma_facts).
  returned: always
  type: dict
  sample:
    trainer-0:
      node: gpu-1
      running: true
      reachable: true
      reason: null
      netns_mode: shared
      device_files:
        uverbs20: {device: mlx5_20, opens: true, reason: null}
      memlock: {soft_kib: unlimited, hard_kib: unlimited, ipc_lock: false}
      gpus: ["0000:0f:00.0"]
      environment: {}
      routing:
        rules: [{family: ipv4, priority: 32765, from: 192.168.0.34/32, to: all, table: 100, action: lookup}]
        routes: []
        reasons: {}
      devices:
        mlx5_20:
          pci: "0000:0c:01.0"
          netdev: net1
          ports:
            "1":
              state: ACTIVE
              gid_index: 3
not_read:
  description: Names of the pods that could not be read.
  returned: always
  type: list
  elements: str
  sample: []
executions:
  description: How often a script was run in a pod, all pods together.
  returned: always
  type: int
  sample: 2
waited:
  description: Seconds that were waited for the pods to run.
  returned: always
  type: float
  sample: 3.5
"""

import ipaddress
import json
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import probe
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.addresses import pending
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError, dynamic_transport
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import auth_argument_spec, dynamic_client
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.looks import looks
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pod_exec import (
    ExecError,
    in_parallel,
    opener,
    run_in_pod,
)
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pod_facts import pod_facts
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.pods import (
    is_hopeless,
    is_running,
    stuck_reason,
)

NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"


def wait_for_pods(api, namespace, names, timeout, clock=time.monotonic, pause=time.sleep, interval=None, earlier=0.0):
    """({name: pod or None}, seconds waited in all, whether nothing more is to be waited for).

    Ends as soon as every pod runs or cannot run any more, at the latest after ``timeout`` seconds, or after ``interval``
    seconds, so that the caller can be told.
    """
    start, step = clock(), 0.5
    while True:
        items = api.list_items(api.path("v1", "Pod", namespace))
        found = {p["metadata"]["name"]: p for p in items}
        pods = {name: found.get(name) for name in names}
        waiting = [p for p in pods.values() if p is None or not (is_running(p) or is_hopeless(p))]
        waited = clock() - start + earlier
        over = not waiting or waited >= timeout
        if over or (interval is not None and waited - earlier >= interval):
            return pods, waited, over
        pause(max(0.0, min(step, timeout - waited)))
        step = min(step * 1.5, 5.0)


def events_of(api, namespace, pods):
    """{uid: [event, …]} of the given pods. No permission to read events only costs us the better reason."""
    uids = {(p.get("metadata") or {}).get("uid") for p in pods}
    try:
        items = api.list_items(api.path("v1", "Event", namespace), [("fieldSelector", "involvedObject.kind=Pod")])
    except ApiError:
        return {}
    found = {}
    for item in items:
        uid = (item.get("involvedObject") or {}).get("uid")
        if uid in uids:
            found.setdefault(uid, []).append(item)
    return found


def networks_of(pod):
    """The attachments that Multus reports in the pod's annotation; None when there is none or it is not JSON."""
    text = ((pod.get("metadata") or {}).get("annotations") or {}).get(NETWORK_STATUS)
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None


def read_settled(read, ready, params, clock=time.monotonic, pause=time.sleep):
    """{name: facts} of running pods: read again those whose addresses are not final, until the deadline."""
    subnets = [ipaddress.ip_network(text) for text in params["placeholders"]]
    found, left = {}, list(ready)
    for _look in looks(params["address_timeout"], 0.5, 5.0, clock, pause):
        found.update(zip(left, in_parallel(read, left, params["threads"])))
        left = [name for name in left if pending(found[name].get("netdevs") or {}, subnets)]
        if not left:
            break
    return found


def reasons_of(api, namespace, pods):
    """{name: why it does not run} of the pods that do not."""
    stuck = {name: pod for name, pod in pods.items() if pod is None or not is_running(pod)}
    found = events_of(api, namespace, [pod for pod in stuck.values() if pod]) if any(stuck.values()) else {}
    return {
        name: stuck_reason(pod, found.get(((pod or {}).get("metadata") or {}).get("uid"), []))
        for name, pod in stuck.items()
    }


def gather(execute, pods, reasons, params):
    """{name: facts}.

    :param execute: function (pod name) -> output of the probe; raises ExecError.
    :param pods: {name: object or None}; reasons: of reasons_of.
    """
    base, ready = {}, []
    for name, pod in pods.items():
        base[name] = {
            "node": ((pod or {}).get("spec") or {}).get("nodeName"),
            "running": name not in reasons,
            "reachable": False,
            "reason": reasons.get(name),
            "networks": networks_of(pod or {}),
        }
        if name not in reasons:
            ready.append(name)

    def read(name):
        try:
            return dict(pod_facts(execute(name)), reachable=True)
        except (ExecError, probe.ProbeError) as error:
            return {"reason": str(error)}

    for name, facts in read_settled(read, ready, params).items():
        base[name].update(facts)
    return base


def look(api, execute, params, once=False, clock=time.monotonic, pause=time.sleep):
    """The result of the module. Not ``finished``: only why which pods do not run yet, for the caller to show."""
    executions = []

    def counted(name):
        executions.append(name)
        return execute(name)

    pods, waited, over = wait_for_pods(
        api,
        params["namespace"],
        params["names"],
        0 if once else params["wait_timeout"],
        clock,
        pause,
        params["report_interval"],
        params["earlier"],
    )
    reasons = reasons_of(api, params["namespace"], pods)
    result = {"finished": over, "waited": round(waited, 1), "pending": {} if over else reasons}
    found = gather(counted, pods, reasons, params) if over else {}
    not_read = [name for name, facts in found.items() if not facts["reachable"]]
    return {**result, "pods": found, "not_read": not_read, "executions": len(executions)}


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        namespace={"type": "str", "required": True},
        names={"type": "list", "elements": "str", "required": True},
        container={"type": "str"},
        wait_timeout={"type": "int", "default": 120},
        exec_timeout={"type": "int", "default": 60},
        threads={"type": "int", "default": 16},
        placeholders={"type": "list", "elements": "str", "default": []},
        address_timeout={"type": "int", "default": 30},
        report_interval={"type": "int", "default": 15},
        earlier={"type": "float", "default": 0},
    )
    return spec


def perform(module):
    params = module.params
    for text in params["placeholders"]:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            module.fail_json(msg=f"placeholders: got {text!r}, must be a subnet such as fd01:0:0:100::/112 ({error})")
    client = dynamic_client(module)
    open_socket = opener(client)

    def execute(name):
        argv = probe.command()
        return run_in_pod(open_socket, params["namespace"], name, params["container"], argv, params["exec_timeout"])

    try:
        result = look(Api(dynamic_transport(client.client)), execute, params, once=module.check_mode)
    except ApiError as error:
        module.fail_json(
            msg=f"Pods in {params['namespace']} cannot be read: HTTP status {error.status}: {error.message}"
        )
    module.exit_json(changed=False, **result)


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
