# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one command in each of many pods, side by side, over the exec subresource."""

from __future__ import annotations

import ast
import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, urlencode

from ansible_collections.railyard.rdma.plugins.module_utils.cluster import forbidden

STDOUT, STDERR, ERROR = 1, 2, 3


class ExecError(Exception):
    """The command could not be run to its end; the text says why."""


def status_message(text):
    """Why the command failed, from the Status object on the error channel; None for success and for an empty
    channel."""
    if not text:
        return None
    try:
        status = json.loads(text)
    except ValueError:
        return text.strip()[:300]
    if not isinstance(status, dict) or status.get("status") == "Success":
        return None
    return str(status.get("message") or status.get("reason") or status)


def handshake_message(error):
    """The useful part of an exception that the WebSocket handshake raised; a missing right is named."""
    reason = str(getattr(error, "reason", "") or error)
    # websocket-client appends the headers and then the body of the answer, each behind this separator.
    parts = [p.strip() for p in reason.split("-+-+-")]
    message = parts[0]
    body = parts[-1].strip()
    # The body is written as Python writes bytes, quotes and all.
    with contextlib.suppress(ValueError, SyntaxError, KeyError, TypeError):
        body = ast.literal_eval(body) if body.startswith(("b'", 'b"')) else body
        message = f"{message}: {json.loads(body)['message']}"
    return forbidden.explain(message[:500])


def opener(client):
    """Function (pod, namespace, container or None, command, whether it gets standard input, seconds) that opens a
    WebSocket to the exec subresource: a WSClient, made and failing as ``kubernetes.stream`` does it. Threads may share it.

    That needs a CoreV1Api, which brings the models of every kind of the API: more than a second of CPU time, for the sake of
    one address.

    :param client: kubernetes.core's client.
    """
    configuration, defaults = client.configuration, client.client.client.default_headers

    def open_socket(pod, namespace, container, argv, stdin, timeout):
        from kubernetes.stream.ws_client import websocket_call

        # It looks for the name in lower case.
        headers = {name.lower(): value for name, value in defaults.items()}
        for entry in configuration.auth_settings().values():
            if entry["in"] == "header" and entry["value"]:
                headers[entry["key"].lower()] = entry["value"]
        query = [("command", word) for word in argv] + ([("container", container)] if container else [])
        query += [("stdin", "true" if stdin else "false"), ("stdout", "true"), ("stderr", "true"), ("tty", "false")]
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/exec"
        return websocket_call(
            configuration,
            "GET",
            f"{configuration.host.rstrip('/')}{path}?{urlencode(query)}",
            headers=headers,
            _preload_content=False,
            _request_timeout=timeout,
        )

    return open_socket


def run_in_pod(open_socket, namespace, pod, container, argv, timeout):
    """Standard output of the command. Raises ExecError.

    open_socket: of :func:`opener`.
    """
    from kubernetes.client.rest import ApiException

    try:
        socket = open_socket(pod, namespace, container, argv, False, timeout)
    except ApiException as error:
        raise ExecError(f"exec refused: {handshake_message(error)}") from error
    except Exception as error:
        # The WebSocket library and urllib3 raise their own types for every kind of lost connection.
        raise ExecError(f"exec failed: {error}") from error
    try:
        socket.run_forever(timeout=timeout)
        if socket.is_open():
            raise ExecError(f"the probe did not end within {int(timeout)} s")
        output, complaint = socket.read_channel(STDOUT), socket.read_channel(STDERR)
        failure = status_message(socket.read_channel(ERROR))
    except ExecError:
        raise
    except Exception as error:
        raise ExecError(f"the connection to the pod broke: {error}") from error
    finally:
        socket.close()
    if failure and not output:
        raise ExecError(f"{failure}{(f' ({complaint.strip()[:200]})' if complaint else '')}")
    return output


def in_parallel(function, items, threads):
    """[function(item), …] in order, at most ``threads`` at a time."""
    items = list(items)
    if not items:
        return []
    with ThreadPoolExecutor(max_workers=max(1, min(threads, len(items)))) as pool:
        return list(pool.map(function, items))
