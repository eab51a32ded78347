# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RBAC: who may do what, by the roles and bindings that are stored.

Rules: "Using RBAC Authorization" in the Kubernetes documentation; k8s.io/kubernetes plugin/pkg/auth/authorizer/rbac and
pkg/registry/rbac/validation for who may hand out rights. Left out: aggregated ClusterRoles and impersonation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .api import Api, Options
from .attributes import Attributes
from .store import Event, Object

GROUP = "rbac.authorization.k8s.io"
ROLES, BINDINGS = {"Role": "roles", "ClusterRole": "clusterroles"}, ("rolebindings", "clusterrolebindings")
MASTERS = "system:masters"
Rule = dict[str, list[str]]


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """metav1 UserInfo."""
        info: dict[str, Any] = {"username": self.name, "groups": list(self.groups)}
        return {**info, "uid": self.uid} if self.uid else info


ADMIN = User("kubernetes-admin", (MASTERS, "system:authenticated"))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


def service_account(namespace: str, name: str, uid: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid)


def _has(wanted: list[str] | None, value: str) -> bool:
    return bool(wanted) and ("*" in wanted or value in wanted)


def allows(rule: Rule, wanted: Attributes) -> bool:
    """Whether one rule grants one right."""
    if not _has(rule.get("verbs"), wanted.verb):
        return False
    if wanted.path:
        return any(
            url == wanted.path or url.endswith("*") and wanted.path.startswith(url[:-1])
            for url in rule.get("nonResourceURLs") or ()
        )
    resources = rule.get("resources") or []
    found = _has(resources, wanted.full_resource) or (
        bool(wanted.subresource) and f"*/{wanted.subresource}" in resources
    )
    names = rule.get("resourceNames")
    return found and _has(rule.get("apiGroups"), wanted.group) and (not names or wanted.name in names)


def is_subject(subject: Object, user: User, namespace: str) -> bool:
    """Whether a binding's subject is this user; `namespace` is the binding's, where the subject names none."""
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return name in user.groups if kind == "Group" else kind == "User" and name == user.name


class Authorizer:
    """Answers from the store; what was found for a user is kept until a role or a binding changes."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._known: dict[tuple[User, str], list[tuple[Rule, str]]] = {}
        api.store.listeners.append(self._notice)

    def _notice(self, key: tuple[str, str], event: Event) -> None:
        if key[0] == GROUP:
            self._known.clear()

    def _rules_of(self, reference: Object, namespace: str) -> list[Rule]:
        """Rules of the role that a binding refers to; none when there is no such role."""
        kind = reference.get("kind", "")
        role = self.api.store.get(
            (GROUP, ROLES.get(kind, "")), namespace if kind == "Role" else "", reference.get("name", "")
        )
        return (role or {}).get("rules") or []

    def _bindings(self, namespace: str) -> Iterator[Object]:
        yield from self.api.store.list((GROUP, "clusterrolebindings"))
        if namespace:
            yield from self.api.store.list((GROUP, "rolebindings"), namespace)

    def rules(self, user: User, namespace: str) -> list[tuple[Rule, str]]:
        """(rule, why it holds) of all roles that a user has in a namespace; in none: those of the whole cluster."""
        known = self._known.get((user, namespace))
        if known is None:
            known = []
            for binding in self._bindings(namespace):
                here = binding["metadata"].get("namespace", "")
                subject = next((s for s in binding.get("subjects") or () if is_subject(s, user, here)), None)
                if subject is None:
                    continue
                role = binding["roleRef"]
                place = f'"{binding["metadata"]["name"]}{"/" + here if here else ""}"'
                who = f'"{subject["name"]}{"/" + subject["namespace"] if subject.get("namespace") else ""}"'
                reason = f'RBAC: allowed by {binding["kind"]} {place} of {role["kind"]} "{role["name"]}" '
                reason += f"to {subject['kind']} {who}"
                known += [(rule, reason) for rule in self._rules_of(role, here)]
            self._known[(user, namespace)] = known
        return known

    def why(self, user: User, wanted: Attributes) -> str | None:
        """Why a user has a right; None when he does not have it."""
        if MASTERS in user.groups:
            return ""
        return next((why for rule, why in self.rules(user, wanted.namespace) if allows(rule, wanted)), None)

    # -- handing out rights -------------------------------------------------------------------------------------

    def not_held(self, user: User, namespace: str, rules: list[Rule]) -> list[Rule]:
        """The rights in `rules`, one a rule, that the user does not have."""
        held = [rule for rule, _why in self.rules(user, namespace)]
        return [part for rule in rules for part in _parts(rule) if not any(_covers(own, part) for own in held)]

    def refusal_to_grant(self, user: User, resource: str, namespace: str, obj: Object, old: Object | None) -> str:
        """Why a user may not write this role or binding: it hands out rights that he does not have; "" when he may."""
        if MASTERS in user.groups:
            return ""
        name = obj["metadata"].get("name", "")
        if resource in ROLES.values():
            if old is not None and old.get("rules") == obj.get("rules"):
                return ""
            target, rules = Attributes("escalate", GROUP, resource, "", namespace, name), obj.get("rules")
        elif resource in BINDINGS:
            if old is not None and all(old.get(key) == obj.get(key) for key in ("roleRef", "subjects")):
                return ""
            role = obj.get("roleRef") or {}
            plural = ROLES.get(role.get("kind", ""), "")
            target = Attributes("bind", GROUP, plural, "", namespace, role.get("name", ""))
            rules = self._rules_of(role, namespace)
        else:
            return ""
        if self.why(user, target) is not None:
            return ""
        lacking = self.not_held(user, namespace, rules or [])
        if not lacking:
            return ""
        groups = " ".join(f'"{group}"' for group in user.groups)
        text = f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
        return text + "\n".join(sorted({_compact(rule) for rule in lacking}))


def _parts(rule: Rule) -> Iterator[Rule]:
    """A rule as rules of one verb, group, resource and name each."""
    for verb in rule.get("verbs") or []:
        for url in rule.get("nonResourceURLs") or []:
            yield {"verbs": [verb], "nonResourceURLs": [url]}
        for group in rule.get("apiGroups") or []:
            for resource in rule.get("resources") or []:
                part = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                names = rule.get("resourceNames")
                yield from [{**part, "resourceNames": [name]} for name in names] if names else [part]


def _covers(own: Rule, part: Rule) -> bool:
    """Whether a rule holds one part (of `_parts`) of another; a star is only covered by a star."""
    if "nonResourceURLs" in part:
        return allows(own, Attributes(part["verbs"][0], path=part["nonResourceURLs"][0]))
    resource, _, subresource = part["resources"][0].partition("/")
    name = (part.get("resourceNames") or [""])[0]
    return allows(own, Attributes(part["verbs"][0], part["apiGroups"][0], resource, subresource, "", name))


def _compact(rule: Rule) -> str:
    """A rule as Kubernetes prints it in refusals: `{APIGroups:["apps"], Resources:["deployments"], Verbs:["*"]}`."""
    labels = {"apiGroups": "APIGroups", "resources": "Resources", "nonResourceURLs": "NonResourceURLs"}
    labels |= {"resourceNames": "ResourceNames", "verbs": "Verbs"}
    shown = [f'{label}:["{rule[key][0]}"]' for key, label in labels.items() if rule.get(key)]
    return "{" + ", ".join(shown) + "}"


# -- what every cluster has from the start ----------------------------------------------------------------------------

_INFO = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_INFO]
_EVERYTHING = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
]
_REVIEWS = [
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "verbs": ["create"],
    },
    {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
]
# The parts of `view` that a cluster without add-ons has: no secrets, no nodes, no roles, no custom kinds.
_VIEWED = {
    "": "configmaps endpoints events limitranges namespaces persistentvolumeclaims pods pods/log pods/status "
    "replicationcontrollers resourcequotas serviceaccounts services",
    "apps": "controllerrevisions daemonsets deployments replicasets statefulsets",
    "batch": "cronjobs jobs",
    "policy": "poddisruptionbudgets",
    "discovery.k8s.io": "endpointslices",
    "networking.k8s.io": "ingresses networkpolicies",
}
_VIEW = [
    {"apiGroups": [group], "resources": words.split(), "verbs": ["get", "list", "watch"]}
    for group, words in _VIEWED.items()
]
#: name: (rules, groups that have it).
BOOTSTRAP: dict[str, tuple[list[Rule], tuple[str, ...]]] = {
    "cluster-admin": (_EVERYTHING, (MASTERS,)),
    "system:discovery": ([{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}], ("system:authenticated",)),
    "system:basic-user": (_REVIEWS, ("system:authenticated",)),
    "system:public-info-viewer": (
        [{"nonResourceURLs": _INFO, "verbs": ["get"]}],
        ("system:authenticated", "system:unauthenticated"),
    ),
    "view": (_VIEW, ()),
}


def bootstrap(api: Api) -> None:
    """Create the roles and bindings that a cluster has before anybody did anything."""
    options = Options(manager="kube-apiserver")
    roles = api.registry.get(GROUP, "v1", "clusterroles")
    bindings = api.registry.get(GROUP, "v1", "clusterrolebindings")
    for name, (rules, groups) in BOOTSTRAP.items():
        meta = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
        api.create(roles, "", {"metadata": meta, "rules": rules}, options)
        if groups:
            reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
            subjects = [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups]
            api.create(bindings, "", {"metadata": meta, "roleRef": reference, "subjects": subjects}, options)
