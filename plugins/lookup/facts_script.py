# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: facts_script
short_description: An executable file that prints the RDMA facts of a node
version_added: 0.2.0
description:
  - Returns the text of one Python file for C(/etc/ansible/facts.d). It needs nothing but Python 3.9 and runs the same
    code as the module P(railyard.rdma.rdma_facts#module).
  - The role P(railyard.rdma.node_facts#role) installs it.
author:
  - Railyard contributors (@railyard)
options:
  _terms:
    description: Takes no terms.
    type: list
    elements: str
    default: []
  rails:
    description:
      - The intended rails, as for P(railyard.rdma.rdma_facts#module).
    type: list
    elements: dict
    default: []
  boot_images:
    description:
      - Reads the boot images, too. It takes seconds, each time that facts are gathered.
    type: bool
    default: false
  timeout:
    description:
      - Seconds after which the file gives up and prints the reason.
    type: int
    default: 30
"""

EXAMPLES = r"""
- name: Install the facts
  ansible.builtin.copy:
    content: "{{ lookup('railyard.rdma.facts_script', boot_images=true) }}"
    dest: /etc/ansible/facts.d/rdma.fact
    mode: "0755"
"""

RETURN = r"""
_raw:
  description: The text of the file.
  type: list
  elements: str
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.railyard.rdma.plugins.plugin_utils.facts_script import build


class LookupModule(LookupBase):
    """See the documentation above."""

    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        if terms:
            raise AnsibleLookupError(f"facts_script: takes no terms, got {terms!r:.80}; use named options")
        try:
            text = build(self.get_option("rails"), self.get_option("boot_images"), self.get_option("timeout"))
        except (ValueError, OSError) as error:
            raise AnsibleLookupError(f"facts_script: {error}") from error
        return [text]
