# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put the faults that live in the cluster there: objects of somebody else, and changes of objects that exist.

They are made when the nodes are ready and nothing of the product is installed, as in a cluster that others used before.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import yaml

from rehearsal.fleet.control_plane import request
from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.state import State

CRDS = Path(__file__).resolve().parents[1] / "charts" / "network-operator" / "crds"
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SERVED_SECONDS = 30.0


def refuse(specs: list[dict[str, Any]]) -> None:
    """FleetError when a node has a fault that needs the cluster, for a fleet that has none."""
    for spec in specs:
        if any(key in (spec.get("inject") or {}) for key in ("objects", "patches")):
            raise FleetError(
                f"node {spec['name']}: its faults ({', '.join(spec['faults'])}) are in the cluster, which this fleet "
                "does not have: leave out --no-cluster"
            )


def inject(state: State, specs: list[dict[str, Any]]) -> list[str]:
    """Make the objects and patches of all nodes; a sentence for each. FleetError when the API refuses one."""
    done = []
    for spec in specs:
        for obj in (spec.get("inject") or {}).get("objects", []):
            meta, where = obj["metadata"], f"{obj['kind']} {obj['metadata']['name']}"
            collection = _collection(state, obj["apiVersion"], obj["kind"], meta.get("namespace"))
            _call(state, collection, obj, f"fault of {spec['name']}: {where}")
            done.append(f"fault of {spec['name']}: {where} is there")
        for row in (spec.get("inject") or {}).get("patches", []):
            where = f"{row['kind']} {row['name']}"
            path = f"{_collection(state, row['apiVersion'], row['kind'], row.get('namespace'))}/{row['name']}"
            _call(
                state, path, row["patch"], f"fault of {spec['name']}: {where}", "PATCH", "application/merge-patch+json"
            )
            done.append(f"fault of {spec['name']}: {where} is changed")
    return done


def _collection(state: State, version: str, kind: str, namespace: str | None) -> str:
    """The path of a kind's objects; a kind that only the operator's chart brings is made as the chart would."""
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    limit, made = time.monotonic() + SERVED_SECONDS, False
    while True:
        code, body = request(state, base, timeout=15.0)
        served = {row["name"]: row for row in json.loads(body)["resources"]} if code == 200 else {}
        found = next((row for name, row in served.items() if row["kind"] == kind and "/" not in name), None)
        if found is not None:
            break
        if not made:
            _make_kind(state, version.partition("/")[0], kind)
            made = True
        if time.monotonic() > limit:
            raise FleetError(f"fault: the API does not serve {kind} of {version}")
        time.sleep(0.05)
    return f"{base}/namespaces/{namespace}/{found['name']}" if found["namespaced"] else f"{base}/{found['name']}"


def _make_kind(state: State, group: str, kind: str) -> None:
    for path in sorted(CRDS.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document and (document["spec"]["group"], document["spec"]["names"]["kind"]) == (group, kind):
                _call(state, CRD_PATH, document, f"fault: kind {kind}")
                return
    raise FleetError(f"fault: the API does not serve {kind} of {group}, and the operator's chart does not bring it")


def _call(
    state: State,
    path: str,
    body: dict[str, Any],
    what: str,
    method: str = "POST",
    content: str = "application/json",
) -> None:
    code, answer = request(state, path, body, timeout=15.0, method=method, content=content)
    if code not in (200, 201):
        raise FleetError(f"{what} was refused with {code}: {answer.decode(errors='replace')[:400]}")
