# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Test pods: one for each node, or two for jobs that take half of a node, with what a pod needs to get its rails."""

from __future__ import annotations

import hashlib
import re

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.selection import node_of
from ansible_collections.railyard.rdma.plugins.module_utils.cluster.test_pods import HOST_LABEL, LABEL, host_mark

PREFIX = "railyard-verify"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
# A pod with a longer name than this cannot have it as its host name.
LONGEST_NAME = 63
PARTS = "abcdefghijklmnop"
# Seconds after which Kubernetes ends a test pod by itself, should nobody ever remove it.
DEADLINE = 3600
DEFAULTS = {
    "command": ("sleep", "3600"),
    "tolerations": (),
    "ipc_lock": False,
    "prefix": PREFIX,
    "pods_per_node": 1,
    "extra_resources": {},
    "priority_class": "",
    "pull_secrets": (),
    "namespace": "",
    "run_as_user": 0,
    "deadline": DEADLINE,
}


def pod_name(host: str, prefix: str = PREFIX, part: str = "") -> str:
    """Name of a test pod of a host: a DNS label that stays the same from run to run and differs between hosts.

    :param part: ``a``, ``b``, … where a host has several test pods.
    """
    wanted = f"{prefix}-{host}{'-' * bool(part)}{part}"
    name = re.sub(r"[^a-z0-9-]+", "-", wanted.lower()).strip("-")
    if len(name) <= LONGEST_NAME and name == wanted:
        return name
    # Names that had to be changed get a mark, so that two hosts cannot end up with one pod.
    mark = hashlib.sha256(f"{host}/{part}".encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9].rstrip('-')}-{mark}"


def shares(layout: dict, parts: int) -> list[dict]:
    """What each of ``parts`` pods of one node asks for: ``[{rails, count, resources, networks}]``.

    Where every resource has enough devices each pod gets all rails. Else the rails are divided, in rail order. With one
    resource for several rails nobody can say which rails a pod will get: ``rails`` is None then, and ``count`` says how
    many.

    :raises ValueError: there are fewer rails than pods.
    """
    rails, wants = layout["rails"], layout["pod"]
    named = wants["annotations"].get(NETWORKS, "")
    every = {
        "rails": [rail["rail"] for rail in rails],
        "count": len(rails),
        "resources": dict(wants["resources"]),
        "networks": [name for name in named.split(",") if name],
    }
    enough = all(row["count"] >= parts * len(row["rails"]) for row in layout["resources"])
    if parts == 1 or enough or wants.get("host_network"):
        return [every] * parts
    if len(rails) < parts:
        raise ValueError(f"pods_per_node: got {parts}, but layout {layout['name']} has {len(rails)} rails to divide")
    made = []
    for part in range(parts):
        own = rails[len(rails) * part // parts : len(rails) * (part + 1) // parts]
        numbers = [rail["rail"] for rail in own]
        counts = {row["full_name"]: len(set(numbers) & set(row["rails"])) for row in layout["resources"]}
        told = all(len(row["rails"]) == 1 for row in layout["resources"])
        made.append(
            {
                "rails": numbers if told else None,
                "count": len(own),
                "resources": {name: str(count) for name, count in counts.items() if count},
                "networks": [rail["network"] for rail in own] if every["networks"] else [],
            }
        )
    return made


def container(share: dict, options: dict) -> dict:
    """The container of a test pod: no privileges, and of the capabilities only IPC_LOCK where it is asked for."""
    resources = {**share["resources"], **{name: str(count) for name, count in options["extra_resources"].items()}}
    security: dict = {"allowPrivilegeEscalation": False, "seccompProfile": {"type": "RuntimeDefault"}}
    capabilities: dict = {"drop": ["ALL"]}
    if options["ipc_lock"]:
        capabilities["add"] = ["IPC_LOCK"]
    security["capabilities"] = capabilities
    if options["run_as_user"]:
        security.update(runAsNonRoot=True, runAsUser=options["run_as_user"])
    return {
        "name": "probe",
        "image": options["image"],
        "command": list(options["command"]),
        "resources": {"requests": resources, "limits": resources},
        "securityContext": security,
    }


def pod(host: str, layout: dict, node: str | None, options: dict, share: dict | None = None, part: str = "") -> dict:
    """A test pod of one host.

    :param node: name of the Kubernetes node; None when no node was found, then the pod asks for the host's name and
        stays Pending with the scheduler's reason.
    :param options: see :func:`pods`.
    :param share: an entry of :func:`shares`; all rails when not given.

    The pod is bound by its affinity, not by nodeName: the scheduler must agree that the node offers the devices.
    """
    options = {**DEFAULTS, **options}
    share = share or shares(layout, 1)[0]
    home = layout["pod"].get("namespace") or layout["namespaces"]["networks"]
    namespace = options["namespace"] or home
    networks = share["networks"] if namespace == home else [f"{home}/{name}" for name in share["networks"]]
    metadata = {
        "name": pod_name(host, options["prefix"], part),
        "namespace": namespace,
        "labels": {LABEL: options["prefix"], HOST_LABEL: host_mark(host)},
        "annotations": {**layout["pod"].get("annotations", {}), **({NETWORKS: ",".join(networks)} if networks else {})},
    }
    field = {"key": "metadata.name", "operator": "In", "values": [node or host]}
    spec = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": options["deadline"],
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "tolerations": list(options["tolerations"]),
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}
            }
        },
        "containers": [container(share, options)],
    }
    if options["priority_class"]:
        spec["priorityClassName"] = options["priority_class"]
    if options["pull_secrets"]:
        spec["imagePullSecrets"] = [{"name": name} for name in options["pull_secrets"]]
    if layout["pod"].get("host_network"):
        spec["hostNetwork"] = True
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pods(model: dict, nodes: list[dict], addresses: dict[str, str], options: dict) -> list[dict]:
    """``[{host, node, part, rails, count, pod}]`` for every host of the model, ``part`` being empty where a host has
    one pod. ``rails`` are the rails that the pod asked for (None: any ``count`` of them).

    :param options: ``{image, command, tolerations, ipc_lock, prefix, pods_per_node, extra_resources, priority_class,
        pull_secrets, namespace, run_as_user, deadline}``; all but the image have defaults. ``namespace`` is empty for
        the networks' own one. ``extra_resources`` is ``{name: count}`` a pod, for GPUs. ``deadline`` is in seconds.
    :raises ValueError: an option is wrong; the text names it.
    """
    options = {**DEFAULTS, **options}
    check(options)
    parts, made = options["pods_per_node"], []
    for layout in model["layouts"]:
        wanted = shares(layout, parts)
        for host in layout["hosts"]:
            node = node_of(host, addresses.get(host), nodes)
            name = (node or {}).get("metadata", {}).get("name")
            for place, share in enumerate(wanted):
                part = PARTS[place] if parts > 1 else ""
                found = pod(host, layout, name, options, share, part)
                told = {"rails": share["rails"], "count": share["count"]}
                made.append({"host": host, "node": name, "part": part, **told, "pod": found})
    return made


def check(options: dict) -> None:
    """Refuse options that would only fail later, in the API.

    :raises ValueError: with the name, what it got and what is allowed.
    """
    unknown = set(options) - set(DEFAULTS) - {"image"}
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: no such option of a test pod")
    parts, deadline, user = (options[key] for key in ("pods_per_node", "deadline", "run_as_user"))
    if not isinstance(options.get("image"), str) or not options["image"].strip():
        raise ValueError(f"image: got {options.get('image')!r}, must be the name of an image")
    if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= len(PARTS):
        raise ValueError(f"pods_per_node: got {parts!r}, must be a number from 1 to {len(PARTS)}")
    if isinstance(deadline, bool) or not isinstance(deadline, int) or deadline < 1:
        raise ValueError(f"deadline: got {deadline!r}, must be seconds")
    if isinstance(user, bool) or not isinstance(user, int) or user < 0:
        raise ValueError(f"run_as_user: got {user!r}, must be a user id, 0 for the image's own user")
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?", options["prefix"]):
        raise ValueError(f"prefix: got {options['prefix']!r}, must be up to 30 of a-z, 0-9 and '-'")
    if not isinstance(options["command"], (list, tuple)) or not options["command"]:
        raise ValueError(f"command: got {options['command']!r}, must be a list that keeps the pod running")
    for name, count in options["extra_resources"].items():
        if not re.fullmatch(r"[1-9][0-9]*", str(count)):
            raise ValueError(f"extra_resources: got {count!r} of {name}, must be a number from 1")
