# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the NVIDIA Network Operator gets: the values of its chart and the one NicClusterPolicy of the cluster."""

from __future__ import annotations

import json
import re

from ansible_collections.railyard.rdma.plugins.plugin_utils import rail_names as names
from ansible_collections.railyard.rdma.plugins.plugin_utils.catalogue import RAIL_VENDOR
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_intent import ATTACHED, Intent
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_mistakes import Mistake, mistake

# Variables of the role network_operator that the rail model needs, with the defaults of that role.
VARIABLES = {
    "network_operator_version": "26.7.1",
    "network_operator_namespace": "nvidia-network-operator",
    "network_operator_image_repository": "nvcr.io/nvidia/mellanox",
}

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
    version, namespace, repository = values.values()
    if not isinstance(version, str) or not re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", version):
        found.append(mistake("network_operator_version", version, "a version in quotes such as 26.7.1"))
    if not isinstance(namespace, str) or not names.LABEL.fullmatch(namespace):
        found.append(mistake("network_operator_namespace", namespace, names.LABEL_FORM))
    # The pattern of the field in the CRD of NicClusterPolicy.
    if not isinstance(repository, str) or not re.fullmatch(r"[a-zA-Z0-9.\-/]+", repository):
        found.append(mistake("network_operator_image_repository", repository, "letters, digits, dots, dashes, slashes"))
    return values, found


def policy(intents: list[Intent], operator: dict) -> dict:
    """Return the data of the NicClusterPolicy: C({name, sections}), for all networks of the cluster together.

    There is no C(ofedDriver) section: the images of these nodes bring DOCA-OFED.
    """
    image = {
        "repository": operator["network_operator_image_repository"],
        "version": f"network-operator-v{operator['network_operator_version']}",
    }
    sections: dict = {}
    if any(intent.network in ATTACHED for intent in intents):
        sections["nvIpam"] = {"image": "nvidia-k8s-ipam", **image, "enableWebhook": False}
        sections["secondaryNetwork"] = {
            "cniPlugins": {"image": "plugins", **image},
            "multus": {"image": "multus-cni", **image},
        }
    resources = [row for intent in intents for row in _pf_resources(intent)]
    if resources:
        config = {"resourceList": _merged(resources)}
        sections["sriovDevicePlugin"] = {
            "image": "sriov-network-device-plugin",
            **image,
            "config": json.dumps(config),
        }
    taints = sorted({(intent.shape or {}).get("gpu_taint", DEFAULT_TAINT) for intent in intents} - {DEFAULT_TAINT})
    if taints:
        # The operator's DaemonSets tolerate nvidia.com/gpu by themselves, so that key is added only to keep both kinds.
        keys = [DEFAULT_TAINT, *taints]
        sections["tolerations"] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    return {"name": POLICY_NAME, "sections": sections}


def helm_values(
    model: dict, nfd_enabled: bool = False, resources: dict | None = None, disable_drain: bool = False
) -> dict:
    """Derive the values of the chart C(network-operator) from the rail model.

    :param model: the rail model.
    :param nfd_enabled: whether the chart brings Node Feature Discovery; false when the cluster runs it already, since
        only one may run.
    :param resources: requests and limits of the operator's container; C(OPERATOR_RESOURCES) when not given.
    :param disable_drain: whether the SR-IOV operator changes VFs without draining the node.
    :returns: the values. The SR-IOV operator is on when a layout uses VFs, with its mellanox plugin off: that plugin
        would set the firmware's VF count to that of the policy, and drain and reboot every node for it.
    """
    sriov = any(layout["network"] == "sriov" for layout in model["layouts"])
    values: dict = {
        "nfd": {"enabled": nfd_enabled},
        "sriovNetworkOperator": {"enabled": sriov},
        "operator": {"resources": OPERATOR_RESOURCES if resources is None else resources},
    }
    if not sriov:
        return values
    values["sriov-network-operator"] = {
        "sriovOperatorConfig": {
            "deploy": True,
            "disableDrain": disable_drain,
            "configurationMode": "daemon",
            "disablePlugins": ["mellanox"],
        }
    }
    prefix = model["operator"]["resource_prefix"]
    if prefix != DEFAULT_PREFIX:
        # Also decides which pods a drain evicts: those with a request whose name starts with it.
        values["sriov-network-operator"]["operator"] = {"resourcePrefix": prefix}
    return values


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
