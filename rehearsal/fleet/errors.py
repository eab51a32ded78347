# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one exception that the command line turns into a sentence and exit code 1."""

from __future__ import annotations


class FleetError(Exception):
    """The fleet cannot be started, found or used; the text says what is wrong and what helps."""
