# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: missing_right
short_description: Which right a refusal is about, and which role holds it
version_added: 0.2.0
description:
  - Finds the API server's refusal in a text, such as what Helm or a module of P(kubernetes.core.k8s#module) says, and tells
    which right is missing and which ClusterRole in C(access) of this collection holds it.
  - The modules of this collection say it themselves.
author:
  - Railyard contributors (@railyard)
options:
  _input:
    description:
      - The text.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Say which right is missing
  ansible.builtin.fail:
    msg: "{{ ansible_failed_result.msg }} {{ ansible_failed_result.msg | railyard.rdma.missing_right }}"
"""

RETURN = r"""
_value:
  description:
    - One or two sentences; empty when the text holds no refusal for want of a right.
  type: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import forbidden


def missing_right(text):
    """Return the sentences; see the documentation above."""
    if not isinstance(text, str):
        raise AnsibleFilterError(f"missing_right: got {type(text).__name__}, must be a text")
    return forbidden.advice(text)


class FilterModule:
    """Texts about rights."""

    def filters(self):
        return {"missing_right": missing_right}
