# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The environment that a job needs for NCCL and UCX, each variable with the reason for it.

What differs between the pods of a job is left out, with the reason and with a line of shell that finds it in each pod.
Meaning of the variables: NCCL user guide, "Environment Variables", and UCX (ucx_info -cf).
"""

from __future__ import annotations

import re
import shlex

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Decided here from what the pods have, so a value of the catalogue (host network) does not count.
FROM_PODS = (
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_TC",
    "UCX_NET_DEVICES",
    "UCX_IB_GID_INDEX",
    "UCX_IB_TRAFFIC_CLASS",
)
POD_INTERFACE = "eth0"  # the pod network's interface: the first one that the container runtime makes
DEVICES_IN_POD = (
    "# in each pod, where the rails are moved VFs or PFs:",
    'export NCCL_IB_HCA="=$(basename -a /sys/class/net/net*/device/infiniband/* | paste -sd, -)"',
)


def _devices(pod: dict) -> list[str]:
    return [rail["device"] for rail in pod["rails"] if rail["device"]]


def _indexes(pods: list[dict]) -> dict[int, list[str]]:
    """{GID index: [pods that have a rail with it]}."""
    found: dict[int, list[str]] = {}
    for pod in pods:
        for rail in pod["rails"]:
            names = found.setdefault(rail["gid_index"], [])
            if pod["pod"] not in names:
                names.append(pod["pod"])
    return found


def fixed(layout: dict, shape: dict | None, extra: dict | None = None) -> list[dict]:
    """``[{name, value, reason}]`` that holds for every pod of a layout, before any pod has been looked at.

    :param shape: entry of the shape catalogue, None without one; its ``nccl`` values are those of host network.
    :param extra: variables of the user; they win.
    """
    rows: dict[str, dict] = {}

    def put(name, value, reason):
        rows[name] = {"name": name, "value": str(value), "reason": reason}

    for name, value in ((shape or {}).get("nccl") or {}).items():
        if name not in FROM_PODS:
            put(name, value, f"published for {shape['name']}")
    if layout.get("traffic_class") is not None:
        reason = f"the fabric's class of layout {layout['name']}; a class that a device forces wins over it"
        put("NCCL_IB_TC", layout["traffic_class"], reason)
        put("UCX_IB_TRAFFIC_CLASS", layout["traffic_class"], "the same class for UCX")
    if layout["pod"].get("host_network"):
        rows.pop("NCCL_SOCKET_IFNAME", None)
    else:
        put("NCCL_SOCKET_IFNAME", POD_INTERFACE, "the start of a job goes over the pod network, not over a rail")
    for name, value in sorted((extra or {}).items()):
        put(name, value, "given by rdma_nccl_environment")
    return sorted(rows.values(), key=lambda row: row["name"])


def recommend(layout: dict, shape: dict | None, pods: list[dict], extra: dict | None = None) -> dict:
    """What to set for a job whose pods look like these.

    :param pods: ``[{pod, rails: [{device, gid_index}]}]``.
    :param extra: variables of the user. Those that the pods decide are not among the advice: a test may have set them to
        what does not fit.
    :returns: ``{variables: [{name, value, reason}], left_out: [{name, reason}], lines: [shell lines to paste], pod_env:
        [{name, value}]}``.
    """
    own = {name: value for name, value in (extra or {}).items() if name not in FROM_PODS}
    rows = {row["name"]: row for row in fixed(layout, shape, own)}
    left: dict[str, str] = {}
    known = [pod for pod in pods if pod["rails"]]

    def put(names, values, reasons, why_not):
        for name, value, reason in zip(names, values, reasons):
            if name in rows:
                continue
            if why_not:
                left[name] = why_not
            else:
                rows[name] = {"name": name, "value": value, "reason": reason}

    lists = {tuple(sorted(_devices(pod))): pod["pod"] for pod in reversed(known)}
    devices = _devices(known[0]) if known else []
    if not known:
        why = "no pod told which devices it has"
    elif len(lists) > 1:
        (first, one), (second, other) = list(lists.items())[-1:] + list(lists.items())[:1]
        why = f"the devices differ: {one} has {','.join(first)}, {other} has {','.join(second)}; find them in each pod"
    else:
        why = ""
    exact = "the value starts with '=', so it is an exact match: mlx5_1 alone would also take mlx5_18"
    ports = ",".join(f"{name}:1" for name in devices)
    names = ("NCCL_IB_HCA", "UCX_NET_DEVICES")
    put(names, ("=" + ",".join(devices), ports), (exact, "the same devices for UCX, each with its port"), why)
    indexes = _indexes(known)
    index = next(iter(indexes), None)
    if not known:
        why = "no pod told its GID indexes"
    elif len(indexes) > 1:
        where = "; ".join(f"{number} in {', '.join(names)}" for number, names in sorted(indexes.items()))
        why = f"one index does not fit the job ({where}); NCCL since 2.21 finds a RoCE v2 row by itself, else set it in each pod"
    else:
        why = ""
    reason = f"every rail of all {len(known)} pods has its routed RoCE v2 address there"
    put(("NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX"), (str(index),) * 2, (reason, reason), why)
    if layout.get("traffic_class") is None:
        put(("NCCL_IB_TC",), ("",), ("",), "the layout has no traffic class (rails_traffic_class)")
    variables = sorted(rows.values(), key=lambda row: row["name"])
    return {
        "variables": variables,
        "left_out": [{"name": name, "reason": reason} for name, reason in sorted(left.items())],
        "lines": shell_lines(variables, left),
        "pod_env": [{"name": row["name"], "value": row["value"]} for row in variables],
    }


def shell_lines(variables: list[dict], left: dict[str, str]) -> list[str]:
    """Lines for a shell, each variable with its reason above it."""
    lines = []
    for row in variables:
        lines += [f"# {_comment(row['reason'])}", f"export {row['name']}={shlex.quote(row['value'])}"]
    lines += [f"# {name} is not set: {_comment(reason)}" for name, reason in sorted(left.items())]
    if "NCCL_IB_HCA" in left and "differ" in left["NCCL_IB_HCA"]:
        lines += DEVICES_IN_POD
    return lines


def _comment(text: str) -> str:
    return " ".join(text.split())


def check_names(variables: dict) -> list[str]:
    """What is wrong with variables of the user, in words."""
    faults = []
    for name, value in variables.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            faults.append(f"rdma_nccl_environment: got the name {name!r}, must be letters, digits and '_'")
        elif isinstance(value, (dict, list)) or value is None or set(str(value)) & set("\n\0;"):
            # mpirun takes ';' for the end of a variable (mca_base_env_list).
            faults.append(f"rdma_nccl_environment.{name}: got {value!r}, must be one line of text without ';'")
    return faults
