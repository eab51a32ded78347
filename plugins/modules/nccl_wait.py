#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_wait
short_description: Wait for NCCL jobs and read what their launchers say
version_added: 0.2.0
description:
  - Looks at the pods of jobs, at their MPIJobs and at the launchers' logs until every job has ended.
  - A job whose pods do not all run within O(start_timeout) has failed, with the reason of each pod that does not run. So has
    one whose pods can never start, were killed for their memory, or whose launcher failed.
  - While it waits, a line each O(report_interval) seconds says which pod is missing why, or what the launcher said last.
  - A server that does not answer for a while is waited for, too.
  - A job that fails does not fail the task; the return value tells.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
attributes:
  check_mode:
    support: full
    description: Looks once instead of waiting.
  diff_mode:
    support: none
    description: Nothing changes.
options:
  jobs:
    description: The jobs. Their pods have the label C(railyard.io/nccl) with the name of the job.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the job.
        type: str
        required: true
      namespace:
        description: Namespace of the job.
        type: str
        required: true
      workers:
        description: Number of workers that it must have.
        type: int
        required: true
      mpi_operator:
        description: Whether the job is an MPIJob.
        type: bool
        default: true
  until:
    description:
      - V(key) ends as soon as every launcher has said its public key, which workers without an MPI operator need.
      - V(ended) ends when every job has succeeded or failed.
    type: str
    choices: [key, ended]
    default: ended
  start_timeout:
    description: Seconds until all pods of a job must run.
    type: int
    default: 600
  timeout:
    description: Seconds until all jobs must have ended.
    type: int
    default: 1800
  interval:
    description: Seconds between two looks.
    type: float
    default: 2
  report_interval:
    description: Seconds between two lines on the screen.
    type: int
    default: 30
  earlier:
    description:
      - Seconds that were waited before. It is set by the action plugin, which runs the module again after each line.
    type: float
    default: 0
requirements:
  - kubernetes (Python library) 24.2 or newer
seealso:
  - module: railyard.rdma.rail_objects
"""

EXAMPLES = r"""
- name: Wait for the jobs
  railyard.rdma.nccl_wait:
    jobs:
      - {name: railyard-nccl-bm-gpu-b4-8, namespace: default, workers: 2}
  register: nccl
"""

RETURN = r"""
jobs:
  description: What became of each job, by its name.
  returned: success
  type: dict
  contains:
    state:
      description:
        - Is V(succeeded), V(failed), V(unfinished) when the time was over first, or V(unseen) when the server did not answer at
          the end.
      returned: always
      type: str
      sample: succeeded
    reason:
      description: Why it did not succeed.
      returned: always
      type: str
      sample: "launcher nccl-launcher-x2x4x failed: Error (exit code 1)"
    log:
      description: The launcher's log, as far as there is one.
      returned: always
      type: str
      sample: "NCCL version 2.32.3+cuda13.4"
    key:
      description: The launcher's public key; null when its log has none.
      returned: always
      type: str
      sample: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB railyard-nccl
    pods:
      description: The pods of the job.
      returned: always
      type: list
      elements: dict
      sample: [{name: nccl-worker-0, node: gpu-1, role: worker, phase: Running, reason: null}]
waiting:
  description: What is waited for.
  returned: success
  type: list
  elements: dict
  sample: [{job: nccl, pod: nccl-worker-1, reason: "Pending: not scheduled: 0/2 nodes are available"}]
waited:
  description: Seconds that were waited.
  returned: success
  type: float
  sample: 92.5
finished:
  description: Whether nothing is waited for any more.
  returned: success
  type: bool
  sample: true
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import nccl_jobs
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import (
    NoConnection,
    auth_argument_spec,
    connect_later,
)

# A look is tried that often at once; the loop around it tries for as long as it may.
TRIES = 2
ENDED = ("succeeded", "failed")


def missing(found, until):
    """[{job, pod, reason}] that is still waited for."""
    rows = []
    for name, answer in found.items():
        if answer["state"] in ENDED or (until == "key" and answer.get("key")):
            continue
        if answer["state"] == "starting" and until != "key":
            rows += [{"job": name, **row} for row in answer["waiting"]]
        else:
            reason = (
                f"the launcher works; it said last: {answer['last']}"
                if answer["last"]
                else "the launcher has said nothing"
            )
            launcher = [row for row in answer["waiting"] if row["pod"] == answer["launcher"]]
            rows.append(
                {"job": name, "pod": answer["launcher"], "reason": launcher[0]["reason"] if launcher else reason}
            )
    return rows


def give_up(found, second, params):
    """Jobs that have not started in time have failed."""
    for answer in found.values():
        if answer["state"] == "starting" and second >= params["start_timeout"] and params["until"] == "ended":
            told = "; ".join(f"{row['pod']}: {row['reason']}" for row in answer["waiting"][:8])
            more = f"; and {len(answer['waiting']) - 8} more" if len(answer["waiting"]) > 8 else ""
            answer.update(state="failed", reason=f"not all pods run after {int(second)} s: {told}{more}")


def look(api, params):
    """nccl_jobs.look, with the keys that launchers said. Keys are the first thing in a log."""
    keys = params["until"] == "key"
    found = nccl_jobs.look(api, params["jobs"])
    for job in params["jobs"]:
        answer = found[job["name"]]
        log = nccl_jobs.read_log(api, job["namespace"], answer["launcher"]) if keys and answer["launcher"] else ""
        answer["key"] = nccl_jobs.public_key(log)
    return found


def wait(api, params, once=False, clock=time.monotonic, pause=time.sleep):
    """(answers, what is missing, seconds waited in all, whether there is nothing more to wait for)."""
    start, before = clock(), params["earlier"]
    while True:
        trouble = None
        try:
            found = look(api, params)
        except ApiError as error:
            # A server that restarts must not end a wait that has time left.
            if once or not error.retriable:
                raise
            found, trouble = {}, f"{error.message} (HTTP status {error.status})"
        second = round(clock() - start + before, 1)
        give_up(found, second, params)
        waiting = missing(found, params["until"])
        if trouble:
            waiting = [{"job": None, "pod": "Kubernetes API", "reason": trouble}]
        over = once or second >= params["timeout"]
        if not waiting or over or second - before >= params["report_interval"]:
            return found, waiting, second, over or not waiting
        pause(max(0.0, min(params["interval"], params["timeout"] - second)))


def results(api, params, found, waiting, second):
    """{name: {state, reason, log, key, pods}} when the waiting is over."""
    made = {}
    for job in params["jobs"]:
        answer = found.get(job["name"]) or {
            "state": "absent",
            "reason": None,
            "pods": [],
            "launcher": None,
            "waiting": [],
        }
        state, reason = answer["state"], answer["reason"]
        own = [row for row in waiting if row["job"] in (job["name"], None)]
        if state not in ENDED:
            told = "; ".join(f"{row['pod']}: {row['reason']}" for row in own[:8])
            state = "unseen" if any(row["job"] is None for row in own) else "unfinished"
            reason = f"it did not end within {int(second)} s: {told}" if told else reason
        log = ""
        if answer["launcher"] and not any(row["job"] is None for row in waiting):
            log = nccl_jobs.whole_log(api, job["namespace"], answer["launcher"])
        key = nccl_jobs.public_key(log)
        made[job["name"]] = {"state": state, "reason": reason, "log": log, "key": key, "pods": answer["pods"]}
    return made


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        jobs={
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "name": {"type": "str", "required": True},
                "namespace": {"type": "str", "required": True},
                "workers": {"type": "int", "required": True},
                "mpi_operator": {"type": "bool", "default": True},
            },
        },
        until={"type": "str", "choices": ["key", "ended"], "default": "ended"},
        start_timeout={"type": "int", "default": 600},
        timeout={"type": "int", "default": 1800},
        interval={"type": "float", "default": 2},
        report_interval={"type": "int", "default": 30},
        earlier={"type": "float", "default": 0},
    )
    return spec


def perform(module):
    params, api = module.params, connect_later(module.params, attempts=TRIES)
    try:
        found, waiting, second, over = wait(api, params, once=module.check_mode)
        made = results(api, params, found, waiting, second) if over else {}
    except NoConnection as error:
        module.fail_json(msg=str(error))
    except ApiError as error:
        module.fail_json(msg=f"The jobs cannot be looked at: HTTP status {error.status}: {error.message}")
    module.exit_json(changed=False, jobs=made, waiting=waiting, waited=second, finished=over)


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
