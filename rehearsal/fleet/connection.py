# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""STATE/inventory.yml: how Ansible reaches the nodes and the cluster of a fleet."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CONNECT = ROOT / "rehearsal" / "connect.py"
CHART = ROOT / "rehearsal" / "charts" / "network-operator"
LOCAL_PYTHON = "python"
KUBECONFIG_VARIABLES = ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")
# A socket address holds 107 bytes (unix(7)): Ansible appends / and 10 characters, ssh a dot and 16 while it connects.
LONGEST_CONTROL_DIR = 107 - 28


def ssh_arguments(python: str, state: Path, node: str) -> str:
    """Value of ansible_ssh_common_args. Three readers take it apart: Ansible (like a shell), ssh (% is special), the
    user's shell.
    """
    words = [python, "-I", "-S", str(CONNECT), "--fdpass", str(state / "nodes" / node / "ssh.sock")]
    proxy = shlex.join(words).replace("%", "%%")
    known_hosts = str(state / "known_hosts").replace("%", "%%")
    options = [
        f"ProxyCommand={proxy}",
        "ProxyUseFdpass=yes",
        f'UserKnownHostsFile="{known_hosts}"',
        "StrictHostKeyChecking=accept-new",
        "IdentitiesOnly=yes",
    ]
    if len(str(Path.home() / ".ansible" / "cp")) > LONGEST_CONTROL_DIR:
        options.append("ControlPath=none")  # ssh would refuse the path of the shared connection
    return " ".join(f"-o {shlex.quote(option)}" for option in options)


def fleet_id(state: Path) -> str:
    """Eight characters that differ between the folders of fleets."""
    return hashlib.sha256(str(state).encode()).hexdigest()[:8]


def inventory(state: Path, specs: list[dict[str, Any]], python: str, cluster: bool) -> dict[str, Any]:
    """The inventory as data.

    ansible_host is a name of this fleet only: Ansible derives ssh's ControlPath from it, and two fleets with equal
    addresses would otherwise share a connection.
    """
    hosts = {
        spec["name"]: {
            "ansible_host": f"{spec['name']}.{fleet_id(state)}.rehearsal",
            "ansible_connection": "ssh",
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(state / "id_ed25519").replace("%", "%%"),  # ssh expands %
            "ansible_ssh_common_args": ssh_arguments(python, state, spec["name"]),
            "ansible_python_interpreter": python,
            # Inside the node, whatever ANSIBLE_REMOTE_TMP says of this machine.
            "ansible_remote_tmp": "~/.ansible/tmp",
            "rehearsal_address": spec["address"],
        }
        for spec in specs
    }
    local: dict[str, Any] = {"ansible_connection": "local"}
    if cluster:
        local["rehearsal_python"] = shlex.quote(str(state / LOCAL_PYTHON))
        local["rehearsal_kubeconfig"] = str(state / "kubeconfig")
        # A run whose own environment names the cluster needs no other interpreter: modules may run in the process of their
        # task. Values and not names of variables, since a node that delegates to localhost does not have those.
        named = " == ".join(f"lookup('ansible.builtin.env', '{name}')" for name in KUBECONFIG_VARIABLES)
        local["ansible_python_interpreter"] = (
            f"{{{{ ansible_playbook_python if {named} == {json.dumps(local['rehearsal_kubeconfig'])} "
            f"else {json.dumps(local['rehearsal_python'])} }}}}"
        )
        local["network_operator_chart"] = str(CHART)
    else:
        local["ansible_python_interpreter"] = "{{ ansible_playbook_python }}"
    # Variables of group all are the weakest: what the site's own inventory says about reboots still counts.
    common = {"rdma_netns_reboot_allowed": True}
    return {"all": {"vars": common, "hosts": {"localhost": local}, "children": {"gpu_nodes": {"hosts": hosts}}}}


def write(state: Path, specs: list[dict[str, Any]], python: str, cluster: bool) -> None:
    """Write inventory.yml, and the pieces of it that a static inventory of the fleet reads by themselves."""
    data = inventory(state, specs, python, cluster)
    for name, variables in data["all"]["children"]["gpu_nodes"]["hosts"].items():
        # One line, no newline at its end: the value of a variable.
        (state / "nodes" / name / "ssh_arguments").write_text(variables["ansible_ssh_common_args"], encoding="utf-8")
    if cluster:
        kubeconfig = shlex.quote(str(state / "kubeconfig"))
        local_python = state / LOCAL_PYTHON
        local_python.write_text(
            "#!/bin/sh\n# Ansible's interpreter on localhost: Kubernetes modules find the fleet's API by themselves.\n"
            f"export {' '.join(f'{name}={kubeconfig}' for name in KUBECONFIG_VARIABLES)}\n"
            f'exec {shlex.quote(sys.executable)} "$@"\n',
            encoding="utf-8",
        )
        local_python.chmod(0o755)
    # JSON is YAML too and needs no quoting rules.
    text = "---\n# Written by python -m rehearsal up; gone with python -m rehearsal down.\n"
    path = state / "inventory.yml"
    path.write_text(text + json.dumps(data, indent=2) + "\n", encoding="utf-8")
    path.chmod(0o600)
