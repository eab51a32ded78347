# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that work on the controller, run in the process of their task.

Ansible packs a module with all that it imports, and a new interpreter compiles the pack: about 1.5 s of CPU time a call,
where the work itself takes a tenth of that. Where the module would run with this very interpreter, as this user and with
this environment, it is called here instead, with what :class:`Module` holds in place of AnsibleModule. In all other
cases Ansible runs the module as any other.

Such a module has two functions: ``argument_spec()``, and ``perform(module)``, which ends with ``module.exit_json`` or
``module.fail_json``.
"""

from __future__ import annotations

import json
import sys

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import remove_values
from ansible.plugins.action import ActionBase


class Ended(BaseException):
    """A module has ended. No Exception, as SystemExit, with which AnsibleModule ends, is none: the module's own handlers
    of errors must not catch it.

    Attribute result: dict, what Ansible gets.
    """

    def __init__(self, result):
        super().__init__()
        self.result = result


class Module:
    """The part of AnsibleModule that the modules of this collection use.

    :param specification: the module's argument_spec.
    :param arguments: of the task, plain data.
    :raises Ended: the arguments are not those of the module; now, or when the module says that it is done.
    """

    def __init__(self, specification, arguments, check_mode=False):
        self.check_mode = check_mode
        self._warnings = []
        checked = ArgumentSpecValidator(specification).validate(arguments)
        self._secrets = checked._no_log_values
        self.params = checked.validated_parameters
        if checked.error_messages:
            self.fail_json(msg="; ".join(checked.error_messages))

    def warn(self, warning):
        self._warnings.append(warning)

    def exit_json(self, **result):
        self._end(result)

    def fail_json(self, msg, exception=None, **result):  # pylint: disable=unused-argument
        """The traceback of an error that was foreseen (``exception``) helps nobody; AnsibleModule takes one, so this does."""
        self._end({**result, "msg": msg, "failed": True})

    def _end(self, result):
        made = {"changed": False, **result, "invocation": {"module_args": self.params}}
        if self._warnings:
            made["warnings"] = self._warnings
        # By way of JSON, as from any module: what is registered is plain data.
        raise Ended(json.loads(json.dumps(remove_values(made, self._secrets))))


def is_elsewhere(action, task_vars):
    """Whether the module of this task would run with another interpreter, as another user, in another environment, or
    longer than the task."""
    task, connection = action._task, action._connection
    if connection.transport != "local" or connection.become or task.async_val or any(task.environment or []):
        return True
    variables = task_vars
    if task.delegate_to:
        variables = (task_vars.get("ansible_delegated_vars") or {}).get(task.delegate_to) or {}
    return action._templar.template(variables.get("ansible_python_interpreter")) != sys.executable


def execute(action, module, arguments, task_vars):
    """The result of a module of this collection.

    :param action: the action plugin of the task.
    :param module: the Python module, with ``argument_spec`` and ``perform``.
    :param arguments: of the module, as the task has them.
    """
    if not is_elsewhere(action, task_vars):
        try:
            plain = json.loads(json.dumps(arguments))
        except TypeError:
            pass  # such as an encrypted value: Ansible knows how to hand it over
        else:
            try:
                module.perform(Module(module.argument_spec(), plain, action._task.check_mode))
            except Ended as ended:
                return ended.result
    name = f"railyard.rdma.{module.__name__.rpartition('.')[2]}"
    wrapped = bool(action._task.async_val) and not action._connection.has_native_async
    try:
        return action._execute_module(module_name=name, module_args=arguments, task_vars=task_vars, wrap_async=wrapped)
    finally:
        if not wrapped:
            action._remove_tmp_path(action._connection._shell.tmpdir)


class InProcessAction(ActionBase):
    """Base of the action plugins of such modules: a class that names its ``MODULE``."""

    TRANSFERS_FILES = False
    _supports_async = True
    MODULE = None

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        result.update(execute(self, self.MODULE, self._task.args, task_vars))
        return result
