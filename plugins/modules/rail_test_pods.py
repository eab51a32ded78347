#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rail_test_pods
short_description: Make and remove test pods, also those of a run that was killed
version_added: 0.2.0
description:
  - Makes pods that the filter P(railyard.rdma.verify_pods#filter) returned, or removes them and waits until their devices are
    free.
  - Before it makes pods it removes all test pods of the same purpose on the same hosts, whatever their names are, so that a
    run that was killed leaves nothing behind once the next one has begun.
  - Should none follow, Kubernetes removes the pods itself, when O(timeout) and then the longest C(activeDeadlineSeconds) of
    them are over. For that they are owned by a Job that starts no pod (C(parallelism) 0); it goes with them. Where it cannot
    be made RV(unknown) says so, and pods stay as finished objects.
  - Looks first whether the namespace enforces a Pod Security level that refuses the pods.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
attributes:
  check_mode:
    support: full
    description: Nothing is made or removed.
  diff_mode:
    support: none
    description: The pods come and go.
options:
  pods:
    description: The pods, as objects.
    type: list
    elements: dict
    required: true
  state:
    description: Whether the pods must exist.
    type: str
    choices: [present, absent]
    default: present
  make_namespace:
    description:
      - Whether a namespace of the pods that does not exist is made, with the Pod Security level that they need. With
        O(state=absent) a namespace that was made so is removed again when no pod is left in it.
      - The labels of other namespaces are never changed.
    type: bool
    default: false
  timeout:
    description: Seconds to wait until pods are gone, and that new ones may take to start.
    type: int
    default: 300
requirements:
  - kubernetes (Python library) 24.2 or newer
seealso:
  - module: railyard.rdma.pod_rdma_facts
  - name: Pod Security Standards
    description: What the levels allow.
    link: https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

EXAMPLES = r"""
- name: Make the test pods
  railyard.rdma.rail_test_pods:
    pods: "{{ pods | map(attribute='pod') }}"

- name: Remove them
  railyard.rdma.rail_test_pods:
    pods: "{{ pods | map(attribute='pod') }}"
    state: absent
"""

RETURN = r"""
removed:
  description: Pods that were removed, as namespace and name.
  returned: success
  type: list
  elements: str
  sample: [default/railyard-verify-gpu-1]
level:
  description: The Pod Security level that the pods need; null without pods.
  returned: when O(state=present)
  type: str
  sample: baseline
unknown:
  description: What could not be looked at or arranged, in sentences.
  returned: when O(state=present)
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import InputError, PartialFailure
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import auth_argument_spec, connect
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.test_pods import (
    HOST_LABEL,
    LABEL,
    TestPodsError,
    make,
    needed_level,
    take_away,
)


def odd_pod(pods):
    """What is wrong with the first entry that is no test pod, or None."""
    for number, pod in enumerate(pods):
        meta = pod.get("metadata") if isinstance(pod.get("metadata"), dict) else {}
        labels = meta.get("labels") if isinstance(meta.get("labels"), dict) else {}
        if pod.get("kind") != "Pod" or not meta.get("name") or not meta.get("namespace"):
            return f"pods[{number}] is no Pod with a name and a namespace"
        if not labels.get(LABEL) or not labels.get(HOST_LABEL):
            return f"pods[{number}] ({meta['name']}) has no labels {LABEL} and {HOST_LABEL}, as the filter verify_pods sets"
    return None


def run(module, api):
    """Do the work over an Api; separate from main() so that tests bring their own."""
    params = module.params
    pods, present = params["pods"], params["state"] == "present"
    odd = odd_pod(pods)
    if odd:
        module.fail_json(msg=odd)
    if module.check_mode or not pods:
        told = {"level": needed_level(pods) if pods else None, "unknown": []} if present else {}
        module.exit_json(changed=False, removed=[], **told)
    try:
        if present:
            result = make(api, pods, params["make_namespace"], params["timeout"])
        else:
            result = take_away(api, pods, params["timeout"])
    except TestPodsError as error:
        module.fail_json(msg=f"{str(error)[:1].upper()}{str(error)[1:]}.")
    except PartialFailure as error:
        module.fail_json(
            msg="\n".join([f"{len(error.not_done)} of {len(pods)} test pods were not made.", *error.errors])
        )
    except InputError as error:
        module.fail_json(msg=str(error))
    except ApiError as error:
        verb = "made" if present else "removed"
        module.fail_json(msg=f"The test pods cannot be {verb}: HTTP status {error.status}: {error.message}")
    for sentence in result.get("unknown", []):
        module.warn(sentence)
    module.exit_json(changed=present or bool(result["removed"]), **result)


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        pods={"type": "list", "elements": "dict", "required": True},
        state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        make_namespace={"type": "bool", "default": False},
        timeout={"type": "int", "default": 300},
    )
    return spec


def perform(module):
    run(module, connect(module))


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
