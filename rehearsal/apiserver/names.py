# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for names and labels (RFC 1123 and k8s.io/apimachinery pkg/util/validation)."""

from __future__ import annotations

import re
from typing import Any

from .errors import Cause

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
#: Kinds whose names are DNS labels, and those whose names only must fit in a path.
LABEL_KINDS = {"Namespace", "Service"}
PATH_KINDS = {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}


def name_mistakes(kind: str, name: str) -> list[Cause]:
    if kind in PATH_KINDS:
        bad = name in (".", "..") or "/" in name or "%" in name
        text = "may not be '.' or '..' and may not contain '/' or '%'"
    elif kind in LABEL_KINDS:
        bad = len(name) > 63 or not re.fullmatch(_LABEL, name)
        text = (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
            f"and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
            f"regex used for validation is '{_LABEL}')"
        )
    else:
        bad = len(name) > 253 or not re.fullmatch(_SUBDOMAIN, name)
        text = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            f"start and end with an alphanumeric character (e.g. 'example.com', "
            f"regex used for validation is '{_SUBDOMAIN}')"
        )
    return [Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {text}')] if bad else []


def _key_ok(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not re.fullmatch(_SUBDOMAIN, prefix)):
        return False
    return len(name) <= 63 and bool(re.fullmatch(_QUALIFIED, name))


def metadata_mistakes(meta: dict[str, Any]) -> list[Cause]:
    """Mistakes in labels, annotation keys and owner references."""
    causes = []
    for path, is_annotation in (("metadata.labels", False), ("metadata.annotations", True)):
        for key, value in (meta.get(path.partition(".")[2]) or {}).items():
            if not _key_ok(key.lower() if is_annotation else key):
                text = f"Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.'"
                causes.append(Cause(path, "FieldValueInvalid", text))
            if not is_annotation and (len(value) > 63 or not re.fullmatch(f"({_QUALIFIED})?", value)):
                text = f'Invalid value: "{value}": a valid label must be an empty string or consist of alphanumeric '
                text += "characters, '-', '_' or '.', and must start and end with an alphanumeric character"
                causes.append(Cause(path, "FieldValueInvalid", text))
    for index, owner in enumerate(meta.get("ownerReferences") or []):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                path = f"metadata.ownerReferences[{index}].{field}"
                causes.append(Cause(path, "FieldValueRequired", "Required value: must not be empty"))
    return causes
