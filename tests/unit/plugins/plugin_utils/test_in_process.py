# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a module runs in the process of its task, what it sees there, and what becomes of its result.
tests/rehearsal/cluster/test_in_process.py compares both ways."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.railyard.rdma.plugins.plugin_utils import in_process

SPECIFICATION = {
    "name": {"type": "str", "required": True},
    "count": {"type": "int", "default": 3},
    "token": {"type": "str", "no_log": True},
    "parts": {"type": "list", "elements": "str", "choices": ["a", "b"]},
}
HERE = {"ansible_python_interpreter": sys.executable}


def perform(module):
    if module.params["name"] == "bad":
        module.fail_json(msg=f"no {module.params['token']}", exception="Traceback", seen=1)
    module.warn("careful")
    module.exit_json(changed=not module.check_mode, params=module.params, rows=("x", {"y": None}))


MODULE = SimpleNamespace(
    __name__="ansible_collections.railyard.rdma.plugins.modules.example",
    argument_spec=lambda: SPECIFICATION,
    perform=perform,
)


class Action:
    """An action plugin, as far as it is looked at."""

    def __init__(self, transport="local", become=None, check_mode=False, **task):
        shell = SimpleNamespace(tmpdir="/tmp/of-the-task")
        self._connection = SimpleNamespace(transport=transport, become=become, has_native_async=False, _shell=shell)
        self._task = SimpleNamespace(
            **{"delegate_to": None, "async_val": 0, "environment": [], "check_mode": check_mode, **task}
        )
        self._templar = SimpleNamespace(template=lambda value: value)
        self.calls, self.removed = [], []

    def _execute_module(self, **call):
        self.calls.append(call)
        return {"elsewhere": True}

    def _remove_tmp_path(self, path):
        self.removed.append(path)


def run(arguments, action=None, variables=None):
    return in_process.execute(action or Action(), MODULE, arguments, HERE if variables is None else variables)


def test_arguments_are_those_of_the_specification_and_the_result_is_plain_data():
    made = run({"name": "x", "count": "7"})
    params = {"name": "x", "count": 7, "token": None, "parts": None}
    assert made == {
        "changed": True,
        "params": params,
        "rows": ["x", {"y": None}],
        "warnings": ["careful"],
        "invocation": {"module_args": params},
    }


def test_a_dry_run_is_told():
    assert run({"name": "x"}, Action(check_mode=True))["changed"] is False


def test_a_secret_does_not_come_back():
    made = run({"name": "bad", "token": "hunter2"})
    assert (made["failed"], made["changed"], made["seen"]) == (True, False, 1)
    assert "hunter2" not in str(made) and "exception" not in made


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({}, "name"),
        ({"name": "x", "colour": "red"}, "colour"),
        ({"name": "x", "count": "many"}, "count"),
        ({"name": "x", "parts": ["c"]}, "parts"),
    ],
    ids=["missing", "unknown", "type", "choice"],
)
def test_wrong_arguments_are_refused_with_their_name(arguments, word):
    made = run(arguments)
    assert made["failed"] and word in made["msg"]


@pytest.mark.parametrize(
    ("action", "variables"),
    [
        (Action(transport="ssh"), HERE),
        (Action(become=object()), HERE),
        (Action(environment=[{"K8S_AUTH_CONTEXT": "other"}]), HERE),
        (Action(async_val=60), HERE),
        (Action(), {"ansible_python_interpreter": "/usr/bin/another"}),
        (Action(), {}),
        (Action(delegate_to="localhost"), HERE),
        (Action(delegate_to="localhost"), {**HERE, "ansible_delegated_vars": {"localhost": {}}}),
    ],
    ids=["ssh", "become", "environment", "async", "another", "discovered", "delegated", "delegated-discovered"],
)
def test_whatever_differs_makes_it_run_as_any_module(action, variables):
    assert run({"name": "x"}, action, variables) == {"elsewhere": True}
    (call,) = action.calls
    wrapped = bool(action._task.async_val)
    assert (call["module_name"], call["module_args"]) == ("railyard.rdma.example", {"name": "x"})
    assert (call["wrap_async"], action.removed) == (wrapped, [] if wrapped else ["/tmp/of-the-task"])


@pytest.mark.parametrize(
    ("action", "variables"),
    [
        (Action(environment=[{}]), HERE),
        (Action(delegate_to="localhost"), {"ansible_delegated_vars": {"localhost": HERE}}),
    ],
    ids=["empty-environment", "delegated"],
)
def test_what_is_the_same_runs_here(action, variables):
    assert run({"name": "x"}, action, variables)["params"]["count"] == 3
    assert not action.calls


def test_what_only_ansible_can_hand_over_goes_the_long_way():
    class Encrypted:
        """A value of Ansible Vault."""

    action = Action()
    assert run({"name": Encrypted()}, action) == {"elsewhere": True}


def test_a_mistake_in_a_module_is_no_result():
    broken = SimpleNamespace(__name__="x.broken", argument_spec=dict, perform=lambda _module: {}["missing"])
    with pytest.raises(KeyError):
        in_process.execute(Action(), broken, {}, HERE)


def test_the_action_group_holds_every_module():
    """One that is missing in it would not get the access that a play gives to ``group/railyard.rdma.rdma``."""
    top = Path(in_process.__file__).parents[2]
    group = yaml.safe_load((top / "meta/runtime.yml").read_text())["action_groups"]["rdma"]
    assert group == sorted(path.stem for path in (top / "plugins/modules").glob("[!_]*.py"))
