# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Forms of the names that Linux, Kubernetes and the operators take."""

from __future__ import annotations

import re

# IFNAMSIZ is 16 with the closing zero; dev_valid_name() in net/core/dev.c (Linux) refuses '/', ':' and white space.
NETDEV = re.compile(r"(?!\.{1,2}$)[^\s/:]{1,15}")

# RFC 1123 label and subdomain, as Kubernetes checks object names.
LABEL = re.compile(r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_FORM = "a name of 1 to 63 lower-case letters, digits and inner dashes"
SUBDOMAIN_FORM = "a name of lower-case letters, digits and inner dashes, its parts joined by dots"

# What the SR-IOV device plugin (letters, digits, dash, underscore) and the webhook of the SR-IOV operator since commit
# f900cbcf5 (alphanumeric ends, 63 characters) both take.
RESOURCE = re.compile(r"(?=.{1,63}$)[A-Za-z0-9]([-_A-Za-z0-9]*[A-Za-z0-9])?")
RESOURCE_FORM = "1 to 63 letters, digits, inner dashes and inner underscores"

# Ends the names of a rail's objects, so it is kept short enough for them.
RAIL_NAME = re.compile(r"(?=.{1,20}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")

# Label values of Kubernetes may be empty; keys have an optional domain in front.
LABEL_VALUE = re.compile(r"(?=.{0,63}$)([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(r"(?=.{1,63}$)[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")


def is_label_key(text: str) -> bool:
    """Return whether text is a label key of Kubernetes: C([domain/]name)."""
    domain, slash, name = text.rpartition("/")
    return bool(_LABEL_NAME.fullmatch(name)) and (not slash or bool(SUBDOMAIN.fullmatch(domain)))
