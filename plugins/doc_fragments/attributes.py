# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What check mode and diff mode mean for the modules that run on nodes."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff
      mode.
  platform:
    description: Target OS/families that can be operated against.
    platforms: posix
    support: full
"""

    # For modules that talk to the cluster from the controller: they have no platform of their own.
    READS = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
    support: full
    details:
      - The module only reads.
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff
      mode.
    support: N/A
    details:
      - Nothing changes.
"""

    WAITS = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
    support: full
    details:
      - Looks once instead of waiting.
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff
      mode.
    support: N/A
    details:
      - Nothing changes.
"""

    FACTS = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
    support: full
    details:
      - The module only reads.
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff
      mode.
    support: N/A
    details:
      - Nothing changes.
  facts:
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
    support: full
  platform:
    description: Target OS/families that can be operated against.
    platforms: posix
    support: full
"""
