# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``python -m rehearsal.machine --state DIR --node NAME``: the supervisor of one node, in the foreground."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rehearsal.machine import userns
from rehearsal.machine.supervisor import supervise


def main() -> int:
    """Exit code 1 with one sentence when something that this machine must offer is missing."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal.machine")
    parser.add_argument(
        "--state", type=Path, required=True, help="folder of the fleet, as given to python -m rehearsal up"
    )
    parser.add_argument("--node", required=True, help="name of the node; its spec is STATE/nodes/NAME/spec.json")
    options = parser.parse_args()
    try:
        userns.become_root()
        from rehearsal.kernel import serve  # after the namespace is made: what it loads may start threads

        supervise(options.state.resolve(), options.node, serve)
    except OSError as error:
        print(f"node {options.node}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
