# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bearer tokens: the administrator's, those of TokenRequests, and those of Secrets of service accounts.

A token reads as a JSON Web Token, since clients look into it for its end. It is not signed: the server knows what it
gave out.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from datetime import datetime, timezone
from typing import Any

from .api import Api, now
from .rbac import ADMIN, User, service_account
from .store import Event, Object

ACCOUNTS, SECRETS = ("", "serviceaccounts"), ("", "secrets")
SECRET_TYPE = "kubernetes.io/service-account-token"
ANNOTATION = "kubernetes.io/service-account"
#: Shortest life of a token that may be asked for, in seconds (pkg/apis/authentication/validation).
SHORTEST = 600


def _part(data: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


class Tokens:
    """`certificate`: the PEM of the authority, which Secrets of accounts carry as ca.crt."""

    def __init__(self, api: Api, admin: str, certificate: str = "") -> None:
        self.api, self.certificate = api, certificate
        self._users: dict[str, tuple[User | None, tuple[str, str, str], float | None]] = {
            admin: (ADMIN, ("", "", ""), None)
        }
        api.store.listeners.append(self._notice)

    def issue(self, account: Object, seconds: int | None, secret: str = "") -> str:
        """A token for a service account; without seconds it is valid as long as the account (or its Secret) is."""
        meta = account["metadata"]
        end = None if seconds is None else time.time() + seconds
        claims = {"sub": f"system:serviceaccount:{meta['namespace']}:{meta['name']}", "jti": secrets.token_urlsafe(9)}
        token = ".".join(
            (_part({"alg": "none"}), _part(claims | ({"exp": int(end)} if end else {})), secrets.token_urlsafe(24))
        )
        self._users[token] = (None, (meta["namespace"], meta["name"], meta["uid"]), end)
        return token

    def user(self, token: str) -> User | None:
        """Who has this token; None when it is unknown, over, or of an account that is gone."""
        known = self._users.get(token)
        if known is None:
            return None
        user, (namespace, name, uid), end = known
        if user:
            return user
        account = self.api.store.get(ACCOUNTS, namespace, name)
        if account is None or account["metadata"]["uid"] != uid or end is not None and end <= time.time():
            del self._users[token]
            return None
        return service_account(namespace, name, uid)

    def revoke(self, token: str) -> None:
        self._users.pop(token, None)

    def request(self, account: Object, body: Object) -> Object:
        """A TokenRequest's answer."""
        seconds = (body.get("spec") or {}).get("expirationSeconds") or 3600
        end = datetime.fromtimestamp(time.time() + seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        meta = {"name": account["metadata"]["name"], "namespace": account["metadata"]["namespace"]}
        meta["creationTimestamp"] = now()
        status = {"token": self.issue(account, seconds), "expirationTimestamp": end}
        spec = {"expirationSeconds": seconds, "audiences": [], "boundObjectRef": None, **(body.get("spec") or {})}
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        return {**kind, "metadata": meta, "spec": spec, "status": status}

    def _notice(self, key: tuple[str, str], event: Event) -> None:
        """Fill a new Secret of an account with its token, as the token controller does; take it back with the Secret."""
        secret = event.new
        if key != SECRETS or secret.get("type") != SECRET_TYPE:
            return
        data, meta = secret.get("data") or {}, secret["metadata"]
        if event.type == "DELETED":
            if data.get("token"):
                self.revoke(base64.b64decode(data["token"]).decode())
            return
        name = (meta.get("annotations") or {}).get(f"{ANNOTATION}.name", "")
        account = self.api.store.get(ACCOUNTS, meta["namespace"], name)
        if data.get("token") or account is None:
            return
        token = self.issue(account, None)
        texts = {"token": token, "namespace": meta["namespace"], "ca.crt": self.certificate}
        filled = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        notes = {**meta["annotations"], f"{ANNOTATION}.uid": account["metadata"]["uid"]}
        self.api.change(
            SECRETS,
            meta["namespace"],
            meta["name"],
            lambda old: {**old, "data": {**data, **filled}, "metadata": {**old["metadata"], "annotations": notes}},
        )
