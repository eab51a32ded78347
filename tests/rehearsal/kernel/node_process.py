# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node for these tests: a mount and network namespace with the kernel process in it.

Run as ``unshare --mount --net python node_process.py SPEC_JSON MODE CMDLINE``. Prints ``ready SECONDS`` when /sys
answers, then keeps the namespaces until its standard input ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from rehearsal.kernel import linux, serve


def main() -> None:
    spec, mode, cmdline = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("none", "/run", "tmpfs")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        start = time.monotonic()
        serve(
            spec,
            sys_mount="/sys",
            control_socket="/run/rehearsal/rdma.sock",
            netns_mode=mode,
            cmdline=cmdline,
            on_ready=lambda: os.write(writer, f"ready {time.monotonic() - start:.3f}\n".encode()),
        )
        os._exit(0)
    os.close(writer)
    print(os.read(reader, 100).decode().strip() or "failed", flush=True)
    sys.stdin.read()
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
