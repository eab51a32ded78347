# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the API server: `python -m rehearsal.apiserver --state DIR [--crds DIR] [--port N]`.

Writes DIR/kubeconfig when requests are served, and DIR/logs/apiserver.jsonl with one line a request. Ends on SIGTERM.
The kubeconfig has two contexts: `rehearsal` by the secret URL, where everything is allowed, and `guarded` by TLS with the
administrator's token, where accounts come in with theirs and RBAC decides.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import secrets
import signal
import ssl
import sys
from pathlib import Path

import yaml
from aiohttp import web

from . import certificates
from .server import build, build_guarded


def kubeconfig(url: str, guarded: str = "", certificate: str = "", token: str = "") -> dict:
    """A kubeconfig for a server whose URL is the secret, and for its guarded door.

    :param guarded: URL of the guarded door; :param certificate: PEM of its authority; :param token: the administrator's.
    """
    clusters, users = {"rehearsal": {"server": url}}, {"rehearsal": {}}
    if guarded:
        authority = base64.b64encode(certificate.encode()).decode()
        clusters["guarded"] = {"server": guarded, "certificate-authority-data": authority}
        users["guarded"] = {"token": token}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster} for name, cluster in clusters.items()],
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}} for name in clusters
        ],
        "current-context": "rehearsal",
    }


async def _listen(app: web.Application, port: int = 0, tls: ssl.SSLContext | None = None) -> tuple[web.AppRunner, int]:
    """Serve an application on 127.0.0.1; its runner and port."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    return runner, runner.addresses[0][1]


async def serve(state: Path, crds: Path | None, port: int) -> None:
    state.mkdir(parents=True, exist_ok=True)
    # Whoever can use the API can run commands as root in the nodes; other users of this machine reach its loopback too.
    prefix = f"/{secrets.token_urlsafe(24)}"
    token = secrets.token_urlsafe(24)
    certificate, key = certificates.self_signed()
    app = build(crds, state / "logs" / "apiserver.jsonl", prefix, state / "kubelet-token", token, certificate)
    guarded, guarded_port = await _listen(build_guarded(app), tls=certificates.context(certificate, key))
    front = web.Application()
    front.add_subapp(prefix, app)
    runner, port = await _listen(front, port)
    config = kubeconfig(f"http://127.0.0.1:{port}{prefix}", f"https://127.0.0.1:{guarded_port}", certificate, token)
    draft = state / f".kubeconfig.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        yaml.safe_dump(config, out, sort_keys=False)
    draft.replace(state / "kubeconfig")
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    await stop.wait()
    await runner.cleanup()
    await guarded.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rehearsal.apiserver", description=__doc__.splitlines()[0])
    parser.add_argument("--state", type=Path, required=True, help="folder for kubeconfig and logs")
    parser.add_argument(
        "--crds", type=Path, help="folder of CRD files whose schemas replace those of CRDs with the same name"
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    options = parser.parse_args()
    if options.crds and not options.crds.is_dir():
        parser.error(
            f"--crds: {options.crds} is not a folder; give a folder of CustomResourceDefinition files or leave it out"
        )
    try:
        asyncio.run(serve(options.state, options.crds, options.port))
    except OSError as error:
        print(f"apiserver: cannot listen on 127.0.0.1:{options.port}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
