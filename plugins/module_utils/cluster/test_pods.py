# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Test pods in the cluster: which are left of a run that was killed, and what their namespace allows."""

from __future__ import annotations

import hashlib

# The label's value is what the pods are for, the prefix of their names: verify leaves those of a benchmark alone.
LABEL, HOST_LABEL = "railyard.io/verify", "railyard.io/host"


def host_mark(host):
    """A label's value for an inventory name, which may hold what no label may."""
    return hashlib.sha256(host.encode()).hexdigest()[:16]
