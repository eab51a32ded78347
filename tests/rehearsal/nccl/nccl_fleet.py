# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two nodes with two rails and two GPUs each, two VFs a rail, and a cluster with or without an MPI operator."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.railyard.rdma.plugins.plugin_utils import catalogue

from rehearsal.fleet import control_plane
from rehearsal.operators.install import permissive_crd
from rehearsal.operators.kinds import MPI_JOB
from rehearsal.operators.mpi_operator import COMPONENT
from tests.rehearsal.site_support import Site

HOSTS = ("gpu-1", "gpu-2")
# Rails of two cards, each below a switch with a GPU of its own.
RAILS = (0, 2)


def intent() -> dict:
    shape = catalogue.get("BM.GPU.B4.8")
    rows = [{key: row[key] for key in ("pci", "gpu_pci")} for row in (shape["pfs"][number] for number in RAILS)]
    pool = {"name": "sriov-pool", "subnet": "192.168.0.0/16", "per_node_block_size": 32}
    return {
        "rails": [{**row, "netdev": f"rdma{number}"} for number, row in enumerate(rows)],
        "rails_network": "sriov",
        "rehearsal_initial_mode": "shared",
        "rails_vfs_per_pf": 2,
        "rails_mtu": shape["mtu"],
        "rails_ip_family": "ipv4",
        "rails_traffic_class": 41,
        "rails_pools": [pool],
        "rails_max_unavailable": "100%",
        "rails_findings_tolerated": ["POL-012"],  # both nodes at once: they run nothing else
        "rails_node_selector": {"rehearsal/nccl": "yes"},
    }


class Cluster(Site):
    """A fleet with rails, and plays over it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {host: intent() for host in HOSTS})

    def post(self, path: str, body: dict) -> None:
        status, answer = control_plane.request(self.state, path, timeout=10, method="POST", body=body)
        assert status == 201, answer

    def mpi_operator(self) -> None:
        """The kind and the operator, as its manifest brings them."""
        self.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", permissive_crd(MPI_JOB, "mpijob"))
        labels = {"app.kubernetes.io/name": COMPONENT}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": COMPONENT, "image": COMPONENT}]}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": COMPONENT, "namespace": "default", "labels": labels}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        self.post("/apis/apps/v1/namespaces/default/deployments", body)
