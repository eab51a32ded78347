# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The documentation of the findings, made of the rules; ``make docs`` writes it to docs/findings.md."""

from __future__ import annotations

import re

# Not from registry: this import makes the subjects register their rules first.
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.evaluate import RULES
from ansible_collections.railyard.rdma.plugins.plugin_utils.findings.registry import FLEET

PARTS = ("Symptom", "Cause", "Evidence", "Remedy", "Source")
HEAD = """# Findings

What the rules of this collection can find, by id. An id never changes its meaning. `inspect`, `plan` and `verify` speak
in findings; an error fails the play unless `rails_findings_tolerated` lists its id. Inside of `site.yml`, `inspect` goes
on with errors that `prepare_nodes` cures. A check that could not be made is reported under the same id with the
severity `unknown`; it never counts as a pass.

The severity here is that of the worst case: a rule says `warning` or `info` where the intent makes the fault harmless.
A finding with no rail is about the node, or about all its rails when `evidence.rails` lists them.

This page is made of the rules in `plugins/plugin_utils/findings/`; do not edit it by hand.
"""


def sections(documentation: str) -> dict[str, str]:
    """{part: text} of a rule's docstring, each text as one line."""
    pieces = re.split(rf"^({'|'.join(PARTS)}):", documentation, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def capital(text: str) -> str:
    """The text with a capital first letter, unless its first word is a name such as ib_core or an owner/repository."""
    return text if re.match(r"\S*[_/]", text) else text[:1].upper() + text[1:]


def markdown() -> str:
    """The whole page."""
    lines = [HEAD, "| id | severity | title |", "|---|---|---|"]
    for rule_id, rule in sorted(RULES.items()):
        lines.append(f"| [{rule_id}](#{rule_id.lower()}) | {rule.severity} | {rule.title} |")
    for rule_id, rule in sorted(RULES.items()):
        about = [rule.severity, f"looks at: {', '.join(rule.needs)}"]
        about += ["compares the nodes of a layout"] * (rule.scope == FLEET)
        about += [f"cured by: `{rule.cured_by}`"] * (rule.cured_by is not None)
        lines += ["", f"## {rule_id}", "", f"**{rule.title}** ({'; '.join(about)})"]
        for name, text in sections(rule.documentation).items():
            lines += ["", f"**{name}.** {capital(text)}"]
    return "\n".join(lines) + "\n"
