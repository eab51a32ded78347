#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rail_objects
short_description: Apply or delete all Kubernetes objects of a rail layout in one call
version_added: 0.1.0
description:
  - Applies a list of Kubernetes objects by server-side apply with strict field validation, or deletes them.
  - An object that already holds what is wanted costs no request of its own, so an unchanged layout writes nothing.
  - The current objects are read with one list for each kind and namespace.
  - The module does not wait for what controllers make of the objects; see M(railyard.rdma.rail_wait).
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
attributes:
  check_mode:
    support: full
    description:
      - Every request is sent as a dry run of the server, with the same validation.
      - An object whose kind or namespace does not exist yet is reported as created; it cannot be validated before,
        and a warning says so.
      - An account that may only read gets the answer, too. It is then told from the objects and their field managers,
        without the server's validation and defaults; C(validated) is V(false), and a warning says so.
  diff_mode:
    support: full
    description: Shows each changed object before and after, without what the server keeps for itself.
  idempotent:
    support: full
    description: A second run changes nothing and sends no write.
options:
  objects:
    description:
      - The objects in order of application. Deletion goes the other way round.
      - An entry is an object, or a document of the role P(railyard.rdma.rail_networks#role) whose key C(objects)
        holds objects.
    type: list
    elements: dict
    required: true
  state:
    description: Whether the objects must exist with the given content, or must not exist.
    type: str
    choices: [present, absent]
    default: present
  field_manager:
    description:
      - The owner's name under which the API server records the fields.
      - Fields that an earlier call set under this name, and that are no longer in the object, are removed.
    type: str
    default: railyard
  wait_gone:
    description:
      - With O(state=absent) the seconds to wait until the objects are gone, since finalizers and running pods take
        time.
      - With V(0) the module does not wait.
      - With O(prune) a network that goes is waited for only when a new one has the same name, then V(0) stands for 120
        seconds.
    type: int
    default: 0
  prune:
    description:
      - Kinds of which objects that O(field_manager) applied before, and that are not in O(objects), are deleted. It is for
        O(state=present).
      - Networks and pool configurations go before the new objects come, policies and address pools after them, so that no PF is
        without a policy. Only where the operator's webhook refuses a PF in two policies the old one goes first. A new object
        that the server would refuse is found before anything is deleted.
      - An object that somebody else applied too, or that O(field_manager) never applied, stays. The return value RV(foreign)
        names it where it collides with the wanted objects.
    type: list
    elements: dict
    default: []
    version_added: 0.2.0
    suboptions:
      api_version:
        description: API group and version of the kind.
        type: str
        required: true
      kind:
        description: The kind.
        type: str
        required: true
        choices:
          - SriovNetwork
          - SriovIBNetwork
          - HostDeviceNetwork
          - MacvlanNetwork
          - IPoIBNetwork
          - NetworkAttachmentDefinition
          - SriovNetworkNodePolicy
          - SriovNetworkPoolConfig
          - IPPool
          - CIDRPool
      namespace:
        description: Where to look. Without it all namespaces are looked at.
        type: str
  lifetime:
    description:
      - Seconds after which Kubernetes removes the objects by itself, for what comes and goes within a run that may be killed.
      - A Job without pods owns them, one for each call and namespace. It goes with the objects when they are removed with
        O(state=absent). An account that may not make it gets a warning.
      - Objects are for ever with V(0). It is for O(state=present) and objects that have a namespace, without O(prune).
    type: int
    default: 0
    version_added: 0.2.0
  force_conflicts:
    description:
      - Take over fields that another field manager owns.
      - When V(false) such a field is an error that names the object, the field and its owner.
    type: bool
    default: false
requirements:
  - kubernetes (Python library) 24.2 or newer
seealso:
  - module: railyard.rdma.rail_wait
  - module: kubernetes.core.k8s
  - name: Server-side apply
    description: What field managers and conflicts are.
    link: https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

EXAMPLES = r"""
- name: Apply all rail networks
  railyard.rdma.rail_objects:
    objects: "{{ rail_networks_documents }}"

- name: Apply them, and remove what an earlier layout left
  railyard.rdma.rail_objects:
    objects: "{{ rail_networks_documents }}"
    prune:
      - api_version: sriovnetwork.openshift.io/v1
        kind: SriovNetwork
        namespace: nvidia-network-operator
      - api_version: sriovnetwork.openshift.io/v1
        kind: SriovNetworkNodePolicy
        namespace: nvidia-network-operator

- name: See what would change
  railyard.rdma.rail_objects:
    objects: "{{ rail_networks_documents }}"
  check_mode: true
  diff: true

- name: Remove a network
  railyard.rdma.rail_objects:
    state: absent
    objects:
      - apiVersion: sriovnetwork.openshift.io/v1
        kind: SriovNetwork
        metadata:
          name: rdma-vf-0
          namespace: nvidia-network-operator
"""

RETURN = r"""
objects:
  description: What happened to each object, in the order in which it was done.
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the object.
      returned: always
      type: str
      sample: SriovNetwork
    name:
      description: Name of the object.
      returned: always
      type: str
      sample: rdma-vf-0
    namespace:
      description: Namespace of the object; null when its kind has none.
      returned: always
      type: str
      sample: nvidia-network-operator
    action:
      description: What was done, or would be done in check mode.
      returned: always
      type: str
      sample: created
    fields:
      description: The fields that would change, each with its path and its values before and after.
      returned: in check mode, for an object that would change
      type: list
      elements: dict
      version_added: 0.2.0
      sample: [{path: spec.numVfs, before: 1, after: 2}]
    validated:
      description: Is V(false) when check mode could not ask the server about this object.
      returned: when false
      type: bool
      sample: false
counts:
  description: Number of objects for each action.
  returned: success
  type: dict
  sample: {"created": 2, "changed": 1, "unchanged": 45, "deleted": 0}
foreign:
  description: Objects of others that collide with the wanted ones. They were not touched.
  returned: when O(prune) is given
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the object.
      returned: always
      type: str
      sample: SriovNetworkNodePolicy
    namespace:
      description: Namespace of the object.
      returned: always
      type: str
      sample: nvidia-network-operator
    name:
      description: Name of the object.
      returned: always
      type: str
      sample: by-hand
    reason:
      description: What it collides with.
      returned: always
      type: str
      sample: "takes 0000:0c:00.0 on gpu-1 as our policy bm-gpu-b4-8 does"
not_done:
  description: Objects that were not applied or not deleted.
  returned: failure
  type: list
  elements: str
  sample: ["SriovNetwork nvidia-network-operator/rdma-vf-3"]
requests:
  description: Requests that were sent for the objects, repeats included.
  returned: success
  type: int
  sample: 12
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import lifetime
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import ApiError, KindNotServed, answer_text
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.apply import (
    InputError,
    PartialFailure,
    apply_objects,
    delete_objects,
    flatten,
    label,
    wait_until_gone,
)
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import auth_argument_spec, connect
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.prune import (
    AFTER,
    BEFORE,
    GONE_TIMEOUT,
    change_layout,
)
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.results import diff_of, partial_message, public

ACTIONS = ("created", "changed", "unchanged", "deleted")


def limited(module, api, objects):
    """(objects, with the owner that limits their life where one is asked for; the owners)."""
    seconds = module.params["lifetime"]
    if not seconds:
        return objects, []
    everywhere = [label(obj) for obj in objects if not obj["metadata"].get("namespace")]
    if seconds < 0:
        raise InputError(f"lifetime: got {seconds}, must be seconds, or 0")
    if everywhere or module.params["prune"]:
        why = f"{', '.join(everywhere)} has no namespace" if everywhere else "prune is for objects that stay"
        raise InputError(f"lifetime: {why}")
    if module.check_mode:
        return objects, []
    objects, owners, told = lifetime.limit(api, objects, seconds)
    for sentence in told:
        module.warn(sentence)
    return objects, owners


def run(module, api):
    """Do the work over an Api; separate from main() so that tests bring their own."""
    params = module.params
    present, owners = params["state"] == "present", []
    verb = "applied" if present else "deleted"
    foreign = None
    try:
        objects = flatten(params["objects"])
        if present:
            objects, owners = limited(module, api, objects)
        if present and params["prune"]:
            results, foreign = change_layout(
                api,
                objects,
                params["prune"],
                params["field_manager"],
                params["force_conflicts"],
                module.check_mode,
                params["wait_gone"] or GONE_TIMEOUT,
            )
        elif present:
            results = apply_objects(
                api,
                objects,
                params["field_manager"],
                params["force_conflicts"],
                module.check_mode,
                reader=module.check_mode,
            )
        else:
            results = delete_objects(api, objects, params["field_manager"], module.check_mode)
            owners = lifetime.owners_of([r["before"] for r in results if r["before"] and not module.check_mode])
            if params["wait_gone"] and not module.check_mode:
                left = wait_until_gone(api, objects, params["wait_gone"])
                if left:
                    raise PartialFailure(
                        [f"{name} is still there after {params['wait_gone']} s" for name in left], results, left
                    )
            lifetime.release(api, owners)
    except PartialFailure as error:
        if present and not error.done:
            lifetime.release(api, owners)
        module.fail_json(
            msg=partial_message(error, verb),
            objects=public(error.done, module.check_mode),
            not_done=error.not_done,
            changed=any(r["action"] != "unchanged" for r in error.done),
        )
    except (InputError, KindNotServed) as error:
        lifetime.release(api, owners)
        module.fail_json(msg=str(error), objects=[], not_done=[])
    except ApiError as error:
        module.fail_json(
            msg=f"Nothing was {verb}; reading the cluster failed: {answer_text(error)}",
            objects=[],
            not_done=[],
        )
    unseen = [r for r in results if r.get("validated") is False]
    if unseen:
        module.warn(
            f"{len(unseen)} objects could not be validated, since their kind or namespace does not exist yet or the account "
            "may not write: " + ", ".join(sorted({result["kind"] for result in unseen}))
        )
    changes = diff_of(results)
    module.exit_json(
        changed=bool(changes),
        objects=public(results, module.check_mode),
        counts={action: sum(r["action"] == action for r in results) for action in ACTIONS},
        requests=api.requests,
        diff=changes,
        **({} if foreign is None else {"foreign": foreign}),
    )


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        objects={"type": "list", "elements": "dict", "required": True},
        state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        field_manager={"type": "str", "default": "railyard"},
        wait_gone={"type": "int", "default": 0},
        lifetime={"type": "int", "default": 0},
        force_conflicts={"type": "bool", "default": False},
        prune={
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "api_version": {"type": "str", "required": True},
                "kind": {"type": "str", "required": True, "choices": [*BEFORE, *AFTER]},
                "namespace": {"type": "str"},
            },
        },
    )
    return spec


def perform(module):
    run(module, connect(module))


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
