# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NCCL jobs of a proof document."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import mapping, rows, visible, words

_STATES = {"pass": "pass", "low": "fail", "failed": "fail"}


def jobs(nccl) -> list[dict]:
    """The jobs of the fact ``rdma_nccl_result``."""
    return rows(mapping(nccl).get("jobs"))


def state(job: dict) -> str:
    """State of a job as that of a cell. A low rate is a failure: it is what the whole is for."""
    return _STATES.get(job.get("verdict"), "unknown")


def environment(nccl) -> list[dict]:
    """``[{name, value, reason}]``: what an application should set; value is None for what it should not set. reason is None
    where none is given."""
    told = mapping(mapping(nccl).get("environment"))
    reasons = mapping(told.get("reasons"))
    return [
        {"name": name, "value": visible(value), "reason": words(reasons.get(name))}
        for name, value in told.items()
        if name != "reasons" and isinstance(value, (str, int, float))
    ] + [{"name": name, "value": None, "reason": words(reason)} for name, reason in reasons.items() if name not in told]
