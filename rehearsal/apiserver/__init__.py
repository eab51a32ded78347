# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in for kube-apiserver: in memory, on loopback, with the semantics that Helm, kubectl and operators rely on.

Besides the API itself it does what a bare cluster's controllers must do for objects to go away: garbage collection by
owner references, namespace termination, and the status of PodDisruptionBudgets at eviction time.
"""

from __future__ import annotations

__all__ = ["VERSION"]

#: What /version says: the Kubernetes release whose behaviour is imitated.
VERSION = "v1.36.4"
