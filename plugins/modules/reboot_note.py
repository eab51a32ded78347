#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: reboot_note
short_description: Note on a node that it is rebooted for a network namespace mode
version_added: 0.2.0
description:
  - Writes C(/var/lib/railyard/rdma_netns_reboot.json) before a reboot, or removes it when the reboot brought the mode. The fact
    C(rdma.reboot_note) of M(railyard.rdma.rdma_facts) shows it. A run that was interrupted leaves it for the next one,
    which then knows that the node was rebooted already.
  - The note is on the disk when the module ends, since a reboot follows.
  - It is written only while the boot runs that was looked at. A node that went down meanwhile (during a long drain, or
    by the order of an interrupted run) must not be rebooted again, and RV(same_boot) tells that.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - railyard.rdma.attributes
  - railyard.rdma.root
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  state:
    description: Whether the note must be there.
    type: str
    choices: [present, absent]
    default: present
  mode:
    description: The mode that the reboot shall bring. Needed with O(state=present).
    type: str
    choices: [shared, exclusive]
  boot_id:
    description:
      - The boot that the decision to reboot is based on, C(rdma.boot_id) of the facts. Needed with O(state=present).
    type: str
seealso:
  - module: railyard.rdma.rdma_facts
  - module: railyard.rdma.ib_core_netns
"""

EXAMPLES = r"""
- name: Note the reboot
  railyard.rdma.reboot_note:
    mode: shared
    boot_id: "{{ ansible_facts['rdma'].boot_id }}"
  register: note

- name: Reboot the node
  ansible.builtin.reboot:
  when: note.same_boot

- name: Forget it
  railyard.rdma.reboot_note:
    state: absent
"""

RETURN = r"""
boot_id:
  description: Identity of the boot that runs now.
  returned: success
  type: str
  sample: 28d3acf0-6be4-495e-904c-e4e4110be598
same_boot:
  description: Whether that is O(boot_id); V(null) with O(state=absent).
  returned: success
  type: bool
  sample: true
path:
  description: Path of the note.
  returned: success
  type: str
  sample: /var/lib/railyard/rdma_netns_reboot.json
"""

import contextlib
import datetime
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.host import reboot_note
from ansible_collections.railyard.rdma.plugins.module_utils.netns.replaced_files import Changes
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree


def write(module: AnsibleModule, place: str, mode: str, boot_id: str) -> None:
    at = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    changes = Changes(lambda new: module.set_default_selinux_context(new, False))
    changes.write(place, reboot_note.text(mode, boot_id, at).encode())


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "mode": {"type": "str", "choices": ["shared", "exclusive"]},
            "boot_id": {"type": "str"},
            "root": {"type": "path", "default": "/"},
        },
        required_if=[("state", "present", ("mode", "boot_id"))],
        supports_check_mode=True,
    )
    present = module.params["state"] == "present"
    tree = Tree(module.params["root"])
    place = tree.path(reboot_note.PATH)
    now = tree.read(reboot_note.BOOT_ID)
    if now.value is None:
        module.fail_json(msg=f"The boot that runs now cannot be told: {reboot_note.BOOT_ID}: {now.reason}")
    boot_id = now.value.strip()
    same = boot_id == module.params["boot_id"] if present else None
    changed = bool(same) if present else os.path.lexists(place)
    if changed and not module.check_mode:
        try:
            if present:
                write(module, place, module.params["mode"], boot_id)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(place)
        except OSError as error:
            module.fail_json(
                msg=f"{reboot_note.PATH} could not be {'written' if present else 'removed'}: {error.strerror}. "
                + ("The node is not rebooted without it." if present else "Remove it by hand.")
            )
    module.exit_json(changed=changed, boot_id=boot_id, same_boot=same, path=reboot_note.PATH)


if __name__ == "__main__":
    main()
