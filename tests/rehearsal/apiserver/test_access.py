# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guarded door: tokens, RBAC, and the words of its refusals."""

from __future__ import annotations

import base64
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rehearsal.apiserver import rbac, tokens
from rehearsal.apiserver.attributes import Attributes, attributes_of
from rehearsal.apiserver.server import build, build_guarded

from .conftest import CRDS, Kube, configmap, pod, tool, widget, widget_crd

RBAC = "/apis/rbac.authorization.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
ADMIN = "the-administrator"
WHO = "system:serviceaccount:default:ada"


class Door(Kube):
    """The guarded door for one token; None: no header at all."""

    def __init__(self, client, token: str | None) -> None:
        self.client, self.token = client, token

    async def call(self, method, path, body=None, media="application/json", **query):
        headers = {"Content-Type": media} if body is not None else {}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body)
        async with self.client.request(method, path, data=data, headers=headers, params=query) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text


class House:
    """Both doors. `ada` is the account default/ada; `grant` gives it rights."""

    def __init__(self, kube: Kube, guarded, app) -> None:
        self.kube, self.guarded, self.app, self.count = kube, guarded, app, 0

    def door(self, token: str | None) -> Door:
        return Door(self.guarded, token)

    async def token(self, **spec) -> str:
        status, body = await self.kube.post(
            "/api/v1/namespaces/default/serviceaccounts/ada/token", {"spec": spec} if spec else {}
        )
        assert status == 201, body
        return body["status"]["token"]

    async def grant(self, *rules: dict, namespace: str | None = None, kind: str = "ClusterRole") -> None:
        """Bind rules to ada, everywhere or in a namespace."""
        self.count += 1
        name = f"r{self.count}"
        where = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
        roles = f"{where}/roles" if kind == "Role" else f"{RBAC}/clusterroles"
        assert (await self.kube.post(roles, {"metadata": {"name": name}, "rules": list(rules)}))[0] == 201
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac.GROUP, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "ada", "namespace": "default"}],
        }
        plural = "rolebindings" if namespace else "clusterrolebindings"
        assert (await self.kube.post(f"{where}/{plural}", binding))[0] == 201


@pytest.fixture
async def house(serve, tmp_path):
    app = build(None, tmp_path / "log.jsonl", admin_token=ADMIN, certificate="PEM")
    guarded = build_guarded(app)
    kube = Kube(await serve(app))
    found = House(kube, await serve(guarded), app)
    account = {"metadata": {"name": "ada"}}
    assert (await kube.post("/api/v1/namespaces/default/serviceaccounts", account))[0] == 201
    return found


@pytest.fixture
async def ada(house):
    return house.door(await house.token())


def rule(resources: str, verbs: str, group: str = "", names: str = "") -> dict:
    found = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**found, "resourceNames": names.split()} if names else found


def cannot(verb: str, resource: str, group: str = "", place: str = 'in the namespace "default"') -> str:
    return f'User "{WHO}" cannot {verb} resource "{resource}" in API group "{group}" {place}'


# -- who asks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "no-such-token", "a.b.c"])
async def test_a_token_that_is_not_known_is_401(house, token):
    status, body = await house.door(token).get(MAPS)
    assert (status, body) == (
        401,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        },
    )


async def test_the_administrator_may_everything_and_nobody_nothing(house):
    assert (await house.door(ADMIN).post(MAPS, configmap()))[0] == 201
    status, body = await house.door(None).get(MAPS)
    assert (status, body["message"].partition(": ")[2]) == (
        403,
        'User "system:anonymous" cannot list resource "configmaps" in API group "" in the namespace "default"',
    )
    assert (await house.door(None).get("/version"))[0] == 200
    assert (await house.door(None).get("/apis"))[0] == 403
    assert (await house.kube.get(MAPS))[0] == 200, "the secret path asks for nothing"


async def test_a_token_ends_with_its_time_its_account_or_its_secret(house, monkeypatch):
    short = house.door(await house.token(expirationSeconds=600))
    assert (await short.get("/apis"))[0] == 200
    now = tokens.time.time()
    monkeypatch.setattr(tokens.time, "time", lambda: now + 601)
    assert (await short.get("/apis"))[0] == 401
    monkeypatch.undo()

    secret = {
        "metadata": {"name": "ada-token", "annotations": {"kubernetes.io/service-account.name": "ada"}},
        "type": "kubernetes.io/service-account-token",
    }
    assert (await house.kube.post("/api/v1/namespaces/default/secrets", secret))[0] == 201
    _, filled = await house.kube.get("/api/v1/namespaces/default/secrets/ada-token")
    data = {key: base64.b64decode(value).decode() for key, value in filled["data"].items()}
    assert (data["namespace"], data["ca.crt"]) == ("default", "PEM")
    lasting, other = house.door(data["token"]), house.door(await house.token())
    assert (await lasting.get("/apis"))[0] == 200
    await house.kube.delete("/api/v1/namespaces/default/secrets/ada-token")
    assert (await lasting.get("/apis"))[0] == 401
    assert (await other.get("/apis"))[0] == 200
    await house.kube.delete("/api/v1/namespaces/default/serviceaccounts/ada")
    await house.kube.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "ada"}})
    assert (await other.get("/apis"))[0] == 401, "the new account of the same name is another"


# -- what it may ------------------------------------------------------------------------------------------------------

REQUESTS = {
    "get": ("GET", f"{MAPS}/a", None),
    "list": ("GET", MAPS, None),
    "create": ("POST", MAPS, configmap("b")),
    "update": ("PUT", f"{MAPS}/a", configmap("a", x="1")),
    "patch": ("PATCH", f"{MAPS}/a", {"data": {"x": "2"}}),
    "delete": ("DELETE", f"{MAPS}/a", None),
    "deletecollection": ("DELETE", MAPS, None),
}


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
@pytest.mark.parametrize("verb", sorted(REQUESTS))
async def test_each_verb_is_a_right_of_its_own(house, ada, verb, kind):
    await house.kube.post(MAPS, configmap())
    method, path, body = REQUESTS[verb]
    media = "application/merge-patch+json" if verb == "patch" else "application/json"
    others = " ".join(sorted(set(REQUESTS) - {verb}))
    await house.grant(rule("configmaps", others), namespace="default", kind=kind)
    status, answer = await ada.call(method, path, body, media)
    named = ' "a"' if path.endswith("/a") else ""
    assert (status, answer["reason"], answer["message"]) == (
        403,
        "Forbidden",
        f"configmaps{named} is forbidden: {cannot(verb, 'configmaps')}",
    )
    assert answer["details"] == {"kind": "configmaps", **({"name": "a"} if named else {})}
    await house.grant(rule("configmaps", verb), namespace="default", kind=kind)
    assert (await ada.call(method, path, body, media))[0] in (200, 201)


async def test_a_watch_is_a_right_of_its_own(house, ada):
    await house.grant(rule("configmaps", "get list"))
    status, body = await ada.get(MAPS, watch="true")
    assert (status, body["message"]) == (403, f"configmaps is forbidden: {cannot('watch', 'configmaps')}")
    await house.grant(rule("configmaps", "watch"))
    async with house.guarded.get(
        MAPS, params={"watch": "true", "timeoutSeconds": "1"}, headers={"Authorization": f"Bearer {ada.token}"}
    ) as response:
        assert response.status == 200


async def test_a_role_ends_at_its_namespace(house, ada):
    await house.grant(rule("configmaps", "*"), namespace="default")
    assert (await ada.get(MAPS))[0] == 200
    _, elsewhere = await ada.get(MAPS.replace("default", "kube-system"))
    assert elsewhere["message"].endswith(cannot("list", "configmaps", place='in the namespace "kube-system"'))
    _, everywhere = await ada.get("/api/v1/configmaps")
    assert everywhere["message"].endswith(cannot("list", "configmaps", place="at the cluster scope"))
    await house.grant(rule("configmaps", "list"))
    assert (await ada.get("/api/v1/configmaps"))[0] == 200


async def test_names_limit_a_right_also_in_lists_that_name_one(house, ada):
    await house.grant(rule("configmaps", "get list", names="a"))
    await house.kube.post(MAPS, configmap())
    assert (await ada.get(f"{MAPS}/a"))[0] == 200
    assert (await ada.get(f"{MAPS}/b"))[0] == 403, "before it is looked whether there is one"
    assert (await ada.get(MAPS))[0] == 403
    assert (await ada.get(MAPS, fieldSelector="metadata.name=a"))[0] == 200
    assert (await ada.get(MAPS, fieldSelector="metadata.name!=a"))[0] == 403


async def test_a_subresource_is_a_right_of_its_own(house, ada):
    pods = "/api/v1/namespaces/default/pods"
    await house.kube.post(pods, pod())
    await house.grant(rule("pods", "*"))
    status, body = await ada.post(f"{pods}/p/eviction", {"metadata": {"name": "p"}})
    assert (status, body["message"]) == (403, f'pods "p" is forbidden: {cannot("create", "pods/eviction")}')
    for sub, verb in (("log", "get"), ("exec", "get"), ("status", "get")):
        _, body = await ada.get(f"{pods}/p/{sub}")
        assert body["message"] == f'pods "p" is forbidden: {cannot(verb, f"pods/{sub}")}'
    await house.grant(rule("pods/eviction", "create"))
    assert (await ada.post(f"{pods}/p/eviction", {"metadata": {"name": "p"}}))[0] == 201


async def test_exec_needs_get_and_create(house, ada):
    path = "/api/v1/namespaces/default/pods/p/exec"
    await house.grant(rule("pods/exec", "get"))
    _, body = await ada.get(path)
    assert body["message"] == f'pods "p" is forbidden: {cannot("create", "pods/exec")}'
    await house.grant(rule("pods/exec", "create"))
    status, body = await ada.get(path)
    assert (status, body["message"]) == (404, 'pods "p" not found')


async def test_an_apply_of_something_new_needs_create_too(house, ada):
    await house.grant(rule("configmaps", "patch", names="a"))
    status, body = await ada.apply(f"{MAPS}/a", configmap())
    assert (status, body["message"]) == (403, 'configmaps "a" is forbidden: ')
    await house.grant(rule("configmaps", "create", names="a"))
    assert (await ada.apply(f"{MAPS}/a", configmap()))[0] == 201
    await house.grant(rule("configmaps", "create"))
    assert (await ada.apply(f"{MAPS}/b", configmap("b")))[1]["message"].endswith(cannot("patch", "configmaps"))


async def test_a_kind_that_is_not_served_is_403_first(house, ada):
    path = "/apis/example.com/v1/namespaces/default/widgets"
    assert (await ada.get(path))[0] == 403
    await house.grant(rule("widgets", "list create", "example.com"))
    assert (await ada.get(path))[0] == 404
    await house.kube.post(CRDS, widget_crd())
    assert (await ada.post(path, widget()))[0] == 201
    assert (await ada.patch(f"{path}/w/status", {"status": {}}))[1]["message"].endswith(
        cannot("patch", "widgets/status", "example.com")
    )


async def test_paths_that_are_no_resources(house, ada):
    for path in ("/api", "/apis", "/api/v1", "/apis/apps/v1", "/version", "/openapi/v3", "/readyz"):
        assert (await ada.get(path))[0] == 200, path
    status, body = await ada.get("/metrics")
    assert (status, body["message"]) == (403, f'forbidden: User "{WHO}" cannot get path "/metrics"')
    await house.grant({"nonResourceURLs": ["/metr*"], "verbs": ["get"]})
    assert (await ada.get("/metrics"))[0] == 404


async def test_a_right_is_gone_with_its_binding(house, ada):
    await house.grant(rule("configmaps", "list"))
    assert (await ada.get(MAPS))[0] == 200
    await house.kube.delete(f"{RBAC}/clusterrolebindings/r1")
    assert (await ada.get(MAPS))[0] == 403


# -- handing out rights -----------------------------------------------------------------------------------------------


def a_role(name: str = "mine", *rules: dict) -> dict:
    return {"metadata": {"name": name}, "rules": list(rules) or [rule("secrets", "get list")]}


async def test_nobody_writes_roles_with_rights_of_others(house, ada):
    await house.grant(rule("clusterroles", "create patch update", rbac.GROUP))
    status, body = await ada.post(f"{RBAC}/clusterroles", a_role())
    assert status == 403
    assert body["message"] == (
        f'clusterroles.{rbac.GROUP} "mine" is forbidden: user "{WHO}" (groups=["system:serviceaccounts" '
        '"system:serviceaccounts:default" "system:authenticated"]) is attempting to grant RBAC permissions not currently '
        'held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}\n{APIGroups:[""], Resources:["secrets"], Verbs:["list"]}'
    )
    assert (await house.kube.get(f"{RBAC}/clusterroles/mine"))[0] == 404, "the question alone writes nothing"
    await house.grant(rule("secrets", "get list"))
    assert (await ada.post(f"{RBAC}/clusterroles", a_role()))[0] == 201
    wider = a_role("mine", rule("secrets", "*"))
    assert (await ada.patch(f"{RBAC}/clusterroles/mine", {"rules": wider["rules"]}))[0] == 403
    assert (await ada.patch(f"{RBAC}/clusterroles/mine", {"metadata": {"labels": {"a": "b"}}}))[0] == 200
    await house.grant(rule("clusterroles", "escalate", rbac.GROUP, "mine"))
    assert (await ada.patch(f"{RBAC}/clusterroles/mine", {"rules": wider["rules"]}))[0] == 200


async def test_nobody_binds_roles_with_rights_of_others(house, ada):
    await house.kube.post(f"{RBAC}/clusterroles", a_role())
    await house.grant(rule("clusterrolebindings", "create", rbac.GROUP))
    reference = {"apiGroup": rbac.GROUP, "kind": "ClusterRole", "name": "mine"}
    binding = {"metadata": {"name": "me"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "eve"}]}
    assert (await ada.post(f"{RBAC}/clusterrolebindings", binding))[0] == 403
    await house.grant(rule("clusterroles", "bind", rbac.GROUP, "mine"))
    assert (await ada.post(f"{RBAC}/clusterrolebindings", binding))[0] == 201


# -- reviews ----------------------------------------------------------------------------------------------------------


async def test_reviews_tell_what_the_door_would(house, ada):
    await house.grant(rule("configmaps", "get", names="a"))
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    async def may(**wanted) -> dict:
        return (await ada.post(path, {"spec": {"resourceAttributes": wanted}}))[1]["status"]

    right = await may(verb="get", resource="configmaps", name="a", namespace="default")
    why = 'RBAC: allowed by ClusterRoleBinding "r1" of ClusterRole "r1" to ServiceAccount "ada/default"'
    assert right == {"allowed": True, "reason": why}
    assert await may(verb="get", resource="configmaps", name="b", namespace="default") == {"allowed": False}
    _, body = await ada.post(path, {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/apis"}}})
    assert body["status"]["allowed"]
    rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    _, body = await ada.post(rules, {"spec": {"namespace": "default"}})
    assert rule("configmaps", "get", names="a") in body["status"]["resourceRules"]
    _, body = await ada.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert body["status"]["userInfo"]["username"] == WHO
    subject = {"spec": {"user": WHO, "resourceAttributes": {"verb": "get", "resource": "configmaps", "name": "a"}}}
    asked = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert (await ada.post(asked, subject))[0] == 403
    assert (await house.kube.post(asked, subject))[1]["status"]["allowed"]
    mine = {"spec": {"token": ada.token}}
    _, body = await house.kube.post("/apis/authentication.k8s.io/v1/tokenreviews", mine)
    assert body["status"]["user"]["username"] == WHO
    _, body = await house.kube.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}})
    assert body["status"]["authenticated"] is False


# -- pure parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "query", "wanted"),
    [
        ("GET", "/version", {}, Attributes("get", path="/version")),
        ("GET", "/apis/apps/v1", {}, Attributes("get", path="/apis/apps/v1")),
        ("GET", "/api/v1/nodes/n", {}, Attributes("get", "", "nodes", "", "", "n")),
        ("GET", "/api/v1/namespaces/x", {}, Attributes("get", "", "namespaces", "", "x", "x")),
        ("PUT", "/api/v1/namespaces/x/finalize", {}, Attributes("update", "", "namespaces", "finalize", "x", "x")),
        ("GET", "/api/v1/namespaces/x/pods", {"watch": "1"}, Attributes("watch", "", "pods", "", "x", "")),
        ("HEAD", "/apis/a.b/v1/c", {}, Attributes("list", "a.b", "c")),
        (
            "POST",
            "/api/v1/namespaces/x/pods/p/eviction",
            {},
            Attributes("create", "", "pods", "eviction", "x", "p"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_attributes(method, path, query, wanted):
    assert attributes_of(method, path, query) == wanted


words = st.sampled_from(["a", "b", "*"])
rules_of_words = st.fixed_dictionaries(
    {
        "verbs": st.lists(words, min_size=1),
        "apiGroups": st.lists(words, min_size=1),
        "resources": st.lists(words, min_size=1),
    }
)


@given(rules_of_words, rules_of_words)
def test_what_covers_a_rule_allows_all_that_it_allows(own, other):
    """`_covers` is about rules, `allows` about requests; they must agree on every request."""
    covered = all(rbac._covers(own, part) for part in rbac._parts(other))
    every = [Attributes(v, g, r) for v in ("a", "b", "c") for g in ("a", "b", "c") for r in ("a", "b", "c")]
    allowed = all(rbac.allows(own, wanted) for wanted in every if rbac.allows(other, wanted))
    assert covered <= allowed


# -- real clients -----------------------------------------------------------------------------------------------------


def test_kubectl_and_helm_come_in_with_a_token(cluster):
    kubectl = tool("kubectl")
    guarded = [kubectl, "--context", "guarded"]
    cluster.run(kubectl, "create", "serviceaccount", "bob")
    cluster.run(kubectl, "create", "role", "reads", "--verb=get,list", "--resource=pods")
    cluster.run(kubectl, "create", "rolebinding", "bob", "--role=reads", "--serviceaccount=default:bob")
    token = cluster.run(*guarded, "create", "token", "bob", "--duration=10m").strip()
    config = yaml.safe_load((cluster.state / "kubeconfig").read_text())
    config["users"][1]["user"]["token"] = token
    own = cluster.state / "bob"
    own.write_text(yaml.safe_dump(config))
    bob = [kubectl, "--kubeconfig", str(own), "--context", "guarded"]
    assert "No resources found" in cluster.run(*bob, "get", "pods")
    assert cluster.run(*bob, "auth", "can-i", "list", "pods").strip() == "yes"
    assert "no" in cluster.run(*bob, "auth", "can-i", "delete", "pods", code=1)
    assert 'User "system:serviceaccount:default:bob" cannot list resource "secrets"' in cluster.run(
        *bob, "get", "secrets", code=1
    )
    assert "system:serviceaccount:default:bob" in cluster.run(*bob, "auth", "whoami")
    helm = [tool("helm"), "list", "--kubeconfig", str(own), "--kube-context", "guarded"]
    assert 'cannot list resource "secrets" in API group ""' in cluster.run(*helm, code=1)
    rows = [row for row in cluster.requests() if row.get("user") == "system:serviceaccount:default:bob"]
    assert {row["status"] for row in rows} >= {200, 201, 403}
