# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""teardown.yml over the simulated operators, with nodes in memory: refused, rehearsed, killed half way, finished, again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from operators_fakes import PFS, FakeFleet
from operators_support import SHAPE, Cluster
from test_operators_integration import start_api

from rehearsal.operators import kinds
from rehearsal.operators.__main__ import serve
from rehearsal.operators.client import Api

ROOT = Path(__file__).resolve().parents[3]
INTENT = {
    "rails": [{"pci": pci, "netdev": f"rdma{number}"} for number, pci in enumerate(PFS)],
    "rails_network": "sriov",
    "rails_resource_scope": "node",
    "rails_mtu": 4220,
    "rails_ip_family": "ipv4",
    "rails_node_selector": SHAPE,
}
# What apply_rails.yml does after its look at the nodes, which here have no ssh.
APPLY = """\
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: railyard.rdma.rails, rolespec_validate: false}
    - ansible.builtin.import_role: {name: railyard.rdma.rail_networks, tasks_from: render}
    - ansible.builtin.import_role: {name: railyard.rdma.rail_networks, tasks_from: apply}
    - ansible.builtin.import_role: {name: railyard.rdma.rail_networks, tasks_from: wait}
"""
OURS = (kinds.SRIOV_NETWORK, kinds.SRIOV_POLICY, kinds.SRIOV_POOL_CONFIG, kinds.IP_POOL)


@pytest.fixture
async def site(tmp_path):
    runner = await start_api(tmp_path)
    fleet = FakeFleet(tmp_path, ("a", "b"))
    async with Api(tmp_path / "kubeconfig") as api:
        task = asyncio.create_task(serve(api, fleet, 1))
        found = Cluster(api, fleet, patience=60)
        found.folder = tmp_path
        (tmp_path / "hosts.json").write_text(json.dumps({"gpu_nodes": {"hosts": {"a": INTENT, "b": INTENT}}}))
        (tmp_path / "apply.yml").write_text(APPLY)
        try:
            await found.install()
            yield found
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    await runner.cleanup()


async def start(site, playbook, *words):
    """ansible-playbook as a process group of its own."""
    kubeconfig = str(site.folder / "kubeconfig")
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    environment |= {"K8S_AUTH_KUBECONFIG": kubeconfig, "KUBECONFIG": kubeconfig}
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    options = ["-i", str(site.folder / "hosts.json"), "-e", "rail_networks_wait_interval=0.2", *words]
    options += ["-e", f"ansible_python_interpreter={sys.executable}"]
    return await asyncio.create_subprocess_exec(
        program, str(playbook), *options, cwd=ROOT, env=environment, start_new_session=True,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def play(site, playbook, *words, code=0):
    process = await start(site, playbook, *words)
    output, _none = await asyncio.wait_for(process.communicate(), 300)
    text = output.decode()
    assert process.returncode == code, text[-6000:]
    return text


def changed(text):
    return int(re.search(r"^localhost .*changed=(\d+)", text, re.MULTILINE)[1])


async def left(site):
    """Names of what is there of our kinds."""
    found = []
    for kind in OURS:
        rows, _version = await site.api.list(kind)
        found += [f"{kind.kind} {row['metadata']['name']}" for row in rows]
    return sorted(found)


async def test_a_teardown_from_its_refusal_to_a_second_run(site):
    teardown = ROOT / "playbooks" / "teardown.yml"
    await play(site, site.folder / "apply.yml")
    await site.offered("2")
    everything = await left(site)
    assert len(everything) == 4
    await site.pod("trainer", "a", 1)
    await site.phase("trainer", "Running")

    refused = await play(site, teardown, code=2)
    assert "running pods use what goes: default/trainer" in refused.replace("\n", " ") and changed(refused) == 0
    assert "MTU falls back" in re.sub(r"\s+", " ", refused)
    assert await left(site) == everything

    await play(site, teardown, "--check", "-e", "teardown_confirmed=true")
    assert await left(site) == everything
    assert site.fleet.get("a").vfs[PFS[0]] == 1

    process = await start(site, teardown, "-e", "teardown_confirmed=true")

    async def policy_is_gone() -> bool:
        return not [name for name in await left(site) if name.startswith("SriovNetworkNodePolicy")]

    await site.until("the policy to go", policy_is_gone)
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    assert await left(site) != []

    await play(site, teardown, "-e", "teardown_confirmed=true")
    assert await left(site) == []
    assert {count for name in ("a", "b") for count in site.fleet.get(name).vfs.values()} == {0}
    assert await site.get(kinds.NIC_CLUSTER_POLICY, "nic-cluster-policy")
    assert await site.get(kinds.NAD, "rdma-vf", "default") == {}
    assert changed(await play(site, teardown)) == 0


async def test_a_part_that_does_not_exist_is_refused_before_anything_is_read(site):
    """What a kept part needs is judged by plugin_utils/teardown.py, whose tests have the other lists."""
    text = await play(site, ROOT / "playbooks" / "teardown.yml", "-e", '{"teardown_keep": ["network"]}', code=2)
    assert re.search(r"must be one (or more )?of: networks, policies", re.sub(r"\s+", " ", text)), text[-3000:]
