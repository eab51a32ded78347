# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real etcd and kube-apiserver from the folder that KUBEBUILDER_ASSETS names (the convention of controller-runtime's
envtest).

Flags follow the kube-apiserver reference (kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver).
No controller manager runs, so admission that waits for default service accounts is off, and the service endpoints are
not kept.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from rehearsal.fleet.errors import FleetError
from rehearsal.fleet.state import State

PROGRAMS = ("etcd", "kube-apiserver")
SERVICE_RANGE = "10.96.0.0/16"
# The kubelets of a rehearsal are found by name or address of the node's status, in this order.
KUBELET_ADDRESS_TYPES = "ExternalDNS,InternalIP"
CERTIFICATE_SECONDS = 60.0


def free_port() -> int:
    """A TCP port of the loopback interface that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def etcd_command(program: Path, data: Path, client_port: int, peer_port: int) -> list[str]:
    """etcd with its data below STATE; durability is not wanted of a rehearsal."""
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        str(program),
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]


def apiserver_command(program: Path, folder: Path, port: int, etcd_port: int) -> list[str]:
    """kube-apiserver on the loopback interface; it makes its own serving certificate in FOLDER (--cert-dir)."""
    return [
        str(program),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=AlwaysAllow",
        "--anonymous-auth=false",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'service-account.pem'}",
        f"--service-account-signing-key-file={folder / 'service-account.pem'}",
        f"--kubelet-preferred-address-types={KUBELET_ADDRESS_TYPES}",
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
    ]


def kubeconfig(port: int, token: str, certificate: Path) -> dict[str, Any]:
    """A kubeconfig with one context; kube-apiserver's own certificate file carries the authority that signed it."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "rehearsal",
                "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(certificate)},
            }
        ],
        "users": [{"name": "rehearsal", "user": {"token": token}}],
        "contexts": [{"name": "rehearsal", "context": {"cluster": "rehearsal", "user": "rehearsal"}}],
        "current-context": "rehearsal",
    }


def start(state: State, assets: Path) -> None:
    """Start both programs, recorded as parts, and write STATE/kubeconfig once the serving certificate is there;
    FleetError otherwise.
    """
    lacking = [name for name in PROGRAMS if not (assets / name).is_file()]
    if lacking:
        raise FleetError(
            f"KUBEBUILDER_ASSETS={assets} lacks {' and '.join(lacking)}: name a folder that holds "
            f"{' and '.join(PROGRAMS)}"
        )
    folder = state.folder / "control-plane"
    folder.mkdir()
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f"{token},rehearsal,rehearsal,system:masters\n", encoding="ascii")
    (folder / "tokens.csv").chmod(0o600)
    key = [
        "ssh-keygen",
        "-q",
        "-t",
        "rsa",
        "-b",
        "2048",
        "-m",
        "PEM",
        "-N",
        "",
        "-f",
        str(folder / "service-account.pem"),
    ]
    subprocess.run(key, check=True, stdin=subprocess.DEVNULL)
    client_port, peer_port, port = free_port(), free_port(), free_port()
    state.spawn("etcd", "api", etcd_command(assets / "etcd", folder / "etcd", client_port, peer_port))
    state.spawn("kube-apiserver", "api", apiserver_command(assets / "kube-apiserver", folder, port, client_port))
    certificate = folder / "apiserver.crt"
    limit = time.monotonic() + CERTIFICATE_SECONDS
    while not certificate.exists():
        for process in state.processes():
            if process.kind == "api" and not process.alive():
                raise FleetError(
                    f"{process.name} ended during the start; the end of its log:\n{state.tail(process.name)}"
                )
        if time.monotonic() > limit:
            raise FleetError(
                f"kube-apiserver made no certificate in {CERTIFICATE_SECONDS:.0f} s:\n{state.tail('kube-apiserver')}"
            )
        time.sleep(0.05)
    (state.folder / "kubeconfig").write_text(
        json.dumps(kubeconfig(port, token, certificate), indent=1) + "\n", encoding="utf-8"
    )
    (state.folder / "kubeconfig").chmod(0o600)


def request(
    state: State,
    path: str,
    body: dict[str, Any] | None = None,
    timeout: float = 2.0,
    method: str | None = None,
    content: str = "application/json",
) -> tuple[int, bytes]:
    """GET (or POST of ``body``, unless another method is given) to the server that STATE/kubeconfig names; (HTTP
    status, body). OSError when it does not answer, ValueError when the kubeconfig is none.
    """
    config = yaml.safe_load((state.folder / "kubeconfig").read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError("kubeconfig holds no configuration")
    cluster, user = config["clusters"][0]["cluster"], config["users"][0].get("user") or {}
    headers = {"Accept": "application/json", "Content-Type": content}
    if user.get("token"):
        headers["Authorization"] = f"Bearer {user['token']}"
    data = None if body is None else json.dumps(body).encode()
    context = None
    if cluster["server"].startswith("https:"):
        context = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
    message = urllib.request.Request(cluster["server"] + path, data=data, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(message, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def ready(state: State) -> bool:
    """Whether /readyz answers 200."""
    try:
        return request(state, "/readyz")[0] == 200
    except (OSError, ValueError):  # not listening yet, or kubeconfig half way
        return False


def apply_crds(state: State, folder: Path) -> None:
    """Create the CustomResourceDefinitions of a folder; those that exist stay. FleetError names the file that was
    refused.
    """
    for path in sorted(folder.glob("*.y*ml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if not document or document.get("kind") != "CustomResourceDefinition":
                continue
            code, answer = request(
                state, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document, timeout=15.0
            )
            if code not in (200, 201, 409):
                raise FleetError(f"CRD {path} was refused with {code}: {answer.decode(errors='replace')[:400]}")
