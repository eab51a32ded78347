# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""install_operator.yml with a real Helm over the API: rehearsed, installed, again, and SR-IOV on a later day.

All of it is one story on one cluster, since each run of the playbook takes seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from operators_fakes import PFS, FakeFleet
from operators_support import CHART, NS, SHAPE, Cluster
from test_operators_integration import start_api

from rehearsal.operators import kinds
from rehearsal.operators.__main__ import serve
from rehearsal.operators.client import Api

ROOT = Path(__file__).resolve().parents[3]
BASE = {
    "rails": [{"pci": pci, "netdev": f"rdma{number}"} for number, pci in enumerate(PFS)],
    "rails_mtu": 4220,
    "rails_ip_family": "ipv4",
    "rails_node_selector": SHAPE,
}
IPVLAN, SRIOV = {**BASE, "rails_network": "ipvlan"}, {**BASE, "rails_network": "sriov", "rails_resource_scope": "node"}
HELM = ROOT / ".cache" / "bin" / "helm"


@pytest.fixture
async def site(tmp_path):
    if not HELM.exists() and not shutil.which("helm"):
        pytest.skip("no Helm: run scripts/fetch_helm.py .cache/bin")
    runner = await start_api(tmp_path)
    fleet = FakeFleet(tmp_path, ("a", "b"))
    async with Api(tmp_path / "kubeconfig") as api:
        task = asyncio.create_task(serve(api, fleet, 1))
        found = Cluster(api, fleet, patience=60)
        found.folder = tmp_path
        try:
            yield found
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    await runner.cleanup()


def intent(site, variables):
    (site.folder / "hosts.json").write_text(json.dumps({"gpu_nodes": {"hosts": {"a": variables, "b": variables}}}))


async def install(site, *words, code=0):
    """install_operator.yml that ends with ``code``; (output, what localhost counted as changed, the requests that Helm made)."""
    kubeconfig = str(site.folder / "kubeconfig")
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    environment |= {"K8S_AUTH_KUBECONFIG": kubeconfig, "KUBECONFIG": kubeconfig}
    environment["PATH"] = f"{HELM.parent}{os.pathsep}{os.environ['PATH']}"
    given = {"network_operator_chart": str(CHART), "ansible_python_interpreter": sys.executable}
    log = site.folder / "api.jsonl"
    before = len(log.read_text().splitlines()) if log.exists() else 0
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("ansible-playbook")), str(ROOT / "playbooks" / "install_operator.yml"),
        "-i", str(site.folder / "hosts.json"), "-e", json.dumps(given), *words,
        cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _none = await asyncio.wait_for(process.communicate(), 300)
    text = output.decode()
    assert process.returncode == code, text[-6000:]
    rows = [json.loads(line) for line in log.read_text().splitlines()[before:]]
    # Preflight asks Helm for its version only; a watch of an earlier Helm is written down when it ends.
    helm = [row for row in rows if row["user_agent"].startswith("Helm") and "watch=true" not in row["query"]]
    return text, int(re.search(r"^localhost .*changed=(\d+)", text, re.MULTILINE)[1]), helm


def refusing_helm(folder):
    """A Helm whose account may not make ClusterRoles."""
    real, path = HELM if HELM.exists() else shutil.which("helm"), folder / "refusing-helm"
    refusal = (
        'Error: INSTALLATION FAILED: clusterroles.rbac.authorization.k8s.io is forbidden: User "ann" cannot create resource '
        '"clusterroles" in API group "rbac.authorization.k8s.io" at the cluster scope'
    )
    lines = ["#!/bin/sh", 'case " $* " in', "*' install '*|*' upgrade '*)", f"echo '{refusal}' >&2; exit 1;;", "esac"]
    path.write_text("\n".join([*lines, f'exec {real} "$@"', ""]))
    path.chmod(0o755)
    return path


async def names(site, kind):
    return {row["metadata"]["name"] for row in (await site.api.list(kind))[0]}


async def test_from_a_bare_cluster_to_sriov_on_a_later_day(site):
    intent(site, IPVLAN)
    text, changed, _helm = await install(site, "--check", "--diff")
    assert (
        changed == 1 and "values.operator.resources.limits.memory" in text.replace("\n", "") or "path: values" in text
    )
    assert await names(site, kinds.DEPLOYMENT) == set()

    # An account that lacks a right hears from Helm, and from us which role has it.
    helm = refusing_helm(site.folder)
    text, _changed, _helm = await install(site, "-e", f"network_operator_helm_binary={helm}", code=2)
    told = " ".join(text.split())
    assert 'User "ann" cannot create resource "clusterroles"' in told
    assert "ClusterRole railyard-install-operator (access/roles/install_operator.yml)" in told

    _text, changed, helm = await install(site)
    assert changed == 1 and helm
    assert await names(site, kinds.DEPLOYMENT) == {"network-operator"}
    assert not any("sriovnetwork" in name for name in await names(site, kinds.CRD))
    # The labels of the nodes come from somebody, so the chart brings no second Node Feature Discovery.
    assert not any("node-feature" in name for name in await names(site, kinds.DAEMON_SET))

    _text, changed, helm = await install(site)
    assert (changed, helm) == (0, [])

    # Helm installs kinds only once: without those of the SR-IOV operator it would refuse the whole upgrade.
    intent(site, SRIOV)
    _text, changed, _helm = await install(site)
    assert changed == 2
    config = await site.get(kinds.SRIOV_CONFIG, "default", NS)
    assert config["spec"]["disablePlugins"] == ["mellanox"] and config["spec"]["configurationMode"] == "daemon"
