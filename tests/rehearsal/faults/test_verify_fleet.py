# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""verify.yml with two pods a node and GPUs in them, after a run of it that was killed while its pods ran."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.lifetime import LABEL as LIFETIME
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.test_pods import LABEL

from rehearsal.fleet import checks
from rehearsal.fleet.faults import Catalogue
from tests.rehearsal import site_support
from tests.rehearsal.site_support import ROOT, host

pytestmark = pytest.mark.fleet

FAULT = Catalogue().get("roots-mixed")
# Each pod gets one of the two rails, so one GPU is what fits to it.
VARIABLES = {**FAULT.verify, "rdma_verify_gpus": 1}
PLAYBOOKS = ROOT / "playbooks"


class Site(site_support.Site):
    """With a cluster that only localhost's interpreter knows, so that no module runs in the process of its task; and runs that
    are killed."""

    names_cluster = False

    def pods(self) -> list[dict]:
        """The test pods that there are."""
        return [item for item in self.items("/api/v1/pods") if LABEL in (item["metadata"].get("labels") or {})]

    def executions(self) -> int:
        """How often something was run in a pod, by the log of the API server."""
        lines = (self.state.folder / "logs" / "apiserver.jsonl").read_text().splitlines()
        return sum(json.loads(line)["path"].endswith("/exec") for line in lines)

    def jobs(self) -> list[dict]:
        """The Jobs that remove test pods whose run was killed."""
        return [
            item for item in self.items("/apis/batch/v1/jobs") if LIFETIME in (item["metadata"].get("labels") or {})
        ]

    def kill_while_pods_run(self) -> list[dict]:
        """Kill a run of verify.yml once its pods are on nodes, and give the pods that it left. They may stay 18 s."""

        def placed() -> bool:
            return len([pod for pod in self.pods() if pod["spec"].get("nodeName")]) == 4

        self.kill_when(placed, PLAYBOOKS / "verify.yml", **VARIABLES, rdma_verify_timeout=6, rdma_verify_deadline=1)
        return self.pods()


@dataclass
class Outcome:
    """What the two runs left."""

    left: list[dict]
    report: dict
    pods: list[dict]
    jobs: list[dict]
    nodes: list[dict]
    executions: int


@pytest.fixture(scope="module")
def outcome(tmp_path_factory) -> Outcome:
    lacking = checks.missing()
    if lacking:
        pytest.skip("; ".join(lacking))
    nodes = {"near": {}, "far": {"rehearsal_faults": ["roots-mixed"]}}
    site = Site(tmp_path_factory.mktemp("verify"), {name: host("shared", "a", **own) for name, own in nodes.items()})
    site.up()
    try:
        site.play(PLAYBOOKS / "install_operator.yml", PLAYBOOKS / "apply_rails.yml", rail_networks_drain_limit="100%")
        left = site.kill_while_pods_run()
        site.until("what a killed run left goes by itself", lambda: not site.pods() and not site.jobs())
        before, path = site.executions(), site.state.folder.parent / "report.json"
        site.play(PLAYBOOKS / "verify.yml", report_file=str(path), **VARIABLES)
        count = site.executions() - before
        return Outcome(left, json.loads(path.read_text()), site.pods(), site.jobs(), site.items("/api/v1/nodes"), count)
    finally:
        site.down()


def test_the_cluster_removes_the_pods_of_a_killed_run(outcome):
    assert sorted(pod["metadata"]["name"] for pod in outcome.left) == [
        f"railyard-verify-{node}-{part}" for node in ("far", "near") for part in "ab"
    ]
    assert all(pod["spec"]["activeDeadlineSeconds"] == 12 for pod in outcome.left)


def test_a_run_that_ends_well_leaves_neither_pod_nor_job(outcome):
    assert outcome.pods == [] and outcome.jobs == []


def test_no_node_is_cordoned(outcome):
    assert not [node["metadata"]["name"] for node in outcome.nodes if node["spec"].get("unschedulable")]


def test_each_pod_is_asked_once(outcome):
    assert outcome.executions == 4


def test_the_kubelet_that_mixes_the_roots_is_found_and_its_twin_is_not(outcome):
    found = [(row["id"], row["severity"], row["node"], row["pod"]) for row in outcome.report["findings"]]
    assert sorted(found) == [
        ("TOPOLOGY-002", "warning", "far", "railyard-verify-far-a"),
        ("TOPOLOGY-002", "warning", "far", "railyard-verify-far-b"),
    ]


def test_the_rails_of_both_pods_make_the_verdict(outcome):
    rows = {row["node"]: row for row in outcome.report["rows"]}
    assert {name: (row["verdict"], row["gids_ok"], row["rails"]) for name, row in rows.items()} == {
        "near": ("pass", 2, 2),
        "far": ("pass", 2, 2),
    }
