# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ssh's ProxyCommand for a rehearsal node: joins ssh to the node's socket.

``python3 connect.py [--fdpass] STATE/nodes/NAME/ssh.sock``

With ``--fdpass`` (ssh's ProxyUseFdpass=yes) the connected socket itself is handed to ssh, so that no process stands
between. Standard library only and nothing imported that is not needed: it runs once per connection. The socket is
addressed through its folder's descriptor because a socket address holds only 107 bytes (unix(7)).
"""

from __future__ import annotations

import os
import socket
import sys


def _connect(path: str) -> socket.socket:
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_PATH | os.O_DIRECTORY)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    return sock


def _relay(sock: socket.socket) -> None:
    import threading

    def to_node() -> None:
        while data := os.read(0, 65536):
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    threading.Thread(target=to_node, daemon=True).start()
    while data := sock.recv(65536):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def main(argv: list[str]) -> int:
    """Connect and relay; exit code 1 with a sentence when the node does not listen (it is down or booting)."""
    fdpass = "--fdpass" in argv
    paths = [word for word in argv if word != "--fdpass"]
    if len(paths) != 1:
        print("usage: connect.py [--fdpass] STATE/nodes/NAME/ssh.sock", file=sys.stderr)
        return 2
    try:
        sock = _connect(paths[0])
    except OSError as error:
        print(f"rehearsal node is not reachable at {paths[0]}: {error.strerror} (down or booting)", file=sys.stderr)
        return 1
    if fdpass:
        with socket.socket(fileno=os.dup(1)) as out:
            socket.send_fds(out, [b"\0"], [sock.fileno()])
        return 0
    _relay(sock)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
