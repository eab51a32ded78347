# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kinds the server knows: a table of built-in ones, and a registry that CustomResourceDefinitions extend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .builtin_schemas import schema_of

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
#: Verbs of kinds that only answer a question and are never stored.
ANSWERED = ("create",)


@dataclass(frozen=True)
class Resource:
    """One kind in one version, as discovery describes it, with what the store must know about it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    schema: dict[str, Any] = field(hash=False, compare=False)
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    generation: bool = False
    columns: tuple[dict[str, Any], ...] = field(default=(), hash=False, compare=False)
    scale: dict[str, Any] | None = field(default=None, hash=False, compare=False)
    custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> tuple[str, str]:
        """Objects of all versions are stored together under this."""
        return (self.group, self.plural)

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


# group/version: plural Kind short,names flags subresources; "-" for none. Flags: C cluster-scoped, g has a generation,
# a in category "all", r only read, = only answered.
TABLE = """
v1: bindings Binding - = ; componentstatuses ComponentStatus cs Cr ; configmaps ConfigMap cm - ;
    endpoints Endpoints ep - ; events Event ev - ; limitranges LimitRange limits - ;
    namespaces Namespace ns C status,finalize ; nodes Node no C status,proxy ;
    persistentvolumeclaims PersistentVolumeClaim pvc - status ; persistentvolumes PersistentVolume pv C status ;
    pods Pod po ga status,exec,attach,portforward,log,eviction,binding,ephemeralcontainers,resize ;
    podtemplates PodTemplate - - ; replicationcontrollers ReplicationController rc ga status,scale ;
    resourcequotas ResourceQuota quota - status ; secrets Secret - - ; serviceaccounts ServiceAccount sa - token ;
    services Service svc a status
apps/v1: controllerrevisions ControllerRevision - - ; daemonsets DaemonSet ds ga status ;
    deployments Deployment deploy ga status,scale ; replicasets ReplicaSet rs ga status,scale ;
    statefulsets StatefulSet sts ga status,scale
batch/v1: cronjobs CronJob cj ga status ; jobs Job - ga status
autoscaling/v2: horizontalpodautoscalers HorizontalPodAutoscaler hpa a status
rbac.authorization.k8s.io/v1: clusterroles ClusterRole - C ; clusterrolebindings ClusterRoleBinding - C ;
    roles Role - - ; rolebindings RoleBinding - -
apiextensions.k8s.io/v1: customresourcedefinitions CustomResourceDefinition crd,crds Cg status
apiregistration.k8s.io/v1: apiservices APIService - C status
policy/v1: poddisruptionbudgets PodDisruptionBudget pdb g status
coordination.k8s.io/v1: leases Lease - -
events.k8s.io/v1: events Event ev -
discovery.k8s.io/v1: endpointslices EndpointSlice - -
admissionregistration.k8s.io/v1: mutatingwebhookconfigurations MutatingWebhookConfiguration - Cg ;
    validatingwebhookconfigurations ValidatingWebhookConfiguration - Cg ;
    validatingadmissionpolicies ValidatingAdmissionPolicy - Cg status ;
    validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding - Cg
scheduling.k8s.io/v1: priorityclasses PriorityClass pc C
networking.k8s.io/v1: ingresses Ingress ing g status ; ingressclasses IngressClass - Cg ;
    networkpolicies NetworkPolicy netpol g
storage.k8s.io/v1: storageclasses StorageClass sc C ; csidrivers CSIDriver - C ; csinodes CSINode - C ;
    volumeattachments VolumeAttachment - C status
node.k8s.io/v1: runtimeclasses RuntimeClass - C
authorization.k8s.io/v1: selfsubjectaccessreviews SelfSubjectAccessReview - C= ;
    subjectaccessreviews SubjectAccessReview - C= ;
    selfsubjectrulesreviews SelfSubjectRulesReview - C= ; localsubjectaccessreviews LocalSubjectAccessReview - =
authentication.k8s.io/v1: selfsubjectreviews SelfSubjectReview - C= ; tokenreviews TokenReview - C=
"""


def builtin_resources() -> Iterable[Resource]:
    """The table as Resources, in its order. Schemas come from the typed models of the lightkube-models package."""
    joined = TABLE.strip().replace("\n    ", " ").splitlines()
    for line in joined:
        group_version, _, entries = line.partition(": ")
        group, _, version = group_version.rpartition("/")
        for entry in entries.split(";"):
            plural, kind, short, flags, *subresources = entry.split()
            yield Resource(
                group=group,
                version=version,
                plural=plural,
                kind=kind,
                namespaced="C" not in flags,
                schema=schema_of(group, version, kind),
                singular=kind.lower(),
                short=() if short == "-" else tuple(short.split(",")),
                categories=("all",) if "a" in flags else (),
                subresources=tuple(subresources[0].split(",")) if subresources else (),
                verbs=ANSWERED if "=" in flags else ("get", "list") if "r" in flags else ALL_VERBS,
                generation="g" in flags,
            )


class Registry:
    """Served kinds by (group, version, plural). CRDs come and go; built-in kinds stay."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        for resource in builtin_resources():
            self.add(resource)

    def add(self, resource: Resource) -> None:
        self._resources[(resource.group, resource.version, resource.plural)] = resource

    def remove(self, group: str, plural: str, keep: Iterable[str] = ()) -> None:
        """Stop to serve all versions of a kind except those in `keep`."""
        keep = set(keep)
        for key in [k for k in self._resources if k[0] == group and k[2] == plural and k[1] not in keep]:
            del self._resources[key]

    def get(self, group: str, version: str, plural: str) -> Resource | None:
        return self._resources.get((group, version, plural))

    def by_kind(self, group: str, kind: str) -> Resource | None:
        return next((r for r in self._resources.values() if r.group == group and r.kind == kind), None)

    def of_group_version(self, group: str, version: str) -> list[Resource]:
        return [r for r in self._resources.values() if r.group == group and r.version == version]

    def groups(self) -> dict[str, list[str]]:
        """Named groups and their versions; the core group is not among them."""
        found: dict[str, list[str]] = {}
        for resource in self._resources.values():
            if resource.group and resource.version not in found.setdefault(resource.group, []):
                found[resource.group].append(resource.version)
        return {group: sorted(versions, key=_version_order) for group, versions in found.items()}

    def namespaced(self) -> list[Resource]:
        """One Resource for each stored, namespaced kind (any of its versions)."""
        chosen = {r.key: r for r in self._resources.values() if r.namespaced and "list" in r.verbs}
        return list(chosen.values())


def _version_order(version: str) -> tuple[int, int, int]:
    """Newest stable version first (v2, v1, v1beta2, v1alpha1), as Kubernetes orders CRD versions."""
    body = version.removeprefix("v")
    for rank, word in enumerate(("", "beta", "alpha")):
        major, separator, minor = body.partition(word) if word else (body, "", "0")
        if major.isdigit() and (minor or "0").isdigit() and (separator or not word):
            return (rank, -int(major), -int(minor or 0))
    return (3, 0, 0)
