# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which right a text of somebody else is about."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.railyard.rdma.plugins.filter.missing_right import missing_right


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'Error: query: secrets is forbidden: User "ann" cannot list resource "secrets" in API group "" in the namespace '
            '"nvidia-network-operator"',
            "ClusterRole railyard-install-operator-operator",
        ),
        ("Error: attempting to grant RBAC permissions not currently held: x", "verb escalate"),
        ("Error: timed out waiting for the condition", ""),
        ("", ""),
    ],
    ids=["secrets", "grants", "another", "nothing"],
)
def test_which_right_a_text_of_helm_is_about(text, says):
    found = missing_right(text)
    assert says in found and bool(found) == bool(says)


def test_what_is_no_text_is_refused():
    with pytest.raises(AnsibleFilterError, match="got dict"):
        missing_right({})
