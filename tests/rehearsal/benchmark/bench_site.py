# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One fleet for all that a benchmark must tell apart: two layouts, one a netns mode, with faults of fabric and network.

The ring of the shared layout is s-1, s-2, s-3, s-4. On rail 1 no frame of a VF of s-1 or s-2 passes, and that of s-4 is cut; on
rail 0 s-3 is slow and the others are healthy. In the exclusive layout the network of rail 1 has no traffic class, so the RDMA CNI
forces class 0 there.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import RULES

from tests.rehearsal.site_support import ROOT, Site, host

PLAYBOOKS = ROOT / "playbooks"
FAULTS = {
    "s-1": "vf-frames-filtered",
    "s-2": "vf-frames-filtered",
    "s-3": "rail-slow",
    "s-4": "rail-cut",
    "e-1": "network-without-class",
}
NODES = {"shared": ("s-1", "s-2", "s-3", "s-4"), "exclusive": ("e-1", "e-2")}


def hosts() -> dict[str, dict[str, Any]]:
    """Host variables by node; two VFs a PF, so that two pods can share a port."""
    found = {}
    for mode, names in NODES.items():
        for name in names:
            faults = {"rehearsal_faults": [FAULTS[name]]} if name in FAULTS else {}
            found[name] = host(mode, mode, rails_vfs_per_pf=2, **faults)
    return found


def start(folder) -> Site:
    """The fleet with its networks."""
    site = Site(folder, hosts())
    site.up()
    site.play(
        PLAYBOOKS / "install_operator.yml",
        PLAYBOOKS / "apply_rails.yml",
        forks=6,
        rails_findings_tolerated=sorted(RULES),
    )
    return site
