# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The smallest /sys that shows which mode a node was booted with, so that the machine is tested apart from the
kernel simulation.
"""

from __future__ import annotations

import signal
from pathlib import Path

from rehearsal.machine import linux


def serve(spec, *, sys_mount, control_socket, netns_mode, cmdline, on_ready):
    linux.mount("sysfs", sys_mount, "tmpfs")
    parameters = Path(sys_mount) / "module/ib_core/parameters"
    parameters.mkdir(parents=True)
    (parameters / "netns_mode").write_text("Y\n" if netns_mode == "shared" else "N\n")
    on_ready()
    signal.pause()
