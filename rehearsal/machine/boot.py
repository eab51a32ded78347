# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One boot of a node, from power-on to power-off, as one process tree.

The boot process owns the node's network, UTS, IPC and mount namespaces. It has two children: the kernel simulation,
which stays in the outer PID namespace since it must see who reads /sys, and init, which is PID 1 of the node's own.
When init ends, the boot ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rehearsal.machine import bootloader, disk, faults, init, linux, relay
from rehearsal.machine.bootmode import BootFailure, boot_mode
from rehearsal.machine.init import OFF, PANIC, REBOOT
from rehearsal.machine.status import NodeStatus, read_json

KERNEL_SECONDS = 60.0
SSHD_SECONDS = 30.0
CONTROL_SOCKET = "rdma.sock"  # in the node: /run/rehearsal/rdma.sock
Serve = Callable[..., None]


def log(text: str) -> None:
    """A line on the node's console, which is the supervisor's standard error."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def boot(node_dir: Path, root: Path, spec: dict[str, Any], serve: Serve) -> int:
    """Run one boot in the calling process, which becomes the node's outer process; REBOOT, OFF or PANIC when it
    ends.
    """
    status = NodeStatus(node_dir)
    children: list[int] = []
    try:
        return _boot(node_dir, root, spec, serve, status, children)
    except BootFailure as failure:
        log(f"kernel panic: {failure}")
        status.set("panic", str(failure))
        return PANIC
    finally:
        for pid in children:
            _kill(pid)


def _boot(
    node_dir: Path, root: Path, spec: dict[str, Any], serve: Serve, status: NodeStatus, children: list[int]
) -> int:
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
    linux.private_mounts()
    linux.sethostname((root / "etc/hostname").read_text(encoding="utf-8").strip() or spec["name"])
    linux.link_up("lo")
    number = read_json(status.path)["boots"]
    if spec.get("dies_at_boot") == number:
        raise BootFailure("mce: [Hardware Error]: CPU 0: Machine Check Exception")
    try:
        entry = bootloader.choose(root)
    except bootloader.NoEntry as error:
        raise BootFailure(str(error)) from None
    cmdline = entry.command_line
    boot_id = str(uuid.uuid4())
    init.mount_early(root)
    _bind_fabric(root, node_dir.parents[1] / "fabric")
    _bind_bytecode(root, node_dir.parents[1])
    _bind_cmdline(root, cmdline)
    mode = boot_mode(root, entry)
    log(f"boot {boot_id}: ib_core netns_mode {mode.mode} (from {mode.source}, value {mode.value})")

    children.append(kernel_pid := _start_kernel(root, spec, serve, mode.mode, cmdline))
    linux.unshare(linux.CLONE_NEWPID)
    init_pid = os.fork()
    if init_pid == 0:
        linux.die_with_parent()
        init.run(root, boot_id, cmdline, kernel_symbols(spec.get("driver", "doca_ofed")))
    children.append(init_pid)

    wait_for_sshd(init_pid)
    try:
        faults.write_sysfs(root, spec)
    except OSError as error:
        raise BootFailure(str(error)) from None
    facts = {
        "init_pid": init_pid,
        "root": f"/proc/{init_pid}/root",
        "boot_id": boot_id,
        "kernel": entry.kernel,
        "netns_mode": mode.mode,
    }
    return asyncio.run(_serve_until_end(node_dir, status, facts, init_pid, kernel_pid, children))


def kernel_symbols(driver: str) -> str:
    """/proc/kallsyms of the RDMA modules: DOCA-OFED's ib_core has the check of a GID's namespace, the kernel's has not
    (its addresses are zero for readers without the privilege, kernel/kallsyms.c).
    """
    names = {
        "mlx5_core": ["mlx5_cmd_exec"],
        "ib_core": ["ib_register_device", "rdma_query_gid", "rdma_dev_access_netns"],
    }
    if driver == "doca_ofed":
        names["ib_core"].append("rdma_check_gid_user_access")
        names["mlx_compat"] = ["backport_dependency_symbol"]
    rows = ["startup_64", *(f"{name}\t[{module}]" for module, found in names.items() for name in found)]
    return "".join(f"0000000000000000 {'t' if '[' in row else 'T'} {row}\n" for row in rows)


def _bind_fabric(root: Path, shared: Path) -> None:
    # Where tools of all nodes meet (kernel/tools/ib_write_bw): their wires are not connected.
    shared.mkdir(exist_ok=True)
    place = root / "run/rehearsal/fabric"
    place.mkdir()
    linux.bind(str(shared), str(place))


def _bind_bytecode(root: Path, state: Path) -> None:
    # What a module of Ansible's was compiled to on one node, the others need not compile (kept_zip_code.py).
    shared = Path(sys.pycache_prefix or state) / Path(disk.BYTECODE).name
    shared.mkdir(parents=True, exist_ok=True)
    linux.bind(str(shared), str(root / disk.BYTECODE))


def _bind_cmdline(root: Path, cmdline: str) -> None:
    # modprobe reads options from /proc/cmdline too: it must be the node's, not this machine's.
    source = root / "run/rehearsal/cmdline"
    source.write_text(cmdline + "\n", encoding="ascii")
    linux.bind(str(source), "/proc/cmdline")


def _start_kernel(root: Path, spec: dict[str, Any], serve: Serve, mode: str, cmdline: str) -> int:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            linux.die_with_parent()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(reader)
            folder = os.open(
                root / "run/rehearsal", os.O_PATH | os.O_DIRECTORY
            )  # keeps the socket's path short (unix(7): 107 bytes)
            serve(
                spec,
                sys_mount=str(root / "sys"),
                devices=root / "dev/infiniband",
                control_socket=f"/proc/self/fd/{folder}/{CONTROL_SOCKET}",
                netns_mode=mode,
                cmdline=cmdline,
                on_ready=lambda *_: os.write(writer, b"1"),
            )
            code = 0
        except BaseException as error:
            import traceback

            traceback.print_exc()
            log(f"kernel simulation: {type(error).__name__}: {error}")
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], KERNEL_SECONDS)
        if not ready or os.read(reader, 1) != b"1":
            _kill(pid)
            raise BootFailure("the kernel simulation did not start (see this node's log)")
    finally:
        os.close(reader)
    return pid


def wait_for_sshd(init_pid: int) -> None:
    """Until something listens on port 22 of this network namespace; BootFailure when init ends or the time is over."""
    end = time.monotonic() + SSHD_SECONDS
    while not _listens(22):
        if os.waitid(os.P_PID, init_pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            raise BootFailure("init ended before sshd was ready (see this node's log)")
        if time.monotonic() > end:
            raise BootFailure(f"sshd does not listen after {SSHD_SECONDS:.0f} s (see this node's log)")
        time.sleep(0.01)


def _listens(port: int) -> bool:
    with open("/proc/self/net/tcp", encoding="ascii") as table:
        return any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A" for row in list(table)[1:])


async def _serve_until_end(
    node_dir: Path, status: NodeStatus, facts: dict[str, Any], init_pid: int, kernel_pid: int, children: list[int]
) -> int:
    ended: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for pid in (init_pid, kernel_pid):
        descriptor = os.pidfd_open(pid)

        def tell(pid: int = pid, descriptor: int = descriptor) -> None:
            loop.remove_reader(descriptor)
            ended.put_nowait(pid)

        loop.add_reader(descriptor, tell)
    async with relay.serving(node_dir / "ssh.sock", 22):
        status.up(facts)
        log(f"up: init is process {init_pid}")
        first = await ended.get()
    code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    children.remove(first)
    if first == kernel_pid:
        raise BootFailure(f"the kernel simulation ended with {code} (see this node's log)")
    if code not in (REBOOT, OFF):
        raise BootFailure(f"init ended with {code} (see this node's log)")
    log("down for reboot" if code == REBOOT else "powered off")
    status.set("rebooting" if code == REBOOT else "off")
    return code


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def load_spec(node_dir: Path) -> dict[str, Any]:
    """The node's spec.json as a dict."""
    return json.loads((node_dir / "spec.json").read_text(encoding="utf-8"))
