# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong when the API server refuses the account, shows a certificate that is not trusted, or does not answer."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import time
from datetime import datetime, timezone
from urllib.parse import urlsplit

PORTS = {"https": 443, "http": 80}


def chain(error):
    """An exception and all that it came from, outermost first. urllib3 hides causes in ``reason`` and arguments."""
    found, queue = [], [error]
    while queue:
        this = queue.pop(0)
        if not isinstance(this, BaseException) or this in found:
            continue
        found.append(this)
        queue += [this.__cause__, this.__context__, getattr(this, "reason", None), *this.args]
    return found


def address(host):
    """``127.0.0.1 port 6443`` of a server's URL; the URL as it is when it is none."""
    try:
        url = urlsplit(host or "")
        port = url.port or PORTS.get(url.scheme)
    except ValueError:
        return str(host)
    return f"{url.hostname} port {port}" if url.hostname and port else str(host)


def certificate_text(errors, host):
    """What is wrong with the server's certificate; None when it is not the trouble."""
    broken = next((e for e in errors if isinstance(e, ssl.SSLError)), None)
    if broken is None:
        return None
    if not isinstance(broken, ssl.SSLCertVerificationError):
        reason = getattr(broken, "reason", None) or str(broken)
        advice = " Is the URL of the server https, and the port right?" if "WRONG_VERSION" in str(reason) else ""
        return f"no TLS connection with {address(host)}: {reason}.{advice}"
    why = broken.verify_message or str(broken)
    low = why.lower()
    if "expired" in low or "not yet valid" in low:
        advice = "Renew the certificate of the server, or correct the clock of this machine."
    elif "mismatch" in low or "not valid for" in low or "doesn't match" in low:
        advice = "Use an address of the server that its certificate names, or set tls-server-name in the kubeconfig."
    else:
        advice = "Give the cluster's authority: certificate-authority-data in the kubeconfig, or ca_cert (K8S_AUTH_SSL_CA_CERT)."
    return f"the certificate of {address(host)} is not accepted: {why}. {advice}"


def silence_text(errors, host):
    """What stands between us and a server that gave no answer."""
    where = address(host)
    for error in errors:
        if isinstance(error, socket.gaierror):
            return f"the name of {where} cannot be resolved ({error.strerror or error})"
        if isinstance(error, ConnectionRefusedError):
            return f"{where} refuses the connection: no server listens there"
        if isinstance(error, (ConnectionResetError, BrokenPipeError)):
            return f"{where} ended the connection before it had answered"
    for error in errors:
        name = type(error).__name__
        if name == "ConnectTimeoutError":
            return f"{where} did not take the connection in time: a firewall, a wrong address, or a server that is down"
        if name in ("ReadTimeoutError", "TimeoutError", "timeout"):
            return f"{where} took the connection and did not answer in time"
        if name == "ProxyError":
            return f"the proxy in front of {where} does not answer"
        if name in ("RemoteDisconnected", "ProtocolError", "IncompleteRead"):
            return f"{where} ended the connection before it had answered"
        if isinstance(error, OSError) and error.errno:
            return f"{where} cannot be reached: {error.strerror or error}"
    return f"{where} does not answer: {errors[-1] if errors else 'unknown'}"


def connection_text(error, host):
    """(what is wrong, whether trying again is of no use) of an error below HTTP."""
    errors = chain(error)
    certificate = certificate_text(errors, host)
    if certificate:
        return certificate, True
    return silence_text(errors, host), False


def source_text(params):
    """Where the connection comes from: ``context prod of kubeconfig /home/ann/.kube/config``.

    params: a module's, of which kubeconfig, context, host and api_key count, then the environment of kubernetes.core.
    """

    def given(name):
        value = params.get(name)
        return value if value else os.environ.get(f"K8S_AUTH_{name.upper()}")

    if given("host") and (given("api_key") or given("username") or given("client_cert")):
        return "the host and credentials of the task or of K8S_AUTH_HOST and K8S_AUTH_API_KEY"
    config, context = given("kubeconfig"), given("context")
    if not config and not context and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "the service account of the pod that this runs in"
    if isinstance(config, dict):
        return f"context {context or config.get('current-context')} of the kubeconfig in the task"
    path = config or os.environ.get("KUBECONFIG") or "~/.kube/config"
    return f"context {context or _current_context(path)} of kubeconfig {path}"


def _current_context(paths):
    """Of several files the last one that names a context counts, as for the client of kubernetes.core."""
    found = None
    for path in paths.split(os.pathsep):
        try:
            import yaml

            with open(os.path.expanduser(path), "rb") as file:
                config = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            found = config.get("current-context") or found
        except Exception:
            # The file is missing or broken, or yaml is: that is told elsewhere.
            continue
    return found or "(unknown)"


def token_of(configuration):
    """The Authorization header of a client's configuration, or None. Its key is another one since release 36."""
    keys = configuration.api_key or {}
    return keys.get("authorization") or keys.get("BearerToken")


def token_end(header):
    """When the token of an Authorization header ends, in seconds since 1970; None when it does not tell."""
    token = (header or "").rpartition(" ")[2]
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError):
        return None


def unauthorized_text(source, header, now=time.time):
    """Why the server may not know us (HTTP status 401), and what to do.

    source: text of source_text; header: our Authorization header, or None.
    """
    end = token_end(header)
    stamp = None if end is None else datetime.fromtimestamp(end, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    if not header:
        told = "They hold no token; a client certificate may be over, or of an authority that the server does not know"
    elif end is None:
        told = "The token is over, was taken back, or belongs to another cluster"
    elif end <= now():
        told = f"The token ended at {stamp}"
    else:
        told = f"The token would end at {stamp}: its account or Secret was deleted, or it belongs to another cluster"
    return (
        f"The API server does not accept the credentials of {source}. {told}. Get a new one "
        "('kubectl create token', docs/access.md) or log in again."
    )
