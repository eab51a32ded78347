# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge values for a chart by the chart itself: the vendor's has no schema, so Helm takes any typo without a word.

Pure functions; a mistake is one sentence with what, got, allowed and remedy.
"""

from __future__ import annotations

import difflib

# Maps whose keys are the user's: whatever the chart's defaults hold there are only examples.
FREE = frozenset(
    (
        "affinity",
        "annotations",
        "configDaemonEnvVars",
        "configDaemonNodeSelector",
        "config",
        "env",
        "extraEnv",
        "featureGates",
        "labels",
        "limits",
        "matchLabels",
        "nodeSelector",
        "podAnnotations",
        "podLabels",
        "podSecurityContext",
        "requests",
        "resources",
        "securityContext",
        "updateStrategy",
    )
)
PULL_SECRETS = "imagePullSecrets"
# Sub-charts that paste their list as it is, so that it must hold what a pod wants.
TAKE_OBJECTS = ("node-feature-discovery", "maintenance-operator-chart")
# Helm reads this one at every level itself.
GLOBAL = "global"
# Settings that have a variable of their own: two places for one decision would contradict each other.
OWN_VARIABLES = {
    ("nfd", "enabled"): "network_operator_nfd_enabled",
    ("sriovNetworkOperator", "enabled"): "rails_network (the SR-IOV operator is on when a layout uses VFs)",
    ("sriov-network-operator", "sriovOperatorConfig", "deploy"): "rails_network (it is on when a layout uses VFs)",
    ("sriov-network-operator", "sriovOperatorConfig", "disableDrain"): "network_operator_disable_drain",
    (
        "sriov-network-operator",
        "sriovOperatorConfig",
        "configurationMode",
    ): "nothing: only the daemon mode is supported, since the systemd mode drains and reboots a node for every change",
    (
        "sriov-network-operator",
        "sriovOperatorConfig",
        "disablePlugins",
    ): "nothing: the mellanox plugin must be off, since "
    "it changes the firmware's number of VFs and reboots every node for it",
    ("sriov-network-operator", "operator", "resourcePrefix"): "rails_resource_prefix",
}
NAME = "network_operator_values"


def dotted(path):
    return ".".join(map(str, path))


def at(values, path):
    """The value at a path, None when there is none."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def leaves(values, path=()):
    """(path, value) of every leaf; an empty map is a leaf."""
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, (*path, key))
    else:
        yield path, values


def contradictions(values, decided):
    """Mistakes of user values that set something which has a variable of its own, to another value than decided."""
    found = []
    for path, variable in OWN_VARIABLES.items():
        own, ours = at(values, path), at(decided, path)
        if own is not None and own != ours and not (ours is None and variable.startswith("nothing")):
            found.append(f"{NAME}: {dotted(path)} is {own!r}, the role sets {ours!r}; use {variable}")
    return found


def mistakes(values, chart):
    """What is wrong with user values for a chart (as chart.read returns it)."""
    found = []
    if not isinstance(values, dict):
        return [f"{NAME}: got {type(values).__name__}, expected a mapping"]
    paths = {path for path, _value in leaves(chart["values"])} | set(chart["references"])
    _look(values, chart["values"], (), paths, found)
    return found


def _look(values, defaults, path, paths, found):
    for key, value in values.items():
        here = (*path, key)
        if not isinstance(key, str):
            found.append(f"{NAME}: key {key!r} in {dotted(path) or 'the top level'} is no text; quote it")
            continue
        _pull_secrets(key, value, here, found)
        if any("selector" in part.lower() for part in here) and _nulls(value):
            found.append(
                f"{NAME}: {dotted(here)} is null. Helm renders the text %!s(<nil>) for it as a label's value, and the "
                "selector then matches no node; keys of a selector can only be added or changed"
            )
            continue
        if key == GLOBAL:
            continue
        if key not in defaults and not any(known[: len(here)] == here for known in paths):
            found.append(f"{NAME}: the chart has no value {dotted(here)}{_near(key, path, defaults, paths)}")
            continue
        default = defaults.get(key)
        if value is None or default is None:
            continue
        if isinstance(default, dict):
            if not isinstance(value, dict):
                found.append(f"{NAME}: {dotted(here)} is {value!r}, expected a mapping")
            elif default and key not in FREE and "selector" not in key.lower():
                _look(value, default, here, paths, found)
            else:
                _nested_selectors(value, here, found)
        elif isinstance(default, list) and not isinstance(value, list):
            found.append(f"{NAME}: {dotted(here)} is {value!r}, expected a list")
        elif isinstance(default, bool) and not isinstance(value, bool):
            # A template takes every text but the empty one for true, "false" included.
            found.append(f"{NAME}: {dotted(here)} is {value!r}, expected true or false without quotes")
        elif not isinstance(default, (dict, list)) and isinstance(value, (dict, list)):
            found.append(f"{NAME}: {dotted(here)} is a {type(value).__name__}, expected a single value")


def _pull_secrets(key, value, here, found):
    if key != PULL_SECRETS or not isinstance(value, list):
        return
    if here[0] in TAKE_OBJECTS:
        bad = [item for item in value if not isinstance(item, dict) or not isinstance(item.get("name"), str)]
        why = "it takes objects {name: …}, other than the rest of the chart"
    else:
        bad = [item for item in value if not isinstance(item, str) or not item]
        why = "it takes plain names of secrets (the chart would nest an object into another name)"
    if bad:
        found.append(f"{NAME}: {dotted(here)} holds {bad[0]!r}; {why}")


def _nulls(value):
    if isinstance(value, dict):
        return any(_nulls(item) for item in value.values())
    return value is None


def _nested_selectors(value, here, found):
    for path, leaf in leaves(value):
        if leaf is None and any("selector" in str(part).lower() for part in path):
            found.append(f"{NAME}: {dotted((*here, *path))} is null; a selector's keys can only be added or changed")


def _near(key, path, defaults, paths):
    """`` (did you mean …?)`` where there is something like it: beside it, or of the same name somewhere else."""
    beside = {known[len(path)] for known in paths if known[: len(path)] == path and len(known) > len(path)}
    close = difflib.get_close_matches(key, sorted(beside | set(map(str, defaults))), 1, 0.6)
    if close:
        return f"; did you mean {dotted((*path, close[0]))}?"
    elsewhere = sorted({known[: known.index(key) + 1] for known in paths if key in known}, key=len)
    if elsewhere:
        return f"; did you mean {dotted(elsewhere[0])}?"
    return f"; it knows {', '.join(sorted(map(str, beside | set(defaults)))[:12]) or 'nothing'} there"
