# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes sample reports from invented facts, to look at: healthy, faulty, inspected, huge and empty.

Usage: sample_report.py FOLDER [NAME …]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "collections"))

from ansible_collections.railyard.rdma.plugins.plugin_utils.report.junit import junit
from ansible_collections.railyard.rdma.plugins.plugin_utils.report.page import page
from ansible_collections.railyard.rdma.tests.unit.plugins.plugin_utils.report_fleet import NAMES, document


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or NAMES:
        made = document(name)
        (folder / f"{name}.json").write_text(json.dumps(made, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        (folder / f"{name}.xml").write_bytes(junit(made))
        (folder / f"{name}.html").write_text(page(made), encoding="utf-8")
        print(folder / f"{name}.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
