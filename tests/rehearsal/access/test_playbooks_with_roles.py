# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each playbook, whole, with the rights of its own role and no other."""

from __future__ import annotations

import pytest
import yaml
from access_support import ROOT, Need, Site

#: In the order in which they run over one fleet, with what the run needs to reach all that a playbook does.
PLAYBOOKS = {
    "install_operator": {},
    "apply_rails": {},
    "plan": {"rails_mtu": 1500},
    "verify": {},
    "benchmark": {"rdma_bandwidth_image": "registry.example/nccl-tests:1", "rdma_bandwidth_low": 0.3},
    "nccl": {"rdma_nccl_image": "registry.example/nccl-tests:1"},
    "prepare_nodes": {"rails_netns_mode": "exclusive", "rdma_netns_reboot_allowed": True},
    "teardown": {},
}
SOURCE = yaml.safe_load((ROOT / "access" / "rights.yml").read_text())["playbooks"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    found = Site(tmp_path_factory.mktemp("access"))
    if not found.kubectl.exists():
        pytest.skip(f"{found.kubectl} is not there: make .venv/rehearsal")
    try:
        found.up()
        yield found
    finally:
        found.down()


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_playbook_runs_with_its_role(site, playbook):
    account = f"railyard-{playbook.replace('_', '-')}"
    done = site.play(playbook, account, **PLAYBOOKS[playbook])
    asked = site.asked(account)
    refused = sorted({need for row, need in asked if row["status"] == 403 and not may_be_refused(playbook, row)})
    told = "\n".join(f"  - {need}" for need in refused)
    assert not refused, (
        f"playbooks/{playbook}.yml asked for what its role does not hold. Add it to access/rights.yml below "
        f"'playbooks: {playbook}: rights:', with a reason, and run `make docs`:\n{told}\n{done.stdout[-1500:]}"
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    # A right in the whole cluster is used in every namespace.
    seen = {(place, need.group, need.resource, need.verb) for _row, need in asked for place in (need.place, "cluster")}
    unused = [need for need in wanted(playbook) if (need.place, need.group, need.resource, need.verb) not in seen]
    told = "\n".join(f"  - {need}" for need in unused)
    assert not unused, (
        f"playbooks/{playbook}.yml did not use these rights of access/rights.yml. Take them out, or say below 'unseen' "
        f"why this fleet does not need them:\n{told}"
    )


def may_be_refused(playbook: str, row: dict) -> bool:
    """A dry run that the playbook can do without."""
    return bool(SOURCE[playbook].get("dry_runs")) and "dryRun=All" in row["query"]


def wanted(playbook: str) -> list[Need]:
    """The rights that a run must use: all but those that are `unseen`."""
    found = []
    for right in SOURCE[playbook]["rights"]:
        unseen = right.get("unseen") or {}
        for resource in right["resources"]:
            for verb in right["verbs"]:
                if isinstance(unseen, dict) and verb not in unseen:
                    found.append(Need(right["in"], right.get("group", ""), resource, verb))
    return found


def test_every_playbook_has_an_entry_and_is_run():
    there = {path.stem for path in (ROOT / "playbooks").glob("*.yml")} - {"render", "rehearse"}
    assert there == set(SOURCE), "a playbook without an entry in access/rights.yml, or the other way round"
    with_rights = {name for name, entry in SOURCE.items() if entry.get("rights")}
    assert with_rights == set(PLAYBOOKS), "add it to PLAYBOOKS here"
