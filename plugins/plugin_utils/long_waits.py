# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How an action plugin shows what a long wait is for: a module cannot show anything before it ends, so it ends after a
while, says what it still waits for, and is run again with what it had reached."""

from __future__ import annotations

import os

from ansible.utils.display import Display
from ansible_collections.railyard.rdma.plugins.plugin_utils.in_process import execute

display = Display()


def answers(action, module, task_vars, reached, line):
    """Run a module until it has finished, and yield each of its answers.

    :param action: the action plugin (``ActionBase``) of the task.
    :param module: the Python module, see ``in_process``. It takes the option ``earlier`` and returns ``finished``.
    :param reached: function from an answer to the next ``earlier``; it gets ``{}`` for the first call.
    :param line: function from an answer that is not the last to the text that is shown.

    The last answer is one that has finished, has failed, or is none of the module's own, such as that of an interpreter that
    did not start. A dry run is one call. After the run was killed, a worker that outlived it ends here: the next run
    carries on, and two must not.
    """
    run, answer = os.getppid(), {}
    while True:
        arguments = {**action._task.args, "earlier": reached(answer)}
        answer = execute(action, module, arguments, task_vars)
        yield answer
        over = answer.get("failed") or answer.get("finished", True) or action._task.check_mode
        if over or os.getppid() != run:
            return
        display.display(line(answer))


def waited(answer):
    """Seconds that were waited by now, 0 before the first answer: the ``earlier`` of most modules."""
    return answer.get("waited", 0.0)
