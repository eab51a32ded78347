# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a module's main() in this process and return what it printed."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args


def run(module, capsys, **arguments) -> dict:
    """Run ``module.main()`` with arguments (``_ansible_check_mode`` and ``_ansible_diff`` among them).

    The result of fail_json has ``failed: true``.
    """
    capsys.readouterr()
    with patch_module_args(arguments), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)
