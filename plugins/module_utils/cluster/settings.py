# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the API server is and how to log in, for the kinds of access that need nothing but a file or the task's arguments.

The client of kubernetes.core knows all kinds, but importing it costs more time than most of our modules work. So the plain
kinds are read here: a kubeconfig with a token or a client certificate, and a host with a token or a certificate. Anything
else (programs that fetch tokens, passwords, proxies, impersonation, the account of a pod, several files, a file with a
mistake) is None here and left to kubernetes.core, which then also says what is wrong with it. A test compares both.
"""

from __future__ import annotations

import base64
import binascii
import os

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import trouble

try:
    from ansible_collections.kubernetes.core.plugins.module_utils.args_common import AUTH_ARG_MAP, AUTH_ARG_SPEC
except ImportError:
    AUTH_ARG_MAP, AUTH_ARG_SPEC = {}, {}

CLUSTER_KEYS = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "extensions",
}
USER_KEYS = {"token", "client-certificate", "client-certificate-data", "client-key", "client-key-data"}
# Arguments, by the names of kubernetes.core's clients, that the plain kinds have.
WITH_FILE = {"kubeconfig", "context", "verify_ssl", "ssl_ca_cert", "persist_config"}
WITH_HOST = {"host", "api_key", "cert_file", "key_file", "verify_ssl", "ssl_ca_cert", "persist_config"}


class NotPlain(Exception):
    """Left to kubernetes.core."""


class Settings:
    """host (URL), authorization (header or None), verify (bool), ca, cert, key (PEM bytes or None: the machine's own
    authorities; no certificate), server_name (str or None), source (text for messages)."""

    def __init__(
        self, host, authorization=None, verify=True, ca=None, cert=None, key=None, server_name=None, source=""
    ):
        self.host, self.authorization, self.verify = host.rstrip("/"), authorization, verify
        self.ca, self.cert, self.key, self.server_name, self.source = ca, cert, key, server_name, source

    def __repr__(self):
        return f"Settings({self.host})"  # Never the token.


def given(params, environ):
    """Arguments of kubernetes.core's client from a module's parameters and K8S_AUTH_*, as _create_auth_spec of
    kubernetes.core finds them."""
    found = {}
    for name, argument in AUTH_ARG_MAP.items():
        value = params.get(argument)
        if value is None and name != "proxy_headers":
            text = environ.get(f"K8S_AUTH_{argument.upper()}") or environ.get(f"K8S_AUTH_{name.upper()}")
            if text is not None:
                is_bool = (AUTH_ARG_SPEC.get(argument) or {}).get("type") == "bool"
                value = text.lower() not in ("0", "false", "no") if is_bool else text
        if value is not None:
            found[name] = value
    return found


def _elsewhere(params, environ):
    """True when something decides that is not among the plain arguments: proxies, proxy headers, impersonation."""
    proxies = [name for name, value in environ.items() if name.lower().endswith("_proxy") and value]
    if any(name.lower() != "no_proxy" for name in proxies):
        return True
    if any(name.startswith(("K8S_AUTH_PROXY_HEADERS", "K8S_AUTH_IMPERSONATE")) for name in environ):
        return True
    return any(params.get(name) for name in ("proxy_headers", "impersonate_user", "impersonate_groups"))


def plain(params, environ=None):
    """Settings for a module's parameters, None when kubernetes.core has to make the connection."""
    environ = os.environ if environ is None else environ
    if not AUTH_ARG_MAP or _elsewhere(params, environ):
        return None
    args = given(params, environ)
    try:
        if args.get("host") and (args.get("api_key") or (args.get("cert_file") and args.get("key_file"))):
            return _from_host(args, params)
        return _from_file(args, params, environ)
    except (NotPlain, OSError, UnicodeError):
        return None


def _only(values, allowed):
    """Nothing but the allowed keys."""
    if not isinstance(values, dict) or not set(values) <= allowed:
        raise NotPlain


def _text(values, key):
    """A text that is not empty; None when the key is not there."""
    if key not in values:
        return None
    if not isinstance(values[key], str) or not values[key].strip():
        raise NotPlain
    return values[key]


def _file(path):
    with open(path, "rb") as file:
        return file.read()


def _from_host(args, params):
    _only(args, WITH_HOST)
    # A host without a scheme: what the client makes of it is its affair.
    if not args["host"].startswith(("https://", "http://")) or bool(args.get("cert_file")) != bool(
        args.get("key_file")
    ):
        raise NotPlain
    key = args.get("api_key")
    return Settings(
        args["host"],
        f"Bearer {key}" if key else None,
        args.get("verify_ssl", True),
        _file(args["ssl_ca_cert"]) if args.get("ssl_ca_cert") else None,
        _file(args["cert_file"]) if args.get("cert_file") else None,
        _file(args["key_file"]) if args.get("key_file") else None,
        source=trouble.source_text(params),
    )


def _from_file(args, params, environ):
    import yaml

    _only(args, WITH_FILE)
    if "" in (args.get("context"), args.get("ssl_ca_cert")):
        raise NotPlain  # Set to nothing is not the same as not set.
    path = args.get("kubeconfig")
    if path is None:
        # Without a file or a context the account of a pod comes first.
        if not args.get("context") and environ.get("KUBERNETES_SERVICE_HOST"):
            raise NotPlain
        path = environ.get("KUBECONFIG") or "~/.kube/config"
    if not isinstance(path, str) or os.pathsep in path:
        raise NotPlain
    path = os.path.expanduser(path)
    try:
        config = yaml.load(_file(path), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        raise NotPlain from None
    if not isinstance(config, dict):
        raise NotPlain
    context = _named(config, "contexts", args.get("context") or config.get("current-context"), "context")
    cluster = _named(config, "clusters", context.get("cluster"), "cluster")
    user = _named(config, "users", context.get("user"), "user") if context.get("user") else {}
    _only(cluster, CLUSTER_KEYS)
    _only(user, USER_KEYS)
    server, folder = _text(cluster, "server"), os.path.dirname(os.path.abspath(path))
    skip = cluster.get("insecure-skip-tls-verify", False)
    if not server or not server.startswith(("https://", "http://")) or not isinstance(skip, bool):
        raise NotPlain
    ca = args.get("ssl_ca_cert")
    token, tls = _text(user, "token"), server.startswith("https")
    cert, key = (_pem(user, name, folder) if tls else None for name in ("client-certificate", "client-key"))
    if (cert is None) != (key is None):
        raise NotPlain
    return Settings(
        server,
        f"Bearer {token}" if token else None,
        args.get("verify_ssl", not skip),
        _file(ca) if ca else _pem(cluster, "certificate-authority", folder) if tls else None,
        cert,
        key,
        _text(cluster, "tls-server-name"),
        trouble.source_text(params),
    )


def _named(config, kind, name, key):
    """The one entry of a kubeconfig's list with this name."""
    rows = config.get(kind)
    if not isinstance(name, str) or not isinstance(rows, list):
        raise NotPlain
    found = [row for row in rows if isinstance(row, dict) and row.get("name") == name]
    if len(found) != 1 or not isinstance(found[0].get(key), dict):
        raise NotPlain
    return found[0][key]


def _pem(values, name, folder):
    """Content of ``name-data``, or of the file ``name``, which is relative to the kubeconfig."""
    data, file = _text(values, f"{name}-data"), _text(values, name)
    if data is not None:
        try:
            return base64.standard_b64decode(data)
        except (binascii.Error, ValueError):
            raise NotPlain from None
    return None if file is None else _file(os.path.join(folder, file))
