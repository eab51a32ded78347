# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The option ``root`` of the modules that read a node's files."""

    DOCUMENTATION = r"""
options:
  root:
    description:
      - Directory that is taken for the root of the file system, for example where a rescue system has mounted a node's
        disk.
      - Links are resolved inside of it.
    type: path
    default: /
"""
