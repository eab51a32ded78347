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
attributes:
  check_mode:
    support: full
    description: The module only reads.
  diff_mode:
    support: none
    description: Nothing changes.
options:
  libraries:
    description: Names of Python distributions to look for.
    type: list
    elements: str
    default: [kubernetes, PyYAML, websocket-client]
  helm_binary:
    description: Path or name of Helm.
    type: str
    default: helm
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
  description: Address and version of the API server. C(reason) says why the version is V(null).
  returned: always
  type: dict
  sample: {host: "https://192.0.2.1:6443", version: 1.33.1, reason: null}
"""

import re
import sys
from importlib import metadata

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import Api, ApiError, dynamic_transport
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.auth import (
    NoConnection,
    auth_argument_spec,
    client_for,
)

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


def helm_facts(module, binary):
    """{path, version, reason} of Helm."""
    path = module.get_bin_path(binary) if "/" not in binary else binary
    if path is None:
        return {"path": None, "version": None, "reason": f"{binary} is not on the PATH"}
    try:
        code, out, err = module.run_command([path, "version", "--template", "{{ .Version }}"], handle_exceptions=False)
    except OSError as error:
        return {"path": path, "version": None, "reason": f"{path}: {error.strerror}"}
    match = VERSION.search(out)
    if code or not match:
        return {"path": path, "version": None, "reason": f"{path} version: {(err or out).strip()[:200]}"}
    return {"path": path, "version": match.group(1), "reason": None}


def cluster_version(git_version):
    """``1.33.1`` of ``v1.33.1-eks-1a2b3c``; None for something else."""
    match = VERSION.match(git_version or "")
    return match.group(1) if match else None


def cluster_facts(module):
    """{host, version, reason} of the API server."""
    try:
        client = client_for(module.params)
        api = Api(dynamic_transport(client.client), attempts=2)
        host = client.configuration.host
    except NoConnection as error:
        return {"host": None, "version": None, "reason": str(error)}
    try:
        version = cluster_version(api.get("/version").get("gitVersion"))
    except ApiError as error:
        return {"host": host, "version": None, "reason": f"HTTP status {error.status}: {error.message}"}
    return {"host": host, "version": version, "reason": None if version else "the server's version is not readable"}


def main():
    spec = auth_argument_spec()
    spec.update(
        libraries={"type": "list", "elements": "str", "default": ["kubernetes", "PyYAML", "websocket-client"]},
        helm_binary={"type": "str", "default": "helm"},
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    module.exit_json(
        changed=False,
        python={
            "executable": sys.executable,
            "version": ".".join(map(str, sys.version_info[:3])),
            "libraries": library_versions(module.params["libraries"]),
        },
        helm=helm_facts(module, module.params["helm_binary"]),
        cluster=cluster_facts(module),
    )


if __name__ == "__main__":
    main()
