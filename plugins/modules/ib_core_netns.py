#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_core_netns
short_description: Set the RDMA network namespace mode in modprobe.d
version_added: 0.1.0
description:
  - Sets the parameter C(netns_mode) of the kernel module C(ib_core) in C(/etc/modprobe.d/ib_core.conf), so that the
    mode survives a reboot. Other options and comments in that file stay.
  - The mode has one owner. When something else sets it, too (another file in one of modprobe's five directories, such
    as the one that the SR-IOV operator writes for C(rdmaMode), or the kernel line), the module fails and names it.
  - The running kernel is not changed, and a boot image may carry an old copy of the file. See
    M(railyard.rdma.boot_image).
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - railyard.rdma.attributes
  - railyard.rdma.root
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  mode:
    description:
      - V(shared) makes every RDMA device visible in every network namespace; IPvlan, macvlan and host network need it.
      - V(exclusive) gives an RDMA device to one network namespace; the RDMA CNI plugin needs it.
    type: str
    choices: [shared, exclusive]
    required: true
seealso:
  - module: railyard.rdma.boot_image
  - module: railyard.rdma.rdma_facts
"""

EXAMPLES = r"""
- name: Make every RDMA device visible in every network namespace
  railyard.rdma.ib_core_netns:
    mode: shared
"""

RETURN = r"""
file:
  description: The file that holds the option.
  returned: always
  type: str
  sample: /etc/modprobe.d/ib_core.conf
configured_before:
  description: The mode that modprobe.d set before, V(null) when it set none.
  returned: success
  type: str
  sample: exclusive
owners:
  description: Everything that sets the mode, as it was before, in order of application.
  returned: always
  type: list
  elements: dict
  sample:
    - owner: railyard
      path: /etc/modprobe.d/ib_core.conf
      line: 1
      mode: exclusive
      wins: true
      hidden_by: null
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils import modprobe, modprobe_edit, netns_mode
from ansible_collections.railyard.rdma.plugins.module_utils.sysfs import Tree

COMMENT = "Managed by Ansible (railyard.rdma.ib_core_netns)."


def conflicts(owners: list) -> list:
    """Return the owners that would still be there beside our file: those of its own name in other directories it
    hides."""
    name = os.path.basename(netns_mode.OUR_FILE)
    return [entry for entry in netns_mode.foreign(owners) if os.path.basename(entry["path"]) != name]


def explain(others: list, mode: str) -> str:
    """Say who else sets the mode and how to make it stop."""
    remedies = {
        "kernel_line": "remove ib_core.netns_mode from the boot loader's configuration and reboot",
        "sriov_network_operator": "remove spec.rdmaMode from the SriovNetworkPoolConfig, then this file",
    }
    told = [
        f"{entry['path']} line {entry['line']} sets {entry['mode'] or 'an invalid value'} "
        f"({remedies.get(entry['owner'], 'remove that option')})"
        for entry in others
    ]
    where = netns_mode.OUR_FILE
    return f"Mode {mode} is to be set in {where}, but it has other owners: {'; '.join(told)}. Nothing was changed."


def current_text(files: dict) -> str:
    """Return the text to start from: our file, or the one of its name that it is going to hide, so that nothing else
    is lost."""
    name = os.path.basename(netns_mode.OUR_FILE)
    namesakes = [path for path, _hidden_by in modprobe.in_order(files) if os.path.basename(path) == name]
    return files[namesakes[0]] if namesakes else ""


def write(module: AnsibleModule, place: str, text: str) -> None:
    """Replace a file in one step; it is on disk before it gets its name, since a reboot may follow."""
    directory = os.path.dirname(place)
    os.makedirs(directory, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".ib_core.", suffix=".tmp", dir=directory)
    module.add_cleanup_file(temporary)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    module.atomic_move(temporary, place)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "mode": {"type": "str", "choices": ["shared", "exclusive"], "required": True},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    mode = module.params["mode"]
    tree = Tree(module.params["root"])
    files, problems = modprobe.read_config(tree)
    owners = netns_mode.owners(files, tree.read("/proc/cmdline").value)
    # Not "path": Ansible would add that file's permissions, and those of the running system for another root.
    result = {"file": netns_mode.OUR_FILE, "owners": owners}
    if problems:
        module.fail_json(
            msg=f"It cannot be told who sets the mode: {'; '.join(problems)}. Nothing was changed.", **result
        )
    others = conflicts(owners)
    if others:
        module.fail_json(msg=explain(others, mode), **result)
    before = files.get(netns_mode.OUR_FILE)
    after = modprobe_edit.set_option(
        current_text(files),
        netns_mode.MODULE,
        netns_mode.PARAMETER,
        netns_mode.option_value(mode),
        COMMENT,
    )
    planned = netns_mode.configured({**files, netns_mode.OUR_FILE: after})
    if planned["mode"] != mode or planned["by"] != netns_mode.OUR_FILE:
        module.fail_json(
            msg=f"{netns_mode.OUR_FILE} would not set mode {mode}: {planned}. Nothing was changed.", **result
        )
    changed = before != after
    if changed and not module.check_mode:
        place = tree.path(netns_mode.OUR_FILE)
        try:
            write(module, place, after)
        except OSError as error:
            module.fail_json(msg=f"{place} cannot be written: {error.strerror}", **result)
    result["configured_before"] = netns_mode.configured(files)["mode"]
    result["diff"] = {
        "before": before or "",
        "after": after,
        "before_header": netns_mode.OUR_FILE,
        "after_header": netns_mode.OUR_FILE,
    }
    module.exit_json(changed=changed, **result)


if __name__ == "__main__":
    main()
