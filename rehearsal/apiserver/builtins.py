# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API server itself does to built-in kinds: normal forms, defaults, first status, fields that may not change.

Sources: pkg/apis/*/v1/defaults.go and the strategies under pkg/registry in Kubernetes. Only what clients of the
rehearsal can notice is here.
"""

from __future__ import annotations

import base64
import ipaddress
import itertools
from typing import Any

from .builtin_schemas import QUANTITY_MAPS
from .errors import Cause

Object = dict[str, Any]

_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "resources": {}}
_POD = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
#: Defaults of the spec, by kind.
_SPEC = {
    "Deployment": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
    },
    "DaemonSet": {
        "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
    },
    "StatefulSet": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    },
    "ReplicaSet": {"replicas": 1},
    "Job": {
        "backoffLimit": 6,
        "completions": 1,
        "parallelism": 1,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
    },
    "Service": {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"},
    "Namespace": {"finalizers": ["kubernetes"]},
}
_VOLUME_MODES = {
    "configMap": "defaultMode",
    "secret": "defaultMode",
    "projected": "defaultMode",
    "downwardAPI": "defaultMode",
}
#: Paths that an update may not change, by kind.
_IMMUTABLE = {
    "Deployment": ["spec.selector"],
    "DaemonSet": ["spec.selector"],
    "ReplicaSet": ["spec.selector"],
    "StatefulSet": ["spec.selector", "spec.serviceName"],
    "Job": ["spec.selector", "spec.template", "spec.completionMode"],
    "Secret": ["type"],
    "RoleBinding": ["roleRef"],
    "ClusterRoleBinding": ["roleRef"],
    "PriorityClass": ["value"],
    "StorageClass": ["provisioner", "parameters"],
}
_POD_MUTABLE = {"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "nodeName", "schedulingGates"}
_POD_MUTABLE |= {"priority"}
_service_addresses = itertools.count(int(ipaddress.ip_address("10.96.0.10")))


def normalise(obj: Any, name: str = "") -> Any:
    """Quantities as strings, as the API server writes them out; nulls mean absent in typed objects."""
    if isinstance(obj, dict):
        if name in QUANTITY_MAPS:
            return {
                key: str(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else v for key, v in obj.items()
            }
        return {key: normalise(item, key) for key, item in obj.items() if item is not None}
    return [normalise(item) for item in obj] if isinstance(obj, list) else obj


def set_defaults(obj: Object) -> Object:
    """The object with the defaults of its kind. Lists and maps that defaults touch are new ones."""
    kind = obj["kind"]
    if kind == "Secret":
        return _secret(obj)
    if kind in ("ClusterRoleBinding", "RoleBinding"):
        api_group = "rbac.authorization.k8s.io"
        subjects = [
            {**({"apiGroup": api_group} if s.get("kind") in ("User", "Group") else {}), **s}
            for s in obj.get("subjects") or []
        ]
        obj = {**obj, "roleRef": {"apiGroup": api_group, **(obj.get("roleRef") or {})}}
        return {**obj, "subjects": subjects} if subjects else obj
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return {**obj, "spec": _SPEC[kind]} if kind == "Namespace" else obj
    spec = {**_SPEC.get(kind, {}), **spec}
    if kind == "Pod":
        spec = _pod_spec(spec)
    elif kind == "Service":
        spec = _service_spec(spec)
    elif kind == "CronJob":
        spec = {"concurrencyPolicy": "Allow", "suspend": False, **spec}
    elif isinstance(spec.get("template"), dict) and isinstance(spec["template"].get("spec"), dict):
        spec["template"] = {**spec["template"], "spec": _pod_spec(spec["template"]["spec"])}
    return {**obj, "spec": spec}


def _secret(obj: Object) -> Object:
    obj = {"type": "Opaque", **obj}
    plain = obj.pop("stringData", None)
    if plain:
        coded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **coded}
    return obj


def _pod_spec(spec: Object) -> Object:
    spec = {**_POD, **spec}
    for role in ("containers", "initContainers"):
        if isinstance(spec.get(role), list):
            spec[role] = [_container(container) for container in spec[role]]
    if isinstance(spec.get("volumes"), list):
        spec["volumes"] = [_volume(volume) for volume in spec["volumes"]]
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    return spec


def _container(container: Object) -> Object:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image", ""))
    latest = "@" not in image and (":" not in image.rpartition("/")[2] or image.endswith(":latest"))
    container = {**_CONTAINER, "imagePullPolicy": "Always" if latest else "IfNotPresent", **container}
    if container.get("ports"):
        container["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    resources = container["resources"]
    if resources.get("limits"):  # what is limited is requested too
        container["resources"] = {**resources, "requests": {**resources["limits"], **(resources.get("requests") or {})}}
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe):
            timing = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
            container[probe] = {**timing, **container[probe]}
    return container


def _volume(volume: Object) -> Object:
    for source, mode in _VOLUME_MODES.items():
        if isinstance(volume.get(source), dict):
            return {**volume, source: {mode: 0o644, **volume[source]}}
    if isinstance(volume.get("hostPath"), dict):
        return {**volume, "hostPath": {"type": "", **volume["hostPath"]}}
    return volume


def _service_spec(spec: Object) -> Object:
    spec["ports"] = [
        {"protocol": "TCP", "targetPort": port.get("port"), **port}
        for port in spec.get("ports") or []
        if isinstance(port, dict)
    ]
    if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
        spec["clusterIP"] = str(ipaddress.ip_address(next(_service_addresses)))
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    return spec


def on_create(obj: Object) -> Object:
    """First status and generated fields. `metadata.uid` is set already."""
    kind, uid = obj["kind"], obj["metadata"]["uid"]
    if kind == "Namespace":
        labels = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": obj["metadata"]["name"]}
        return {**obj, "metadata": {**obj["metadata"], "labels": labels}, "status": {"phase": "Active"}}
    if kind == "Pod":
        return {**obj, "status": {"phase": "Pending", "qosClass": _qos_class(obj["spec"])}}
    if kind == "Service":
        return {**obj, "status": {"loadBalancer": {}}}
    if kind == "Job" and not obj["spec"].get("manualSelector"):
        name = obj["metadata"]["name"]
        marks = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
        marks |= {"controller-uid": uid, "job-name": name}
        template = obj["spec"]["template"]
        meta = template.get("metadata") or {}
        template = {**template, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **marks}}}
        selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        return {**obj, "spec": {**obj["spec"], "template": template, "selector": selector}, "status": {}}
    return obj


def _qos_class(spec: Object) -> str:
    rows = [container.get("resources") or {} for container in spec.get("containers") or []]
    counted = [{**(row.get("requests") or {}), **(row.get("limits") or {})} for row in rows]
    if not any("cpu" in row or "memory" in row for row in counted):
        return "BestEffort"
    for row in rows:
        limits, requests = row.get("limits") or {}, row.get("requests") or {}
        if any(name not in limits or requests.get(name, limits[name]) != limits[name] for name in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


def mistakes(obj: Object) -> list[Cause]:
    """Mistakes that the schema cannot tell."""
    kind, spec = obj["kind"], obj.get("spec") or {}
    causes = []
    if kind in ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet"):
        wanted = (spec.get("selector") or {}).get("matchLabels") or {}
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if any(labels.get(key) != value for key, value in wanted.items()):
            text = f"Invalid value: {labels}: `selector` does not match template `labels`".replace("'", '"')
            causes.append(Cause("spec.template.metadata.labels", "FieldValueInvalid", text))
    pods = [("spec", spec)] if kind == "Pod" else []
    if isinstance(spec.get("template"), dict):
        pods.append(("spec.template.spec", spec["template"].get("spec") or {}))
    for path, pod in pods:
        if not pod.get("containers"):
            causes.append(Cause(f"{path}.containers", "FieldValueRequired", "Required value"))
        names = set()
        for index, container in enumerate(pod.get("containers") or []):
            if container.get("name") in names:
                text = f'Duplicate value: "{container["name"]}"'
                causes.append(Cause(f"{path}.containers[{index}].name", "FieldValueDuplicate", text))
            names.add(container.get("name"))
        if kind == "Job" and pod.get("restartPolicy") == "Always":
            text = 'Required value: valid values: "OnFailure", "Never"'
            causes.append(Cause(f"{path}.restartPolicy", "FieldValueRequired", text))
    return causes


def forbidden_changes(old: Object, new: Object) -> list[Cause]:
    """Changes of fields that are fixed once the object exists."""
    causes = []
    kind = new["kind"]
    for path in _IMMUTABLE.get(kind, []):
        before, after = (_at(obj, path) for obj in (old, new))
        if before != after:
            causes.append(Cause(path, "FieldValueInvalid", f"Invalid value: {after!r}: field is immutable"))
    if (
        kind in ("Secret", "ConfigMap")
        and old.get("immutable")
        and any(old.get(k) != new.get(k) for k in ("data", "binaryData"))
    ):
        causes.append(Cause("data", "FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set"))
    if kind == "Pod" and _pod_core(old["spec"]) != _pod_core(new["spec"]):
        text = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        causes.append(Cause("spec", "FieldValueForbidden", text))
    return causes


def _at(obj: Any, path: str) -> Any:
    for step in path.split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _pod_core(spec: Object) -> Object:
    core = {key: value for key, value in spec.items() if key not in _POD_MUTABLE}
    for role in ("containers", "initContainers"):
        if role in core:
            core[role] = [{key: value for key, value in row.items() if key != "image"} for row in core[role]]
    return core
