#!/usr/bin/python
# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cluster_facts
short_description: What the controller has for work on the cluster, and whether it reaches it
version_added: 0.1.0
description:
  - Returns the Python libraries of the interpreter that runs the Kubernetes modules, the Helm binary and its version,
    and the version of the cluster.
  - Never fails for something that is missing; the caller judges.
author:
  - Railyard contributors (@railyard)
extends_documentation_fragment:
  - kubernetes.core.k8s_auth_options
  - railyard.rdma.attributes.reads
options:
  libraries:
    description: Names of Python distributions to look for.
    type: list
    elements: str
    default: [kubernetes, PyYAML, websocket-client]
  helm_binary:
    description: Path or name of Helm. Not looked for when empty.
    type: str
    default: helm
  hosts:
    description:
      - Names and addresses of each host. RV(hosts) then tells which node of the cluster each of them is.
    type: dict
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Look at the controller and the cluster
  railyard.rdma.cluster_facts:
  register: cluster
"""

RETURN = r"""
python:
  description: The interpreter and the versions of its libraries, V(null) for one that is missing.
  returned: always
  type: dict
  sample:
    executable: /usr/bin/python3
    version: 3.12.3
    libraries: {kubernetes: 31.0.0, PyYAML: 6.0.2, websocket-client: 1.8.0}
helm:
  description: Path and version of Helm. C(reason) says why the version is V(null).
  returned: always
  type: dict
  sample: {path: /usr/local/bin/helm, version: 4.1.4, reason: null}
cluster:
  description:
    - Address and version of the API server. C(reason) says why the version is V(null).
    - C(configured) tells whether an option, the environment or a kubeconfig names a cluster at all.
  returned: always
  type: dict
  sample: {host: "https://192.0.2.1:6443", version: 1.33.1, reason: null, configured: true}
hosts:
  description:
    - The node of each host. C(node) is V(null) with C(reason) where there is none or more than one.
    - C(cordon) is what the annotation of M(railyard.rdma.node_drain) says, V(null) without it.
    - C(rdma_mode_owners) are the SriovNetworkPoolConfigs that set C(rdmaMode) for the node, in the form of the option
      O(railyard.rdma.ib_core_netns#module:other_owners).
  returned: when O(hosts) is given
  type: dict
  sample:
    gpu-1:
      node: gpu-1
      reason: null
      ready: true
      boot_id: 4f0a6b1e-6a4e-4a0e-9d0a-0a4b8f6f3c52
      unschedulable: false
      cordon: null
      rdma_mode_owners: []
"""

import re
import subprocess
import sys
from importlib import metadata

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.process import get_bin_path
from ansible_collections.railyard.rdma.plugins.module_utils.cluster import maintenance
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError, answer_text
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import (
    NoConnection,
    auth_argument_spec,
    is_configured,
    transport_for,
)
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import find_node, label_selector_matches

VERSION = re.compile(r"v?(\d+\.\d+\.\d+)")


def library_versions(names):
    """{name: version or None} of Python distributions."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def helm_facts(binary):
    """{path, version, reason} of Helm."""
    try:
        path = get_bin_path(binary) if "/" not in binary else binary
    except ValueError:
        return {"path": None, "version": None, "reason": f"{binary} is not on the PATH"}
    command = [path, "version", "--template", "{{ .Version }}"]
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        return {"path": path, "version": None, "reason": f"{path}: {error.strerror}"}
    match = VERSION.search(done.stdout)
    if done.returncode or not match:
        return {
            "path": path,
            "version": None,
            "reason": f"{path} version: {(done.stderr or done.stdout).strip()[:200]}",
        }
    return {"path": path, "version": match.group(1), "reason": None}


def cluster_version(git_version):
    """``1.33.1`` of ``v1.33.1-eks-1a2b3c``; None for something else."""
    match = VERSION.match(git_version or "")
    return match.group(1) if match else None


def cluster_facts(module):
    """({host, version, reason, configured} of the API server, Api or None)."""
    found = {"host": None, "version": None, "reason": None, "configured": is_configured(module.params)}
    try:
        send = transport_for(module.params)
        api, found["host"] = Api(send, attempts=2), send.host
        found["version"] = cluster_version(api.get("/version").get("gitVersion"))
    except NoConnection as error:
        return {**found, "reason": str(error)}, None
    except ApiError as error:
        return {**found, "reason": answer_text(error)}, None
    return {**found, "reason": None if found["version"] else "the server's version is not readable"}, api


def rdma_mode_owners(node, pools):
    """The pools that set rdmaMode for a node.

    The operator writes its own modprobe.d file and asks for a kernel argument, and reboots the node until the argument
    is there, whatever the live mode (sriov-network-operator#959).
    """
    labels = (node.get("metadata") or {}).get("labels") or {}
    owners = []
    for pool in pools:
        spec = pool.get("spec") or {}
        # Without a selector, or with an empty one, a pool has every node.
        if spec.get("rdmaMode") and label_selector_matches(spec.get("nodeSelector") or {}, labels):
            name = maintenance.full_name(pool)
            owners.append(
                {
                    "owner": "sriov_network_operator",
                    "path": f"SriovNetworkPoolConfig {name}",
                    "mode": spec["rdmaMode"],
                    "remedy": f"remove spec.rdmaMode from SriovNetworkPoolConfig {name}",
                }
            )
    return owners


def host_facts(names, nodes, pools):
    """The entry of one host in ``hosts``."""
    node, reason = find_node(names, nodes)
    return {
        "node": maintenance.metadata(node).get("name"),
        "reason": reason,
        "ready": maintenance.is_ready(node) if node else None,
        "boot_id": maintenance.boot_id_of(node),
        "unschedulable": maintenance.cordoned(node) if node else None,
        "cordon": maintenance.own_cordon(node),
        "rdma_mode_owners": rdma_mode_owners(node, pools) if node else [],
    }


def hosts_facts(api, cluster, hosts):
    """{host: entry}; every entry has the reason when the cluster cannot be read."""
    reason, nodes, pools = cluster["reason"], [], []
    if api:
        try:
            nodes = api.list_kind("v1", "Node")
            pools = api.list_kind("sriovnetwork.openshift.io/v1", "SriovNetworkPoolConfig")
        except ApiError as error:
            api, reason = None, answer_text(error)
            cluster["reason"] = reason
    found = {host: host_facts(names, nodes, pools) for host, names in hosts.items()}
    return found if api else {host: {**entry, "reason": reason} for host, entry in found.items()}


def argument_spec():
    spec = auth_argument_spec()
    spec.update(
        libraries={"type": "list", "elements": "str", "default": ["kubernetes", "PyYAML", "websocket-client"]},
        helm_binary={"type": "str", "default": "helm"},
        hosts={"type": "dict"},
    )
    return spec


def perform(module):
    hosts = module.params["hosts"]
    for host, names in (hosts or {}).items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            module.fail_json(msg=f"hosts.{host}: got {names!r}, must be a list of names and addresses")
    cluster, api = cluster_facts(module)
    more = {} if hosts is None else {"hosts": hosts_facts(api, cluster, hosts)}
    helm = module.params["helm_binary"]
    module.exit_json(
        changed=False,
        python={
            "executable": sys.executable,
            "version": ".".join(map(str, sys.version_info[:3])),
            "libraries": library_versions(module.params["libraries"]),
        },
        helm=helm_facts(helm) if helm else {"path": None, "version": None, "reason": "not looked for"},
        cluster=cluster,
        **more,
    )


def main():
    perform(AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True))


if __name__ == "__main__":
    main()
