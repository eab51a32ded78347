# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the controller and the cluster must have before anything is changed, and what of it does not fit."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import yaml
from ansible_collections.railyard.rdma.plugins.module_utils.operator.versions import kubernetes, numbers

# The same ranges as in galaxy.yml: (from, below).
COLLECTIONS = {
    "kubernetes.core": ("6.4.0", "7.0.0"),
    "ansible.posix": ("2.1.0", "3.0.0"),
    "ansible.utils": ("6.0.0", "7.0.0"),
}
LIBRARIES = {"kubernetes": "24.2.0", "PyYAML": "5.1", "websocket-client": "1.0"}
# What the operator's documentation asks for. Helm 4 is understood by kubernetes.core since 6.4.0
# (kubernetes.core#1038).
HELM = "3.5.0"
INSTALL = "run: ansible-galaxy collection install -r collections/requirements.yml"


def collection_version(name: str) -> str | None:
    """Version by MANIFEST.json (installed) or galaxy.yml (a checkout); None when the collection is missing or does
    not tell."""
    try:
        package = importlib.import_module(f"ansible_collections.{name}")
    except ImportError:
        return None
    for folder in map(Path, package.__path__):
        manifest, galaxy = folder / "MANIFEST.json", folder / "galaxy.yml"
        if manifest.is_file():
            return json.loads(manifest.read_text(encoding="utf-8")).get("collection_info", {}).get("version")
        if galaxy.is_file():
            return (yaml.safe_load(galaxy.read_text(encoding="utf-8")) or {}).get("version")
    return None


def mistakes(
    found: dict, operator: str, helm: bool = True, cluster: bool = True, version_of=collection_version
) -> list[str]:
    """Everything that does not fit, each with its remedy.

    :param found: what the module cluster_facts returned.
    :param operator: version of the Network Operator.
    :param helm: whether Helm is needed.
    :param cluster: whether the cluster must be reachable.
    """
    python = found["python"]["executable"]
    texts = []
    for name, (since, below) in COLLECTIONS.items():
        version = version_of(name)
        if version is None:
            texts.append(f"Collection {name} is missing; {INSTALL}")
        elif not numbers(since) <= numbers(version) < numbers(below):
            texts.append(
                f"Collection {name} is {version}, needed is {since} or newer and below {below}; {INSTALL} --upgrade"
            )
    for name, since in LIBRARIES.items():
        version = found["python"]["libraries"].get(name)
        if version is None:
            texts.append(f"Python library {name} is missing; run: {python} -m pip install '{name}>={since}'")
        elif numbers(version) < numbers(since):
            upgrade = f"{python} -m pip install --upgrade {name}"
            texts.append(f"Python library {name} is {version}, needed is {since} or newer; run: {upgrade}")
    if helm:
        texts += _too_old(
            "Helm", found["helm"], HELM, "install it, or set network_operator_helm_binary to its path", "upgrade it"
        )
    if cluster:
        texts += _kubernetes(found["cluster"], operator)
    return texts


def _kubernetes(part, operator):
    """The gate of the operator's chart and the vendor's table."""
    if part["version"] is None:
        return [f"Kubernetes cannot be used: {' '.join(str(part['reason']).split())}"]
    return kubernetes(operator, part["version"])[0]


def _too_old(what, part, since, when_absent, when_old):
    if part["version"] is None:
        reason = " ".join(str(part["reason"]).split())
        return [f"{what} cannot be used: {reason}" + (f"; {when_absent}" if when_absent else "")]
    if numbers(part["version"]) < numbers(since):
        return [f"{what} is {part['version']}, needed is {since} or newer; {when_old}"]
    return []
