# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ReplicaSet of a Deployment's template: Helm 3 waits for the pods of the newest one, not for the Deployment."""

from __future__ import annotations

import copy
import hashlib
import json

from rehearsal.operators.kinds import DEPLOYMENT, name_of, namespace_of, owner_reference

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"


def template_hash(deployment: dict) -> str:
    """A short text that is the same for equal pod templates."""
    text = json.dumps(deployment["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def replica_set(deployment: dict, revision: int) -> dict:
    """The ReplicaSet that the deployment controller makes of the template: its labels and selector carry the hash."""
    hashed = template_hash(deployment)
    template = copy.deepcopy(deployment["spec"]["template"])
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: hashed}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
    selector = deployment["spec"]["selector"]
    return {
        "metadata": {
            "name": f"{name_of(deployment)}-{hashed}",
            "namespace": namespace_of(deployment),
            "labels": labels,
            "annotations": {REVISION: str(revision)},
            "ownerReferences": [owner_reference(deployment, DEPLOYMENT)],
        },
        "spec": {
            "replicas": deployment["spec"].get("replicas", 1),
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: hashed}},
            "template": template,
        },
    }


def replica_set_status(found: dict, ready: int) -> dict:
    """Status of a ReplicaSet of which so many pods are ready."""
    wanted = found["spec"].get("replicas", 1)
    up = min(ready, wanted)
    return {
        "observedGeneration": found["metadata"].get("generation", 1),
        "replicas": wanted,
        "fullyLabeledReplicas": wanted,
        "readyReplicas": up,
        "availableReplicas": up,
    }


def owned_by(deployment: dict, found: list[dict]) -> list[dict]:
    """The ReplicaSets of a Deployment."""
    uid = deployment["metadata"]["uid"]
    return [rs for rs in found if any(o.get("uid") == uid for o in rs["metadata"].get("ownerReferences") or [])]
