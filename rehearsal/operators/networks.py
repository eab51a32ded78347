# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network attachments: SriovNetwork to NetworkAttachmentDefinition, pod annotation, plugin chains. All pure."""

from __future__ import annotations

import json

from rehearsal.operators.kinds import annotations_of, name_of, namespace_of

RESOURCE_ANNOTATION = "k8s.v1.cni.cncf.io/resourceName"
NETWORKS_ANNOTATION = "k8s.v1.cni.cncf.io/networks"
STATUS_ANNOTATION = "k8s.v1.cni.cncf.io/network-status"
OWNER_ANNOTATION = "sriovnetwork.openshift.io/owner-ref"


class NetworkError(ValueError):
    """A network that cannot be rendered, or an attachment that cannot be resolved; the message is what is logged."""


def render_nad(network: dict, resource_prefix: str, operator_namespace: str) -> dict:
    """The NetworkAttachmentDefinition that the SR-IOV operator makes of a SriovNetwork.

    As the operator's template does: ipam loses all white space, metaPlugins is pasted raw between the plugins,
    cniVersion is 1.0.0, and networkNamespace counts only for objects in the operator's own namespace.

    :raises NetworkError: what results is no JSON (the operator only logs that; the object shows nothing).
    """
    spec, name = network["spec"], name_of(network)
    sriov: dict = {"type": "sriov"}
    if spec.get("vlan"):
        sriov["vlan"] = spec["vlan"]
        if spec.get("vlanQoS"):
            sriov["vlanQoS"] = spec["vlanQoS"]
    for key, target in (("spoofChk", "spoofchk"), ("trust", "trust"), ("linkState", "link_state")):
        if spec.get(key):
            sriov[target] = spec[key]
    for key, target in (("minTxRate", "min_tx_rate"), ("maxTxRate", "max_tx_rate")):
        if spec.get(key) is not None:
            sriov[target] = spec[key]
    sriov["logLevel"] = spec.get("logLevel") or "info"
    text = json.dumps(sriov)[:-1]
    if spec.get("capabilities"):
        text += f', "capabilities":{spec["capabilities"]}'
    ipam = "".join((spec.get("ipam") or "").split()) or "{}"
    text += f', "ipam":{ipam}}}'
    plugins = f"{text},{spec['metaPlugins']}" if spec.get("metaPlugins") else text
    config = f'{{"cniVersion":"1.0.0","name":{json.dumps(name)},"plugins":[{plugins}]}}'
    try:
        parsed = json.loads(config)
    except json.JSONDecodeError as error:
        raise NetworkError(f"SriovNetwork {name}: rendered configuration is not JSON: {error}") from error
    if not all(isinstance(plugin, dict) for plugin in parsed["plugins"]):
        raise NetworkError(f"SriovNetwork {name}: metaPlugins must be JSON objects separated by commas")
    namespace = namespace_of(network)
    if spec.get("networkNamespace") and namespace == operator_namespace:
        namespace = spec["networkNamespace"]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {
                RESOURCE_ANNOTATION: f"{resource_prefix}/{spec['resourceName']}",
                OWNER_ANNOTATION: f"SriovNetwork.sriovnetwork.openshift.io/{namespace_of(network)}/{name}",
            },
        },
        "spec": {"config": json.dumps(parsed, separators=(",", ":"))},
    }


def parse_networks(text: str | None, namespace: str) -> list[dict]:
    """The networks annotation of a pod: ``[{namespace, name, interface, ips, mac}]`` in order, interfaces net1, net2 …

    Both forms of the multi-network specification are understood: "ns/name@if,name" and a JSON list.

    :raises NetworkError: the text follows neither form.
    """
    text = (text or "").strip()
    if not text:
        return []
    rows: list[dict] = []
    if text.startswith(("[", "{")):
        try:
            items = json.loads(text)
        except json.JSONDecodeError as error:
            raise NetworkError(
                "parsePodNetworkAnnotation: failed to parse pod Network Attachment Selection Annotation JSON format: "
                f"{error}"
            ) from error
        for item in items:
            if not item.get("name"):
                raise NetworkError("parsePodNetworkAnnotation: network selection element without a name")
            rows.append(
                {
                    "namespace": item.get("namespace") or namespace,
                    "name": item["name"],
                    "interface": item.get("interface"),
                    "ips": item.get("ips") or [],
                    "mac": item.get("mac"),
                }
            )
    else:
        for item in text.split(","):
            reference, _, interface = item.strip().partition("@")
            space, slash, name = reference.rpartition("/")
            if not name or (slash and not space):
                raise NetworkError(
                    f"parsePodNetworkObjectName: Invalid network object (failed at '/'): {item.strip()!r}"
                )
            rows.append(
                {"namespace": space or namespace, "name": name, "interface": interface or None, "ips": [], "mac": None}
            )
    for index, row in enumerate(rows, 1):
        row["interface"] = row["interface"] or f"net{index}"
    return rows


def chain_of(nad: dict) -> list[dict]:
    """The plugin configurations of a network, in order; single-plugin configurations are a chain of one.

    :raises NetworkError: spec.config is no JSON object with a plugin type.
    """
    try:
        config = json.loads(nad.get("spec", {}).get("config") or "{}")
    except json.JSONDecodeError as error:
        raise NetworkError(f"network {name_of(nad)}: spec.config is not JSON: {error}") from error
    plugins = config.get("plugins", [config])
    if not plugins or not all(isinstance(plugin, dict) and plugin.get("type") for plugin in plugins):
        raise NetworkError(f"network {name_of(nad)}: spec.config has a plugin without a type")
    return plugins


def resource_of(nad: dict) -> str | None:
    """The device plugin resource that Multus takes the device id of this network from."""
    return annotations_of(nad).get(RESOURCE_ANNOTATION)


def network_status(name: str, interface: str, result: dict, device_id: str | None) -> dict:
    """One entry of the network-status annotation, from the last result of the chain."""
    row: dict = {
        "name": name,
        "interface": interface,
        "ips": [item["address"].split("/")[0] for item in result.get("ips") or []],
    }
    if result.get("mac"):
        row["mac"] = result["mac"]
    row["dns"] = {}
    if device_id:
        row["device-info"] = {"type": "pci", "version": "1.1.0", "pci": {"pci-address": device_id}}
    return row
