# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CustomResourceDefinitions: what they must say, when they are Established, and how they become served kinds."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from . import schema
from .errors import Cause
from .kinds import Registry, Resource

Object = dict[str, Any]
KEY = ("apiextensions.k8s.io", "customresourcedefinitions")
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def mistakes(crd: Object) -> list[Cause]:
    """Mistakes that make a CRD refused (k8s.io/apiextensions-apiserver pkg/apis/apiextensions/validation)."""
    spec, causes = crd.get("spec") or {}, []
    names = spec.get("names") or {}
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if crd["metadata"]["name"] != wanted:
        text = f'Invalid value: "{crd["metadata"]["name"]}": must be spec.names.plural+"."+spec.group'
        causes.append(Cause("metadata.name", "FieldValueInvalid", text))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        text = f'Unsupported value: "{spec.get("scope")}": supported values: "Cluster", "Namespaced"'
        causes.append(Cause("spec.scope", "FieldValueNotSupported", text))
    versions = spec.get("versions") or []
    if sum(1 for version in versions if version.get("storage")) != 1:
        text = "Invalid value: must have exactly one version marked as storage version"
        causes.append(Cause("spec.versions", "FieldValueInvalid", text))
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            causes.append(Cause(path, "FieldValueRequired", "Required value: schemas are required"))
    return causes


def established(crd: Object, now: str) -> Object:
    """The CRD with the status that its controllers would set in a moment."""
    spec = crd["spec"]
    names = {"listKind": f"{spec['names']['kind']}List", "singular": spec["names"]["kind"].lower(), **spec["names"]}
    condition = {"status": "True", "lastTransitionTime": now}
    status = {
        "conditions": [
            {"type": "NamesAccepted", "reason": "NoConflicts", "message": "no conflicts found", **condition},
            {
                "type": "Established",
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
                **condition,
            },
        ],
        "acceptedNames": names,
        "storedVersions": [version["name"] for version in spec["versions"] if version["storage"]],
    }
    return {**crd, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names}, "status": status}


@functools.cache
def folder_schemas(folder: Path) -> dict[str, dict[str, Object]]:
    """Schemas by CRD name and version of all CRDs in a folder's YAML files."""
    found: dict[str, dict[str, Object]] = {}
    for path in sorted(folder.glob("*.y*ml")):
        for document in yaml.load_all(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                found[document["metadata"]["name"]] = {
                    version["name"]: version["schema"]["openAPIV3Schema"] for version in document["spec"]["versions"]
                }
    return found


def serve(registry: Registry, crd: Object, folder: Path | None) -> None:
    """Make the CRD's versions servable, with the folder's schemas in place of the CRD's where it has them."""
    spec = crd["spec"]
    names = spec["names"]
    better = folder_schemas(folder).get(crd["metadata"]["name"], {}) if folder else {}
    served = [version for version in spec["versions"] if version.get("served")]
    registry.remove(spec["group"], names["plural"], keep=[version["name"] for version in served])
    for version in served:
        structural = better.get(version["name"]) or version["schema"]["openAPIV3Schema"]
        subresources = version.get("subresources") or {}
        registry.add(
            Resource(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                namespaced=spec["scope"] == "Namespaced",
                schema=schema.with_metadata(structural),
                singular=names.get("singular") or names["kind"].lower(),
                short=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=tuple(name for name in ("status", "scale") if name in subresources),
                generation=True,
                columns=tuple(version.get("additionalPrinterColumns") or ()),
                scale=subresources.get("scale"),
                custom=True,
            )
        )
