# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.railyard.rdma.plugins.plugin_utils import (
    address_pools,
    preload,
    rail_mistakes,
    rail_model,
    rail_spec,
)
from ansible_collections.railyard.rdma.plugins.plugin_utils.rail_operator import VARIABLES


class ActionModule(ActionBase):
    """Reads the intent of the hosts on the controller and returns the rail model; see the module's documentation."""

    TRANSFERS_FILES = False
    INHERITED_BY_TASKS = preload.LOADED
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _result, arguments = self.validate_argument_spec({"hosts": {"type": "list", "elements": "str"}})
        if address_pools.netaddr is None:
            return {
                "failed": True,
                "msg": "rail_model needs the Python library netaddr on the controller: install it with pip.",
            }
        hosts = arguments["hosts"]
        if hosts is None:
            hosts = task_vars["groups"].get("gpu_nodes", [])
        variables_of, failed = {}, []
        for host in dict.fromkeys(hosts):
            variables_of[host] = {}
            if host not in task_vars["hostvars"]:
                failed.append((host, rail_mistakes.mistake("hosts", host, "names of hosts in the inventory")))
                continue
            view = task_vars["hostvars"][host]
            for name in view:
                if not rail_spec.is_intent(name) and name not in VARIABLES:
                    continue
                try:
                    variables_of[host][name] = _plain(view[name])
                except AnsibleError as error:
                    reason = " ".join(str(error).split())
                    failed.append((host, rail_mistakes.Mistake(name, "a template that fails", f"a value ({reason})")))
        model, mistakes = rail_model.build(variables_of, failed)
        if mistakes:
            return {"failed": True, "changed": False, "msg": rail_mistakes.report(mistakes)}
        return {"changed": False, "rail_model": model}


def _plain(value):
    """Return a templated value as plain data, without the tags that ansible-core 2.19 and newer attach.

    Other types, such as the date that YAML reads from C(2026-01-01), stay as they are; the type check refuses them.
    """
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value
