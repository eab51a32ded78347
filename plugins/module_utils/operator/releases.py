# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Helm knows about a release: its records are Secrets of the type helm.sh/release.v1 in the release's namespace.

A record is base64 of gzip of JSON; the Secret encodes it once more (Helm, pkg/storage/driver). Reading them takes one
request and no Helm process.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib

# Records that a later one has replaced say nothing about now.
SELECTOR = "owner=helm,name={0},status!=superseded"
LARGEST_RECORD = 64 << 20
PENDING = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")


class Unreadable(ValueError):
    """A record is not what Helm writes; the text says why."""


def decode(secret):
    """The release as Helm keeps it, of one Secret. Raises Unreadable."""
    name = (secret.get("metadata") or {}).get("name")
    try:
        packed = base64.b64decode(base64.b64decode((secret.get("data") or {})["release"], validate=True), validate=True)
        if packed[:2] == b"\x1f\x8b":
            inflater = zlib.decompressobj(wbits=31)
            plain = inflater.decompress(packed, LARGEST_RECORD)
            if inflater.unconsumed_tail:
                raise Unreadable(f"Secret {name} holds a record of more than {LARGEST_RECORD >> 20} MiB")
        else:
            plain = packed
        found = json.loads(plain)
    except (KeyError, TypeError, binascii.Error, zlib.error, ValueError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"Secret {name} is no record of Helm: {type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise Unreadable(f"Secret {name} is no record of Helm: it holds {type(found).__name__}")
    return found


def summary(release):
    """``{revision, status, chart, chart_version, app_version, values, updated, description}`` of a decoded record."""
    info, about = release.get("info") or {}, (release.get("chart") or {}).get("metadata") or {}
    return {
        "revision": release.get("version"),
        "status": info.get("status"),
        "chart": about.get("name"),
        "chart_version": about.get("version"),
        "app_version": about.get("appVersion"),
        "values": release.get("config") or {},
        "updated": info.get("last_deployed"),
        "description": info.get("description"),
    }


def state(secrets):
    """``{latest, deployed}`` of the Secrets of one release: summaries or None. Raises Unreadable."""
    rows = sorted((summary(decode(secret)) for secret in secrets), key=lambda row: row["revision"] or 0)
    rows = [row for row in rows if row["status"] != "uninstalled"]
    deployed = [row for row in rows if row["status"] == "deployed"]
    return {"latest": rows[-1] if rows else None, "deployed": deployed[-1] if deployed else None}


def obstacle(found, name, namespace):
    """Why Helm would refuse to touch the release now, with the remedy; None when nothing is in the way."""
    latest = found["latest"]
    if latest is None or latest["status"] not in PENDING:
        return None
    what = (
        f"Release {namespace}/{name} is {latest['status']} (revision {latest['revision']}, since {latest['updated']})"
    )
    reason = f": another Helm is at work, or one was killed. {latest['description'] or ''}".rstrip()
    record = f"kubectl -n {namespace} delete secret sh.helm.release.v1.{name}.v{latest['revision']}"
    if latest["status"] == "uninstalling":
        cure = f"helm -n {namespace} uninstall {name}"
    elif found["deployed"]:
        cure = f"helm -n {namespace} rollback {name} {found['deployed']['revision']}"
    else:
        cure = record
    return f"{what}{reason.rstrip('.')}. Wait for it; when none is at work any more run: {cure}"


def action(found, chart, values):
    """``install``, ``upgrade`` or ``none``: what Helm has to do.

    :param found: state() of the release.
    :param chart: ``{name, version}`` that is wanted.
    :param values: all values that are wanted.
    """
    if found["deployed"] is None:
        return "upgrade" if found["latest"] and (found["latest"]["revision"] or 1) > 1 else "install"
    latest = found["latest"]
    same = (
        latest["status"] == "deployed"
        and latest["chart"] == chart["name"]
        and latest["chart_version"] == chart["version"]
        and latest["values"] == values
    )
    return "none" if same else "upgrade"
