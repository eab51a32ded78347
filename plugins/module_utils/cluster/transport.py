# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests to the API server over urllib3 alone, for what settings.py reads. The client of kubernetes.core does the
same with its generated models, which take longer to import than our modules work."""

from __future__ import annotations

import json
import os
import ssl
import tempfile
from urllib.parse import quote, urlencode

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import trouble
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.api import (
    NO_ANSWER,
    ApiError,
    decoded,
    error_from_body,
)

USER_AGENT = "railyard.rdma"


def _own_certificate(context, cert, key):
    """Load a client certificate; ssl takes it from a file only, which is readable for us alone and gone afterwards."""
    fd, name = tempfile.mkstemp(prefix="railyard-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(cert + b"\n" + key)
        context.load_cert_chain(name)
    finally:
        os.unlink(name)


def tls_context(settings):
    """SSLContext as urllib3 makes it for the client of kubernetes.core.

    :raises ssl.SSLError, ValueError: when certificate or key are none.
    """
    from urllib3.util.ssl_ import create_urllib3_context

    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if settings.verify else ssl.CERT_NONE)
    if settings.ca is not None:
        context.load_verify_locations(cadata=settings.ca.decode())
    elif settings.verify:
        context.load_default_certs()
    if settings.cert is not None:
        _own_certificate(context, settings.cert, settings.key)
    return context


def plain_transport(settings, timeout):
    """Transport (see api.Api) for Settings.

    timeout: function that gives (seconds to connect, seconds to answer).
    Raises ssl.SSLError or ValueError when a certificate cannot be read.
    """
    import urllib3

    urllib3.disable_warnings()  # Whoever sets insecure-skip-tls-verify knows it.
    more = {}
    if settings.host.startswith("https"):
        more["ssl_context"] = tls_context(settings)
        more["cert_reqs"] = "CERT_REQUIRED" if settings.verify else "CERT_NONE"
        if settings.server_name:
            more["server_hostname"] = settings.server_name
    pool = urllib3.PoolManager(**more)
    # Retries are ours: those of urllib3 are silent, and hide how long a server is away. Redirects are followed.
    once = urllib3.util.Retry(
        total=None, connect=0, read=0, other=0, status=0, respect_retry_after_header=False, raise_on_status=False
    )
    common = {"Accept": "application/json", "User-Agent": USER_AGENT}
    if settings.authorization:
        common["Authorization"] = settings.authorization

    def send(method, path, query, body, content_type):
        url = settings.host + path + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        connect, read = timeout()
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        try:
            answer = pool.request(
                method,
                url,
                body=body.encode() if isinstance(body, str) else body,
                headers={**common, "Content-Type": content_type},
                retries=once,
                timeout=urllib3.Timeout(connect=connect, read=read),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            text, hopeless = trouble.connection_text(error, settings.host)
            text += f" The connection is that of {settings.source}." if hopeless else ""
            raise ApiError(0, f"{NO_ANSWER}: {text}", hopeless=hopeless) from error
        if not 200 <= answer.status <= 299:
            found = error_from_body(answer.status, answer.data, answer.reason or "", answer.headers)
            if found.status == 401:
                found.message = trouble.unauthorized_text(settings.source, settings.authorization)
            raise found
        return decoded(answer)

    return send
