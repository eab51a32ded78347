# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What installing or upgrading the operator changes, from what the module operator_prepare says in check mode."""

from __future__ import annotations

from ansible_collections.railyard.rdma.plugins.module_utils.cluster.field_diff import field_diff

DAEMON = "sriov-network-operator"
# Values that end up in the config daemon's pods: a change of one of them restarts all config daemons.
DAEMON_VALUES = (
    "sriovOperatorConfig.disablePlugins",
    "sriovOperatorConfig.configDaemonNodeSelector",
    "images.",
    "operator.resourcePrefix",
)
ROLLS = "the config daemons restart, a third of the nodes at a time; pods keep their VFs"


def operator_change(prepared, failure=None, refused=False):
    """``{action, reason, version, values, crds, effects, stops, restarts}``.

    action is install, upgrade, none or unknown; version ``{before, after}`` of the chart; values the fields that differ;
    restarts says why config daemons restart, None when they do not.

    :param prepared: result of operator_prepare, None when it failed.
    :param failure: why it failed.
    :param refused: whether a right was missing (403): the action is unknown then. Everything else stops site.yml.
    """
    if prepared is None:
        row = {
            "action": "unknown",
            "reason": failure or "it was not looked at",
            "version": {"before": None, "after": None},
        }
        row |= {"values": [], "crds": [], "effects": [], "restarts": None, "disable_drain": None, "prefix": None}
        return {**row, "disable_plugins": None, "stops": [failure] if failure is not None and not refused else []}
    deployed = (prepared.get("release") or {}).get("deployed")
    before, after = (deployed or {}).get("values") or {}, prepared["chart_values"]
    row = {
        "action": prepared["action"],
        "reason": "Helm keeps its records elsewhere (HELM_DRIVER)" if prepared["action"] == "unknown" else None,
        "version": {"before": (deployed or {}).get("chart_version"), "after": prepared["chart"]["version"]},
        "values": field_diff(before, after) if prepared["action"] in ("install", "upgrade") else [],
        "crds": [crd for crd in prepared.get("crds") or [] if crd["action"] != "none"],
        "stops": [],
    }
    row["restarts"] = _restarts(row)
    return {**row, "effects": _effects(row), **settings(after)}


def settings(values):
    """What of the chart's values decides about drains: ``{disable_drain, disable_plugins, prefix}``."""
    section = _mapping(_mapping(values).get(DAEMON))
    config = _mapping(section.get("sriovOperatorConfig"))
    return {
        "disable_drain": bool(config.get("disableDrain")),
        "disable_plugins": list(config.get("disablePlugins") or []),
        "prefix": _mapping(section.get("operator")).get("resourcePrefix"),
    }


def _mapping(value):
    return value if isinstance(value, dict) else {}


def _restarts(row):
    if row["action"] != "upgrade":
        return None
    if row["version"]["before"] != row["version"]["after"]:
        return "the operator is upgraded"
    for field in row["values"]:
        if any(field["path"].startswith(f"{DAEMON}.{part}") for part in DAEMON_VALUES):
            return f"the chart's value {field['path']} changes"
    return None


def _effects(row):
    if row["action"] == "install":
        return [
            "the operator, its kinds and the config daemons come; nodes get their VFs with the policies, not before"
        ]
    if row["action"] != "upgrade":
        return []
    found = []
    if row["restarts"]:
        found.append(f"{row['restarts']}: {ROLLS}")
    if any("mellanox" in str(field["before"]) for field in row["values"] if field["path"].endswith("disablePlugins")):
        found.append("the mellanox plugin comes on: it changes the firmware's number of VFs and reboots nodes")
    if row["version"]["before"] != row["version"]["after"]:
        found.append("device plugins restart with their new image: a node offers no VFs for some seconds")
    return found or ["the operator's own pods restart; nodes and pods notice nothing"]
