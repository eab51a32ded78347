# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict of a proof document in one sentence."""

from __future__ import annotations

from collections import Counter

from ansible_collections.railyard.rdma.plugins.plugin_utils.report.jobs import jobs, state
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import counted


def sentence(document: dict) -> str:
    """The verdict in one sentence."""
    table = document["rows"]
    verdicts = Counter(row.get("verdict") for row in table)
    whole = len(table)
    if not whole:
        ran = jobs(document["nccl"])
        bad = sum(state(job) == "fail" for job in ran)
        told = f" {bad} of {counted(len(ran), 'NCCL job')} failed." if bad else " No NCCL job failed." if ran else ""
        return f"RDMA is not proven: no node was judged.{told}"
    if document["verdict"] == "pass":
        rails = len(document["cells"])
        if not _in_pods(document):
            return f"Nothing is wrong on {counted(whole, 'node')} with {counted(rails, 'rail')}; pods were not tested."
        rated = {cell["ratio"] is not None and cell["state"] == "pass" for cell in document["cells"]}
        rate = " at full rate" if rated == {True} else ""
        return f"RDMA works in pods on all {counted(rails, 'rail')} of {counted(whole, 'node')}{rate}."
    if verdicts["fail"]:
        verb = "fails" if verdicts["fail"] == 1 else "fail"
        return f"RDMA is not proven: {verdicts['fail']:,} of {counted(whole, 'node')} {verb}."
    if document["verdict"] == "fail":
        rails = sum(cell["state"] == "fail" for cell in document["cells"])
        what = f"{counted(rails, 'rail')} failed in the benchmark" if rails else "an NCCL job failed"
        return f"RDMA is not proven: {what}."
    unknown = {row["node"] for row in table if row.get("verdict") != "pass"}
    unknown |= {cell["node"] for cell in document["cells"] if cell["state"] == "unknown"}
    if not unknown:
        return "RDMA is not proven: an NCCL job could not be judged."
    return f"RDMA is not proven: {len(unknown):,} of {counted(whole, 'node')} could not be judged."


def _in_pods(document: dict) -> bool:
    return any(cell["seen_in"] == "pod" for cell in document["cells"])
