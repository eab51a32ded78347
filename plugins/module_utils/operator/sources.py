# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the chart comes from: a repository or a mirror of it, an OCI registry, an address, a folder or a file. Pure functions."""

from __future__ import annotations

import re

ALIASED = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
AIR_GAP = (
    "Without a way out: fetch the chart elsewhere (helm pull {chart} --repo {repository} --version {version}) and set "
    "network_operator_chart to the path of the file"
)
MISTAKE = "network_operator_chart: {0}"


def pull_command(helm, chart, kind, repository, version, folder):
    """The command that puts the packed chart into a folder.

    :param kind: ``name``, ``oci`` or ``url`` (chart.kind_of). A name with a slash is one of a repository that Helm knows by
        that alias; Helm's own files then hold its address and credentials.
    """
    command = [helm, "pull", chart, "--destination", folder]
    if kind != "url":
        command += ["--version", version]
    if kind == "name" and not ALIASED.fullmatch(chart):
        command += ["--repo", repository]
    return command


def where(chart, kind, repository):
    """The place as a person writes it."""
    if kind == "name" and not ALIASED.fullmatch(chart):
        return f"{chart} in {repository}"
    return chart


def explain_pull(chart, kind, repository, version, text):
    """One or two sentences of what Helm said when it could not fetch a chart."""
    said = " ".join(str(text).replace("Error: ", "").split())[:400] or "nothing"
    low, place = said.lower(), where(chart, kind, repository)
    air_gap = AIR_GAP.format(chart=chart, repository=repository, version=version) + "."
    if re.search(r"repo \S+ not found", low):
        alias = chart.partition("/")[0]
        return (
            f"network_operator_chart: Helm knows no repository {alias!r} ({said}). Add it (helm repo add {alias} URL), or set "
            "network_operator_chart to the plain name and network_operator_chart_repository to the address."
        )
    if re.search(r"\b401\b|\b403\b|unauthori[sz]ed|forbidden|denied", low):
        login = "helm registry login" if kind == "oci" else "helm repo add --username"
        return f"network_operator_chart: {place} refuses the access: {said}. Log in before ({login}); Helm keeps the credentials."
    if "x509" in low or "certificate" in low:
        return (
            f"network_operator_chart: the certificate of {place} is not trusted: {said}. Add its authority to the machine, or "
            "name its file in SSL_CERT_FILE."
        )
    if re.search(
        r"no such host|dial tcp|connection refused|cannot be reached|timeout|timed out|no route|proxyconnect", low
    ):
        return (
            f"network_operator_chart: {place} does not answer: {said}. Check proxy (HTTPS_PROXY) and address. {air_gap}"
        )
    if re.search(r"not found|no chart version|no chart name|manifest unknown|\b404\b|invalid_reference", low):
        return (
            f"network_operator_chart: {place} has no version {version}: {said}. Check network_operator_version; a mirror must "
            f"hold this version. {air_gap}"
        )
    return f"network_operator_chart: Helm cannot fetch {place}, version {version}: {said}"
