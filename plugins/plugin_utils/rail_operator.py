# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the NVIDIA Network Operator gets: the values of its chart and the one NicClusterPolicy of the cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_names as names
from ansible_collections.railyard.rdma.plugins.plugin_utils.catalogue import RAIL_VENDOR
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_intent import ATTACHED, Intent
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_mistakes import Mistake, mistake

# Variables of the role network_operator that the rail model needs, with the defaults of that role.
VARIABLES = {
    "network_operator_version": "26.7.1",
    "network_operator_namespace": "nvidia-network-operator",
    "network_operator_image_repository": "nvcr.io/nvidia/mellanox",
    "network_operator_image_pull_secrets": [],
    # The default of 50Mi, request and limit, is what Multus was seen to be killed at (multus-cni#1160, #1346, #1349); 512Mi is
    # ten times that and nothing beside the memory of these nodes, and the request stays small for all others.
    "network_operator_multus_resources": {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"cpu": "100m", "memory": "512Mi"},
    },
    "network_operator_tolerations": [],
}
MULTUS_CONTAINER = "kube-multus"
RESOURCE_KINDS = ("requests", "limits")
QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
TOLERATION = {"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}
OPERATORS, EFFECTS = ("Exists", "Equal"), ("NoSchedule", "PreferNoSchedule", "NoExecute")

# The only name that the operator serves; it sets every other NicClusterPolicy to the state "ignore".
POLICY_NAME = "nic-cluster-policy"
DEFAULT_PREFIX = "nvidia.com"
DEFAULT_TAINT = "nvidia.com/gpu"

# The chart's 128Mi limit is too low for the operator on clusters of this size; these were measured to be enough.
OPERATOR_RESOURCES = {
    "requests": {"cpu": "5m", "memory": "256Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}


def check(variables: dict) -> tuple[dict, list[Mistake]]:
    """Complete and check the operator's variables. :returns: all of C(VARIABLES) with values, and the mistakes."""
    values = {name: default if variables.get(name) is None else variables[name] for name, default in VARIABLES.items()}
    found = []
    version, namespace, repository, secrets, multus, tolerations = values.values()
    if not isinstance(version, str) or not re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", version):
        found.append(mistake("network_operator_version", version, "a version in quotes such as 26.7.1"))
    if not isinstance(namespace, str) or not names.LABEL.fullmatch(namespace):
        found.append(mistake("network_operator_namespace", namespace, names.LABEL_FORM))
    # The pattern of the field in the CRD of NicClusterPolicy.
    if not isinstance(repository, str) or not re.fullmatch(r"[a-zA-Z0-9.\-/]+", repository):
        found.append(mistake("network_operator_image_repository", repository, "letters, digits, dots, dashes, slashes"))
    if not isinstance(secrets, list) or not all(isinstance(s, str) and names.SUBDOMAIN.fullmatch(s) for s in secrets):
        found.append(mistake("network_operator_image_pull_secrets", secrets, "a list of plain names of secrets"))
    found += _resources_mistakes(multus)
    found += _toleration_mistakes(tolerations)
    return values, found


def _resources_mistakes(resources) -> list[Mistake]:
    """A wrong resources block would be refused by the API server or, worse, leave the container without any."""
    name, allowed = (
        "network_operator_multus_resources",
        "{requests: {cpu, memory}, limits: {cpu, memory}} with quantities as 512Mi",
    )
    if not isinstance(resources, dict) or not set(resources) <= set(RESOURCE_KINDS):
        return [mistake(name, resources, allowed)]
    for rows in resources.values():
        if not isinstance(rows, dict) or not all(QUANTITY.fullmatch(str(value)) for value in rows.values()):
            return [mistake(name, resources, allowed)]
    return []


def _toleration_mistakes(tolerations) -> list[Mistake]:
    name = "network_operator_tolerations"
    if not isinstance(tolerations, list):
        return [mistake(name, tolerations, "a list of tolerations {key, operator, value, effect}")]
    found = []
    for row in tolerations:
        good = isinstance(row, dict) and all(
            key in TOLERATION and isinstance(value, TOLERATION[key]) for key, value in row.items()
        )
        if not good or row.get("operator", "Equal") not in OPERATORS or row.get("effect", EFFECTS[0]) not in EFFECTS:
            found.append(
                mistake(name, row, f"{{key, operator: {'|'.join(OPERATORS)}, value, effect: {'|'.join(EFFECTS)}}}")
            )
    return found


def policy(intents: list[Intent], operator: dict) -> dict:
    """Return the data of the NicClusterPolicy: C({name, sections}), for all networks of the cluster together.

    There is no C(ofedDriver) section: the images of these nodes bring DOCA-OFED.
    """
    image = {
        "repository": operator["network_operator_image_repository"],
        "version": f"network-operator-v{operator['network_operator_version']}",
    }
    if operator["network_operator_image_pull_secrets"]:
        image["imagePullSecrets"] = list(operator["network_operator_image_pull_secrets"])
    sections: dict = {}
    if any(intent.network in ATTACHED for intent in intents):
        sections["nvIpam"] = {"image": "nvidia-k8s-ipam", **image, "enableWebhook": False}
        sections["secondaryNetwork"] = {
            "cniPlugins": {"image": "plugins", **image},
            "multus": {"image": "multus-cni", **image},
        }
        if any(operator["network_operator_multus_resources"].values()):
            resources = {kind: rows for kind, rows in operator["network_operator_multus_resources"].items() if rows}
            # A name that matches no container would leave it without any resources block.
            sections["secondaryNetwork"]["multus"]["containerResources"] = [{"name": MULTUS_CONTAINER, **resources}]
    resources = [row for intent in intents for row in _pf_resources(intent)]
    if resources:
        config = {"resourceList": _merged(resources)}
        sections["sriovDevicePlugin"] = {
            "image": "sriov-network-device-plugin",
            **image,
            "config": json.dumps(config),
        }
    taints = sorted({(intent.shape or {}).get("gpu_taint", DEFAULT_TAINT) for intent in intents} - {DEFAULT_TAINT})
    tolerations = []
    if taints:
        # The operator's DaemonSets tolerate nvidia.com/gpu by themselves, so that key is added only to keep both kinds.
        tolerations = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in [DEFAULT_TAINT, *taints]]
    tolerations += [row for row in operator["network_operator_tolerations"] if row not in tolerations]
    if tolerations:
        sections["tolerations"] = tolerations
    return {"name": POLICY_NAME, "sections": sections}


def helm_values(
    model: dict,
    nfd_enabled: bool | str = "auto",
    resources: dict | None = None,
    disable_drain: bool = False,
    pull_secrets: Iterable[str] = (),
) -> dict:
    """Derive the values of the chart C(network-operator) from the rail model.

    :param model: the rail model.
    :param nfd_enabled: whether the chart brings Node Feature Discovery; only one may run in a cluster. C(auto) is left to
        the module operator_prepare, which looks at the cluster; without a cluster it is false.
    :param resources: requests and limits of the operator's container; C(OPERATOR_RESOURCES) when not given.
    :param disable_drain: whether the SR-IOV operator changes VFs without draining the node.
    :param pull_secrets: names of secrets for images. The chart hands its top-level list to the operator alone.
    :raises ValueError: nfd_enabled or disable_drain is no truth value.
    :returns: the values. The SR-IOV operator is on when a layout uses VFs, with its mellanox plugin off: that plugin
        would set the firmware's VF count to that of the policy, and drain and reboot every node for it.
    """
    sriov = any(layout["network"] == "sriov" for layout in model["layouts"])
    values: dict = {
        "nfd": {"enabled": _truth("network_operator_nfd_enabled", nfd_enabled, auto=False)},
        "sriovNetworkOperator": {"enabled": sriov},
        "operator": {"resources": OPERATOR_RESOURCES if resources is None else resources},
    }
    names_of_secrets = list(pull_secrets)
    if names_of_secrets:
        values["imagePullSecrets"] = names_of_secrets
        # A sub-chart that takes objects where the others take names.
        values["node-feature-discovery"] = {"imagePullSecrets": [{"name": name} for name in names_of_secrets]}
    if not sriov:
        return values
    values["sriov-network-operator"] = {
        "sriovOperatorConfig": {
            "deploy": True,
            "disableDrain": _truth("network_operator_disable_drain", disable_drain),
            "configurationMode": "daemon",
            "disablePlugins": ["mellanox"],
        }
    }
    if names_of_secrets:
        values["sriov-network-operator"]["imagePullSecrets"] = names_of_secrets
    prefix = model["operator"]["resource_prefix"]
    if prefix != DEFAULT_PREFIX:
        # Also decides which pods a drain evicts: those with a request whose name starts with it.
        values["sriov-network-operator"]["operator"] = {"resourcePrefix": prefix}
    return values


def _truth(name: str, value, auto: bool | None = None) -> bool:
    """A truth value as YAML or the command line gives it; ``auto`` stands for its value where that is allowed."""
    text = str(value).lower()
    known = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if auto is not None:
        known["auto"] = auto
    if text not in known:
        raise ValueError(f"{name}: got {value!r}, allowed are {'auto, ' if auto is not None else ''}true and false")
    return known[text]


def _pf_resources(intent: Intent) -> list[dict]:
    """Return the device plugin's entries that offer the rail PFs themselves; VFs are offered by the SR-IOV operator."""
    if intent.network == "sriov":
        return []
    by_name: dict[str, list[str]] = {}
    for rail in intent.rails:
        by_name.setdefault(intent.resource_of(rail), []).append(rail["pci"])
    return [
        {
            "resourcePrefix": intent.given["rails_resource_prefix"],
            "resourceName": name,
            "selectors": {"vendors": [RAIL_VENDOR], "pciAddresses": addresses, "isRdma": True},
        }
        for name, addresses in by_name.items()
    ]


def _merged(resources: list[dict]) -> list[dict]:
    """Join entries of the same name: the plugin takes each name once, and all nodes have one configuration."""
    merged: dict[tuple, dict] = {}
    for row in resources:
        key = (row["resourcePrefix"], row["resourceName"])
        kept = merged.setdefault(key, {**row, "selectors": {**row["selectors"], "pciAddresses": []}})
        known = kept["selectors"]["pciAddresses"]
        known.extend(pci for pci in row["selectors"]["pciAddresses"] if pci not in known)
    return list(merged.values())
