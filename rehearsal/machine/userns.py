# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Become root of a new user namespace, for machines where the rehearsal does not run as root.

A node needs more than one user (sshd's own, the tty group), so ranges of /etc/subuid and /etc/subgid are mapped with
newuidmap(1) and newgidmap(1). The process id stays the same.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess

from rehearsal.machine import linux


def become_root() -> None:
    """No effect for root. Raises OSError with one sentence that says what is missing."""
    if os.geteuid() == 0:
        return
    missing = what_is_missing()
    if missing:
        raise OSError(missing)
    uid, gid, pid = os.getuid(), os.getgid(), os.getpid()
    subuids, subgids = subordinate_range("/etc/subuid"), subordinate_range("/etc/subgid")
    go_reader, go_writer = os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(go_writer)
        os.read(go_reader, 1)
        code = 0
        for program, own, (first, count) in (("newuidmap", uid, subuids), ("newgidmap", gid, subgids)):
            code |= subprocess.run([program, *map(str, (pid, 0, own, 1, 1, first, count))], check=False).returncode
        os._exit(1 if code else 0)
    os.close(go_reader)
    linux.unshare(linux.CLONE_NEWUSER)
    os.write(go_writer, b"1")
    os.close(go_writer)
    if os.waitpid(helper, 0)[1] != 0:
        raise OSError("newuidmap or newgidmap refused the ranges of /etc/subuid and /etc/subgid (see the lines above)")
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def what_is_missing() -> str | None:
    """One sentence, or None when a user namespace with sub-ids can be made."""
    for program in ("newuidmap", "newgidmap"):
        if shutil.which(program) is None:
            return (
                f"{program} is missing, which the rehearsal needs when it does not run as root (apt "
                "install uidmap), or run it as root"
            )
    for path in ("/etc/subuid", "/etc/subgid"):
        try:
            subordinate_range(path)
        except OSError as error:
            return str(error)
    for path, wanted in (
        ("/proc/sys/kernel/unprivileged_userns_clone", "1"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0"),
    ):
        try:
            with open(path, encoding="ascii") as stream:
                if stream.read().strip() != wanted:
                    return (
                        f"this machine forbids user namespaces to ordinary users ({path} is not "
                        f"{wanted}): allow them or run as root"
                    )
        except FileNotFoundError:
            continue
    return None


def subordinate_range(path: str) -> tuple[int, int]:
    """(first id, count) of the first range of this user, by name or number, as subuid(5) writes it; OSError without
    one.
    """
    names = {str(os.getuid())}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    try:
        with open(path, encoding="utf-8") as stream:
            for line in stream:
                fields = line.strip().split(":")
                if len(fields) == 3 and fields[0] in names and int(fields[2]) >= 65536:
                    return int(fields[1]), int(fields[2])
    except FileNotFoundError:
        pass
    user = sorted(names)[-1]
    option = "uids" if path.endswith("uid") else "gids"
    raise OSError(
        f"{path} has no range of 65536 ids for {user} (as root: usermod --add-sub{option} 100000-165535 "
        f"{user}), or run as root"
    )
