# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rails_layout
short_description: The layout of one host in the rail model
version_added: 0.1.0
description:
  - Returns the part of the rail model that holds for one host, so plays on nodes need not know the grouping of hosts.
author:
  - Railyard contributors (@railyard)
positional: host
options:
  _input:
    description:
      - The rail model, as returned by the module P(railyard.rdma.rail_model#module).
    type: dict
    required: true
  host:
    description:
      - Name of the host in the inventory.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the rails of this node
  ansible.builtin.debug:
    msg: "{{ (hostvars['localhost'].rails_model | railyard.rdma.rails_layout(inventory_hostname)).rails }}"
"""

RETURN = r"""
_value:
  description: The layout of the host.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_model import layout_of


def rails_layout(model, host):
    """Return the layout of a host; see the documentation above."""
    try:
        return layout_of(model, host)
    except KeyError as error:
        raise AnsibleFilterError(
            f"rails_layout: the rail model has no host {host!r}; it was made for: {', '.join(model['hosts'])}. "
            "Put the host into the group gpu_nodes, or into rails_hosts."
        ) from error
    except TypeError as error:
        raise AnsibleFilterError(
            "rails_layout: the input is not a rail model; pipe in the fact rails_model."
        ) from error


class FilterModule:
    """Filters of the rail model."""

    def filters(self):
        return {"rails_layout": rails_layout}
