# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resource kinds that the controllers read and write, and how their paths in the Kubernetes API are built."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One resource kind: API group ("" is the core group), version, kind, plural name, and its scope."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of a collection, an object or a subresource.

        :param namespace: None means all namespaces (a list) or a cluster-scoped object.
        """
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
POD = Kind("", "v1", "Pod", "pods")
EVENT = Kind("", "v1", "Event", "events")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SECRET = Kind("", "v1", "Secret", "secrets")
SERVICE = Kind("", "v1", "Service", "services")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
JOB = Kind("batch", "v1", "Job", "jobs")
CRD = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
MPI_JOB = Kind("kubeflow.org", "v2beta1", "MPIJob", "mpijobs")
NAD = Kind("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions")
NIC_CLUSTER_POLICY = Kind("mellanox.com", "v1alpha1", "NicClusterPolicy", "nicclusterpolicies", namespaced=False)
IP_POOL = Kind("nv-ipam.nvidia.com", "v1alpha1", "IPPool", "ippools")
CIDR_POOL = Kind("nv-ipam.nvidia.com", "v1alpha1", "CIDRPool", "cidrpools")
SRIOV_POLICY = Kind("sriovnetwork.openshift.io", "v1", "SriovNetworkNodePolicy", "sriovnetworknodepolicies")
SRIOV_STATE = Kind("sriovnetwork.openshift.io", "v1", "SriovNetworkNodeState", "sriovnetworknodestates")
SRIOV_NETWORK = Kind("sriovnetwork.openshift.io", "v1", "SriovNetwork", "sriovnetworks")
SRIOV_POOL_CONFIG = Kind("sriovnetwork.openshift.io", "v1", "SriovNetworkPoolConfig", "sriovnetworkpoolconfigs")
SRIOV_CONFIG = Kind("sriovnetwork.openshift.io", "v1", "SriovOperatorConfig", "sriovoperatorconfigs")


def name_of(obj: dict) -> str:
    return obj["metadata"]["name"]


def namespace_of(obj: dict) -> str | None:
    return obj["metadata"].get("namespace")


def labels_of(obj: dict) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: dict) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def owner_reference(owner: dict, kind: Kind) -> dict:
    """The controller reference that ties a child to ``owner``, as client-go's NewControllerRef builds it."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name_of(owner),
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
