# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CustomResourceDefinitions before an upgrade: Helm installs the crds/ folders once and never again, and it looks up
every kind of a release before the chart's own hook could bring a new one (Mellanox/network-operator#833). Before an
installation Helm 4 applies the kinds with its own field manager, and fails with a conflict at one that is there with other
versions, from an earlier installation or from somebody else.

Pure comparison; the module does the requests.
"""

from __future__ import annotations


def holds(live, wanted):
    """Whether everything of ``wanted`` is in ``live`` with the same value; the server may have added defaults."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            key in live and holds(live[key], value) for key, value in wanted.items() if value is not None
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(holds, live, wanted))
    return live == wanted


def same(live, wanted):
    """Whether a live CRD has the chart's content. preserveUnknownFields false is the default and is not stored."""
    spec = {key: value for key, value in wanted["spec"].items() if not (key == "preserveUnknownFields" and not value)}
    have = live.get("spec") or {}
    # The list of versions is one field: what is in it besides is a conflict, too.
    return holds(have, spec) and holds(spec.get("versions"), have.get("versions"))


def lost_versions(live, wanted):
    """Versions in which objects are stored and which the chart's CRD no longer has; the server refuses such a change."""
    stored = (live.get("status") or {}).get("storedVersions") or []
    kept = {row.get("name") for row in wanted["spec"].get("versions") or []}
    return [version for version in stored if version not in kept]


def plan(wanted, live, create=True):
    """(``[{name, action, document}]`` with action create, update or none; mistakes).

    :param wanted: CRDs of the chart, ``[{name, document}]``.
    :param live: {name: CustomResourceDefinition or None}.
    :param create: whether those that are absent are created; before an installation Helm does that.
    """
    rows, mistakes = [], []
    for row in wanted:
        there = live.get(row["name"])
        if there is None:
            if not create:
                continue
            rows.append({"name": row["name"], "action": "create", "document": row["document"]})
            continue
        lost = lost_versions(there, row["document"])
        if lost:
            mistakes.append(
                f"CustomResourceDefinition {row['name']} stores objects as {', '.join(lost)}, which the chart's no longer has; "
                "migrate the objects first, or install the version of the chart that brought it"
            )
        action = "none" if same(there, row["document"]) else "update"
        rows.append({"name": row["name"], "action": action, "document": row["document"]})
    return rows, mistakes
