# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from datetime import datetime, timezone

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.railyard.rdma.plugins.plugin_utils.hosts import host_values
from ansible_collections.railyard.rdma.plugins.plugin_utils.report import compare, files
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.document import proof
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.junit import junit
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.sentence import sentence
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.values import ReportError, counted
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.version import version

display = Display()
# Option, what it is called for a person.
OUTPUTS = {"file": "JSON", "junit": "JUnit", "html": "HTML"}


class ActionModule(ActionBase):
    """Makes the proof document on the controller and writes it; see the module's documentation."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _result, arguments = self.validate_argument_spec(
            {
                "model": {"type": "dict", "required": True},
                "result": {"type": "dict"},
                "pods": {"type": "dict"},
                "test_pods": {"type": "list", "elements": "dict", "default": []},
                "bandwidth": {"type": "dict"},
                "nccl": {"type": "dict"},
                **{name: {"type": "str"} for name in (*OUTPUTS, "compare_with")},
                "rate_change": {"type": "float", "default": 5.0},
            }
        )
        try:
            targets = _targets(arguments)
            document = self._document(arguments, task_vars)
            text = sentence(document)
            if not self._task.check_mode:
                _write(document, targets)
        except ReportError as error:
            return {"failed": True, "changed": False, "msg": str(error)}
        moved = document["moved"]
        where = ", ".join(f"{OUTPUTS[name]} {path}" for name, path in targets.items())
        if where:
            text += f" {'The report would be' if self._task.check_mode else 'Report'}: {where}."
        if moved is not None:
            amount = counted(len(moved["moved"]), "thing") if moved["moved"] else "Nothing"
            text += f" {amount} moved since {moved['made_at'] or 'the earlier report'}."
        display.display(text)
        # A report is a record of the run, not a change that it made.
        return {
            "changed": False,
            "msg": text,
            "verdict": document["verdict"],
            "files": {name: str(path) for name, path in targets.items()},
            "moved": None if moved is None else len(moved["moved"]),
        }

    def _document(self, arguments, task_vars):
        earlier = None
        if arguments["compare_with"]:
            # Before anything is written: it may be the file that is about to be replaced.
            name = arguments["compare_with"]
            earlier = compare.read(files.read("report_compare_with", name), name)
        if arguments["rate_change"] < 0:
            raise ReportError(f"report_rate_change: got {arguments['rate_change']}, must be 0 or more percent.")
        # A model of another inventory names hosts that this one has not: outside of a template hostvars breaks on them.
        here = task_vars["hostvars"]
        known = {host: here[host] for host in arguments["model"].get("hosts", {}) if host in here}
        facts, _addresses = host_values(arguments["model"], known)
        document = proof(
            arguments["model"],
            facts,
            arguments["pods"],
            arguments["result"],
            arguments["bandwidth"],
            arguments["nccl"],
            arguments["test_pods"],
            datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            version(),
        )
        if earlier is not None:
            document["moved"] = compare.compare(earlier, document, arguments["rate_change"])
        return document


def _targets(arguments):
    """{option: path} of the files that are asked for."""
    found = {name: files.target(f"report_{name}", arguments[name]) for name in OUTPUTS if arguments[name]}
    if len(set(found.values())) < len(found):
        told = ", ".join(f"report_{name} {path}" for name, path in found.items())
        raise ReportError(f"Each file of a report needs a name of its own, got {told}.")
    return found


def _write(document, targets):
    # HTML is the last one: it alone needs a library that may not be there.
    made = {
        "file": lambda: json.dumps(document, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n",
        "junit": lambda: junit(document),
        "html": lambda: _page(document).encode(),
    }
    for name, path in targets.items():
        files.write(f"report_{name}", path, made[name]())


def _page(document):
    # Imported late: charts take a second to import, and only HTML has some.
    from ansible_collections.railyard.rdma.plugins.plugin_utils.report.page import page

    return page(document)
