# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Property tests judge results, never times: a busy machine must not make them fail. Temporary files stay in the tree."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

settings.register_profile("no_times", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
# For a further run on another Python, where it is the interpreter that is under test: that of the oldest nodes, which
# ansible-test starts, and pytest --hypothesis-profile=few.
settings.register_profile("few", settings.get_profile("no_times"), max_examples=10)
settings.load_profile("few" if sys.version_info < (3, 10) else "no_times")

if "TMPDIR" not in os.environ:  # ansible-test takes it away
    scratch = Path(__file__).parent / "output" / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(scratch))


def pytest_configure(config):
    """Run the tests in the process that read them, under ansible-test too.

    Its plugin starts a process for each test, which takes longer than most tests do. That none leaves anything behind for the
    next is shown by running them all in one.
    """
    if config.pluginmanager.has_plugin("ansible_forked"):
        config.pluginmanager.unregister(name="ansible_forked")
