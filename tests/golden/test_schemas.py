# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every rendered object fits the schema of its CustomResourceDefinition, and an unknown field fails, as on a server."""

from __future__ import annotations

import jsonschema
import pytest
import yaml

from tests.golden.conftest import EXAMPLES, bundle

EXAMPLE_NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


def strict(schema: dict) -> dict:
    """Return a structural schema of Kubernetes as JSON schema in which unknown fields are errors."""
    result = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes")}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if "properties" in schema:
        result["properties"] = {name: strict(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
            result["additionalProperties"] = False
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = strict(schema["additionalProperties"])
    if "items" in schema:
        result["items"] = strict(schema["items"])
    return result


def schema_of(crd: dict, version: str) -> dict:
    served = next(row for row in crd["spec"]["versions"] if row["name"] == version)
    schema = strict(served["schema"]["openAPIV3Schema"])
    # The API server knows apiVersion, kind and metadata itself; a schema need not repeat them.
    for name in ("apiVersion", "kind"):
        schema["properties"].setdefault(name, {"type": "string"})
    schema["properties"]["metadata"] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}},
    }
    return schema


@pytest.fixture(scope="module")
def crds(reference) -> dict:
    files = sorted((reference / "crds").glob("*.yaml"))
    if not files:
        pytest.skip(f"no CustomResourceDefinitions in {reference / 'crds'}")
    found = [yaml.load(path.read_text(), Loader=yaml.CSafeLoader) for path in files]
    return {(crd["spec"]["group"], crd["spec"]["names"]["kind"]): crd for crd in found}


def problems(obj: dict, crds: dict) -> list[str]:
    group, _slash, version = obj["apiVersion"].partition("/")
    crd = crds[(group, obj["kind"])]
    assert ("namespace" in obj["metadata"]) == (crd["spec"]["scope"] == "Namespaced")
    validator = jsonschema.Draft202012Validator(schema_of(crd, version))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(obj)]


@pytest.mark.parametrize("example", EXAMPLE_NAMES)
def test_rendered_objects_fit_their_schemas(example, rendered, crds):
    objects = [obj for name, objs in bundle(rendered(example)).items() if name != "values.yaml" for obj in objs]
    assert objects
    for obj in objects:
        assert problems(obj, crds) == []


def test_the_check_finds_unknown_fields_and_wrong_types(rendered, crds):
    policy = bundle(rendered("a100-sriov-node"))["40-sriovnetworknodepolicy.yml"][0]
    policy["spec"]["numVFs"] = 1
    policy["spec"]["mtu"] = "4220"
    found = problems(policy, crds)
    assert len(found) == 2
    assert any("numVFs" in line for line in found)
    assert any("'4220' is not of type 'integer'" in line for line in found)


@pytest.mark.parametrize("example", EXAMPLE_NAMES)
def test_no_object_sets_the_mode_through_the_operator(example, rendered):
    """rdmaMode and kernel arguments make the operator reboot nodes without end (sriov-network-operator#959)."""
    for path in rendered(example).iterdir():
        text = path.read_text()
        assert "rdmaMode" not in text
        assert "netns_mode" not in text
