# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The proof document as one HTML file that needs nothing else: no script, no network, no fonts."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.railyard.rdma.plugins.plugin_utils.report.charts import need_library
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import counted, visible
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.view import view
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).resolve().parents[3] / "roles" / "report" / "templates"


def page(document: dict) -> str:
    """Return the HTML text of a proof document.

    :raises ReportError: the library for the charts is not there.
    """
    need_library()
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Names may hold anything: what cannot be seen is shown, and then escaped by the template.
    environment.finalize = _seen
    environment.filters["counted"] = counted
    # SVG of our own charts, in which the library escaped all texts.
    environment.filters["drawn"] = Markup
    return environment.get_template("report.html.j2").render(view(document))


def _seen(value):
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
