# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a component is installed and running: controllers act only while its Deployment is available."""

from __future__ import annotations

from rehearsal.operators.kinds import CRD, Kind, labels_of, namespace_of
from rehearsal.operators.runtime import Cache

COMPONENT = "app.kubernetes.io/name"


def running_in(deployments: Cache, component: str) -> str | None:
    """The namespace in which a Deployment of the component has an available replica, or None."""
    for deployment in deployments:
        available = (deployment.get("status") or {}).get("availableReplicas") or 0
        if (
            labels_of(deployment).get(COMPONENT) == component
            and available
            and not deployment["metadata"].get("deletionTimestamp")
        ):
            return namespace_of(deployment)
    return None


def permissive_crd(
    kind: Kind, singular: str, short_names: tuple[str, ...] = (), status: bool = True, labels: dict | None = None
) -> dict:
    """A CustomResourceDefinition that takes any spec; names, group, scope and version are those of the vendor's."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: dict = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if status:
        version["subresources"] = {"status": {}}
    names: dict = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural, "singular": singular}
    if short_names:
        names["shortNames"] = list(short_names)
    metadata: dict = {"name": f"{kind.plural}.{kind.group}"}
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": metadata,
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def established(crd: dict | None) -> bool:
    conditions = ((crd or {}).get("status") or {}).get("conditions") or []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)
